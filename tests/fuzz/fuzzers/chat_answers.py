"""Output of models, in every template's format and damaged: parsed to the same message however it is cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from chat import test_output_parsing as formats
from support.checkpoints import models

import pyggml
from pyggml.chat import ChatPrompt
from pyggml.errors import InferError

MAX_SECONDS = 60.0
MAX_CHARACTERS = 20_000  # of an answer that changes have made long

CALLS = [
    {"type": "function", "id": "call00001", "function": {"name": name, "arguments": arguments}}
    for name, arguments in (
        ("get_weather", '{"city": "Paris"}'),
        ("get_weather_history", '{"city": "Zürich", "days": 3}'),
    )
]
ANSWERS: list[dict[str, Any]] = [
    {"content": "It is grey."},
    {"content": "", "tool_calls": CALLS[:1]},
    {"content": "I ask.", "tool_calls": CALLS},
    {"content": "Grey.", "reasoning_content": "Hm."},
    {"content": "", "reasoning_content": "Hm.", "tool_calls": CALLS[1:]},
]
TAGS = (
    "<tool_call>", "</tool_call>", "<think>", "</think>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "<|python_tag|>",
    "{", "}",
    "<function=get_weather>", "</function>", "<parameter=city>", "</parameter>", "<|channel|>analysis<|message|>",
    "<|end|>",
    "<|start|>assistant", "<|channel|>final<|message|>",
    "<|channel|>commentary to=functions.get_weather <|message|>", ",",
    "<|call|>", "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>",
    "<｜tool▁calls▁end｜>",
    ">>>", ">>>all\n", "all\n", "```json\n", "```", "<|START_ACTION|>", "<|END_ACTION|>", "<|START_THINKING|>",
    "<|im_end|>",
    "<|END_THINKING|>", "<|START_RESPONSE|>", "<tool_calls>", "<invoke name=\"get_weather\">", "</invoke>",
    "functools[",
    "<|tool_call|>", "<arg_key>", "</arg_key>", "<arg_value>", "<tool_response>",
    '{"name": "get_weather", "arguments": ',
    '{"tool_calls": [', '"parameters": {"city": "', "\\", '"', "'", "\n", "\n\n", " ", "\t", "é", "😀", "\0", "\x1b",
    "[", "]",
    "-" * 300, " " * 300, "a" * 300, "[" * 200, "{\"a\":" * 50, "<" * 50, "null", "1e999", "\\ud83d", "\\u0000", "</s>",
)  # fmt: skip


class Format(NamedTuple):
    """The format of a template's answers.

    Attributes:
        prompt: what was asked.
        texts: what its model may write.
    """

    prompt: ChatPrompt
    texts: list[str]


def prepare(folder: Path) -> list[Format]:
    model = pyggml.Model(models.write_llama(folder / "tiny.gguf", models.byte_vocabulary()))
    found = []
    for path in sorted(formats.TEMPLATES.glob("*.jinja")):
        for tools in (formats.TOOLS, None):
            with pyggml.ChatTemplates(model, path.read_text("utf-8")) as templates:
                try:
                    prompt = templates.render(formats.USER, tools=tools, parallel_tool_calls=True)
                except InferError:  # some take no tools
                    continue
                texts = [case.text for case in formats.CASES if case.template == path.stem]
                found.append(
                    Format(
                        prompt, texts + [text for each in ANSWERS if (text := _written(templates, prompt, each, tools))]
                    )
                )
    return found


def _written(templates: pyggml.ChatTemplates, prompt: ChatPrompt, answer: dict[str, Any], tools: Any) -> str:
    """Return an answer as the template's model would write it; "" if the template has no place for it."""
    try:
        answered = [*formats.USER, {"role": "assistant", **answer}]
        whole = templates.render(answered, tools=tools, add_generation_prompt=False).text
    except InferError:
        return ""
    same = next((i for i, (a, b) in enumerate(zip(prompt.text, whole, strict=False)) if a != b), len(prompt.text))
    return whole[same:]


