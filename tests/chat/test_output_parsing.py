"""Parsing of model output in each template's format into content, reasoning and tool calls; whole and streamed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.checkpoints import models

import pyggml
from pyggml._native.model import Model
from pyggml.chat import ChatPrompt, ChatTemplates
from pyggml.chat.types import ChatDelta, ChatMessage

TEMPLATES = models.VOCABULARIES / "templates"
USER = [{"role": "user", "content": "How is the weather in Paris?"}]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "The weather",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
                "required": ["city"],
            },
        },
    }
    for name in ("get_weather", "get_weather_history")
]


class Case(NamedTuple):
    """Output of a model and its meaning; a call is its name and arguments."""

    template: str
    text: str
    content: str = ""
    reasoning: str = ""
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    tools: bool = True


PARIS = ("get_weather", {"city": "Paris"})
HISTORY = ("get_weather_history", {"city": "Zürich", "days": 3})
HERMES = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
HERMES_2 = '<tool_call>\n{"name": "get_weather_history", "arguments": {"city": "Zürich", "days": 3}}\n</tool_call>'

CASES = [
    Case("Qwen-Qwen2.5-7B-Instruct", "It is grey.", "It is grey."),
    Case("Qwen-Qwen2.5-7B-Instruct", HERMES, calls=(PARIS,)),
    Case("Qwen-Qwen2.5-7B-Instruct", f"{HERMES}\n{HERMES_2}", calls=(PARIS, HISTORY)),
    Case("Qwen-Qwen2.5-7B-Instruct", "1 < 2 <tool", "1 < 2 <tool", tools=False),
    Case("Qwen-Qwen3-0.6B", "<think>\nHm.\n</think>\n\nGrey.", "Grey.", "Hm.\n"),
    Case("Qwen-Qwen3-0.6B", f"<think>\nHm.\n</think>\n\n{HERMES}", "", "Hm.\n", (PARIS,)),
    Case("Qwen-Qwen3-0.6B", "<think>\nHm.\n</think>\n\nGrey.", "Grey.", "Hm.\n", tools=False),
    Case("NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", HERMES, calls=(PARIS,)),
    Case(
        "meta-llama-Llama-3.1-8B-Instruct",
        '{"name": "get_weather", "parameters": {"city": "Paris"}}',
        calls=(PARIS,),
    ),
    Case("meta-llama-Llama-3.1-8B-Instruct", "It is grey.", "It is grey."),
    Case(
        "mistralai-Mistral-Nemo-Instruct-2407",
        '[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Paris"}, "id": "abcdef123"}]',
        calls=(PARIS,),
    ),
    Case("deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "Hm.\n</think>\n\nGrey.", "\n\nGrey.", "\nHm.\n", tools=False),
    Case(
        "CohereForAI-c4ai-command-r7b-12-2024-tool_use",
        '<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "get_weather", "parameters": {"city": "Paris"}}\n]'
        "<|END_ACTION|>",
        calls=(PARIS,),
    ),
    Case(
        "meetkai-functionary-medium-v3.2",
        'get_weather\n{"city": "Paris"}',
        calls=(PARIS,),
    ),
    Case("meetkai-functionary-medium-v3.2", "all\nIt is grey.", "It is grey."),
    Case(
        "Qwen3-Coder",
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>",
        calls=(PARIS,),
    ),
    Case(  # one tool's name begins with another's, and nothing says where it ends
        "Apertus-8B-Instruct",
        'I ask.<|tools_prefix|>[{"get_weather": {"city": "Paris"}}, '
        '{"get_weather_history": {"city": "Zürich", "days": 3}}]<|tools_suffix|>',
        "I ask.",
        calls=(PARIS, HISTORY),
    ),
    Case("microsoft-Phi-3.5-mini-instruct", HERMES, calls=(PARIS,)),
    Case("microsoft-Phi-3.5-mini-instruct", f"I ask. {HERMES_2}", "I ask. ", calls=(HISTORY,)),
    Case("google-gemma-2-2b-it", HERMES_2, calls=(HISTORY,)),
]
IDS = [f"{case.template}-{i}" for i, case in enumerate(CASES)]


def templates_of(model: Model, name: str) -> ChatTemplates:
    return ChatTemplates(model, (TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8"))


def prompt_of(model: Model, case: Case) -> ChatPrompt:
    with templates_of(model, case.template) as templates:
        thinking = True if case.reasoning else None  # some templates let models reason only if they are told to
        return templates.render(USER, tools=TOOLS if case.tools else None, parallel_tool_calls=True, thinking=thinking)


def read(prompt: ChatPrompt, text: str, n: int) -> tuple[ChatMessage, list[ChatDelta]]:
    parser = prompt.parser()
    deltas = [parser.feed(text[i : i + n]) for i in range(0, len(text), n)]
    deltas.append(parser.feed("", last=True))
    return parser.message, deltas


def meaning(message: ChatMessage) -> tuple[str, str, list[tuple[str, dict[str, Any]]]]:
    calls = [(call.name, json.loads(call.arguments_text)) for call in message.tool_calls]
    return message.content, message.reasoning_content, calls


@pytest.mark.slow_except(every=2)
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_what_a_text_means(tiny: Model, case: Case) -> None:
    prompt = prompt_of(tiny, case)
    expected = (case.content, case.reasoning, list(case.calls))
    for n in (len(case.text), 1, 2, 3, 7):
        message, deltas = read(prompt, case.text, n)
        assert meaning(message) == expected, n
        assert "".join(delta.content for delta in deltas) == message.content
        assert "".join(delta.reasoning_content for delta in deltas) == message.reasoning_content
        for index, call in enumerate(message.tool_calls):
            pieces = [piece for delta in deltas for piece in delta.tool_calls if piece.index == index]
            assert [piece.name for piece in pieces if piece.name] == [call.name]
            assert [piece.id for piece in pieces if piece.id] == [call.id]
            assert "".join(piece.arguments_text for piece in pieces) == call.arguments_text


@pytest.mark.slow_except(every=3)
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_an_answer_may_be_cut_anywhere(tiny: Model, case: Case) -> None:
    prompt = prompt_of(tiny, case)
    for n in range(len(case.text)):
        parser = prompt.parser()
        parser.feed(case.text[:n], last=True)
        message = parser.message
        assert len(message.tool_calls) <= len(case.calls)
        for call, (name, _) in zip(message.tool_calls, case.calls, strict=False):
            assert call.name == name


HALF = HERMES.replace('"get_weather"', 'get_weather"')


@pytest.mark.parametrize(
    "case",
    [
        # What follows the last call, and fits no format, is neither.
        Case("Qwen-Qwen3-0.6B", f"<think>\nHm.\n</think>\n\n{HERMES} So.", "", "Hm.\n", (PARIS,)),
        Case("NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", f"{HERMES}<|im_end|>\n", calls=(PARIS,)),
        # What is no call is text, and none of it is lost.
        Case("Qwen-Qwen2.5-7B-Instruct", f"I ask. {HALF}", f"I ask. {HALF}"),
        Case("Qwen-Qwen3-0.6B", f"<think>\nHm.\n</think>\n\n{HALF}", f"</think>\n\n{HALF}", "Hm.\n"),
        Case("microsoft-Phi-3.5-mini-instruct", f"é 😀 {HALF} é", f"é 😀 {HALF} é"),
        # Long, and therefore read in longer parts.
        Case("Qwen-Qwen2.5-7B-Instruct", f"{'é 😀 < ' * 400}{HERMES} So.", "é 😀 < " * 400, "", (PARIS,)),
    ],
    ids=range(6),
)
def test_what_leaves_its_format_means_the_same_however_it_is_cut(tiny: Model, case: Case) -> None:
    """A whole answer used to be content alone, and the same in pieces had its calls."""
    prompt = prompt_of(tiny, case)
    expected = (case.content, case.reasoning, list(case.calls))
    for n in (len(case.text), 1, 7, 50) if len(case.text) < 1000 else (len(case.text), 5, 1000):
        assert meaning(read(prompt, case.text, n)[0]) == expected, n


def test_a_call_that_goes_on_as_text_is_not_taken_back(tiny: Model) -> None:
    """However it is cut: a whole answer used to have no call, and the same in pieces had one."""
    call = "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n<arg_e"
    prompt = prompt_of(tiny, Case("inclusionai-ling-3.0-flash", call))
    for n in (len(call), 1, 7):
        message, _ = read(prompt, f"</think>I ask.\n{call}", n)
        assert message.content == f"I ask.\n{call}", n
        assert [(each.name, each.arguments_text) for each in message.tool_calls] == [("get_weather", '{"city":"Paris"')]


def test_a_parser_reads_one_answer(tiny: Model) -> None:
    prompt = prompt_of(tiny, CASES[0])
    parser = prompt.parser()
    parser.feed("x", last=True)
    with pytest.raises(pyggml.InvalidParameterError, match="complete output"):
        parser.feed("y")
    assert prompt.parser().message == ChatMessage()


@pytest.mark.slow_except(every=2)
@pytest.mark.parametrize(
    "text", ["\0", "<tool_call>" * 2000, "{" * 5000, "[" * 5000, "<think>" * 500, "\u2028😀" * 500]
)
def test_odd_texts_do_no_harm(tiny: Model, text: str) -> None:
    for name in ("Qwen-Qwen3-0.6B", "meta-llama-Llama-3.1-8B-Instruct", "google-gemma-2-2b-it"):
        parser = prompt_of(tiny, Case(name, text)).parser()
        parser.feed(text)
        parser.feed("", last=True)
        assert parser.message.tool_calls == ()


def test_deeply_nested_arguments_do_no_harm(tiny: Model) -> None:
    parser = prompt_of(tiny, Case("Qwen-Qwen3-0.6B", "")).parser()
    parser.feed('<tool_call>\n{"name": "get_weather", "arguments": {"city": ' + "[" * 50_000)
    parser.feed("", last=True)
    assert len(parser.message.tool_calls) <= 1


def test_an_answer_may_go_on_from_deeply_nested_arguments(tiny: Model) -> None:
    begun = '<tool_call>\n{"name": "get_weather", "arguments": {"city": ' + "[" * 50_000
    messages = [*USER, {"role": "assistant", "content": begun}]
    with ChatTemplates(tiny, (TEMPLATES / "Qwen-Qwen3-0.6B.jinja").read_text(encoding="utf-8")) as templates:
        parser = templates.render(messages, tools=TOOLS, continue_final_message=True).parser()
    parser.feed("1")
    parser.feed("]", last=True)
    assert len(parser.message.tool_calls) <= 1


def test_an_unpaired_surrogate_is_refused(tiny: Model) -> None:
    with pytest.raises(pyggml.InvalidParameterError, match="surrogate"):
        prompt_of(tiny, CASES[0]).parser().feed("\ud800")


@pytest.mark.parametrize(
    ("template", "match"),
    [
        ("a\n{% if %}", "could not be read.*%}"),
        ("{{ raise_exception('no thanks') }}", "no thanks"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "calls itself"),
        ("{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}", "calls itself"),
    ],
)
def test_bad_templates(tiny: Model, template: str, match: str) -> None:
    with (
        pytest.raises(pyggml.InvalidParameterError, match=match),
        pyggml.ChatTemplates(tiny, template) as templates,
    ):
        templates.render(USER)


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{% for m in messages %}\n{{ m.content }}\n{% endif %}", "Unknown statement: endif"),
        ("{% for m in messages %}\n{{ m.content + }}\n{% endfor %}", "Unexpected token: }}"),
        ("{{ bos_token }}\n\n{% for m of messages %}{% endfor %}", "Expected 'in'"),
        ("é\n日本 {% 3 %}", "Unknown statement"),
        ("{% if messages %}\n{{ messages }}", "ends inside a block"),
        ("a {{ 'abc }}", r"unexpected end of input(.|\n)*\.\.\.a {{ 'abc }}"),
        ("a {{", r"Unexpected EOF(.|\n)*\.\.\.a {{"),
    ],
)
def test_syntax_errors_tell_the_reason(tiny: Model, template: str, reason: str) -> None:
    """And where the engine's parser knows it, the place."""
    with pytest.raises(pyggml.InvalidParameterError, match=reason):
        pyggml.ChatTemplates(tiny, template)


