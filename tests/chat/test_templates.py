"""Every template of the vendored collection, rendered here and by jinja2 with Hugging Face's settings."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jinja2
import pytest
from support.checkpoints import hf_template, models

from pyggml._native.model import Model
from pyggml.chat import ChatTemplates
from pyggml.errors import InvalidParameterError

TEMPLATES = models.VOCABULARIES / "templates"
NAMES = sorted(path.stem for path in TEMPLATES.glob("*.jinja"))

# The shipped byte vocabulary's, which templates read.
TOKENS = {"bos_token": "<s>", "eos_token": "<|endoftext|>"}

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather in a city",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
                "required": ["city"],
            },
        },
    }
]

Message = dict[str, Any]


def said(role: str, content: str) -> Message:
    return {"role": role, "content": content}


SYSTEM = said("system", "Answer briefly.")
CALL: Message = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {"id": "abcdef123", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Paris"}}}
    ],
}
RESULT: Message = {"role": "tool", "tool_call_id": "abcdef123", "name": "get_weather", "content": '{"sky": "grey"}'}
TURNS = [said("user", "Hello & <good> 'day'"), said("assistant", "Good day."), said("user", 'Où est "Pâris"?\n')]
WITH_CALL = [said("user", "How is the weather?"), CALL, RESULT]

CONVERSATIONS: dict[str, list[Message]] = {
    "user": [said("user", "Hello")],
    "system": [SYSTEM, said("user", "Hello")],
    "turns": TURNS,
    "system and turns": [SYSTEM, *TURNS],
    "tools": [said("user", "How is the weather?")],
    "tools and system": [SYSTEM, said("user", "How is the weather?")],
    "tools and call": WITH_CALL,
    "tools and turns": [SYSTEM, *WITH_CALL, said("assistant", "It is grey."), said("user", "Thanks")],
}
ALL = frozenset(CONVERSATIONS)
TOOLED = frozenset(name for name in ALL if name.startswith("tools"))
CALLED = frozenset({"tools and call", "tools and turns"})
SYSTEMS = frozenset({"system", "system and turns"})
ANSWERED = frozenset({"turns", "system and turns", *CALLED})
LONGEST = frozenset({"system and turns", "tools and turns"})  # they begin as most of the others

NO_TOOL_FORMAT = "describes no tools that it also says how to call: pyggml describes them in the system message"
NO_SCHEMAS = (
    "writes arguments in a form that no schema can be enforced in: pyggml describes its own in the system message"
)
NEEDS_TOOLS = "fails without tools; Hugging Face has it with another one that serves then"

# Where the texts differ: in which conversations, and why. A test fails when one that is listed does not differ.
DIFFERENT: dict[str, tuple[frozenset[str], str]] = {
    "CohereForAI-c4ai-command-r-plus-tool_use": (ALL - TOOLED, NEEDS_TOOLS),
    "HuggingFaceTB-SmolLM3-3B": (TOOLED, NO_TOOL_FORMAT),
    "IFM-K2-Horizon": (ANSWERED, "refuses answers without reasoning; they get an empty one"),
    "Kimi-K3": (TOOLED, NO_SCHEMAS),
    "LFM2-8B-A1B": (TOOLED, NO_SCHEMAS),
    "LFM2.5-8B-A1B": (TOOLED, NO_SCHEMAS),
    "LFM2.5-Instruct": (TOOLED, NO_SCHEMAS),
    "Kimi-K2-Instruct": (CALLED, "appends to a list, which jinja2's sandbox forbids"),
    "Kimi-K2-Thinking": (CALLED, "appends to a list, which jinja2's sandbox forbids"),
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": (ALL - TOOLED, NEEDS_TOOLS),
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": (ALL - TOOLED, NEEDS_TOOLS),
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": (TOOLED, NO_TOOL_FORMAT),
    "fireworks-ai-llama-3-firefunction-v2": (ALL, "gets the variables that its model card asks for"),
    "google-gemma-2-2b-it": (SYSTEMS | TOOLED, "refuses system messages, which go to the front of the user's"),
    "google-gemma-4-31B-it": (TOOLED, NO_SCHEMAS),
    "google-gemma-4-31B-it-interleaved": (TOOLED, NO_SCHEMAS),
    "google-translategemma-4b-it": (ALL, "refuses text; it gets the parts that it wants"),
    "ibm-granite-granite-3.3-2B-Instruct": (TOOLED, NO_TOOL_FORMAT),
    "llama-cpp-deepseek-r1": (TOOLED, "writes a generator as JSON, which Python cannot"),
    "llama-cpp-rwkv-world": (TOOLED, NO_TOOL_FORMAT),
    "muse-glimmer": (TOOLED, NO_SCHEMAS),
    "openbmb-MiniCPM5-1B": (TOOLED, NO_SCHEMAS),
    "meetkai-functionary-medium-v3.2": (CALLED, "wants the arguments of calls as JSON text, and gets them so"),
    "microsoft-Phi-3.5-mini-instruct": (TOOLED, NO_TOOL_FORMAT),
}


def tools_for(conversation: str) -> list[dict[str, Any]] | None:
    return TOOLS if conversation in TOOLED else None


def reference(source: str, conversation: str, *, add_generation_prompt: bool) -> str | None:
    """jinja2's text without the BOS that tokenizing adds; None when the template refuses or cannot be rendered."""
    with contextlib.suppress(jinja2.TemplateError, TypeError):
        text = hf_template.render(
            source,
            messages=CONVERSATIONS[conversation],
            tools=tools_for(conversation),
            add_generation_prompt=add_generation_prompt,
            documents=None,
            **TOKENS,
        )
        return text.removeprefix(TOKENS["bos_token"])
    return None


