"""Sampling parameters in requests: every protocol takes all of them, under all their names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import pytest
from pydantic import ValidationError

import pyggml
from pyggml.options import fields_of
from pyggml.server.protocols.anthropic.requests import CreateMessage
from pyggml.server.protocols.execute import Execute
from pyggml.server.protocols.ollama import requests as ollama
from pyggml.server.protocols.openai.chat_request import ChatRequest
from pyggml.server.protocols.openai.completions import CompletionRequest
from pyggml.server.protocols.responses.request import CreateResponse
from pyggml.server.protocols.sampling_fields import sampling_overrides

if TYPE_CHECKING:
    from pyggml.server.models.pool import LoadedModel

Json = dict[str, Any]
HELLO = [{"role": "user", "content": "Hello"}]
NO_MODEL = cast("LoadedModel", None)

#: The fields that a request for some sampling parameters sets.
READERS: dict[str, Callable[[Json], Mapping[str, Any]]] = {
    "chat": lambda sent: ChatRequest.model_validate({"messages": HELLO, **sent}).to_chat(NO_MODEL).sampling,
    "completion": lambda sent: CompletionRequest.model_validate({"prompt": "Hello", **sent}).to_sampling(NO_MODEL),
    "responses": lambda sent: CreateResponse.model_validate({"input": "Hello", **sent}).to_chat().sampling,
    "anthropic": lambda sent: (
        CreateMessage.model_validate({"model": "m", "max_tokens": 9, "messages": HELLO, **sent}).to_chat().sampling
    ),
    "ollama": lambda sent: ollama.GenerateRequest.model_validate({"model": "m", "options": sent}).sampling(),
    "execute": lambda sent: sampling_overrides(Execute.model_validate({"prompt": "Hello", **sent})),
}

#: Values of fields whose type is not a number or a boolean.
VALUES: Json = {
    "dry_sequence_breakers": ["."],
    "samplers": ["top_k"],
    "stop": ["."],
    "stop_token_ids": [5],
    "bad_words": ["no", [1, 2]],
    "allowed_token_ids": [5, 6],
    "logit_bias": {5: 1.0},
    "grammar": 'root ::= "a"',
    "json_schema": {"type": "integer"},
    "json_schema_options": {"any_order": True},
    "choices": ["a", "b"],
    "regex": "[0-9]{3}",
    "reasoning_budget_message": "Enough.",
    "cache_salt": "a user",
    "adapter": {"law": 0.5},
    "logprobs_mode": "processed_logprobs",
    "adaptive_decay": 0.5,
    "overflow": "shift",
    "speculative": "off",
}
SENT = {
    name: VALUES.get(name, True if bool in field.types else 1)
    for name, field in fields_of(pyggml.SamplingParams).items()
    if name not in ("logprobs", "prompt_logprobs", "logits_processor")
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_every_sampling_parameter(read: Callable[[Json], Mapping[str, Any]]) -> None:
    for name, value in SENT.items():
        assert read({name: {"5": 1.0} if name == "logit_bias" else value})[name] == value


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_other_names(read: Callable[[Json], Mapping[str, Any]], request: pytest.FixtureRequest) -> None:
    for other, name in {
        "guided_regex": "regex",
        "guided_choice": "choices",
        "guided_grammar": "grammar",
        "guided_json": "json_schema",
        "temp": "temperature",
        "min_new_tokens": "min_tokens",
        "stop_strings": "stop",
    }.items():
        assert read({other: SENT[name]})[name] == SENT[name]
    if "anthropic" not in request.node.name:  # max_tokens is required there
        for other in ("max_new_tokens", "n_predict", "max_completion_tokens", "max_output_tokens", "num_predict"):
            assert read({other: 3})["max_tokens"] == 3


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_values_that_other_servers_ignore(read: Callable[[Json], Mapping[str, Any]]) -> None:
    found = read({"grammar": "", "regex": "", "stop": ["", "."], "timeout_s": None})
    assert found["stop"] == ["."]
    assert not {"grammar", "regex", "timeout_s"} & found.keys()


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize("sent", [{"timeout_s": -1}, {"regex": 5}, {"choices": "ab"}, {"top_p": 2}])
def test_values_of_a_wrong_type_or_size(read: Callable[[Json], Mapping[str, Any]], sent: Json) -> None:
    with pytest.raises(ValidationError, match=next(iter(sent))):
        read(sent)


def test_a_protocols_own_fields_take_precedence() -> None:
    assert READERS["ollama"]({"num_predict": -2, "max_tokens": 5})["max_tokens"] == -1
    assert READERS["chat"]({"max_completion_tokens": 2, "max_tokens": 5})["max_tokens"] == 2
    assert READERS["responses"]({"max_output_tokens": 2, "max_tokens": 5})["max_tokens"] == 2
    form = {"format": {"type": "json_schema", "schema": {"type": "string"}}}
    assert READERS["anthropic"]({"output_config": form, "json_schema": {}})["json_schema"] == {"type": "string"}
    assert READERS["anthropic"]({"stop_sequences": ["a"], "stop": "b"})["stop"] == ["a"]
    assert READERS["chat"]({"regex": "a", "structured_outputs": {"regex": "b"}})["regex"] == "a"


def test_other_fields_for_a_full_context() -> None:
    def of_ollama(sent: Json) -> Mapping[str, Any]:
        return ollama.GenerateRequest.model_validate({"model": "m", **sent}).sampling()

    for read, field, on, off in (
        (READERS["responses"], "truncation", "auto", "disabled"),
        (of_ollama, "truncate", True, False),
        (of_ollama, "shift", True, False),
    ):
        assert read({field: on})["overflow"] == "shift"
        assert "overflow" not in {*read({}), *read({field: off})}
