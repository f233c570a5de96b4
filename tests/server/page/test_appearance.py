"""The server's page in headless Chromium: on phones, in dark mode, under a prefix, its plots, and its requests."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import httpx
import pytest
from playwright.sync_api import expect
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette
from starlette.routing import Mount
from support.servers import browser as chromium
from support.servers import servers
from support.servers.browser import LOAD, forced

import pyggml.server
from pyggml.server import Settings

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page
    from support.servers.browser import Visit


# What does not fit on a phone, unless it scrolls or breaks.
WIDE = f"""{"word" * 200} https://example.com/{"path" * 50}

| {"a long cell | " * 8}
|{"---|" * 8}
| {"another one | " * 8}

> > - > {"quoted " * 30}

```
{"a long line of code " * 30}
```
"""


@pytest.mark.slow
@pytest.mark.parametrize("width", [320, pytest.param(390, marks=pytest.mark.slow)])
def test_it_fits_on_a_phone(width: int, browser: Browser, page_url: str) -> None:
    size = {"width": width, "height": 640}
    with chromium.visit(browser, page_url, viewport=size, has_touch=True, is_mobile=True) as visit:
        visit.set(more=forced(WIDE))
        visit.ask("Write something wide: " + "wide" * 100)
        for view in ("#to-metrics", "#to-chat"):
            visit.page.click(view)
            assert visit.page.evaluate("document.documentElement.scrollWidth") == width
        assert visit.page.locator("#transcript").evaluate("(each) => each.scrollWidth <= each.clientWidth")
        for one in ("#send", "#settings", "#delete", "#model", "#to-metrics"):
            box = visit.page.locator(one).bounding_box()
            assert box is not None
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= width
        assert not visit.page.locator("#new").is_visible()
        visit.page.click("#menu")
        visit.page.click("#new")
        assert not visit.page.locator("#new").is_visible()
        assert visit.answers.count() == 0


@pytest.mark.slow
def test_it_is_dark_or_light_as_one_likes(browser: Browser, page_url: str) -> None:
    def lightness(page: Page) -> int:
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(map(int, re.findall(r"\d+", colour)[:3])) // 3

    with chromium.visit(browser, page_url, color_scheme="dark") as visit:
        assert lightness(visit.page) < 60
        visit.page.emulate_media(color_scheme="light")
        assert lightness(visit.page) > 200
        visit.page.select_option("#theme", "dark")
        assert lightness(visit.page) < 60
        visit.open()
        assert lightness(visit.page) < 60


@pytest.mark.slow
def test_nothing_moves_for_those_who_want_no_motion(browser: Browser, page_url: str) -> None:
    body = {"messages": [{"role": "user", "content": "Hi"}], "ignore_eos": True, "stream": True}
    for motion, moving in (("reduce", 0), ("no-preference", 1)):
        with (
            chromium.visit(browser, page_url, reduced_motion=motion) as visit,
            httpx.stream("POST", f"{page_url}/v1/chat/completions", json=body),
        ):
            visit.say("Hello")
            visit.page.wait_for_selector(".answer.waiting")
            assert visit.page.evaluate("document.getAnimations().length") == moving
            visit.page.click("#send")


@pytest.mark.slow
def test_the_metrics_are_plotted(browser: Browser) -> None:
    body = {"messages": [{"role": "user", "content": "Hi"}], "ignore_eos": True, "stream": True}
    app = pyggml.server.create_app(Settings(load=LOAD))
    with servers.serving(app) as url, chromium.visit(browser, url) as visit:
        visit.ask("Hello")
        asked = functools.partial(httpx.stream, "POST", f"{url}/v1/chat/completions", json=body, timeout=60)
        with asked(), asked():
            visit.page.click("#to-metrics")
            plots = visit.page.get_by_role("img")
            expect(plots.nth(1)).to_have_attribute("aria-label", "Answers: now running 1, queued 1; at most 1")
            expect(plots.nth(0)).to_have_attribute("aria-label", re.compile(r"^Tokens per second: now generated [1-9]"))
        expect(plots.nth(1)).to_have_attribute("aria-label", "Answers: now running 0, queued 0; at most 1")
        expect(plots.nth(3).locator("path").first).to_have_attribute("d", re.compile("^M"))
        heights = plots.nth(1).locator("path").first.get_attribute("d")
        assert heights is not None
        assert heights.startswith("M")
        assert " 0.0" in heights
        assert heights.endswith(" 100.0")
        assert visit.page.locator("figcaption").count() == plots.count() == 6
        visit.page.go_back()
        expect(visit.page.locator("#prompt")).to_be_visible()


@pytest.mark.slow
def test_events_are_read_however_they_are_cut(visit: Visit) -> None:
    sent = ': ping\r\n\r\ndata: {"a": "é😀"}\r\n\r\nevent: x\ndata:one\ndata: two\n\ndata: three\r\rdata: cut'
    for size in (1, 2, 3, 7, 1000):
        found = visit.page.evaluate(
            """async ([bytes, size]) => {
                const { eventData } = await import("./static/sse.js");
                const body = new ReadableStream({
                    start(control) {
                        for (let at = 0; at < bytes.length; at += size)
                            control.enqueue(new Uint8Array(bytes.slice(at, at + size)));
                        control.close();
                    },
                });
                const found = [];
                for await (const data of eventData(body)) found.push(data);
                return found;
            }""",
            [list(sent.encode()), size],
        )
        assert found == ['{"a": "é😀"}', "one\ntwo", "three"]


@pytest.mark.slow
def test_metrics_are_read_as_prometheus_reads_them(visit: Visit) -> None:
    visit.set(max_tokens=5)
    visit.ask("Hello")
    text = httpx.get(f"{visit.url}/metrics").text
    expected: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            expected[sample.name] = expected.get(sample.name, 0.0) + sample.value
    found = visit.page.evaluate(
        """async ([text, names]) => {
            const { Reading } = await import("./static/prometheus.js");
            const reading = new Reading(text, 0);
            return names.map((name) => reading.sum(name));
        }""",
        [text, list(expected)],
    )
    assert len(expected) > 20
    assert found == pytest.approx(list(expected.values()), nan_ok=True)


@pytest.mark.slow
@pytest.mark.parametrize("text", ["> " * 5000, "[" * 5000, "**a" * 3000, "- " * 3000, "`" * 4001 + "\n" + "|a" * 3000])
def test_text_that_is_hard_to_read_neither_hangs_nor_vanishes(text: str, browser: Browser, page_url: str) -> None:
    with chromium.visit(browser, page_url) as visit:
        shown = visit.page.evaluate(
            """async (text) => {
                const { MarkdownView } = await import("./static/markdown.js");
                const view = new MarkdownView();
                const began = performance.now();
                view.show(text);
                return [performance.now() - began, view.element.childNodes.length];
            }""",
            text,
        )
        assert shown[0] < 5000
        assert shown[1] > 0


@pytest.mark.slow
def test_it_works_under_a_prefix(browser: Browser) -> None:
    inner = pyggml.server.create_app(Settings(load=LOAD))

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with inner.router.lifespan_context(inner):
            yield

    app = Starlette(routes=[Mount("/llm", inner)], lifespan=lifespan)
    with servers.serving(app) as url, chromium.visit(browser, f"{url}/llm") as visit:
        assert visit.page.url == f"{url}/llm/"
        visit.set(max_tokens=5)
        assert visit.ask("Hello")
