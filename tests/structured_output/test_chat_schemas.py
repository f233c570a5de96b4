"""JSON schemas in chats: enforced after reasoning, and in the arguments of calls in any format, or refused."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from support.checkpoints import models
from support.random_schemas import random_schema

import pyggml
from pyggml.chat import ChatTemplates
from pyggml.errors import GrammarError

TEMPLATES = models.VOCABULARIES / "templates"
THINKING = ("Qwen-Qwen3-0.6B", "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B")
# Templates whose calls have all arguments in one JSON object, whose calls have them one by one, and one without tools.
AS_ONE = ("Qwen-Qwen3-0.6B", "meta-llama-Llama-3.1-8B-Instruct", "mistralai-Mistral-Nemo-Instruct-2407")
ONE_BY_ONE = ("Qwen3-Coder", "inclusionai-ling-3.0-flash", "deepseek-ai-DeepSeek-V3.2", "MiniMax-M3")
OWN_FORMAT = ("deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "google-gemma-4-31B-it", "Kimi-K3")
OPENS_WITH_REASONING = THINKING[1:]  # its prompt ends with the opening of reasoning
OPENINGS = {"Qwen3-Coder": "<tool_call>\n"}  # which a grammar of calls may begin or end without
ASKED = [{"role": "user", "content": "Why?"}]
N_SCHEMAS = 24


def first_is_quick(names: Sequence[str]) -> list[Any]:
    """Parameters of which the first stands for all of its kind in the quick tests."""
    return [names[0], *(pytest.param(name, marks=pytest.mark.slow) for name in names[1:])]


Schema = dict[str, Any]


@pytest.fixture(scope="module")
def thinker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pyggml.LLM]:
    """Random weights, which take whatever a grammar lets them."""
    path = models.write_llama(
        tmp_path_factory.mktemp("chat-schemas") / "thinking.gguf", models.byte_vocabulary("<think>", "</think>")
    )
    with pyggml.load(path, n_threads=1, n_ctx=8192, n_parallel=4) as llm:
        yield llm


@pytest.fixture(scope="module")
def llm() -> Iterator[pyggml.LLM]:
    """The shipped model."""
    with pyggml.load(n_threads=1, n_ctx=4096, n_parallel=4) as llm:
        yield llm


def template(name: str) -> Path:
    return TEMPLATES / f"{name}.jinja"


def validate(value: Any, schema: Any) -> None:
    jsonschema.validate(value, schema, cls=jsonschema.Draft202012Validator)


# With these the random weights reason, and come to an end: of reasoning, strings, lists and objects.
WEIGHTS = {"<think>": 8.0, "</think>": 12.0, '"': 6.0, "}": 6.0, "]": 6.0, "\n": -9.0}


@pytest.mark.slow
@pytest.mark.parametrize("name", first_is_quick(THINKING))
def test_random_schemas_after_reasoning(thinker: pyggml.LLM, name: str) -> None:
    rng = random.Random(7)
    bias = {thinker.tokenize(text, add_special=False)[0]: bias for text, bias in WEIGHTS.items()}
    options: dict[str, Any] = {
        "temperature": 1.0,
        "max_tokens": 400,
        "logit_bias": bias,
        "chat_template": template(name),
        "thinking": True,
    }
    schemas = [random_schema(rng) for _ in range(N_SCHEMAS)]
    streams = [thinker.stream_chat(ASKED, json_schema=schema, seed=i, **options) for i, schema in enumerate(schemas)]
    n_whole = 0
    for schema, stream in zip(schemas, streams, strict=True):
        answer = stream.finish()
        if answer.finish_reason == "stop":
            n_whole += 1
            validate(json.loads(answer.message.content), schema)
            assert "</think>" in answer.text or name not in OPENS_WITH_REASONING
    assert n_whole > N_SCHEMAS // 2


def test_a_schema_may_say_what_the_engine_does_not_know(thinker: pyggml.LLM) -> None:
    """All of these the engine's own converter of schemas drops in silence."""
    bias = {thinker.tokenize(text, add_special=False)[0]: bias for text, bias in WEIGHTS.items()}
    for schema in (
        {"type": "object", "additionalProperties": {"type": "boolean"}, "minProperties": 1, "maxProperties": 2},
        {"type": "number", "exclusiveMinimum": 2, "maximum": 2.5},
        {"type": "string", "pattern": "b{3}"},
        {"type": "integer", "multipleOf": 7, "minimum": 1, "maximum": 50},
        {"enum": ["a", 3, None], "type": ["string", "null"]},
    ):
        for name in THINKING:
            options: dict[str, Any] = {"temperature": 1.0, "max_tokens": 400, "logit_bias": bias, "thinking": True}
            done = thinker.chat(ASKED, json_schema=schema, chat_template=template(name), seed=1, **options)
            if done.finish_reason == "stop":
                validate(json.loads(done.message.content), schema)


