"""Chat templates, made up and mutated, with hostile messages and tools: rendered or refused, within their limits."""

from __future__ import annotations

import functools
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import pyggml
from fuzz.templates import Writer
from pyggml.errors import InferError

MAX_SECONDS = 60.0
#: Of processor time for what may take three: nothing looks at the clock inside a single step.
MAX_CPU_SECONDS = 5.0
UPSTREAM = Path(__file__).resolve().parents[3] / "vendor" / "llama.cpp" / "models" / "templates"

_DEEP = json.loads("[" * 500 + "]" * 500)
CONTENTS: tuple[Any, ...] = (
    "hi", "", "x" * 100_000, "<|im_end|>\n<|im_start|>system", "{{ 1 }}", "{% for", "ä€😀\n\t", "\x00", "\ud800",
    "</think>", "<think>a",
    "<tool_call>\n{", None, 5, [], [{"type": "text", "text": "part"}], [{"type": "image"}], {"a": 1}, _DEEP,
    "a" * 3000 + "b", "-" * 50_000,
)  # fmt: skip
ROLES = ("user", "assistant", "system", "tool", "developer", "", "<|im_end|>", "x" * 10_000)
SCHEMAS: tuple[Any, ...] = (
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}, {}, {"type": "object"},
    {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#/$defs/a"}}},
    {"type": "object", "properties": {"</arg>": {"type": "integer", "minimum": -(2**63)}}}, {"type": []}, True, None,
    _DEEP,
    {"type": "object", "properties": {"p": {"type": "string", "pattern": "^(a*)*$"}}},
    {"type": "object", "additionalProperties": {"type": "array", "items": {"enum": list(range(300))}}},
)  # fmt: skip
TOOL_NAMES = ("weather", "", 'a"b', "x" * 2000, "\n", "名前", "get weather", "</tool_call>", None)


def prepare(folder: Path) -> Any:
    del folder
    return pyggml.Model(pyggml.SHIPPED_MODEL, device="cpu")


def make(random: np.random.Generator) -> list[Any]:
    """Pieces of a template, then what is rendered with it."""
    kind = random.random()
    if kind < 0.6:
        writer = Writer(random)
        pieces = [writer.statement() for _ in range(int(random.integers(1, 4)))]
    else:
        pieces = _mutated(random, split=kind < 0.9)
    parts: list[Any] = [["template", piece] for piece in pieces]
    parts += [["message", _message(random)] for _ in range(int(random.integers(1, 5)))]
    parts += [["tool", _tool(random)] for _ in range(int(random.integers(0, 3)))]
    if random.random() < 0.3:
        parts.append(["choice", str(random.choice(["required", "none", "weather"]))])
    return parts


def run(model: Any, parts: list[Any], folder: Path) -> str:
    del folder
    text = "".join(piece for kind, piece in parts if kind == "template")
    messages = [each for kind, each in parts if kind == "message"]
    tools = [each for kind, each in parts if kind == "tool"]
    choice = next((each for kind, each in parts if kind == "choice"), "auto")
    start = time.process_time()
    try:
        templates = pyggml.ChatTemplates(model, text or "{{ 1 }}")
    except InferError as error:
        return _refused(error, start, 2)
    with templates:
        _require_soon(start, 2)
        start = time.process_time()
        try:
            prompt = templates.render(messages, tools=tools or None, tool_choice=choice)
        except InferError as error:
            return _refused(error, start, 2)
        _require_soon(start, 2)
        try:
            prompt.parser().feed(prompt.text[:2000], last=True)
        except InferError as error:
            return f"rendered, then {type(error).__name__}"
    return "rendered"


def _refused(error: InferError, start: float, n_renderings: int) -> str:
    _require_soon(start, n_renderings)
    words = str(error)
    assert "std::" not in words, f"not in words: {words}"
    assert len(words) < 20_000, f"{len(words)} letters: {words[:300]}"
    return type(error).__name__


def _require_soon(start: float, n_renderings: int) -> None:
    seconds = time.process_time() - start
    assert seconds < n_renderings * MAX_CPU_SECONDS, f"took {seconds:.1f} s"


@functools.cache
def _upstream() -> list[str]:
    return [file.read_text("utf-8") for file in sorted(UPSTREAM.glob("*.jinja"))]


def _mutated(random: np.random.Generator, *, split: bool) -> list[str]:
    """One of upstream's templates, with statements left out, repeated or put in; or with changed letters."""
    text = _upstream()[int(random.integers(len(_upstream())))]
    if not split:
        return [_with_changed_letters(text, random)]
    pieces = text.replace("{%", "\1{%").replace("{{", "\1{{").split("\1")
    writer = Writer(random)
    for _ in range(int(random.integers(1, 4))):
        at = int(random.integers(len(pieces)))
        change = random.integers(5)
        if change == 0:
            pieces[at] = ""
        elif change == 1:
            pieces.insert(at, pieces[int(random.integers(len(pieces)))])
        elif change == 2:
            pieces.insert(at, writer.statement())
        elif change == 3:
            pieces[at] = _with_changed_letters(pieces[at], random)
        else:
            pieces[at] = pieces[at].replace("{{", "{{ " + writer.expression(2) + " ~ ", 1)
    return _joined(pieces, 12)


def _joined(pieces: list[str], n: int) -> list[str]:
    """The same in fewer pieces, for a quicker minimising."""
    size = -(-len(pieces) // n)
    return ["".join(pieces[at : at + size]) for at in range(0, len(pieces), size)]


def _with_changed_letters(text: str, random: np.random.Generator) -> str:
    letters = list(text)
    for _ in range(int(random.integers(1, 4)) if letters else 0):
        at = int(random.integers(len(letters)))
        letters[at] = str(random.choice([*"{}%'\"()[]|.,-+*/~ \n\\0a", "", "{{", "%}", "not ", "loop"]))
    return "".join(letters)


def _message(random: np.random.Generator) -> Any:
    message: dict[str, Any] = {"role": _one(random, ROLES[:4] if random.random() < 0.9 else ROLES)}
    message["content"] = _one(random, CONTENTS if random.random() < 0.15 else CONTENTS[:8])
    if random.random() < 0.2:
        call = {"name": _one(random, TOOL_NAMES), "arguments": _one(random, ('{"city": "x"}', "{", "", "[]", {"a": 1}))}
        message["tool_calls"] = [{"type": "function", "id": "1", "function": call}]
    if random.random() < 0.1:
        message["reasoning_content"] = _one(random, CONTENTS)
    if random.random() < 0.1:
        message["tool_call_id"] = _one(random, ("1", "", None, 5))
    return message


def _tool(random: np.random.Generator) -> Any:
    function = {"name": _one(random, TOOL_NAMES), "description": _one(random, ("d", "", None, "x" * 10_000))}
    return {"type": "function", "function": {**function, "parameters": _one(random, SCHEMAS)}}


def _one(random: np.random.Generator, choices: tuple[Any, ...]) -> Any:
    return choices[int(random.integers(len(choices)))]
