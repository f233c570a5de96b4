"""Tool calls as templates write them in the history: their parsers read them back, and their grammars allow them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from support.checkpoints import models

import pyggml
from pyggml.chat import ChatPrompt

TEMPLATES = models.VOCABULARIES / "templates"
ASKED = [{"role": "user", "content": "Hi"}]
RESULT = "pyggmlresult"
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "c"},
                "days": {"type": "integer", "description": "d"},
                "ratio": {"type": "number", "description": "r"},
                "flags": {"type": "array", "items": {"type": "boolean"}, "description": "f"},
                "nested": {"type": "object", "properties": {"a": {"type": "string"}}, "description": "n"},
            },
            "required": ["city"],
        },
    },
}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "text": {"city": 'Pâris "x"'},
    "values": {"city": "P", "days": 3, "ratio": 48.8566101, "flags": [True, False], "nested": {"a": "b"}},
}

NEEDS_FIELDS = "takes only tools with additionalProperties"
#: Templates of which a call is not read back, in which cases, and why.
EXCEPTIONS: dict[str, tuple[frozenset[str], str]] = {
    "ByteDance-Seed-OSS": (frozenset({"values"}), "writes lists and objects as Python does, not as JSON"),
    "CohereForAI-c4ai-command-r-plus-tool_use": (frozenset(ARGUMENTS), NEEDS_FIELDS),
    "IFM-K2-Horizon": (frozenset(ARGUMENTS), "writes calls otherwise than it tells the model to"),
    "MiniMax-M3": (frozenset({"values"}), "writes lists and objects as elements, which the engine reads as JSON"),
}
#: Templates whose grammar does not allow a part of what they write, and the part.
NARROWER = {
    "Apriel-1.6-15b-Thinker-fixed": ', "id": "',  # behind the arguments, after reasoning
    "Kimi-K3": "|open|>response",  # its channel for text, in which tools that it has no format for are called
    "muse-glimmer": "to=user<|message|>",
}


@pytest.fixture(scope="module")
def llm() -> Iterator[pyggml.LLM]:
    with pyggml.load(device="cpu") as opened:
        yield opened


def answer_to(prompt: ChatPrompt, history: str) -> str:
    """Return the answer that follows a prompt, as the history has it, up to the call's result."""
    n_same = next((i for i, (a, b) in enumerate(zip(prompt.text, history, strict=False)) if a != b), len(prompt.text))
    common = history[:n_same]
    if common != prompt.text:
        common = re.sub(r"[<\[][^>\]]*$", "", common)  # no part of a special token
    answer, begun = history[len(common) :].partition(RESULT)[0], prompt.text[len(common) :]
    if not begun:
        return answer
    start, ends = prompt.thinking_start, prompt.thinking_ends
    without = re.sub(rf"^\s*(?:{re.escape(start)})?\s*{re.escape(ends[0].strip())}", "", answer)
    is_closed = prompt.text.rstrip().endswith(ends[0].strip())
    return without if is_closed else ends[0] + without


@pytest.mark.slow_except(every=12)
@pytest.mark.parametrize("name", sorted(path.stem for path in TEMPLATES.glob("*.jinja")))
def test_calls_are_read_back_and_may_be_generated(llm: pyggml.LLM, name: str) -> None:
    templates = llm.chat_templates(TEMPLATES / f"{name}.jinja")
    exempt, reason = EXCEPTIONS.get(name, (frozenset(), ""))
    for case, arguments in ARGUMENTS.items():
        is_read = is_call_read_back(llm, templates, arguments, NARROWER.get(name))
        assert is_read == (case not in exempt), f"{case}; {reason}"


def is_call_read_back(
    llm: pyggml.LLM, templates: pyggml.ChatTemplates, arguments: dict[str, Any], narrower: str | None
) -> bool:
    function = {"name": "get_weather", "arguments": arguments}
    call = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "abcdef123", "type": "function", "function": function}],
    }
    result = {"role": "tool", "tool_call_id": "abcdef123", "name": "get_weather", "content": RESULT}
    try:
        prompt = templates.render(ASKED, tools=[TOOL])
        history = templates.render([*ASKED, call, result], tools=[TOOL], add_generation_prompt=False).text
    except pyggml.InvalidParameterError:
        return False
    answer, parser = answer_to(prompt, history), prompt.parser()
    parser.feed(answer)
    parser.feed("", last=True)
    calls = parser.message.tool_calls
    if [(each.name, parsed(each.arguments_text)) for each in calls] != [("get_weather", arguments)]:
        return False
    forced = templates.render(ASKED, tools=[TOOL], tool_choice="required")
    allowed = n_allowed(llm, forced, answer)
    if narrower:
        assert answer[allowed:].startswith(narrower), f"allows {answer[:allowed]!r} of {answer!r}"
    else:
        assert "city" not in answer[allowed:], f"allows {answer[:allowed]!r} of {answer!r}"
        assert "abcdef123" not in answer[allowed:] or RESULT_FIRST.search(answer[allowed:])
    return True


RESULT_FIRST = re.compile(r"(?s)(\n|<|\[|\|).*abcdef123")  # the id of a result, in the next message


def parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def n_allowed(llm: pyggml.LLM, prompt: ChatPrompt, answer: str) -> int:
    """Return how much of an answer a prompt's grammar allows, by bisection."""
    low, high = 0, len(answer)
    while low < high:
        middle = (low + high + 1) // 2
        if allows(llm, prompt, answer[:middle]):
            low = middle
        else:
            high = middle - 1
    return low


def allows(llm: pyggml.LLM, prompt: ChatPrompt, text: str) -> bool:
    assert prompt.grammar is not None
    try:
        llm.generate("x", grammar=pyggml.Grammar(prompt.grammar, prefix=prompt.grammar_prefix + text), max_tokens=1)
    except pyggml.GrammarError:
        return False
    return True