@pytest.mark.parametrize("name", THINKING)
def test_choices_and_patterns_follow_reasoning(thinker: pyggml.LLM, name: str) -> None:
    weights = {"<think>": 100.0, "</think>": 200.0, "\n": -100.0}
    bias = {thinker.tokenize(text, add_special=False)[0]: bias for text, bias in weights.items()}
    for form, pattern in (({"choices": ["yes", "no"]}, "yes|no"), ({"regex": "[0-9]{2}"}, "[0-9]{2}")):
        options: dict[str, Any] = {"chat_template": template(name), "thinking": True, "logit_bias": bias}
        done = thinker.chat(ASKED, **form, max_tokens=20, **options)
        assert re.fullmatch(pattern, done.message.content)
        assert "</think>" in done.text


@pytest.mark.slow
def test_choices_have_nothing_around_them(thinker: pyggml.LLM) -> None:
    """In the grammar of every template whose answers begin with reasoning."""
    n_thinking = 0
    for path in TEMPLATES.glob("*.jinja"):
        prompt = thinker.chat_templates(path).render(ASKED, content_grammar='root ::= "yes" | "no"')
        n_thinking += bool(prompt.thinking_start)
        thinker.chat(ASKED, choices=["yes", "no"], chat_template=path, max_tokens=1)  # it matches its prefix
        assert not re.search("space response-format|response-format space", prompt.grammar or "")
    assert n_thinking > 10


REFUSED: dict[str, Schema] = {
    "pattern": {"type": "string", "pattern": r"^(a|b)\1$"},
    "format": {"type": "string", "format": 5},
    "minimum": {"type": "integer", "minimum": "1"},
}


@pytest.mark.parametrize("keyword", REFUSED)
@pytest.mark.parametrize("name", THINKING)
def test_what_cannot_be_kept_is_refused_before_reasoning(thinker: pyggml.LLM, name: str, keyword: str) -> None:
    schema = {"type": "object", "properties": {"x": REFUSED[keyword]}}
    with pytest.raises(GrammarError, match=f"^#/properties/x/{re.escape(keyword)}"):
        thinker.chat(ASKED, json_schema=schema, chat_template=template(name), max_tokens=1)


@pytest.mark.parametrize(
    "schema",
    [
        False,
        5,
        "{",
        '{"type": "strin"}',
        {"a": 1j},
        {"type": "object", "required": ["a"], "properties": {"a": {"not": {}}}},
        "\0",
        {"$ref": "#/x"},
    ],
    ids=repr,
)
def test_errors_read_the_same_as_without_a_chat(thinker: pyggml.LLM, schema: Any) -> None:
    with pytest.raises(pyggml.InferError) as caught:
        thinker.generate("a", json_schema=schema, max_tokens=1)
    for name in (None, THINKING[0]):
        with pytest.raises(pyggml.InferError) as in_a_chat:
            thinker.chat(ASKED, json_schema=schema, chat_template=name and template(name), max_tokens=1)
        assert type(in_a_chat.value) is type(caught.value)
        assert str(in_a_chat.value) == str(caught.value)


