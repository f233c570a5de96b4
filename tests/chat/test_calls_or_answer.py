"""Tools together with a format of the answer: calls are free, and an answer without calls has the format."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from support.checkpoints import models

import pyggml
from pyggml.chat import ChatTemplates
from pyggml.errors import InvalidParameterError

TEMPLATES = models.VOCABULARIES / "templates"
ASK = [{"role": "user", "content": "Go up"}]
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"a": {"enum": [1, 22, 333]}}, "required": ["a"]}
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "go",
        "description": "Goes",
        "parameters": {"type": "object", "properties": {"way": {"enum": ["up", "down"]}}, "required": ["way"]},
    },
}
RANDOM: dict[str, Any] = {"temperature": 1.5, "max_tokens": 120, "repetition_guard": False}
UNUSABLE = {
    "CohereForAI-c4ai-command-r-plus-tool_use": "it needs a description of every property",
    "GigaChat3-10B-A1.8B": "its calls begin with a text that ends turns",
}
NAMES = sorted(path.stem for path in TEMPLATES.glob("*.jinja"))


@pytest.fixture(scope="module")
def llm() -> Any:
    with pyggml.load(n_ctx=4096, n_threads=1) as llm:
        yield llm


@pytest.mark.slow_except(every=20)
@pytest.mark.parametrize("name", NAMES)
def test_every_template(llm: pyggml.LLM, name: str) -> None:
    if name in UNUSABLE:
        pytest.skip(UNUSABLE[name])
    for seed in range(4):
        options = {"thinking": None if seed % 2 else False, "reasoning_budget": 3, "seed": seed, **RANDOM}
        done = llm.chat(ASK, [TOOL], json_schema=SCHEMA, chat_template=TEMPLATES / f"{name}.jinja", **options)
        if done.finish_reason == "length":  # a random text may be long
            continue
        if done.message.tool_calls:
            assert all(call.arguments["way"] in ("up", "down") for call in done.message.tool_calls)
        else:
            assert json.loads(done.message.content)["a"] in (1, 22, 333)


@pytest.mark.parametrize(
    ("form", "answer"),
    [
        ({"json_schema": SCHEMA}, r'\s*\{\s*"a"\s*:\s*(1|22|333)\s*\}\s*'),
        ({"choices": ["yes", "no"]}, "yes|no"),
        ({"regex": "[0-9]{2}"}, "[0-9]{2}"),
        ({"grammar": 'root ::= [a-z]{2,4} "!"'}, "[a-z]{2,4}!"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_stream_of_every_form(llm: pyggml.LLM, form: dict[str, Any], answer: str) -> None:
    """The model prefers either kind of answer, by the bias of a call's first token."""
    [start] = llm.tokenize("<", add_special=False)
    for bias, is_call in ((60.0, True), (-60.0, False)):
        options = {**RANDOM, "seed": 1, "logit_bias": {start: bias}, **form}
        stream = llm.stream_chat(ASK, [TOOL], **options)
        content = "".join(chunk.content for chunk in stream)
        done = stream.completion
        assert content == done.message.content
        if is_call:
            assert done.message.tool_calls[0].name == "go"
            assert content == ""
        else:
            assert not done.message.tool_calls
            assert re.fullmatch(answer, content)


def test_what_has_one_of_the_two(llm: pyggml.LLM) -> None:
    options = {**RANDOM, "seed": 1, "json_schema": SCHEMA}
    must = llm.chat(ASK, [TOOL], tool_choice="required", **options)
    assert must.message.tool_calls
    assert not llm.chat(ASK, [TOOL], tool_choice="none", **options).message.tool_calls
    with pytest.raises(InvalidParameterError, match="a grammar that is lazy"):
        llm.chat(ASK, [TOOL], grammar=pyggml.Grammar('root ::= "a"', lazy=True, trigger_patterns=["a"]))


def test_options_of_a_schema(llm: pyggml.LLM) -> None:
    schema = {"type": "object", "properties": {"a": {"const": 1}, "b": {"const": 2}}, "required": ["a", "b"]}
    start = {"logit_bias": dict.fromkeys(llm.tokenize("<", add_special=False), -60.0)}
    options = {**RANDOM, **start, "json_schema": schema, "json_schema_options": {"any_order": True}}
    found = {tuple(json.loads(llm.chat(ASK, [TOOL], seed=seed, **options).message.content)) for seed in range(12)}
    assert found == {("a", "b"), ("b", "a")}


def test_constraints_that_no_grammar_can_keep(llm: pyggml.LLM) -> None:
    templates = ChatTemplates(llm.model)
    bad = {"type": "object", "properties": {"a": {"$ref": "https://example.org/a"}}}
    with pytest.raises(pyggml.GrammarError, match="example"):
        templates.render(ASK, tools=[TOOL], json_schema=bad).grammar  # noqa: B018


def test_a_grammar_is_text() -> None:
    with pyggml.load(n_threads=1) as llm:
        templates = ChatTemplates(llm.model)
        with pytest.raises(InvalidParameterError, match="grammar must be text, not list"):
            templates.render(ASK, tools=[TOOL], grammar=["a"])  # type: ignore[arg-type]
