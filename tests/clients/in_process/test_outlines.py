"""Outlines' generators with pyggml's model: types, regular expressions, batches, streams and coroutines."""

from __future__ import annotations

import json
import re
from typing import Any, Literal

import outlines
import pytest
from outlines.inputs import Chat
from outlines.types import JsonSchema
from pydantic import BaseModel

import pyggml
from pyggml.integrations.outlines import GrammarProcessor, Pyggml, from_pyggml

QUESTION, SAID = "What colour is the sky?", "The sky is blue."


class Pet(BaseModel, extra="forbid"):
    name: Literal["Tom", "Rex"]
    age: Literal[1, 2, 3]


@pytest.fixture(scope="module")
def model() -> Pyggml:
    return from_pyggml()


def test_text(model: Pyggml) -> None:
    assert model(QUESTION, temperature=0) == SAID
    chat = Chat([{"role": "system", "content": "Answer in one word."}, {"role": "user", "content": QUESTION}])
    assert model(chat, temperature=0) == "Blue."
    assert model(QUESTION, temperature=0, n=2) == [SAID, SAID]


@pytest.mark.parametrize(
    ("output_type", "pattern"),
    [
        (Literal["yes", "no"], "yes|no"),
        (int, r"-?\d+"),
        (outlines.regex(r"[0-9]{3}-[a-z]{2}"), r"[0-9]{3}-[a-z]{2}"),
        (outlines.types.date, r"\d{4}-\d\d-\d\d"),
        (outlines.types.ipv4, r"(\d{1,3}\.){3}\d{1,3}"),
    ],
)
def test_types_and_expressions(output_type: Any, pattern: str, model: Pyggml) -> None:
    assert re.fullmatch(pattern, model("An example?", output_type, max_tokens=60))


@pytest.mark.parametrize("schema", [Pet, JsonSchema(Pet.model_json_schema())], ids=["type", "schema"])
def test_json(schema: Any, model: Pyggml) -> None:
    assert Pet(**json.loads(model("A pet as JSON", schema, max_tokens=60)))


def test_batches_and_streams(model: Pyggml) -> None:
    generator = outlines.Generator(model, Pet)
    found = generator.batch(["A cat as JSON", "A dog as JSON"], max_tokens=60)
    assert all(isinstance(Pet(**json.loads(each)), Pet) for each in found)
    assert model.batch([]) == []
    assert "".join(model.stream(QUESTION, temperature=0)) == SAID
    with pytest.raises(pyggml.InvalidParameterError, match="one kind"):
        from_pyggml(model.llm, chat_mode=False).batch(["a", Chat([{"role": "user", "content": "b"}])])


def test_prompts(model: Pyggml) -> None:
    prompts = from_pyggml(model.llm, chat_mode=False)
    text = model.llm.generate("Once upon a time", max_tokens=5).text
    assert prompts("Once upon a time", max_tokens=5) == text
    assert prompts.batch(["Once upon a time"], max_tokens=5) == [text]
    assert "".join(prompts.stream("Once upon a time", max_tokens=5)) == text
    assert prompts("The colours are red,", Literal[" blue", " green"]) in (" blue", " green")


async def test_coroutines(model: Pyggml) -> None:
    asynchronous = model.asynchronous()
    assert await asynchronous(QUESTION, temperature=0) == SAID
    assert await asynchronous.batch([QUESTION, QUESTION], temperature=0) == [SAID, SAID]
    chunks = [chunk async for chunk in asynchronous.stream(QUESTION, temperature=0)]
    assert "".join(chunks) == SAID
    assert await asynchronous("Is it?", Literal["yes", "no"]) in ("yes", "no")


def test_what_cannot_be_enforced_is_refused(model: Pyggml) -> None:
    with pytest.raises(pyggml.InvalidParameterError, match=r"Lark: pass grammar="):
        model("A letter", outlines.cfg('start: "a"'))
    with pytest.raises(pyggml.InvalidParameterError, match="whitespace_pattern"):
        model("A pet", JsonSchema(Pet.model_json_schema(), whitespace_pattern=" "))
    with pytest.raises(pyggml.InvalidParameterError, match="input is a list"):
        model([QUESTION])
    with pytest.raises(pyggml.InvalidParameterError, match="would allow any text"):
        GrammarProcessor(None, model.llm)
    with pytest.raises(pyggml.InvalidParameterError, match="numpy or torch"):
        GrammarProcessor(int, model.llm, "mlx")
    assert model("A letter", grammar='root ::= "a" | "b"') in ("a", "b")


def test_the_processor_with_tensors(model: Pyggml) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed here.")
    vocab = model.llm.model.vocab
    processor = GrammarProcessor(outlines.regex("ab|cd"), model.llm, "torch")
    ids, logits = torch.zeros((2, 1), dtype=torch.int64), torch.zeros((2, vocab.n_tokens + 3))
    allowed = torch.isfinite(processor(ids, logits))
    assert not allowed[:, -3:].any()
    texts = {vocab.piece(int(token_id)) for token_id in allowed[0].nonzero()}
    assert texts <= {b"a", b"ab", b"c", b"cd"}
    first = torch.tensor([[0, vocab.find("a")], [0, vocab.find("c")]])
    rows = torch.isfinite(processor(first, logits))
    assert [vocab.piece(int(row.nonzero()[0])) for row in rows] == [b"b", b"d"]
