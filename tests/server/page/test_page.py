"""The server's page in headless Chromium, against a real server with the model that ships."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from playwright.sync_api import expect
from support.servers import browser as chromium
from support.servers import servers
from support.servers.browser import ENDLESS, forced

import pyggml.server
from pyggml.server import Settings
from pyggml.server.settings.options import ModelSpec

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from support.servers.browser import Visit

# What a model must not be able to do, in Markdown and in HTML, among what it may.
HOSTILE = """# A title

Some <b>bold</b> <script>alert(1)</script> text & &lt;more&gt;, **strong** `code <b>`.

<script>alert(2)</script>

<img src=x onerror=alert(3)>

![picture](http://example.com/tracker.png) [bad](javascript:alert(4)) [worse](data:text/html,<script>alert(5)</script>)

[good](https://example.com/there) <svg onload=alert(6)> [mail](mailto:a@example.com) [here](/v1/models)

<iframe src="https://example.com"></iframe>

| a | b |
|---|--:|
| 1 | <img src=x onerror=alert(7)> |

- one
  1. [ ] <a href="javascript:alert(8)">two</a>

```html
<script>alert(9)</script>
```
"""


@pytest.mark.slow
def test_a_conversation_of_two_turns_streams(visit: Visit) -> None:
    visit.set(temperature=0)
    # So slow that it takes frames to arrive, on a busy machine too.
    session = visit.page.context.new_cdp_session(visit.page)
    slow = {"offline": False, "latency": 0, "downloadThroughput": 30_000, "uploadThroughput": -1}
    session.send("Network.emulateNetworkConditions", slow)
    visit.page.evaluate(
        """() => {
            window.sizes = new Set();
            const look = () => sizes.add(document.querySelector("article.answer > .markdown")?.innerText.length);
            new MutationObserver(look).observe(document.querySelector("#transcript"), {childList: true, subtree: true});
        }"""
    )
    first = visit.ask("Tell me a story about a dog.")
    assert visit.page.evaluate("sizes.size") > 3
    session.send("Network.emulateNetworkConditions", {**slow, "downloadThroughput": -1})
    second = visit.ask("Tell me another one.")
    assert visit.answers.count() == 2
    tokens: list[int] = []
    for body, shown in zip(visit.bodies, (first, second), strict=True):
        plain = {key: value for key, value in body.items() if not key.startswith("stream")}
        told = httpx.post(f"{visit.url}/v1/chat/completions", json=plain, timeout=60).json()
        assert shown == told["choices"][0]["message"]["content"].strip()
        tokens.append(told["usage"]["completion_tokens"])
    assert [each["role"] for each in visit.bodies[1]["messages"]] == ["user", "assistant", "user"]
    assert visit.bodies[1]["messages"][1]["content"].strip() == first
    figures = visit.answer.locator(".figures").inner_text()
    assert re.fullmatch(rf"{tokens[-1]} tokens · [\d.]+ tokens/s · first after [\d.]+ m?s", figures)


@pytest.mark.slow
def test_an_answer_is_stopped_in_the_middle(visit: Visit) -> None:
    visit.set(more=ENDLESS)
    visit.say("Tell me a story.")
    visit.page.wait_for_selector("article.answer > .markdown > p")
    assert visit.page.inner_text("#send") == "Stop"
    visit.page.keyboard.press("Escape")
    shown = visit.wait()
    assert shown
    assert re.search(r"about \d+ tokens .*stopped$", visit.answer.locator(".figures").inner_text())
    assert visit.page.inner_text("#send") == "Send"
    # The server has stopped, too: a model with one sequence would not answer otherwise.
    assert httpx.post(f"{visit.url}/v1/completions", json={"prompt": "Once", "max_tokens": 1}).status_code == 200
    visit.page.wait_for_timeout(200)
    assert visit.text() == shown
    visit.set(more="", max_tokens=5)
    assert visit.ask("Another one.")
    sent = visit.bodies[-1]["messages"][1]["content"]
    words = re.compile("[a-z]+")  # such an answer is not even Markdown
    assert words.findall(sent) == words.findall(shown)


@pytest.mark.slow
def test_an_answer_is_asked_for_again(visit: Visit) -> None:
    visit.set(seed=1, temperature=1.5, max_tokens=40)
    first = visit.ask("Tell me a story.")
    visit.set(seed=2)
    visit.answer.get_by_role("button", name="Regenerate").click()
    second = visit.wait()
    assert visit.answers.count() == 1
    assert second != first
    assert visit.bodies[0]["messages"] == visit.bodies[1]["messages"]
    visit.set(seed=1)
    visit.answer.get_by_role("button", name="Regenerate").click()
    assert visit.wait() == first


@pytest.mark.slow
def test_settings_are_sent_and_change_the_answer(visit: Visit) -> None:
    visit.ask("Hello")
    assert set(visit.bodies[0]) == {"model", "messages", "stream", "stream_options"}
    numbers = {"temperature": 0.5, "top_k": 7, "top_p": 0.9, "min_p": 0.02, "repeat_penalty": 1.1, "seed": 3}
    visit.set(system="You are short.", max_tokens=3, more='{"ignore_eos": true}', **numbers)
    visit.ask("Hello again")
    body = visit.bodies[1]
    assert {name: body[name] for name in numbers} == numbers
    assert (body["max_tokens"], body["ignore_eos"]) == (3, True)
    assert body["messages"][0] == {"role": "system", "content": "You are short."}
    figures = visit.answer.locator(".figures").inner_text()
    assert figures.startswith("3 tokens")
    assert figures.endswith("cut at its limit of tokens")
    # A new conversation begins with them; an empty field is the server's again.
    visit.page.click("#new")
    visit.set(top_k="", max_tokens=2)
    visit.ask("Hello")
    assert "top_k" not in visit.bodies[2]
    assert visit.bodies[2]["temperature"] == 0.5


@pytest.mark.slow
def test_settings_that_are_no_json_are_not_kept(visit: Visit) -> None:
    visit.page.click("#settings")
    for wrong in ("{", "5", "[]", "null"):
        visit.page.fill("[name=more]", wrong)
        visit.page.click("dialog .main")
        assert "More fields" in visit.page.inner_text("dialog .problem")
    visit.page.keyboard.press("Escape")
    expect(visit.page.locator("dialog")).to_have_count(0)
    visit.set(temperature=-5)
    visit.say("Hello")
    problem = visit.page.locator(".problem >> visible=true")
    problem.wait_for()
    assert "temperature" in problem.inner_text()
    visit.check("status of 400")


@pytest.mark.slow
def test_conversations_stay_where_they_are(visit: Visit) -> None:
    visit.set(max_tokens=10)
    first = visit.ask("The first one")
    visit.page.click("#new")
    second = visit.ask("The second one")
    titles = visit.page.locator("#list button")
    assert titles.all_inner_texts() == ["The second one", "The first one"]
    visit.open()
    assert titles.all_inner_texts() == ["The second one", "The first one"]
    assert visit.text() == second
    titles.nth(1).click()
    assert visit.text() == first
    visit.open()
    assert visit.text() == first
    # It goes on where it was.
    visit.ask("And then?")
    assert [each["content"].strip() for each in visit.bodies[-1]["messages"]] == ["The first one", first, "And then?"]
    assert visit.bodies[-1]["max_tokens"] == 10


@pytest.mark.slow
def test_conversations_are_renamed_exported_and_deleted(visit: Visit) -> None:
    visit.set(max_tokens=10, system="Be kind.")
    answer = visit.ask("The first one")
    visit.page.click("#rename")
    visit.page.fill("dialog input", "A <b>new</b> name")
    visit.page.keyboard.press("Enter")
    expect(visit.page.locator("#title")).to_have_text("A <b>new</b> name")
    with visit.page.expect_download() as downloading:
        visit.page.click("#export")
    assert downloading.value.suggested_filename == "A-b-new-b-name.json"
    found = json.loads(Path(downloading.value.path()).read_text())
    assert found["title"] == "A <b>new</b> name"
    assert [(each["role"], each["content"].strip()) for each in found["messages"]] == [
        ("system", "Be kind."),
        ("user", "The first one"),
        ("assistant", answer),
    ]
    # What is exported can be sent as it is.
    assert httpx.post(f"{visit.url}/v1/chat/completions", json=found).status_code == 200
    visit.page.click("#delete")
    visit.page.click("dialog >> text=Cancel")
    assert visit.page.locator("#list button").count() == 1
    visit.page.click("#delete")
    visit.page.click("dialog .main")
    expect(visit.page.locator("#list button")).to_have_count(0)
    visit.open()
    assert visit.answers.count() == 0


@pytest.mark.slow
def test_questions_are_edited_and_deleted(visit: Visit) -> None:
    visit.set(max_tokens=5)
    visit.ask("One")
    visit.ask("Two")
    questions = visit.page.locator("article.question")
    questions.last.get_by_role("button", name="Edit").click()
    visit.page.fill("article textarea", "Two and a half")
    visit.page.click("article >> text=Ask again")
    visit.wait()
    assert [each["content"] for each in visit.bodies[-1]["messages"]][::2] == ["One", "Two and a half"]
    questions.last.get_by_role("button", name="Delete").click()
    visit.page.click("dialog .main")
    expect(questions).to_have_count(1)
    visit.open()
    assert visit.answers.count() == 1


@pytest.mark.slow
def test_what_a_model_writes_stays_text(visit: Visit) -> None:
    visit.set(more=forced(HOSTILE))
    visit.ask("Attack me.")
    shown = visit.answer.locator("> .markdown")
    assert shown.locator("script, img, svg, iframe, b, style, [onerror], [onload]").count() == 0
    assert shown.locator("a").evaluate_all("all => all.map((a) => [a.href, a.target, a.rel])") == [
        ["http://example.com/tracker.png", "_blank", "noopener noreferrer"],
        ["https://example.com/there", "_blank", "noopener noreferrer"],
        ["mailto:a@example.com", "_blank", "noopener noreferrer"],
    ]
    text = shown.inner_text()
    for number in (1, 2, 4, 5, 6, 8, 9):
        assert f"alert({number})" in text
    for seen in ("<img src=x onerror=alert(3)>", "<iframe src=", "text & <more>,", "[here](/v1/models)"):
        assert seen in text
    assert shown.locator("h3").inner_text() == "A title"
    assert shown.locator("p code").inner_text() == "code <b>"
    assert shown.locator("pre code").inner_text() == "<script>alert(9)</script>"
    assert shown.locator("td").all_inner_texts() == ["1", "<img src=x onerror=alert(7)>"]
    assert shown.locator("ul > li > ol > li").inner_text().startswith("☐")
    # Nothing ran, here or after it was kept: alerts are problems, and so are requests that the policy refuses.
    visit.open()
    assert visit.text() == text


@pytest.mark.slow
def test_everything_is_done_by_keyboard(visit: Visit) -> None:
    page = visit.page

    def focused() -> str:
        return str(page.evaluate("(document.activeElement.id || document.activeElement.textContent).trim()"))

    def tab_to(name: str) -> None:
        for _ in range(40):
            if focused() == name:
                return
            page.keyboard.press("Tab")
            if focused() != "":
                outline = page.evaluate("parseFloat(getComputedStyle(document.activeElement).outlineWidth)")
                assert outline >= 2, f"the focus of {focused()} cannot be seen"
        pytest.fail(f"{name} cannot be reached")

    expect(page.locator("#prompt")).to_be_focused()
    tab_to("settings")
    page.keyboard.press("Enter")
    for text in ("Be kind.", "0", "5"):
        page.keyboard.type(text)
        page.keyboard.press("Tab")
    tab_to("Save settings")
    page.keyboard.press("Enter")
    expect(page.locator("#settings")).to_be_focused()
    tab_to("prompt")
    page.keyboard.type("One line")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("and another")
    page.keyboard.press("Enter")
    visit.wait()
    assert visit.bodies[0]["messages"][1]["content"] == "One line\nand another"
    assert (visit.bodies[0]["temperature"], visit.bodies[0]["top_k"]) == (0, 5)
    expect(page.locator("#prompt")).to_be_focused()
    tab_to("Regenerate")
    page.keyboard.press("Enter")
    visit.wait()
    assert len(visit.bodies) == 2
    tab_to("delete")
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    expect(page.locator("#delete")).to_be_focused()
    tab_to("new")
    page.keyboard.press("Enter")
    expect(page.locator("#prompt")).to_be_focused()
    tab_to("One line and another")
    page.keyboard.press("Enter")
    assert visit.answers.count() == 1


@pytest.mark.slow
def test_those_who_listen_hear_the_answer(visit: Visit) -> None:
    visit.set(max_tokens=10)
    shown = visit.ask("Hello")
    assert " ".join(visit.page.inner_text("#status").split()) == " ".join(f"The answer: {shown}".split())
    names = visit.page.locator("button, input, select, textarea").evaluate_all(
        "all => all.map((e) => e.ariaLabel || e.textContent.trim() || e.labels?.[0]?.textContent.trim())"
    )
    assert all(names)


@pytest.mark.slow
def test_an_answer_goes_on_while_another_conversation_is_open(visit: Visit) -> None:
    visit.set(more=ENDLESS, max_tokens=300, seed=1)
    visit.say("The first one")
    visit.page.wait_for_selector("article.answer > .markdown > p")
    visit.page.click("#new")
    visit.set(more="", max_tokens=5)
    visit.ask("The second one")
    visit.page.click("#list >> text=The first one")
    assert len(visit.wait().split()) > 100
    assert visit.answer.locator(".figures").inner_text().startswith("300 tokens")


@pytest.mark.slow
def test_what_came_before_a_reload_is_kept(visit: Visit) -> None:
    visit.set(more=ENDLESS, seed=1)
    visit.say("Tell me a story.")
    visit.page.wait_for_selector("article.answer > .markdown > p")
    assert visit.page.get_by_role("button", name="Edit, and ask again").count() == 0
    visit.page.wait_for_timeout(1500)
    visit.open()
    assert len(visit.text()) > 100
    assert "has not ended" in visit.answer.locator(".problem").inner_text()
    visit.set(more="", max_tokens=5)
    visit.answer.get_by_role("button", name="Try again").click()
    visit.wait()
    assert visit.answer.locator(".problem").is_hidden()


@pytest.mark.slow
def test_reasoning_is_folded(thinking_path: Path, browser: Browser) -> None:
    settings = Settings(models=(ModelSpec(str(thinking_path)),))
    with servers.serving(pyggml.server.create_app(settings)) as url, chromium.visit(browser, url) as visit:
        visit.set(more=forced("I *think* so.\n</think>\n\nYes, <b>I</b> do."))
        assert visit.ask("Think.") == "Yes, <b>I</b> do."
        folded = visit.answer.locator("details.reasoning")
        assert folded.evaluate("(each) => each.open") is False
        folded.locator("summary").press("Enter")
        assert folded.locator(".markdown p").inner_html() == "I <em>think</em> so."
        # It is shown, but not sent.
        visit.ask("And now?")
        assert "think" not in json.dumps(visit.bodies[1]["messages"])


@pytest.mark.slow
def test_two_tabs_see_the_same(browser: Browser, page_url: str) -> None:
    with chromium.visit(browser, page_url) as visit:
        other = visit.page.context.new_page()
        other.goto(page_url)
        visit.set(max_tokens=5)
        shown = visit.ask("Hello from the other tab")
        other.click("#list >> text=Hello from the other tab")
        expect(other.locator("article.answer > .markdown")).to_have_text(shown)
