"""Error messages of the server's page, in headless Chromium."""

from __future__ import annotations

import functools
import signal
from typing import TYPE_CHECKING

import httpx
import pytest
from playwright.sync_api import expect
from support.servers import browser as chromium
from support.servers import servers
from support.servers.browser import ENDLESS, LOAD

import pyggml.server
from pyggml.server import Settings

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from support.servers.browser import Visit


@pytest.mark.slow
def test_a_server_that_is_busy_says_so_and_is_asked_again(browser: Browser) -> None:
    settings = Settings(load={**LOAD, "max_queue": 1})
    body = {"messages": [{"role": "user", "content": "Hi"}], "ignore_eos": True, "stream": True}
    with servers.serving(pyggml.server.create_app(settings)) as url, chromium.visit(browser, url) as visit:
        visit.set(max_tokens=5)
        asked = functools.partial(httpx.stream, "POST", f"{url}/v1/chat/completions", json=body, timeout=60)
        with asked(), asked():
            visit.say("Hello")
            problem = visit.answer.locator(".problem")
            problem.wait_for()
        assert problem.inner_text().startswith("The server is busy.")
        assert "Try again in 1 s." in problem.inner_text()
        visit.check("status of 429")
        servers.eventually(
            lambda: httpx.post(f"{url}/v1/completions", json={"prompt": "a", "max_tokens": 1}).status_code == 200
        )
        problem.get_by_role("button", name="Try again").click()
        assert visit.wait()
        assert visit.answers.count() == 1
        assert visit.answer.locator(".problem").is_hidden()


@pytest.mark.slow
def test_a_server_with_keys_is_given_one(browser: Browser) -> None:
    app = pyggml.server.create_app(Settings(api_keys=("secret",)))
    with servers.serving(app) as url, chromium.visit(browser, url) as visit:
        page = visit.page
        page.fill("dialog input", "wrong")
        page.keyboard.press("Enter")
        notice = page.locator("#notice")
        expect(notice).to_contain_text("The server asks for an API key")
        visit.say("Hello")
        page.fill("dialog input", "secret")
        page.keyboard.press("Enter")
        expect(page.locator("#model")).to_be_enabled()
        assert visit.wait()
        assert notice.is_hidden()
        assert visit.answer.locator(".problem").is_hidden()
        visit.check("status of 401")
        visit.open()
        assert visit.ask("And again")
        kept = page.evaluate("[JSON.stringify(localStorage), JSON.stringify(sessionStorage)]")
        assert "secret" not in kept[0]
        assert "secret" in kept[1]


@pytest.mark.slow
def test_a_model_that_is_not_there_is_said(visit: Visit) -> None:
    visit.set(more='{"model": "nothing"}')
    visit.say("Hello")
    visit.answer.locator(".problem").wait_for()
    assert "does not have this model" in visit.answer.locator(".problem").inner_text()
    visit.check("status of 404")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "words"),
    [
        (signal.SIGKILL, "The connection was lost in the middle of the answer."),
        (signal.SIGTERM, "The server could not finish the answer."),
    ],
)
def test_a_server_that_ends_in_the_middle_is_said(number: int, words: str, browser: Browser) -> None:
    options = ("--ctx-size", "16384", "--parallel", "1", "--threads", "1", "--drain-timeout", "0")
    with servers.ServerProcess(*options) as server, chromium.visit(browser, server.url) as visit:
        visit.set(more=ENDLESS)
        visit.say("Hello")
        visit.page.wait_for_selector("article.answer > .markdown > p")
        server.stop(number)
        problem = visit.answer.locator(".problem")
        problem.wait_for()
        assert problem.inner_text().startswith(words)
        assert visit.text()
        problem.get_by_role("button", name="Try again").click()
        expect(problem).to_contain_text("cannot be reached")
        visit.check("ERR_")


@pytest.mark.slow
def test_no_room_in_the_browser_is_said(visit: Visit) -> None:
    session = visit.page.context.new_cdp_session(visit.page)
    session.send("Storage.overrideQuotaForOrigin", {"origin": visit.url, "quotaSize": 1})
    visit.set(max_tokens=5)
    assert visit.ask("Hello")
    notice = visit.page.locator("#notice")
    notice.wait_for()
    assert "no room left" in notice.inner_text()
    notice.locator("button").click()
    assert notice.is_hidden()
