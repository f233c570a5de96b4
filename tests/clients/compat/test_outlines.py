"""Outlines' model for llama-cpp-python: its logits processors choose the tokens."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Literal

import llama_cpp
import outlines
import pytest
from outlines.inputs import Chat
from pydantic import BaseModel

from pyggml.integrations.outlines import GrammarProcessor


class Pet(BaseModel, extra="forbid"):
    name: Literal["Tom", "Rex"]
    age: Literal[1, 2, 3]


@pytest.fixture(scope="module")
def llama(smollm2_path: str) -> Iterator[llama_cpp.Llama]:
    with llama_cpp.Llama(smollm2_path, n_ctx=512, n_threads=1, verbose=False) as llama:
        yield llama


@pytest.fixture(scope="module")
def model(llama: llama_cpp.Llama) -> Any:
    return outlines.from_llamacpp(llama)


def test_text(model: Any) -> None:
    assert model("What is the capital of France?", max_tokens=20, temperature=0).strip()


def test_choice(model: Any) -> None:
    assert model("Is the sky blue?", Literal["yes", "no"], max_tokens=5) in ("yes", "no")


@pytest.mark.parametrize("backend", ["outlines_core", "llguidance"])
def test_json(model: Any, backend: str) -> None:
    found = outlines.Generator(model, Pet, backend=backend)("A pet as JSON", max_tokens=60)
    assert isinstance(Pet(**json.loads(found)), Pet)


@pytest.mark.parametrize("backend", ["outlines_core", "llguidance"])
def test_regex(model: Any, backend: str) -> None:
    generator = outlines.Generator(model, outlines.regex(r"[0-9]{3}-[a-z]{2}"), backend=backend)
    text = generator("A code", max_tokens=20)
    assert text[:3].isdigit()
    assert text[3:4] == "-"
    assert len(text) == 6


def test_stream_is_the_text(model: Any) -> None:
    chat = Chat([{"role": "user", "content": "Name a fruit."}])
    options = {"max_tokens": 12, "temperature": 0, "seed": 1}
    assert "".join(model.stream(chat, **options)) == model(chat, **options)


def test_plain_prompts(llama: llama_cpp.Llama) -> None:
    model = outlines.from_llamacpp(llama, chat_mode=False)
    assert model("The colours are red,", Literal[" blue", " green"], max_tokens=4) in (" blue", " green")


def test_pyggmls_grammars(llama: llama_cpp.Llama, model: Any) -> None:
    generator = outlines.Generator(model, processor=GrammarProcessor(Pet, llama.llm))
    found = [generator("A pet as JSON", max_tokens=60) for _ in range(2)]
    assert all(isinstance(Pet(**json.loads(each)), Pet) for each in found)
    code = outlines.Generator(model, processor=GrammarProcessor(outlines.regex("[0-9]{3}-[a-z]{2}"), llama.llm))
    assert re.fullmatch("[0-9]{3}-[a-z]{2}", code("A code", max_tokens=20))
