"""A template's own format of tool calls, learnt from how it renders one.

The engine finds out the format of most templates. Where it cannot parse what the template itself writes for a call in
the history, or its grammar forbids that, the format is read off that text, if it has the name, perhaps an id, and the
arguments as one JSON object.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from pyggml.chat.messages import JSONMessage
from pyggml.chat.prompts import ChatParser
from pyggml.errors import InvalidParameterError

#: Renders messages with tools, and with the beginning of an answer if True.
Render = Callable[[list[JSONMessage], list[dict[str, Any]], bool], str]

_NAME, _IDS, _RESULT = "pyggmlname", ("abcdef123", "abcdef124"), "pyggmlresult"
_KEY, _VALUE = "pyggmlkey", "pyggmlvalue"
_ARGUMENTS = re.compile(rf'\{{\s*"{_KEY}"\s*:\s*"{_VALUE}"\s*\}}')
_MARKUP = re.compile(r"<[|｜][^<>'\" ]+?[|｜]>|\[/?[A-Z_]+\]|</?[a-zA-Z_|]+>")
_CLOSING = re.compile(rf"[\s\])}}]*(?:{_MARKUP.pattern})")
#: A tool for the calls.
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": _NAME,
        "description": "f",
        "parameters": {"type": "object", "properties": {_KEY: {"type": "string", "description": "f"}}},
    },
}
_QUESTION: list[JSONMessage] = [{"role": "user", "content": "Hi"}]


@dataclass(frozen=True)
class CallFormat:
    """The texts around calls; see ``CallFormat`` in csrc/chat/chat.hpp."""

    section: str
    begin: str
    parts: list[str]
    behind: list[str]
    between: str
    section_end: str

    def as_json(self) -> dict[str, Any]:
        """Return the format as the engine's request has it."""
        texts = (self.section, self.begin, *self.behind, self.between, self.section_end)
        tokens = list(dict.fromkeys(token for text in texts for token in _MARKUP.findall(text)))
        first = _MARKUP.match(self.section + self.begin)
        return {**asdict(self), "tokens": tokens, "trigger": first[0] if first else self.section + self.begin}


def rendered_calls(render: Render, n: int) -> str | None:
    """Return what a template writes for calls in the history behind the beginning of an answer; None if it cannot."""
    calls = [
        {"id": id, "type": "function", "function": {"name": _NAME, "arguments": {_KEY: _VALUE}}} for id in _IDS[:n]
    ]
    results = [{"role": "tool", "tool_call_id": id, "name": _NAME, "content": _RESULT} for id in _IDS[:n]]
    answer = {"role": "assistant", "content": "", "tool_calls": calls}
    try:
        begun = render(_QUESTION, [TOOL], True)
        whole = render([*_QUESTION, answer, *results], [TOOL], False)
    except InvalidParameterError:
        return None
    return whole[len(begun) :].partition(_RESULT)[0] if whole.startswith(begun) else None


def reads_call(parser: ChatParser, text: str) -> bool:
    """Return True if a parser finds the call that :func:`rendered_calls` rendered."""
    parser.feed(text)
    parser.feed("", last=True)
    calls = parser.message.tool_calls
    return len(calls) == 1 and calls[0].name == _NAME and bool(_ARGUMENTS.fullmatch(calls[0].arguments_text))


def needed_part(written: str) -> str:
    """Return a rendered call up to the last of its name, id and arguments, which a grammar must allow."""
    found = _parts(written)
    return written[: len(written) - len(found[0][-1])] if found else ""


def call_format(render: Render) -> CallFormat | None:
    """Read the format off a rendered call; None if its parts are not found."""
    one, two = rendered_calls(render, 1), rendered_calls(render, 2)
    if not one or not two:
        return None
    first, second = _parts(one), _parts(two)
    if first is None or second is None:
        return None
    (begin, *behind), parts = first
    tail = behind.pop()
    next_part = {"name": _NAME, "id": _IDS[1], "arguments": "{"}[parts[0]]
    between = second[0][-1].partition(next_part)[0]
    n = _n_common_at_end(begin, between)
    section, begin, between = begin[: len(begin) - n].lstrip(), begin[len(begin) - n :], between[: len(between) - n]
    n_same = next((i for i, (a, b) in enumerate(zip(between, tail, strict=False)) if a != b), len(between))
    end = between[:n_same]
    if not begin or not all(behind) or (parts[-1] == "id" and not end):
        return None
    closing = _CLOSING.match(tail[len(end) :])
    section_end = closing[0] if closing else ""
    return CallFormat(section, begin, parts, [*behind, end], between[len(end) :], section_end)


def _parts(text: str) -> tuple[list[str], list[str]] | None:
    """Split what is written for the first call at its parts: the texts between them, and their names."""
    found = _ARGUMENTS.search(text)
    if not found or text[: found.start()].count(_NAME) != 1:
        return None
    places = [(text.index(_NAME), len(_NAME), "name"), (found.start(), len(found[0]), "arguments")]
    at = text.find(_IDS[0])
    if at >= 0 and not _MARKUP.search(text, found.end(), at):  # else it belongs to the result
        places.append((at, len(_IDS[0]), "id"))
    texts, end = [], 0
    for start, length, _ in sorted(places):
        texts.append(text[end:start])
        end = start + length
    return [*texts, text[end:]], [name for *_, name in sorted(places)]


def _n_common_at_end(a: str, b: str) -> int:
    """Count the common characters at the end, without parts of special tokens."""
    n = 0
    while n < min(len(a), len(b)) and a[-1 - n] == b[-1 - n]:
        n += 1
    inner = (token for token in _MARKUP.finditer(a) if token.start() < len(a) - n < token.end())
    return next((len(a) - token.end() for token in inner), n)