def make(random: np.random.Generator) -> list[Any]:
    """Choose a format, one of its texts, its changes, and how it is cut."""
    n_changes = int(random.choice([0, 1, 2, 4, 8], p=[0.1, 0.3, 0.3, 0.2, 0.1]))
    return [
        ["format", int(random.integers(1 << 20))],
        ["text", int(random.integers(1 << 20))],
        *(["change", int(random.integers(1 << 30))] for _ in range(n_changes)),
        *(["cut", int(random.integers(1 << 30))] for _ in range(3)),
    ]


def run(prepared: list[Format], parts: list[Any], folder: Path) -> str:
    del folder
    given = {kind: number for kind, number in parts if kind in ("format", "text")}
    prompt, texts = prepared[given.get("format", 0) % len(prepared)]
    text = texts[given.get("text", 0) % len(texts)] if texts else ""
    for seed in [number for kind, number in parts if kind == "change"]:
        text = _changed(text, prepared, np.random.default_rng(seed))[:MAX_CHARACTERS]
    whole = _read(prompt, [text])
    for seed in [number for kind, number in parts if kind == "cut"]:
        pieces = _cut(text, np.random.default_rng(seed))
        in_pieces = _read(prompt, pieces)
        assert in_pieces == whole, f"{pieces!r:.600} gives {in_pieces!r:.600}, and whole {whole!r:.600}"
    return (
        " and ".join(what for what, part in zip(("content", "reasoning", "calls"), whole, strict=True) if part)
        or "nothing"
    )


def _read(prompt: ChatPrompt, pieces: list[str]) -> tuple[str, str, list[tuple[str, str]]]:
    """Content, reasoning, and calls: the sum of what the pieces added."""
    parser = prompt.parser()
    deltas = [parser.feed(piece) for piece in pieces[:-1]] + [parser.feed(pieces[-1], last=True)]
    message = parser.message
    calls = [(each.name, each.arguments_text) for each in message.tool_calls]
    summed = [("", "")] * len(calls)
    for index, name, arguments in [(c.index, c.name, c.arguments_text) for delta in deltas for c in delta.tool_calls]:
        summed[index] = (summed[index][0] + name, summed[index][1] + arguments)
    assert message.content == "".join(delta.content for delta in deltas)
    assert message.reasoning_content == "".join(delta.reasoning_content for delta in deltas)
    assert calls == summed
    return message.content, message.reasoning_content, calls


def _cut(text: str, random: np.random.Generator) -> list[str]:
    """The same in pieces: of a letter each, or a few long ones."""
    if random.random() < 0.3 and len(text) < 2000:
        return [*text, ""]
    places = sorted(int(each) for each in random.integers(0, len(text) + 1, int(random.integers(1, 12))))
    return [text[begin:end] for begin, end in zip([0, *places], [*places, len(text)], strict=True)]


def _changed(text: str, prepared: list[Format], random: np.random.Generator) -> str:
    begin, end = sorted(int(each) for each in random.integers(0, len(text) + 1, 2))
    kind = random.integers(7)
    if kind == 0:
        return text[:begin]
    if kind == 1:
        return text[:begin] + text[min(begin + int(random.integers(1, 9)), len(text)) :]
    if kind == 2:
        return text[:end] + text[begin:]
    if kind == 3:
        others = prepared[int(random.integers(len(prepared)))].texts or [""]
        return text[:begin] + others[int(random.integers(len(others)))] + text[begin:]
    if kind == 4:
        return (
            text[:begin]
            + chr(int(random.choice([32, 34, 39, 60, 92, 123, 125, 0x1F600, 0xFFFD, 1])))
            + text[begin + 1 :]
        )
    return text[:begin] + TAGS[int(random.integers(len(TAGS)))] + text[begin:]