def test_sort_keeps_the_order_of_equal_values(tiny: Model) -> None:
    """As jinja2's does, which is Python's."""
    items = [{"key": (i * 7) % 3, "number": i} for i in range(200)]
    expected = " ".join(str(item["number"]) for item in sorted(items, key=lambda item: item["key"]))
    template = "{% if items %}{{ items|sort(attribute='key')|map(attribute='number')|join(' ') }}{% endif %}"
    with pyggml.ChatTemplates(tiny, template) as templates:
        assert templates.render(USER, template_kwargs={"items": items}).text == expected


@pytest.mark.slow_except(every=3)
@pytest.mark.parametrize(
    ("template", "match"),
    [
        pytest.param(
            "{% for i in range(100000) %}{% for j in range(100000) %}{{ j }}{% endfor %}{% endfor %}",
            "does not end",
            marks=pytest.mark.slow,  # until the engine's interpreter gives up
        ),
        ("{{ range(1000000000)|length }}", "Range too big"),
        ("{{ range(10, -1000000000, -1)|length }}", "Range too big"),
        ("{{ range(0, 9223372036854775807, 1000000000000000)|length }}", "range of numbers that are too large"),
    ],
)
def test_templates_without_end(tiny: Model, template: str, match: str) -> None:
    with (
        pytest.raises(pyggml.InvalidParameterError, match=match),
        pyggml.ChatTemplates(tiny, template) as templates,
    ):
        templates.render(USER)
    with pyggml.ChatTemplates(tiny, "{{ range(100000)|length }} {{ range(3, 0, -1)|join }}") as templates:
        assert templates.render(USER).text == "100000 321"


