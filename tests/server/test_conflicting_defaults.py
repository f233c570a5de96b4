"""Sampling parameters of a request drop the server's defaults that contradict them, over every protocol."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import pyggml
from pyggml.server import Settings
from pyggml.server.models.model_state import LoadedModel
from pyggml.server.protocols.anthropic.requests import CreateMessage
from pyggml.server.protocols.execute import Execute
from pyggml.server.protocols.ollama import requests as ollama
from pyggml.server.protocols.openai.chat_request import ChatRequest
from pyggml.server.protocols.openai.completions import CompletionRequest
from pyggml.server.protocols.responses.request import CreateResponse
from pyggml.server.protocols.sampling_fields import sampling_overrides

HELLO = [{"role": "user", "content": "Hello"}]


@pytest.fixture(scope="module")
def llm() -> Iterator[pyggml.LLM]:
    with pyggml.load(n_ctx=256) as llm:
        yield llm


def sampled(llm: pyggml.LLM, defaults: dict[str, Any], **sent: Any) -> list[pyggml.SamplingParams]:
    """Return the parameters of the same request over each protocol."""
    model = LoadedModel.create("m", llm, defaults, None)
    options = {"model": "m", "options": sent}
    requests = [
        ChatRequest.model_validate({"messages": HELLO, **sent}).to_chat(model).sampling,
        CompletionRequest.model_validate({"prompt": "Hello", **sent}).to_sampling(model),
        CreateResponse.model_validate({"input": "Hello", **sent}).to_chat().sampling,
        CreateMessage.model_validate({"model": "m", "max_tokens": 9, "messages": HELLO, **sent}).to_chat().sampling,
        ollama.ChatRequest.model_validate({"messages": HELLO, **options}).to_chat().sampling,
        ollama.GenerateRequest.model_validate({"prompt": "Hello", **options}).sampling(),
        sampling_overrides(Execute.model_validate({"prompt": "Hello", **sent})),
    ]
    return [params for each in requests for params in model.sampling_params(each, 1, Settings())]


def test_mirostat_drops_default_samplers(llm: pyggml.LLM) -> None:
    for params in sampled(llm, {"temperature": 0.7, "top_k": 20, "top_p": 0.8, "repeat_penalty": 1.1}, mirostat=2):
        assert (params.mirostat, params.top_k, params.top_p, params.min_p) == (2, 0, 1, 0)
        assert (params.temperature, params.repeat_penalty) == (0.7, 1.1)


def test_samplers_drop_defaults_that_they_leave_out(llm: pyggml.LLM) -> None:
    sent = {"samplers": ["min_p", "temperature"], "min_p": 0.1}
    for params in sampled(llm, {"temperature": 0.7, "top_k": 20, "top_p": 0.8, "mirostat": 0}, **sent):
        assert (params.samplers, params.min_p) == (("min_p", "temperature"), 0.1)
        assert (params.temperature, params.top_k, params.top_p) == (0.7, 0, 1)


def test_samplers_without_temperature_are_not_greedy(llm: pyggml.LLM) -> None:
    for params in sampled(llm, {"temperature": 0.7}, samplers=["top_k"], top_k=5):
        assert (params.temperature, params.top_k) == (1, 5)


def test_a_sampler_drops_a_default_mirostat(llm: pyggml.LLM) -> None:
    for params in sampled(llm, {"temperature": 0.7, "mirostat": 2}, top_k=5):
        assert (params.mirostat, params.top_k, params.temperature) == (0, 5, 0.7)


def test_parameters_of_one_request_must_agree(llm: pyggml.LLM) -> None:
    with pytest.raises(pyggml.InvalidParameterError, match="mirostat replaces top_k"):
        sampled(llm, {"temperature": 0.7}, mirostat=2, top_k=5)
