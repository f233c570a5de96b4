"""JSON schemas and Python types as structured output: generated text parses and validates."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import enum
import json
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Optional, TypedDict, Union

import jsonschema
import pydantic
import pytest
from support.random_schemas import random_schema

import pyggml
from pyggml import schema_of
from pyggml.schema.grammar import grammar_of

STORY = "Once upon a time"


@pytest.fixture(scope="module")
def llm() -> Iterator[pyggml.LLM]:
    with pyggml.load(n_ctx=8192, n_parallel=8, n_threads=1) as llm:
        yield llm


def validate(text: str, schema: Any) -> Any:
    value = json.loads(text)
    jsonschema.validate(value, schema, cls=jsonschema.Draft202012Validator)
    return value


@pytest.mark.slow
@pytest.mark.parametrize("n", [30, pytest.param(200, marks=pytest.mark.slow)])
def test_random_schemas(llm: pyggml.LLM, n: int) -> None:
    """Each gives a valid output. One that grew too long says so, and another seed gets its chance."""
    rng = random.Random(4)
    left = dict(enumerate(random_schema(rng) for _ in range(n)))
    for attempt in range(4):
        params = pyggml.SamplingParams(temperature=1.0, seed=attempt, max_tokens=1000)
        streams = {i: llm.stream(STORY, params, json_schema=schema) for i, schema in left.items()}
        for i, stream in streams.items():
            completion = stream.finish()
            assert completion.finish_reason in ("stop", "length")
            if completion.finish_reason == "stop":
                validate(completion.text, left.pop(i))
    assert not left


def test_one_that_is_cut_says_so(llm: pyggml.LLM) -> None:
    completion = llm.generate(STORY, json_schema={"type": "string", "minLength": 500}, max_tokens=20)
    assert completion.finish_reason == "length"
    with pytest.raises(ValueError, match="Unterminated"):
        json.loads(completion.text)


@pytest.mark.slow_except(every=2)
@pytest.mark.parametrize(
    "schema",
    [
        {},
        True,
        {"type": "object"},
        {"type": "array"},
        {"type": "array", "items": {"enum": [1, "a", None]}, "uniqueItems": True, "minItems": 2},
        {"type": "object", "propertyNames": {"enum": ["a", "b"]}, "additionalProperties": {"type": "null"}},
        {"type": "object", "patternProperties": {"^[a-z]{2}$": {"type": "null"}}, "additionalProperties": False},
        {"type": "string", "format": "email", "pattern": r"^(?!\.)(?!.*\.\.)[a-z.]+@[a-z.]+$", "maxLength": 30},
        {"type": "string", "pattern": "^a+$|^b+$", "minLength": 2},
        {"type": "string", "pattern": "b", "minLength": 3, "maxLength": 5},
        {"type": "array", "items": {"type": "string", "maxLength": 700}, "minItems": 2, "maxItems": 2},
        {
            "type": "array",
            "prefixItems": [{"type": "integer"}],
            "minItems": 3,
            "items": {"type": "null"},
            "maxItems": 5,
        },
        {"type": "string", "minLength": 350, "maxLength": 351},
        {"type": "integer", "minimum": 10**20, "maximum": 10**20 + 5},
        {"type": "integer", "format": "int32"},
        {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
        {"type": "number", "minimum": -1e-7, "maximum": 1e-7},
        {"type": "integer", "multipleOf": 7, "minimum": -50, "maximum": 50},
        {"enum": ["a", 1, None, "quite long", 2.5], "type": ["string", "null"], "maxLength": 3},
        {"type": "object", "properties": {"a/b~c": {"const": 1}}, "required": ["a/b~c", "other"]},
        {"type": "object", "properties": {"a": {"type": "null"}}, "additionalProperties": {"type": "integer"}},
        {"type": "object", "additionalProperties": {"type": "boolean"}, "minProperties": 1, "maxProperties": 3},
        {"$ref": "#/definitions/a", "definitions": {"a": {"$ref": "#/definitions/b"}, "b": {"enum": ["x"]}}},
        {
            "allOf": [{"$ref": "#/$defs/p"}, {"required": ["x"]}],
            "$defs": {"p": {"properties": {"x": {"type": "null"}}}},
        },
        {
            "type": "object",
            "properties": {"x": {"type": "integer"}},
            "anyOf": [{"required": ["x"]}, {"required": ["y"]}],
        },
    ],
    ids=lambda schema: json.dumps(schema)[:60],
)
def test_what_schemas_can_say(llm: pyggml.LLM, schema: Any) -> None:
    streams = [llm.stream(STORY, json_schema=schema, temperature=1.0, seed=i, max_tokens=1500) for i in range(4)]
    whole = [done.text for done in (stream.finish() for stream in streams) if done.finish_reason == "stop"]
    assert whole
    for text in whole:
        validate(text, schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": [{"type": "integer"}, {"type": "null"}], "additionalItems": False, "minItems": 1},
        {"type": "number", "minimum": 5, "exclusiveMinimum": True, "maximum": 6, "multipleOf": 0.125},
    ],
)
def test_what_older_schemas_said(llm: pyggml.LLM, schema: Any) -> None:
    schema = {"$schema": "http://json-schema.org/draft-04/schema#", **schema}
    for seed in range(3):
        completion = llm.generate(STORY, json_schema=schema, temperature=1.0, seed=seed)
        assert completion.finish_reason == "stop"
        jsonschema.validate(json.loads(completion.text), schema, cls=jsonschema.Draft4Validator)


@pytest.mark.slow_except(every=2)
@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("{", "not valid JSON: .*line 1 column 2"),
        ({"type": "nonsense"}, r'^#/type: unknown type "nonsense"'),
        ({"properties": {"a": {"type": "strin"}}}, "^#/properties/a/type"),
        ({"properties": {"a/b": {"items": {"not": 5}}}}, "^#/properties/a~1b/items/not"),
        ({"$ref": "#/nowhere"}, r"^#/\$ref: there is nothing at #/nowhere"),
        ({"$ref": "https://example.com/s.json"}, r"^#/\$ref: .*does not point into this schema"),
        ({"$ref": "#"}, r"^#/\$ref: # refers to itself"),
        ({"anyOf": [{"type": "null"}, {"$ref": "#"}]}, r"^#/anyOf/1/\$ref: # refers to itself"),
        ({"allOf": [{"$ref": "#"}], "type": "object"}, "refers to itself"),
        ({"type": "integer", "minimum": 3, "maximum": 1}, "^#: no integer is between 3 and 1"),
        ({"type": "number", "exclusiveMinimum": 1, "maximum": 1}, "^#: no number can match"),
        ({"type": "number", "minimum": "3"}, '^#/minimum: must be a number, not "3"'),
        ({"enum": [4, 5], "multipleOf": 0}, "^#/multipleOf: must be a positive number, not 0"),
        ({"enum": [4], "minimum": "x"}, '^#/minimum: must be a number, not "x"'),
        ({"enum": ["a"], "minLength": "x"}, '^#/minLength: must be a number, not "x"'),
        ({"enum": ["a"], "pattern": "["}, "^#/pattern: regular expression .*missing"),
        ({"enum": ["a"], "pattern": 5}, "^#/pattern: must be a string, not 5"),
        ({"enum": [10**400], "minimum": 10**401}, "^#"),
        ({"type": "array", "prefixItems": [{}], "items": False, "minItems": 2}, "^#: minItems is 2"),
        ({"type": "array", "minItems": 2, "maxItems": 1}, "^#: minItems is 2 and maxItems is 1"),
        ({"type": "object", "required": ["a"], "additionalProperties": False}, "^#"),
        (
            {"properties": {"a": True}, "additionalProperties": False, "minProperties": 1e300},
            "^#/minProperties: too large",
        ),
        ({"type": "string", "minLength": 1e300}, "too large for a grammar"),
        ({"type": "x" * 100_000}, '^#/type: unknown type "xxx'),
        ({"properties": {"x" * 100_000: {"not": 5}}}, "^#/properties/x+"),
        ({"allOf": [{"type": "string"}, {"type": "null"}]}, "^#: no value can match"),
        ({"enum": []}, "^#: no value can match"),
        ({"enum": ["a"], "type": "null"}, "^#: no value can match"),
        ({"type": "object", "properties": {"a": False}, "required": ["a"]}, "no value can match"),
        (
            {"type": "string", "format": "date", "maxLength": 3},
            "^#: no value can match",
        ),
        ({"type": "string", "pattern": "("}, "^#/pattern: regular expression .*missing"),
        ({"type": "string", "pattern": r"(a)\1"}, "^#/pattern: regular expression .*back references are not supported"),
        ({"type": "string", "pattern": "a^b"}, "^#: no value can match"),
        (
            {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]},
            "^#: no value can match, because every one contains another without an end",
        ),
        ({"type": "object", "propertyNames": {"pattern": "a"}, "required": ["b"]}, "^#: no value can match"),
        ({"items": 5}, "^#/items: a schema must be an object or a boolean, not 5"),
    ],
)
def test_what_schemas_cannot_say(llm: pyggml.LLM, schema: Any, said: str) -> None:
    with pytest.raises(pyggml.GrammarError, match=said):
        llm.generate(STORY, json_schema=schema)


def test_deep_schemas() -> None:
    schema: dict[str, Any] = {}
    for _ in range(sys.getrecursionlimit()):
        schema = {"items": schema}
    with pytest.raises((pyggml.GrammarError, pyggml.InvalidParameterError), match=r"nested|recursion"):
        grammar_of(schema)


# --- types ----------------------------------------------------------------------------------------------------


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Point:
    """Somewhere."""

    x: int
    y: Annotated[float, "upwards", pydantic.Field(ge=0, lt=10)] = 0.0


class Pair(NamedTuple):
    a: int
    b: int


@dataclasses.dataclass
class Tree:
    value: bool
    left: Optional[Tree] = None  # noqa: UP045
    points: list[Point] = dataclasses.field(default_factory=list)


class Movie(TypedDict, total=False):
    title: str
    year: int


class Person(pydantic.BaseModel):
    """Somebody."""

    name: str = pydantic.Field(max_length=20)
    age: int = pydantic.Field(ge=0, le=130)
    born: dt.date
    tags: list[Literal["a", "b"]] = pydantic.Field(max_length=3)
    parent: Person | None = None


class Cat(pydantic.BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = pydantic.Field(ge=1, le=9)


class Dog(pydantic.BaseModel):
    kind: Literal["dog"] = "dog"
    good: bool


class Owner(pydantic.BaseModel):
    person: Person
    pet: Union[Cat, Dog] = pydantic.Field(discriminator="kind")  # noqa: UP007
    score: float | None = pydantic.Field(ge=0, le=1)


def test_schema_of_types() -> None:
    expected: list[tuple[Any, Any]] = [
        (str, {"type": "string"}),
        (None, {"type": "null"}),
        (Any, {}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
        (dict[str, bool], {"type": "object", "additionalProperties": {"type": "boolean"}}),
        (Optional[float], {"anyOf": [{"type": "number"}, {"type": "null"}]}),  # noqa: UP045
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (Literal["a", 1, True], {"enum": ["a", 1, True]}),
        (Color, {"enum": ["red", "blue"]}),
        (Annotated[int, "how many"], {"type": "integer", "description": "how many"}),
        (
            tuple[int, str],
            {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2, "maxItems": 2},
        ),
        (dt.date, {"type": "string", "format": "date", "pattern": "^[12][0-9]{3}-[0-9]{2}-[0-9]{2}$"}),
        (
            Point,
            {
                "type": "object",
                "properties": {
                    "x": {"type": "integer"},
                    "y": {"type": "number", "description": "upwards", "minimum": 0, "exclusiveMaximum": 10},
                },
                "required": ["x"],
                "additionalProperties": False,
                "description": "Somewhere.",
            },
        ),
    ]
    for annotation, schema in expected:
        assert schema_of(annotation) == schema, annotation


def test_types_that_contain_themselves_and_others() -> None:
    schema = schema_of(list[Tree])
    assert schema["items"] == {"$ref": "#/$defs/Tree"}
    assert set(schema["$defs"]) == {"Tree", "Point"}
    assert schema_of(Tree)["$ref"] == "#/$defs/Tree"
    nested = schema_of(dict[str, Person])
    assert nested["additionalProperties"] == {"$ref": "#/$defs/Person"}
    assert nested["$defs"]["Person"]["properties"]["age"]["maximum"] == 130
    for annotation in (Tree, list[Tree], Person, list[Person], Owner, Movie):
        jsonschema.Draft202012Validator.check_schema(schema_of(annotation))


@pytest.mark.parametrize("annotation", [complex, set[complex], dict[float, str], 5, bytes, Literal[b"x"]])
def test_types_without_a_schema(annotation: Any) -> None:
    with pytest.raises(pyggml.InvalidParameterError, match="JSON"):
        schema_of(annotation)
    with pytest.raises(pyggml.InvalidParameterError, match=r"list\[.*\]\[\]"):
        schema_of(list[annotation])


@pytest.mark.parametrize(
    ("given", "way_out"),
    [
        (Person.model_construct(), "this is an object of Person: pass the class"),
        (Point(1), "this is an object of Point: pass the class"),
        (pydantic.TypeAdapter(bool), "pass the type itself"),
        (Pair, "use a dataclass"),
        (bytes, "use str"),
        (complex, "supported are the types of JSON, "),
        ([int], r"list\[...\]"),
        (Path("cat.json"), r"files are not read here: pass its text, as in path.read_text\(\)"),
    ],
    ids=str,
)
def test_the_way_out_of_a_type_without_a_schema(given: Any, way_out: str) -> None:
    with pytest.raises(pyggml.InvalidParameterError, match=f"cannot be expressed as a JSON schema: .*{way_out}"):
        schema_of(given)


def test_the_place_of_a_type_without_a_schema() -> None:
    @dataclasses.dataclass
    class Holder:
        values: list[complex]

    with pytest.raises(pyggml.InvalidParameterError, match=r"Holder.values\[\]: complex"):
        schema_of(Holder)


@pytest.mark.slow_except("Person")
@pytest.mark.parametrize("model", [Person, Owner])
def test_a_pydantic_class_round_trips(llm: pyggml.LLM, model: type[pydantic.BaseModel]) -> None:
    n_whole = 0
    for seed in range(10):
        completion = llm.generate(STORY, json_schema=model, temperature=1.0, seed=seed, max_tokens=700)
        if completion.finish_reason == "stop":
            n_whole += 1
            made = model.model_validate_json(completion.text)
            assert model.model_validate_json(made.model_dump_json()) == made
    assert n_whole >= 5


@pytest.mark.parametrize("annotation", [Point, Tree, Movie, Color, tuple[int, Color], dict[str, Point] | None])
def test_types_as_schemas(llm: pyggml.LLM, annotation: Any) -> None:
    completion = llm.generate(STORY, json_schema=annotation, temperature=1.0, seed=1, max_tokens=2000)
    if completion.finish_reason == "stop":
        validate(completion.text, schema_of(annotation))
        if annotation is not Movie:  # which pydantic wants from typing_extensions before Python 3.12
            pydantic.TypeAdapter(annotation).validate_json(completion.text)


def test_an_argument_that_is_no_schema(llm: pyggml.LLM) -> None:
    with pytest.raises(pyggml.InvalidParameterError, match="cannot be expressed as a JSON schema"):
        llm.generate(STORY, json_schema=5)


# --- any value -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schema", [{}, True, {"type": "object"}, {"properties": {"a": True}, "required": ["a"]}])
def test_values_that_a_schema_leaves_open_end(llm: pyggml.LLM, schema: Any) -> None:
    for seed in range(8):
        done = llm.generate(STORY, json_schema=schema, temperature=1.0, seed=seed, max_tokens=2000)
        if done.finish_reason == "stop":
            validate(done.text, schema)
            break
    else:
        pytest.fail("none of them ended")
    assert llm.chat([{"role": "user", "content": "a"}], json_schema=schema, max_tokens=1).finish_reason == "length"


def likely(llm: pyggml.LLM, *texts: str) -> dict[int, float]:
    """A bias for tokens that are these texts, the first one strongest."""
    ids = [llm.model.vocab.tokenize(text, add_special=False)[-1] for text in texts]
    return {token_id: 900.0 - 100 * i for i, token_id in enumerate(ids)}


def test_open_values_have_no_limits(llm: pyggml.LLM) -> None:
    nested = llm.generate("a", json_schema={}, logit_bias=likely(llm, "["), max_tokens=20).text
    assert nested.startswith("[" * 20)
    text = llm.generate("a", json_schema={}, logit_bias=likely(llm, "b", '"'), max_tokens=1500)
    assert text.text == '"' + "b" * 1499


def test_options_are_followed_in_a_request(llm: pyggml.LLM) -> None:
    schema = {"type": "object", "properties": {"a": {"const": 1}, "b": {"const": 2}}, "required": ["a", "b"]}
    for any_order, text in ((True, '{"b":2,"a":1}'), (False, '{"a":1,"b":2}')):
        done = llm.generate(
            "x",
            json_schema=schema,
            json_schema_options={"any_order": any_order},
            logit_bias=likely(llm, "b", "}", ",", "1", "2"),
            max_tokens=40,
        )
        assert done.text.replace(" ", "").replace("\n", "") == text


def test_options_without_a_schema_are_refused(llm: pyggml.LLM) -> None:
    options = {"any_order": True}
    with pytest.raises(pyggml.InvalidParameterError, match="without json_schema"):
        llm.generate("a", json_schema_options=options)
    with pytest.raises(pyggml.InvalidParameterError, match="with a grammar"):
        pyggml.Grammar.compile('root ::= "a"', llm, json_schema_options=options)


def test_an_unknown_format_is_ignored_with_one_warning(llm: pyggml.LLM, caplog: pytest.LogCaptureFixture) -> None:
    schema = {"type": "string", "format": "nonsense of this test", "maxLength": 3}
    for _ in range(2):
        llm.generate("a", json_schema=schema, max_tokens=5)
    assert [each.getMessage() for each in caplog.records if "nonsense" in each.getMessage()] == [
        "JSON schema: #/format: 'nonsense of this test' is ignored"
    ]


def test_numbers_come_to_an_end(llm: pyggml.LLM) -> None:
    for schema in ({"type": "number"}, {"type": "integer"}, {"type": "number", "minimum": 0, "multipleOf": 0.125}):
        done = llm.generate("a", json_schema=schema, logit_bias=likely(llm, "0", "1", "."), max_tokens=300)
        assert done.finish_reason == "stop"
        assert len(done.text) <= 20


# --- OpenAI's way to say it ------------------------------------------------------------------------------------------


def test_response_formats() -> None:
    schema = {"type": "integer", "minimum": 3}
    for given, expected in (
        ({"type": "text"}, None),
        ({"type": "json_object"}, {"type": "object"}),
        ({"type": "json_object", "schema": None}, {"type": "object"}),
        ({"type": "json_object", "schema": schema}, schema),  # llama-cpp-python
        ({"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": schema}}, schema),
        ({"type": "json_schema", "name": "n", "schema": schema}, schema),  # OpenAI's responses
        (Person, Person),
    ):
        params = pyggml.SamplingParams(response_format=given)
        assert params.json_schema == expected
        assert dataclasses.replace(params, seed=3).json_schema == expected
        assert params == pyggml.SamplingParams(json_schema=expected)


def test_generating_in_a_response_format(llm: pyggml.LLM) -> None:
    given = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"enum": ["red", "blue"]}}}
    messages = [{"role": "user", "content": "Which colour?"}]
    for done in (
        llm.generate(STORY, response_format=given),
        llm.stream(STORY, pyggml.SamplingParams(seed=1), response_format=given).finish(),
        *llm.generate_n(STORY, 2, response_format=given),
        *llm.generate_batch([STORY], response_format=given),
        llm.chat(messages, response_format=given),
        asyncio.run(llm.achat(messages, response_format=given)),
    ):
        assert json.loads(done.text) in ("red", "blue")
    plain = llm.generate(STORY, max_tokens=5, response_format={"type": "text"})
    assert plain.text == llm.generate(STORY, max_tokens=5).text


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"type": "json"}, "response_format must be {'type': 'text'}, {'type': 'json_object'} or"),
        ({"type": "json_schema"}, "'json_schema': {'schema': ...}}, not {'type': 'json_schema'}"),
        ({"properties": {}}, "response_format must be"),
        ("json_object", "{'schema': ...}}, not 'json_object'"),
        (5, "5 cannot be expressed as a JSON schema"),
    ],
    ids=repr,
)
def test_other_response_formats(llm: pyggml.LLM, given: Any, said: str) -> None:
    with pytest.raises(pyggml.InvalidParameterError, match=re.escape(said)):
        llm.generate(STORY, response_format=given)


@pytest.mark.parametrize("other", [{"json_schema": {}}, {"grammar": 'root ::= "a"'}])
def test_one_form_at_a_time(llm: pyggml.LLM, other: dict[str, Any]) -> None:
    for call in (lambda **form: llm.generate(STORY, **form), lambda **form: pyggml.SamplingParams(**form)):
        with pytest.raises(pyggml.InvalidParameterError, match=f"response_format and {next(iter(other))} were both"):
            call(response_format={"type": "json_object"}, **other)


@pytest.mark.slow_except(every=2)
@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"type": "object", "properties": 5}, "#/properties: must be an object"),
        ({"type": "array", "prefixItems": 3}, "#/prefixItems: must be a list of schemas"),
        ({"type": "object", "required": 5}, "#/required: must be a list of names"),
        ({"type": 5}, "#/type: unknown type 5"),
        ({"anyOf": {"a": 1}}, "#/anyOf: must be a list of schemas"),
        (
            {"oneOf": [{"type": "object", "properties": 3}, {"type": "object"}]},
            "#/oneOf/0/properties: must be an object",
        ),
        ({"type": "string", "pattern": 5}, "#/pattern: must be a string"),
    ],
    ids=str,
)
def test_keywords_of_wrong_types_are_refused_by_place(schema: dict[str, Any], place: str) -> None:
    with pytest.raises(pyggml.GrammarError) as refused:
        grammar_of(schema)
    assert str(refused.value).startswith(place)
