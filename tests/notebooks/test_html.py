"""Results as HTML: complete, escaped, and plain enough for any notebook."""

from __future__ import annotations

import dataclasses
import html.parser
from typing import Any

import pytest

import pyggml

HOSTILE = "</div><script>alert(1)</script><img src=x onerror=\"alert('2')\"> &lt;b&gt; $x$ {{ 7*7 }} {% raw %}\x00"
TAGS = {"div", "table", "tr", "th", "td", "details", "summary"}
CALL = pyggml.ToolCall("1", f"call {HOSTILE}", f'{{"city": "{HOSTILE}"}}')


class Page(html.parser.HTMLParser):
    """Collects texts, and checks tags and attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS
        assert {name for name, _ in attrs} <= {"class", "style"}
        for _, value in attrs:
            assert "color" not in (value or "")
            assert "background" not in (value or "")
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def completion(**fields: Any) -> dict[str, Any]:
    timings = pyggml.Timings(prefill_s=0.25, decode_s=1.0, generated_tokens=5)
    values = {"text": HOSTILE, "token_ids": [1, 2, 3], "finish_reason": "stop", "stop_reason": HOSTILE}
    return {**values, "prompt_tokens": 1234, "cached_tokens": 12, "timings": timings, **fields}


def hostile_estimate() -> pyggml.MemoryEstimate:
    estimate = pyggml.inspect().estimate(n_ctx=512)
    device = dataclasses.replace(estimate.devices[0], name=HOSTILE, available_bytes=1)
    return dataclasses.replace(estimate, devices=(device,), type_k="q8_0")


MESSAGE = pyggml.ChatMessage(content=HOSTILE, reasoning_content=f"thought {HOSTILE}", tool_calls=[CALL])
PROBLEM = pyggml.Problem("error", "code", f"problem {HOSTILE}")


@pytest.mark.parametrize(
    ("result", "n_hostile"),
    [
        (pyggml.Completion(**completion()), 1),  # and in the stop reason, as a literal
        (pyggml.ChatCompletion(**completion(), message=MESSAGE), 4),
        (hostile_estimate(), 2),
    ],
    ids=["Completion", "ChatCompletion", "MemoryEstimate"],
)
def test_texts_are_escaped(result: Any, n_hostile: int) -> None:
    texts = "\n".join(Page(result._repr_html_()).texts)
    assert texts.count(HOSTILE) == n_hostile


def test_texts_of_files_are_escaped() -> None:
    """The sections of a report escape control characters themselves."""
    report = dataclasses.replace(pyggml.inspect(), name=HOSTILE, problems=(PROBLEM,), remarks=(HOSTILE,))
    texts = Page(report._repr_html_()).texts
    assert sum(HOSTILE.replace("\x00", "\\x00") in text for text in texts) == 3


def test_a_completion_shows_how_it_ended_and_its_counts() -> None:
    texts = Page(pyggml.Completion(**completion(text="  a\nb", stop_reason=2))._repr_html_()).texts
    assert "  a\nb" in texts
    assert "stop (token 2)" in texts
    assert "3 generated, 1,234 in the prompt, 12 from the cache" in texts
    assert "0.25 s to the first token, 4.0 tokens/s after it" in texts
    for reason, stop, expected in (("length", "max_tokens", "length (max_tokens)"), ("stop", ".", "stop ('.')")):
        page = pyggml.Completion(**completion(finish_reason=reason, stop_reason=stop))._repr_html_()
        assert expected in Page(page).texts
    bare = completion(text="", finish_reason="cancelled", stop_reason=None, timings=pyggml.Timings())
    assert "cancelled" in Page(pyggml.Completion(**bare)._repr_html_()).texts


def test_a_report_and_an_estimate_show_what_they_print() -> None:
    report = pyggml.inspect()
    texts = Page(report._repr_html_()).texts
    for section in report.sections():
        assert section.title in texts
        for name, value in section.rows:
            assert {name, value} <= {*texts}
            assert name in str(report)
            assert value in str(report)
    estimate = report.estimate(n_ctx=512)
    for text in (estimate.title, estimate.verdict, *(cell for row in estimate.rows for cell in row)):
        assert text in Page(estimate._repr_html_()).texts
        assert text in str(estimate)
    lacking = hostile_estimate()
    assert lacking.advice in str(lacking)
    assert "q8_0/f16" in lacking.title


def test_a_perplexity_shows_its_error() -> None:
    texts = Page(pyggml.Perplexity(12.34567, 0.25, 510, 2, 512)._repr_html_()).texts
    assert {"12.3457 ± 0.2500", "510 tokens scored, 2 chunks of 512 read"} <= {*texts}


def test_nothing_else_has_changed() -> None:
    """Chunks have no HTML, and it adds no field to the others."""
    assert not hasattr(pyggml.Chunk("a"), "_repr_html_")
    assert "html" not in str([*pyggml.Completion(**completion()).to_dict()])
