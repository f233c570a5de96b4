"""Guidance's model for llama-cpp-python, which calls the C API for logits and its class for the rest."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Literal

import guidance
import llama_cpp
import pytest
from guidance import assistant, gen, models, select, user
from pydantic import BaseModel


class Pet(BaseModel, extra="forbid"):
    name: Literal["Tom", "Rex"]
    age: Literal[1, 2, 3]


@pytest.fixture(scope="module")
def llama(demo_path: str) -> Iterator[llama_cpp.Llama]:
    with llama_cpp.Llama(demo_path, n_ctx=512, n_threads=1, logits_all=True, verbose=False) as llama:
        yield llama


@pytest.fixture(scope="module")
def model(llama: llama_cpp.Llama) -> models.Model:
    return models.LlamaCpp(llama, echo=False, enable_monitoring=False)


def test_text_choices_and_expressions(model: models.Model) -> None:
    done = model + "The sky is " + select(["blue", "green"], name="colour") + ", number " + gen("n", regex=r"\d{3}")
    assert re.fullmatch(r"The sky is (blue|green), number \d{3}", str(done))


def test_a_greedy_text(model: models.Model, llama: llama_cpp.Llama) -> None:
    done = model + "Once upon a time" + gen("text", max_tokens=12, temperature=0)
    assert done["text"] == llama("Once upon a time", max_tokens=12, temperature=0)["choices"][0]["text"]


def test_chat(model: models.Model) -> None:
    with user():
        model += "What colour is the sky?"
    with assistant():
        model += gen("answer", max_tokens=20, temperature=0)
    assert model["answer"] == "The sky is blue."


def test_json(model: models.Model) -> None:
    done = model + "A pet as JSON: " + guidance.json("pet", schema=Pet, temperature=0)
    assert Pet(**json.loads(done["pet"]))


def test_a_path(demo_path: str) -> None:
    model = models.LlamaCpp(demo_path, echo=True, n_ctx=256)
    assert (model + "The sky is" + gen("text", max_tokens=2, temperature=0))["text"]
