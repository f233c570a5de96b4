"""Pydantic's everyday types as structured output: what is generated is valid for the type itself."""

from __future__ import annotations

import datetime as dt
import enum
import ipaddress
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, Optional, Union

import pydantic
import pytest
from pydantic import BaseModel, Field

import pyggml
from pyggml.schema.grammar import grammar_of


@pytest.fixture(scope="module")
def llm() -> Iterator[pyggml.LLM]:
    with pyggml.load(n_ctx=8192, n_parallel=8, n_threads=1) as llm:
        yield llm


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"
    GREEN = "green"


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: Annotated[int, Field(ge=1, le=9)]


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    name: Annotated[str, Field(max_length=20)]


class Aliased(BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")

    first_name: Annotated[str, Field(alias="firstName", max_length=20)]
    age: Annotated[int, Field(validation_alias=pydantic.AliasChoices("years", "age"), ge=0, le=150)]
    secret: Annotated[int, Field(exclude=True, ge=0, le=9)] = 3

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def shout(self) -> str:
        return self.first_name.upper()


class Tree(BaseModel):
    value: Annotated[int, Field(ge=0, le=9)]
    children: Annotated[list[Tree], Field(max_length=2)] = []


TYPES: dict[str, Any] = {
    "http url": pydantic.HttpUrl,
    "any url": pydantic.AnyUrl,
    "ftp url": pydantic.FtpUrl,
    "file url": pydantic.FileUrl,
    "websocket url": pydantic.WebsocketUrl,
    "database": pydantic.PostgresDsn,
    "set": Annotated[set[Annotated[str, Field(max_length=5)]], Field(min_length=1, max_length=4)],
    "set of an enum": Annotated[set[Colour], Field(min_length=2)],
    "frozen set of booleans": Annotated[frozenset[bool], Field(min_length=2)],
    "path": Path,
    "duration": dt.timedelta,
    "moments": tuple[dt.date, dt.time, dt.datetime],
    "special moments": tuple[pydantic.PastDate, pydantic.FutureDatetime, pydantic.NaiveDatetime],
    "decimal": Decimal,
    "price": Annotated[Decimal, Field(max_digits=5, decimal_places=2, ge=0)],
    "decimal of few digits": Annotated[Decimal, Field(max_digits=3, lt=7)],
    "whole decimal": Annotated[Decimal, Field(max_digits=3, decimal_places=0)],
    "pattern of limited length": Annotated[str, Field(pattern=r"^[a-z]+(-[a-z]+)*$", min_length=3, max_length=12)],
    "stripped": Annotated[str, pydantic.StringConstraints(strip_whitespace=True, min_length=2, max_length=9)],
    "list of few": pydantic.conlist(pydantic.NonNegativeInt, min_length=2, max_length=3),
    "discriminated": Annotated[Union[Cat, Dog], Field(discriminator="kind")],  # noqa: UP007
    "identifiers": tuple[uuid.UUID, pydantic.UUID4, ipaddress.IPv4Address, pydantic.IPvAnyAddress],
    "keys": Annotated[dict[Colour, bool], Field(min_length=1)],
    "number keys": Annotated[dict[int, Literal["x"]], Field(max_length=2)],
    "pattern keys": Annotated[dict[Annotated[str, Field(pattern="^[a-z]{1,3}$")], bool], Field(max_length=2)],
    "optional": Optional[pydantic.PositiveInt],  # noqa: UP045
}


def generated(llm: pyggml.LLM, kind: Any, n: int) -> list[pyggml.Completion]:
    """Finished outputs of a type, from seeds 0 to n."""
    params = pyggml.SamplingParams(temperature=1.2, max_tokens=400, json_schema=kind)
    done = llm.generate_n("As JSON:", n, params, seed=0)
    finished = [each for each in done if each.finish_reason == "stop"]
    assert len(finished) > n // 3
    return finished


@pytest.mark.slow_except(every=5)
@pytest.mark.parametrize("name", TYPES)
def test_output_is_valid(llm: pyggml.LLM, name: str) -> None:
    model = pydantic.create_model("Model", it=(TYPES[name], ...))
    for done in generated(llm, model, 12):
        assert model.model_validate_json(done.text) == done.parsed


@pytest.mark.slow_except(every=5)
@pytest.mark.parametrize("name", TYPES)
def test_types_stand_alone(llm: pyggml.LLM, name: str) -> None:
    adapter = pydantic.TypeAdapter(TYPES[name])
    for done in generated(llm, TYPES[name], 4):
        expected = adapter.validate_json(done.text)
        assert done.parsed == expected
        assert type(done.parsed) is type(expected)


def test_aliases_computed_and_excluded_fields(llm: pyggml.LLM) -> None:
    for done in generated(llm, Aliased, 4):
        assert done.parsed == Aliased.model_validate_json(done.text)
        assert "firstName" in done.text
        assert "shout" not in done.text


def test_a_type_that_contains_itself(llm: pyggml.LLM) -> None:
    for done in generated(llm, Tree, 4):
        assert isinstance(done.parsed, Tree)


def test_a_type_that_contains_itself_without_an_end_is_refused() -> None:
    class Endless(BaseModel):
        next: Endless

    class Chain(BaseModel):
        links: Annotated[list[Chain], Field(min_length=1)]

    class Either(BaseModel):
        one: Union[Chain, Either]  # noqa: UP007

    for kind in (Endless, Chain, Either):
        with pytest.raises(pyggml.GrammarError, match=r"contains another without an end|no value can match"):
            grammar_of(kind)


def test_what_cannot_be_ensured_is_refused() -> None:
    for kind in (
        pydantic.FilePath,
        pydantic.NewPath,
        pydantic.ImportString,
        pydantic.ByteSize,
        pydantic.create_model("Model", it=(complex, ...)),
        pydantic.Json[list[int]],
    ):
        with pytest.raises(pyggml.InvalidParameterError, match="pydantic cannot create a JSON schema"):
            grammar_of(kind)


def test_a_secret_is_like_its_type() -> None:
    """Its function converts, and checks nothing."""
    secrets = pydantic.create_model("Secrets", text=(pydantic.SecretStr, ...), number=(pydantic.Secret[int], ...))
    assert "integer" in grammar_of(secrets)
