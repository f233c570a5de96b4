"""Guidance's programs with pyggml's engine: its logits, roles and vocabulary."""

from __future__ import annotations

import json
import os
import re
import threading
from typing import Any, Literal

import guidance
import numpy as np
import pytest
from guidance import assistant, gen, models, select, system, user
from guidance.chat import UnsupportedRoleException
from pydantic import BaseModel

import pyggml
from pyggml.integrations.guidance import Pyggml, PyggmlEngine

SMOLLM2 = os.environ["PYGGML_TEST_MODEL"]
QUESTION, SAID = "What colour is the sky?", "The sky is blue."
EXACT = 1e-3


class Pet(BaseModel, extra="forbid"):
    name: Literal["Tom", "Rex"]
    age: Literal[1, 2, 3]


@pytest.fixture(scope="module")
def engine() -> PyggmlEngine:
    return PyggmlEngine(context_options={"n_ctx": 512, "n_threads": 1})


@pytest.fixture
def model(engine: PyggmlEngine) -> Pyggml:
    return Pyggml(engine, echo=False)


def test_text_choices_and_expressions(model: models.Model) -> None:
    done = model + "The sky is " + select(["blue", "green"], name="colour") + ", number " + gen("n", regex=r"\d{3}")
    assert done["colour"] in ("blue", "green")
    assert re.fullmatch(r"The sky is (blue|green), number \d{3}", str(done))
    assert str(model) == ""  # what is made of a model leaves it as it was


def test_chat_is_that_of_the_library(model: models.Model, engine: PyggmlEngine) -> None:
    with system():
        model += "Answer in one word."
    with user():
        model += QUESTION
    with assistant():
        model += gen("answer", max_tokens=20, temperature=0)
    assert model["answer"] == "Blue."
    prompt = engine.llm.chat_templates().render(
        [{"role": "system", "content": "Answer in one word."}, {"role": "user", "content": QUESTION}]
    )
    assert str(model).startswith(prompt.text)


def test_chat_of_a_published_model() -> None:
    engine = PyggmlEngine(SMOLLM2, {"n_ctx": 512}, context_options={"n_threads": 1})
    model = Pyggml(engine, echo=False)
    messages = []
    for question in ("Name a fruit.", "Name another one."):
        messages.append({"role": "user", "content": question})
        with user():
            model += question
        with assistant():
            model += gen("answer", max_tokens=8, temperature=0)
        messages.append({"role": "assistant", "content": model["answer"]})
    rendered = engine.llm.chat_templates().render(messages, add_generation_prompt=False).text
    assert str(model) in rendered  # which begins with the template's own system message


def test_json(model: models.Model) -> None:
    done = model + "A pet as JSON: " + guidance.json("pet", schema=Pet, temperature=0)
    assert Pet(**json.loads(done["pet"]))


def test_a_greedy_text_is_that_of_the_library(model: models.Model, engine: PyggmlEngine) -> None:
    done = model + "Once upon a time" + gen("text", max_tokens=12, temperature=0)
    assert done["text"] == engine.llm.generate("Once upon a time", max_tokens=12).text


def test_logits_after_any_text_that_came_before(engine: PyggmlEngine) -> None:
    """Texts that extend, cut and replace the last one, against a fresh context."""
    random = np.random.default_rng(0)
    text = [int(token) for token in random.integers(10, 2000, size=40)]
    texts = [text, text[:20], text[:20], [*text[:30], 5], text[5:], text, [*text, 7, 8]]
    with pyggml.Context(engine.llm.model, n_ctx=512, n_threads=1) as context:
        for each in texts:
            context.memory_clear()
            context.decode(each, output="all")
            expected = context.logits()
            found = engine.get_logits(each, include_all_uncached_tokens=True)["logits"]
            assert 1 <= len(found) <= len(each) + 1
            n = min(len(found), len(each))
            np.testing.assert_allclose(found[-n:], expected[-n:], atol=EXACT, rtol=EXACT)
            assert engine.get_logits(each)["logits"].shape == (1, len(engine.llm.model.vocab))


def test_threads_share_an_engine(engine: PyggmlEngine) -> None:
    found: dict[str, str] = {}

    def write(beginning: str) -> None:
        done = Pyggml(engine, echo=False) + beginning + gen("text", max_tokens=8, temperature=0)
        found[beginning] = done["text"]

    beginnings = ["Once upon a time", "The sky is", "A dog"]
    threads = [threading.Thread(target=write, args=(each,)) for each in beginnings]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {each: engine.llm.generate(each, max_tokens=8).text for each in beginnings}


def test_probabilities_for_the_display(engine: PyggmlEngine) -> None:
    options: Any = {"enable_token_probabilities": True, "enable_top_k": True}
    model = Pyggml(PyggmlEngine(engine.llm, context_options={"n_ctx": 256, "n_threads": 1}, **options), echo=True)
    assert (model + "The sky is" + gen("text", max_tokens=2, temperature=0))["text"]


def test_what_is_refused(engine: PyggmlEngine) -> None:
    with pytest.raises(pyggml.ContextOverflowError, match="600 tokens, but the context only 512"):
        engine.get_logits([5] * 600)
    with pytest.raises(pyggml.InvalidParameterError, match="there is no token"):
        engine.get_logits([])
    with pytest.raises(pyggml.InvalidParameterError, match="engine already"):
        Pyggml(engine, load_options={"n_ctx": 256})
    with pytest.raises(UnsupportedRoleException):
        engine.get_chat_template().get_role_start("narrator")