@pytest.mark.parametrize("template", ["no_such_file.jinja", "default", ""])
def test_templates_that_are_not_there(tiny: Model, template: str) -> None:
    with pytest.raises(pyggml.InvalidParameterError, match=r"no such file|neither Jinja text, nor an existing file"):
        pyggml.ChatTemplates(tiny, template)


@pytest.mark.parametrize("tool_choice", [None, 5, [], {"type": "function"}])
def test_tool_choice_of_another_type(tiny: Model, tool_choice: Any) -> None:
    with (
        templates_of(tiny, "Qwen-Qwen3-0.6B") as templates,
        pytest.raises(pyggml.InvalidParameterError, match="tool_choice must be"),
    ):
        templates.render(USER, tools=TOOLS, tool_choice=tool_choice)


def test_tool_choice(tiny: Model) -> None:
    with templates_of(tiny, "Qwen-Qwen3-0.6B") as templates:
        one = templates.render(USER, tools=TOOLS, tool_choice="get_weather")
        assert one.grammar is not None
        assert not one.grammar_lazy
        assert "get_weather_history" not in one.grammar
        assert "get_weather_history" in one.text
        assert templates.render(USER, tools=TOOLS, tool_choice="none").grammar is None
        with pytest.raises(pyggml.InvalidParameterError, match="get_weather_history"):
            templates.render(USER, tools=TOOLS, tool_choice="nonesuch")
        with pytest.raises(pyggml.InvalidParameterError, match="no tools"):
            templates.render(USER, tool_choice="required")


