"""A template's own format of tool calls, learnt from how it renders one.

The engine finds out the format of most templates. Where it cannot parse what the template itself writes for a call in
the history, the format is read off that text, if it has the name, perhaps an id, and the arguments as one JSON object.
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
    end: str
    section_end: str

    def as_json(self) -> dict[str, Any]:
        """Return the format as the engine's request has it."""
        texts = (self.section, self.begin, *self.behind, self.end, self.section_end)
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


def call_format(render: Render) -> CallFormat | None:
    """Read the format off a rendered call; None if its parts are not found."""
    one, two = rendered_calls(render, 1), rendered_calls(render, 2)
    found = _ARGUMENTS.search(one or "")
    if not one or not found or one[: found.start()].count(_NAME) != 1:
        return None
    head = one[: found.start()]
    parts = sorted((part for part in (_NAME, _IDS[0]) if part in head), key=head.index)
    begin, *behind = re.split("|".join(parts), head)
    if len(behind) != len(parts) or not all(behind) or not begin:
        return None
    tail = one[found.end() :]
    section, end = "", tail
    arguments = list(_ARGUMENTS.finditer(two or ""))
    if two and len(arguments) == 2:
        between = two[arguments[0].end() : arguments[1].start()].partition(parts[0].replace(_IDS[0], _IDS[1]))[0]
        n = _n_common_at_end(begin, between)
        section, begin, end = begin[: len(begin) - n], begin[len(begin) - n :], between[: len(between) - n]
    if not begin or not tail.startswith(end):
        return None
    first = _MARKUP.match(tail[len(end) :])
    names = ["name" if part == _NAME else "id" for part in parts]
    return CallFormat(section, begin, names, behind, end, first[0] if first else "")


def _n_common_at_end(a: str, b: str) -> int:
    n = 0
    while n < min(len(a), len(b)) and a[-1 - n] == b[-1 - n]:
        n += 1
    return n
