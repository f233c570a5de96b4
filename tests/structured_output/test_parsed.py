"""``parsed``: the object that an output describes."""

from __future__ import annotations

import asyncio
import json
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

import pydantic
import pytest

import pyggml

QUESTION = [{"role": "user", "content": "A pet, please."}]


@dataclass
class Pet:
    kind: Literal["cat", "dog"]
    age: Literal[1, 2, 3]


class Point(TypedDict):
    x: Literal[1, 2]


class Owner(pydantic.BaseModel):
    pets: Annotated[list[Pet], pydantic.Field(max_length=2)]


class Picky(pydantic.BaseModel):
    it: Literal[1]

    @pydantic.field_validator("it")
    @classmethod
    def refuse(cls, value: int) -> int:
        raise ValueError(f"{value} is not wanted")


@pytest.fixture(scope="module")
def llm() -> Iterator[pyggml.LLM]:
    with pyggml.load(n_ctx=2048, n_parallel=4, n_threads=1) as llm:
        yield llm


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Pet, lambda value: Pet(**value)),
        (Point, lambda value: value),
        (Owner, lambda value: Owner(pets=[Pet(**each) for each in value["pets"]])),
        (list[Pet], lambda value: [Pet(**each) for each in value]),
        (set[Literal["a", "b"]], set),
    ],
)
def test_the_object_itself(llm: pyggml.LLM, kind: Any, expected: Any) -> None:
    for done in llm.generate_n("As JSON:", 4, json_schema=kind, seed=1, temperature=1.0, max_tokens=300):
        if done.finish_reason == "stop":
            assert done.parsed == expected(json.loads(done.text))
            assert done.parsed is done.parsed


def test_through_every_method(llm: pyggml.LLM) -> None:
    with llm.stream("As JSON:", json_schema=Pet) as stream:
        streamed = stream.finish()
    results = [
        streamed,
        *llm.generate_batch(["As JSON:"] * 2, json_schema=Pet),
        asyncio.run(llm.agenerate("As JSON:", response_format=Pet)),
        llm.chat(QUESTION, json_schema=Pet),
        asyncio.run(llm.achat(QUESTION, json_schema=Pet)),
    ]
    assert all(isinstance(done.parsed, Pet) for done in results)
    chat = llm.chat(QUESTION, json_schema=Pet)
    assert chat.parsed == Pet(**json.loads(chat.message.content))
    assert "_json_schema" not in chat.to_dict()
    assert pickle.loads(pickle.dumps(streamed)).parsed == streamed.parsed


def test_a_schema_gives_the_json_value(llm: pyggml.LLM) -> None:
    schema = {"type": "array", "items": {"enum": [1, "a"]}, "minItems": 2, "maxItems": 2}
    for given in (schema, json.dumps(schema)):
        done = llm.generate("As JSON:", json_schema=given)
        assert done.parsed == json.loads(done.text)


def test_without_a_form_it_is_none(llm: pyggml.LLM) -> None:
    assert llm.generate("Once", max_tokens=3).parsed is None
    assert llm.generate("Once", choices=["1", "2"]).parsed is None


def test_a_cut_output_raises(llm: pyggml.LLM) -> None:
    done = llm.generate("As JSON:", json_schema=Pet, max_tokens=3)
    with pytest.raises(pyggml.OutputParsingError, match=r"cut off \(finish_reason 'length'\): raise max_tokens"):
        _ = done.parsed
    stopped = llm.generate("As JSON:", json_schema=Pet, stop="kind")
    with pytest.raises(pyggml.OutputParsingError, match=r"^the stop string 'kind' ended .* not a valid Pet"):
        _ = stopped.parsed


def test_a_types_own_validator(llm: pyggml.LLM) -> None:
    with pytest.raises(pyggml.OutputParsingError, match="1 is not wanted") as caught:
        _ = llm.generate("As JSON:", json_schema=Picky).parsed
    assert isinstance(caught.value.__cause__, pydantic.ValidationError)