def rendered(templates: ChatTemplates, conversation: str, *, add_generation_prompt: bool) -> str | None:
    """Our text; None when the template refuses or cannot be rendered."""
    with contextlib.suppress(InvalidParameterError):
        return templates.render(
            CONVERSATIONS[conversation],
            tools=tools_for(conversation),
            add_generation_prompt=add_generation_prompt,
        ).text
    return None


@pytest.fixture(scope="module")
def vocabulary(tiny_path: Path) -> Iterator[Model]:
    with Model(tiny_path) as model:
        yield model


@pytest.mark.slow_except(every=25)
@pytest.mark.parametrize(
    "conversations",
    [pytest.param(LONGEST, id="longest"), pytest.param(ALL - LONGEST, id="others", marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("name", NAMES)
def test_prompts_are_those_of_jinja2(vocabulary: Model, name: str, conversations: frozenset[str]) -> None:
    source = (TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")
    different, reason = DIFFERENT.get(name, (frozenset(), ""))
    with ChatTemplates(vocabulary, source) as templates:
        for conversation in sorted(conversations):
            same = []
            for add_generation_prompt in (True, False):
                text = rendered(templates, conversation, add_generation_prompt=add_generation_prompt)
                expected = reference(source, conversation, add_generation_prompt=add_generation_prompt)
                if conversation not in different:
                    assert text == expected, conversation
                same.append(text == expected)
            assert conversation not in different or not all(same), f"{conversation} is the same now: {reason}"


def test_the_time_on_several_threads(vocabulary: Model) -> None:
    """Nothing is shared that one thread writes while another reads; that is for `make tsan-tests` to see."""
    before = dt.date.today().isoformat()

    def render(_: int) -> set[str]:
        with ChatTemplates(vocabulary, "{{ strftime_now('%Y-%m-%d') }}") as templates:
            return {templates.render([{"role": "user", "content": "hi"}]).text for _ in range(50)}

    with ThreadPoolExecutor(4) as threads:
        found = set[str]().union(*threads.map(render, range(4)))
    assert found <= {before, dt.date.today().isoformat()}


@pytest.mark.slow
def test_the_list_names_templates_that_are_there() -> None:
    assert DIFFERENT.keys() <= set(NAMES)
