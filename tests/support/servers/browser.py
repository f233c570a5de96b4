"""Headless Chromium, for the tests of the server's page: a page that reports its errors."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Dialog, Locator, Page, Request, expect, sync_playwright

# Waiting for a function is out: it is text that the page would have to evaluate, which its policy forbids.
expect.set_options(timeout=30_000)

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

#: Room for answers that take seconds, one at a time, and the same answer each time.
LOAD = {"n_ctx": 65536, "n_parallel": 1, "n_threads": 1, "prefix_cache": False}

#: More fields of a request whose answer does not end by itself.
ENDLESS = json.dumps({"ignore_eos": True, "temperature": 1.5})


def forced(text: str) -> str:
    """More fields of a request that leave the model nothing else to say."""
    return json.dumps({"grammar": f"root ::= {json.dumps(text)}"})


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """The system's Chromium. Skips the test where there is none; where CI is true, it must be there."""
    path = next(filter(None, map(shutil.which, _NAMES)), None)
    if path is None:
        message = f"no Chromium is installed ({', '.join(_NAMES)})"
        pytest.fail(message) if os.environ.get("CI") == "true" else pytest.skip(message)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path)
        try:
            yield browser
        finally:
            browser.close()


class Visit:
    """The server's page in a new profile.

    Attributes:
        page: the page.
        url: of the server.
        bodies: of the requests for answers, in their order.
        problems: errors in the console, exceptions and alerts.
    """

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.bodies: list[Any] = []
        self.problems: list[str] = []
        self._hosts: set[str] = set()
        page.set_default_timeout(30_000)
        page.on("request", self._requested)
        page.on("console", self._logged)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("dialog", self._alerted)
        self.open()

    def open(self) -> None:
        """Opens the page, and waits until it is ready."""
        self.page.goto(self.url)
        expect(self.page.locator("#model:enabled, dialog")).to_be_visible()  # a dialog that asks for a key, perhaps

    def check(self, *expected: str) -> None:
        """No error but the expected ones, each of which came, and no request to anybody else."""
        assert self._hosts == {urlsplit(self.url).netloc}
        for pattern in expected:
            assert any(re.search(pattern, problem) for problem in self.problems), (pattern, self.problems)
        others = [each for each in self.problems if not any(re.search(one, each) for one in expected)]
        assert not others, others
        self.problems.clear()

    @property
    def answers(self) -> Locator:
        """The answers, the latest last."""
        return self.page.locator("article.answer")

    @property
    def answer(self) -> Locator:
        """The latest answer."""
        return self.answers.last

    def text(self) -> str:
        """The text of the latest answer, without reasoning and figures."""
        return self.answer.locator("> .markdown").inner_text()

    def say(self, text: str) -> None:
        """Sends a message."""
        self.page.fill("#prompt", text)
        self.page.press("#prompt", "Enter")

    def wait(self) -> str:
        """Waits for the answer's end, and returns its text."""
        expect(self.answer).to_have_attribute("aria-busy", "false")
        return self.text()

    def ask(self, text: str) -> str:
        """Sends a message, and waits for the answer."""
        self.say(text)
        return self.wait()

    def set(self, **fields: str | float) -> None:
        """Changes settings, by the names of their fields."""
        self.page.click("#settings")
        for name, value in fields.items():
            self.page.fill(f"dialog [name={name}]", str(value))
        self.page.click("dialog .main")
        expect(self.page.locator("dialog")).to_have_count(0)

    def _logged(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.problems.append(message.text)

    def _alerted(self, dialog: Dialog) -> None:
        self.problems.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    def _requested(self, request: Request) -> None:
        if request.url.startswith(("http:", "https:", "ws:", "wss:")):
            self._hosts.add(urlsplit(request.url).netloc)
        if request.url.endswith("/v1/chat/completions"):
            self.bodies.append(request.post_data_json)


@contextlib.contextmanager
def visit(browser: Browser, url: str, **options: Any) -> Iterator[Visit]:
    """Open the page in a new profile. At the end, no errors may remain that the test has not checked."""
    context = browser.new_context(**options)
    try:
        found = Visit(context.new_page(), url)
        yield found
        found.check()
    finally:
        context.close()
