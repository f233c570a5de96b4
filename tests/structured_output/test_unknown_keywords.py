"""Keywords that JSON Schema does not have: annotations are allowed, misspellings and wrappers are refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pydantic
import pytest

import pyggml
from pyggml.schema.grammar import grammar_of

FORMS = Path(__file__).parent.parent / "data" / "openai_forms.json"
DRAFTS = (
    jsonschema.Draft3Validator, jsonschema.Draft4Validator, jsonschema.Draft6Validator, jsonschema.Draft7Validator,
    jsonschema.Draft201909Validator, jsonschema.Draft202012Validator,
)  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "object", "proprties": {}}, "^#/proprties: .* close to 'properties': write 'properties', or 'x-prop"),
        ({"properties": {"a": {"type": "integer", "minimun": 5}}}, "^#/properties/a/minimun: .* close to 'minimum'"),
        ({"type": "string", "max_length": 5}, "^#/max_length: .* close to 'maxLength'"),
        ({"type": "array", "item": {}}, "^#/item: .* close to 'items'"),
        ({"any_of": [{}]}, "^#/any_of: .* close to 'anyOf'"),
        ({"ref": "#"}, r"^#/ref: .* close to '\$ref'"),
        ({"name": {"type": "string"}}, "^#: no keyword of JSON schemas is here, only 'name': put .* 'properties'"),
        ({"title": {"type": "string"}, "id": {"type": "integer"}}, "^#: no keyword .* only 'title', 'id'"),
        ({"items": {"kind": "integer"}}, "^#/items: no keyword .* only 'kind'"),
        ({"name": "cat", "strict": True, "schema": {"type": "object"}}, "^#: the schema is inside of 'schema': pass"),
        ({"name": "cat", "description": "A cat", "schema": {}}, "inside of 'schema': .* response_format="),
        ({"name": "f", "parameters": {"type": "object"}}, "inside of 'parameters': pass the value of 'parameters'"),
        (
            {"type": "json_schema", "json_schema": {"schema": {}}},
            '^#/type: unknown type "json_schema": pass a response',
        ),
    ],
)
def test_what_is_no_keyword_is_refused(schema: dict[str, Any], said: str) -> None:
    with pytest.raises(pyggml.GrammarError, match=said):
        grammar_of(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"description": "anything", "default": 3, "examples": [1], "x-order": {"first": 1}, "$comment": "free"},
        {"title": "Anything", "tsType": "any", "notes": "free"},
        {"type": "string", "note": "short", "content": "text", "optional": True, "enumNames": ["a"], "order": 1},
        {"type": "integer", "_type": "own", "types": "own"},
        {"$ref": "#/$defs/a", "summary": "A null", "$defs": {"a": {"type": "null"}, "unused": {"full": {}}}},
    ],
)
def test_annotations_are_allowed(schema: dict[str, Any]) -> None:
    assert grammar_of(schema)


def published() -> Iterator[tuple[str, Any]]:
    """Schemas that many people use, and those that pydantic writes."""
    yield from ((draft.__name__, draft.META_SCHEMA) for draft in DRAFTS)
    yield from json.loads(FORMS.read_text()).items()
    yield "pydantic", pydantic.TypeAdapter(list[pydantic.BaseModel] | pydantic.JsonValue).json_schema()


def said_of(schema: Any) -> str:
    """Return the reason why a schema is refused, or ""."""
    try:
        grammar_of(schema)
    except pyggml.GrammarError as error:
        return str(error)
    return ""


def test_published_schemas_have_no_refused_keyword() -> None:
    """They may be refused for another reason, such as a reference to another document."""
    for name, document in published():
        assert not re.search("close to|no keyword", said_of(document)), name


class Empty(pydantic.BaseModel):
    pass


def test_an_object_without_properties_is_empty_only_if_it_says_so(llm: pyggml.LLM) -> None:
    for schema in ({"type": "object", "properties": {}}, Empty, {"allOf": [{"type": "object"}, {"properties": {}}]}):
        for done in llm.generate_n("Once", 3, json_schema=schema, temperature=1.5, seed=0):
            assert json.loads(done.text) == {}
    for free in ({"type": "object"}, {"type": "object", "properties": {}, "additionalProperties": True}):
        matcher = pyggml.Grammar.compile(free, llm).matcher()
        text = llm.tokenizer.encode('{"a": 1', add_special=False)
        assert matcher.accept_tokens(text) == len(text)
