"""Conversations of all kinds with published chat templates: the prompt is what jinja2 renders, byte for byte."""

from __future__ import annotations

import copy
import functools
import json
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from support.checkpoints import hf_template, models

import pyggml
from fuzz.conversations import Writer
from fuzz.fuzzer import Finding
from pyggml.chat.jinja.quoted_text import QuotedText
from pyggml.chat.messages import checked_messages, map_texts, with_parsed_arguments
from pyggml.chat.rendering import PromptRenderer
from pyggml.errors import InvalidParameterError

MAX_SECONDS = 60.0
VENDORED = Path(__file__).resolve().parents[3] / "vendor" / "llama.cpp" / "models" / "templates"
#: Of the tokenizers that tools/published_tokenizers.py fetches, those with a template. They are left out where absent.
FETCHED = ("deepseek_v3", "gemini", "gemma3", "llama3_1", "qwen3")
#: Templates that transformers uses for conversations with tools only, so without tools they are given an empty list.
FOR_TOOLS = (
    "CohereForAI-c4ai-command-r-plus-tool_use", "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use",
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use",
)  # fmt: skip
#: Templates that read variables which pyggml adds: languages, the time.
OWN_VARIABLES = ("fireworks-ai-llama-3-firefunction-v2", "google-translategemma-4b-it")
#: What only the sandbox of transformers refuses: lists that a template appends to, and a generator written as JSON.
REFUSED_THERE = ("is not safely callable", "access to attribute", "generator is not JSON serializable")
#: Variables that templates read.
VARIABLES: tuple[tuple[str, Any], ...] = (
    ("enable_thinking", True), ("enable_thinking", False), ("thinking", True), ("thinking", False),
    ("reasoning_effort", "low"), ("reasoning_effort", "high"), ("preserve_thinking", True), ("keep_thinking", True),
    ("keep_past_thinking", True), ("truncate_history_thinking", False), ("add_vision_id", True),
    ("tools_in_user_message", False), ("xml_tools", [{"name": "é"}]), ("custom_tools", []),
    ("documents", [{"title": "T", "text": "48.8566101", "contents": ["a", "b"]}]), ("date_string", "26 Jul 2024"),
    ("builtin_tools", ["code_interpreter"]), ("model_identity", "You are é."), ("controls", {"length": 2}),
    ("available_tools", None), ("safety_mode", "strict"), ("citation_mode", "fast"), ("unk_token", "<unk>"),
)  # fmt: skip


def prepare(folder: Path) -> Any:
    return pyggml.Model(models.write_llama(folder / "tiny.gguf"), device="cpu").vocab


@functools.cache
def names() -> tuple[str, ...]:
    return (*sorted(path.stem for path in VENDORED.glob("*.jinja")), *FETCHED)


def make(random: np.random.Generator) -> list[Any]:
    """The name of a template, messages, tools and variables."""
    writer = Writer(random)
    parts: list[Any] = [["template", str(random.choice(names()))]]
    parts += [["message", message] for message in writer.messages()]
    if random.random() < 0.5:
        parts += [["tool", writer.tool()] for _ in range(int(random.integers(1, 4)))]
    for i in random.permutation(len(VARIABLES))[: int(random.integers(0, 4))]:
        parts.append(["variable", VARIABLES[int(i)]])
    return [*parts, ["begin", bool(random.random() < 0.7)]]