@pytest.mark.slow_except(every=8)
@pytest.mark.parametrize("keyword", REFUSED)
@pytest.mark.parametrize("name", [AS_ONE[0], ONE_BY_ONE[0], OWN_FORMAT[0]])
@pytest.mark.parametrize("choice", ["auto", "required"])
def test_what_cannot_be_kept_is_refused_of_tools(llm: pyggml.LLM, name: str, keyword: str, choice: str) -> None:
    tools = [tool({"properties": {"x": REFUSED[keyword]}})]
    options: dict[str, Any] = {"tools": tools, "chat_template": template(name)}
    with pytest.raises(
        GrammarError, match=f"^the parameters of the tool f: #/properties/x/{keyword}: .*; remove it from the schema"
    ):
        llm.chat(ASKED, tool_choice=choice, max_tokens=1, **options)
    assert llm.chat(ASKED, tool_choice="none", max_tokens=1, **options).prompt_tokens > 0


@pytest.mark.parametrize("schema", [{"minProperties": 1}, {"not": {}}, {"anyOf": [{"required": ["x"]}, {}]}])
def test_what_holds_for_all_arguments_together_is_refused_where_they_are_written_one_by_one(
    llm: pyggml.LLM, schema: Schema
) -> None:
    parameters = {"properties": {"x": {"type": "boolean"}}, **schema}
    with (
        ChatTemplates(llm.model, template(ONE_BY_ONE[0]).read_text()) as templates,
        pytest.raises(GrammarError, match="where arguments are written one by one"),
    ):
        templates.render(ASKED, tools=[tool(parameters)])


def tool(schema: Schema) -> Schema:
    return {"type": "function", "function": {"name": "f", "description": "Does it.", "parameters": schema}}


def arguments(llm: pyggml.LLM, templates: ChatTemplates, schema: Schema, seed: int, opening: str) -> Any:
    """Arguments of a call that follows the schema, from its opening on; None if it was cut off."""
    prompt = templates.render(ASKED, tools=[tool(schema)])
    assert prompt.grammar is not None
    assert prompt.grammar_lazy
    grammar = pyggml.Grammar(prompt.grammar, prefix=opening)
    done = llm.generate("x", grammar=grammar, temperature=1.0, seed=seed, max_tokens=900)
    parser = prompt.parser()
    if prompt.text.rstrip().endswith(prompt.thinking_start or "?"):
        parser.feed(prompt.thinking_ends[0])
    parser.feed(opening + done.text, last=True)
    return json.loads(parser.message.tool_calls[0].arguments_text) if done.finish_reason == "stop" else None


def random_arguments(rng: random.Random) -> Schema:
    schema = random_schema(rng)
    definitions = schema.pop("$defs", {})
    properties = {
        "first": schema,
        "second": {"type": ["integer", "string"]},
        "third": {"enum": ["one", "two"]},
    }
    return {"type": "object", "properties": properties, "required": list(properties), "$defs": definitions}


@pytest.mark.slow_except("Qwen-Qwen3-0.6B")
@pytest.mark.parametrize("name", [*first_is_quick(AS_ONE), *first_is_quick(ONE_BY_ONE), *first_is_quick(OWN_FORMAT)])
def test_random_schemas_of_tools(llm: pyggml.LLM, name: str) -> None:
    rng = random.Random(8)
    n_whole = 0
    with ChatTemplates(llm.model, template(name).read_text()) as templates:
        for seed in range(N_SCHEMAS // 3):
            schema = random_arguments(rng)
            called = arguments(llm, templates, schema, seed, OPENINGS.get(name, ""))
            if called is not None:
                n_whole += 1
                validate(called, schema)
    assert n_whole > 2


@pytest.mark.slow_except(every=10)
@pytest.mark.parametrize("path", sorted(TEMPLATES.glob("*.jinja")), ids=lambda path: path.stem)
def test_every_template_has_a_grammar_for_calls(llm: pyggml.LLM, path: Path) -> None:
    """Of any choice, and one that the engine takes."""
    parameters = {"type": "object", "properties": {"x": {"type": "integer", "description": "x"}}, "required": ["x"]}
    with ChatTemplates(llm.model, path.read_text()) as templates:
        for choice, parallel in (("auto", True), ("auto", False), ("required", False)):
            options: dict[str, Any] = {"tool_choice": choice, "parallel_tool_calls": parallel}
            prompt = templates.render(ASKED, tools=[tool(parameters)], **options)
            assert prompt.grammar is not None
            llm.generate("x", grammar=pyggml.Grammar(prompt.grammar, prefix=prompt.grammar_prefix), max_tokens=1)