def test_thinking_off(tiny: Model) -> None:
    with templates_of(tiny, "Qwen-Qwen3-0.6B") as templates:
        assert templates.supports.thinking
        assert templates.render(USER, thinking=False).text.endswith("<think>\n\n</think>\n\n")
        assert "<think>" not in templates.render(USER).text
        message, _ = read(templates.render(USER, thinking=False), "Grey.", 1)
        assert message == ChatMessage(content="Grey.")
        message, _ = read(templates.render(USER, split_reasoning=False), "<think>\nHm.\n</think>\n\nGrey.", 3)
        assert message.content == "<think>\nHm.\n</think>\n\nGrey."


def test_a_template_of_the_model_by_name(tmp_path: Path) -> None:
    vocabulary = {**models.byte_vocabulary(), "tokenizer.chat_template.other": "other: {{ messages[0].content }}"}
    path = models.write_llama(tmp_path / "named.gguf", vocabulary=vocabulary)
    with Model(path) as model, ChatTemplates(model) as own, ChatTemplates(model, "other") as other:
        assert own.names == ("other",)
        assert own.source == models.BYTE_CHAT_TEMPLATE
        assert other.render([{"role": "user", "content": "x"}]).text == "other: x"


@pytest.mark.slow
def test_a_trigger_that_may_be_spelled_with_other_tokens_is_waited_for_as_text() -> None:
    template = (TEMPLATES / "fireworks-ai-llama-3-firefunction-v2.jinja").read_text(encoding="utf-8")
    vocabulary = models.VOCABULARIES / "ggml-vocab-llama-bpe.gguf"
    with Model(vocabulary, vocab_only=True) as model:
        assert len(model.vocab.tokenize(">>>", add_special=False)) == 1
        with ChatTemplates(model, template.replace("functools", ">>>")) as templates:
            prompt = templates.render(USER, tools=TOOLS)
        with ChatTemplates(model, template.replace("functools", "<|reserved_special_token_7|>")) as templates:
            special = templates.render(USER, tools=TOOLS)
    assert (prompt.trigger_patterns, prompt.trigger_tokens) == ((">>>",), ())
    assert (special.trigger_patterns, len(special.trigger_tokens)) == ((), 1)