def run(vocab: Any, parts: list[Any], folder: Path) -> str:
    del folder
    name = next((each for kind, each in parts if kind == "template"), "Qwen-Qwen3-0.6B")
    written = [each for kind, each in parts if kind == "message"]
    tools = [each for kind, each in parts if kind == "tool"]
    begins = all(each for kind, each in parts if kind == "begin")
    found = renderer(name, vocab)
    if found is None:
        return "not fetched"
    if not written:
        return "no messages"
    variables = dict(each for kind, each in parts if kind == "variable" and is_read(found, each[0]))
    messages = with_parsed_arguments(checked_messages([dressed(message) for message in written]))
    try:
        text = found.text(messages, tools, variables, add_generation_prompt=begins)
    except InvalidParameterError as error:
        return refused(found, name, written, tools, variables, begins, str(error))
    taken, result = with_parsed_arguments(written), "same"
    if (rewritten := found.format.messages(copy.deepcopy(messages))) != taken:
        taken, result = rewritten, "same, rewritten"
    if name in OWN_VARIABLES:
        return "rendered with more"
    expected = reference(name, taken, tools, variables, begins)
    if isinstance(expected, Exception):
        if any(words in str(expected) for words in REFUSED_THERE):
            return "transformers refuses"
        raise Finding("rendered what jinja2 refuses", f"{name}: {type(expected).__name__}: {expected}")
    require_same(name, text, expected)
    quoted = map_texts(messages, QuotedText)
    require_same(f"{name}, quoted", found.text(quoted, tools, variables, add_generation_prompt=begins), expected)
    return result


def refused(
    found: PromptRenderer, name: str, written: list[Any], tools: list[Any], variables: Any, begins: bool, words: str
) -> str:
    """Require that jinja2 refuses it, too."""
    taken = found.format.messages(with_parsed_arguments(written))
    expected = reference(name, taken, tools, variables, begins)
    if isinstance(expected, str):
        raise Finding("refused what jinja2 renders", f"{name}: {words}")
    return "both refuse"


def require_same(name: str, text: str, expected: str) -> None:
    text = str.__str__(text)
    if text == expected:
        return
    at = next(
        (i for i, (a, b) in enumerate(zip(text, expected, strict=False)) if a != b), min(len(text), len(expected))
    )
    around = slice(max(at - 40, 0), at + 40)
    raise Finding("another prompt", f"{name}: {text[around]!r} instead of {expected[around]!r}")


def reference(name: str, messages: Any, tools: Any, variables: Any, begins: bool) -> str | Exception:
    """jinja2's text without the BOS that tokenizing adds, or its error."""
    template, tokens = compiled(name), {"bos_token": "<s>", "eos_token": "<|endoftext|>"}
    try:
        given = {
            "documents": None,
            **tokens,
            **variables,
            "messages": messages,
            "tools": tools or ([] if name in FOR_TOOLS else None),
        }
        text = template.render(**copy.deepcopy(given), add_generation_prompt=begins)
        return text.removeprefix(tokens["bos_token"])
    except (jinja2.TemplateError, TypeError, ValueError, LookupError, AttributeError, RecursionError) as error:
        return error


def is_read(found: PromptRenderer, variable: str) -> bool:
    try:
        found.require_known({variable: None})
    except InvalidParameterError:
        return False
    return True


def dressed(message: Any) -> Any:
    """The same message as servers and clients write it: arguments as JSON text, nulls and empty fields."""
    message = {"reasoning_content": None, "tool_calls": [], "name": None, "audio": None, "refusal": ""} | message
    calls = [
        {**call, "function": {**call["function"], "arguments": arguments_text(call["function"]["arguments"])}}
        for call in message["tool_calls"]
    ]
    return {**message, "tool_calls": calls}


def arguments_text(arguments: str) -> str | None:
    return arguments if arguments != "{}" else None


@functools.cache
def source(name: str) -> str | None:
    if name not in FETCHED:
        return (VENDORED / f"{name}.jinja").read_text("utf-8")
    path = pyggml.cache.cache_dir() / "published" / "tokenizers" / name / "tokenizer_config.json"
    return json.loads(path.read_text("utf-8"))["chat_template"] if path.exists() else None


@functools.cache
def renderer(name: str, vocab: Any) -> PromptRenderer | None:
    text = source(name)
    return None if text is None else PromptRenderer(text, vocab)


@functools.cache
def compiled(name: str) -> jinja2.Template:
    return hf_template.compiled(source(name) or "")
