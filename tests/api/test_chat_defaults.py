"""Default sampling parameters of chats, the same in every interface, and the repetition guard."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.checkpoints import models
from support.servers import servers

import pyggml
from pyggml import SamplingParams
from pyggml.cli.chat.model import ChatModelInfo
from pyggml.cli.chat.parameters import Parameters
from pyggml.cli.chat.session import Session
from pyggml.options.chat_defaults import LIMITS, chat_defaults, with_defaults
from pyggml.server.models.model_state import LoadedModel
from pyggml.server.settings.options import Settings

HELLO = [{"role": "user", "content": "Hello"}]
LOOP = {300: 1000.0}  # a bias that makes the model repeat one token
ENDS_AFTER = range(1024, 1024 + 64)  # tokens


@pytest.mark.parametrize(
    ("recommended", "sampling"),
    [
        (None, {"temperature": 0.8, "top_k": 40, "min_p": 0.05}),
        ({"temp": 0.6, "top_p": 0.95}, {"temperature": 0.6, "top_p": 0.95}),
        ({"temp": 0.0}, {"temperature": 0.0}),
        ({"mirostat": 2}, {"temperature": 1.0, "mirostat": 2}),
    ],
)
def test_one_model_has_one_default(tmp_path: Path, recommended: Any, sampling: dict[str, Any]) -> None:
    metadata = {f"general.sampling.{key}": value for key, value in (recommended or {}).items()}
    path = models.write_llama(tmp_path / "model.gguf", {**models.byte_vocabulary(), **metadata})
    expected = SamplingParams(**sampling, max_tokens=8192, repetition_guard=True)
    with pyggml.load(path) as llm:
        session = Session("", Parameters({}))
        session.use_model(ChatModelInfo(recommended=llm.recommended_sampling))
        server = LoadedModel.create("model", llm, {}, None)
        requested = server.sampling_params({}, 1, Settings(request_timeout=None))
    found = [llm.chat_defaults, session.parameters.effective, *requested]
    for each in found:
        for name in ("temperature", "top_p"):  # stored as float32
            assert getattr(each, name) == pytest.approx(getattr(expected, name), 1e-6)
            object.__setattr__(each, name, getattr(expected, name))
        assert each == expected


@pytest.mark.parametrize(
    ("given", "off"),
    [
        ({"mirostat": 2}, {"top_k", "min_p"}),
        ({"samplers": ("temperature",)}, {"top_k", "min_p"}),
        ({"temperature": 0}, set()),
        ({"ignore_eos": True}, {"repetition_guard"}),
        ({"ignore_eos": True, "repetition_guard": True}, set()),
        ({"max_tokens": 5, "top_k": 3}, set()),
        ({"response_format": {"type": "json_object"}}, set()),
    ],
)
def test_what_is_given_turns_off_what_contradicts_it(given: dict[str, Any], off: set[str]) -> None:
    params, defaults = with_defaults(given, chat_defaults(None)), chat_defaults(None)
    alone = SamplingParams(**given)
    for name, default in defaults.items():
        expected = default if name not in {*given, *off} else getattr(alone, name)
        assert getattr(params, name) == expected, name
    with pytest.raises(pyggml.InvalidParameterError, match="mirostat replaces top_k"):
        with_defaults({"mirostat": 2, "top_k": 5}, defaults)


def test_a_given_format_replaces_a_default_one() -> None:
    default = {"json_schema": {"type": "integer"}, **LIMITS}
    assert with_defaults({"response_format": {"type": "json_object"}}, default).json_schema == {"type": "object"}
    assert with_defaults({"grammar": 'root ::= "a"'}, default).json_schema is None


# --- the repetition guard ---------------------------------------------------------------------------------------


def test_a_chat_that_goes_round_in_circles_ends(llm: pyggml.LLM) -> None:
    async def achat() -> pyggml.ChatCompletion:
        return await llm.achat(HELLO, logit_bias=LOOP)

    streamed = llm.stream_chat(HELLO, logit_bias=LOOP).finish()
    greedy = llm.chat(HELLO, logit_bias=LOOP, temperature=0)
    for done in (llm.chat(HELLO, logit_bias=LOOP), greedy, asyncio.run(achat()), streamed):
        assert (done.finish_reason, done.stop_reason) == ("length", "repetition")
        assert len(done.token_ids) in ENDS_AFTER


@pytest.mark.parametrize("options", [{"ignore_eos": True}, {"repetition_guard": False}])
def test_it_goes_on_where_that_is_asked_for(llm: pyggml.LLM, options: dict[str, Any]) -> None:
    done = llm.chat(HELLO, logit_bias=LOOP, max_tokens=1200, **options)
    assert (len(done.token_ids), done.finish_reason) == (1200, "length")
    assert done.stop_reason != "repetition"


def test_a_completion_is_guarded_on_request(llm: pyggml.LLM) -> None:
    assert len(llm.generate("Hello", logit_bias=LOOP, max_tokens=1200).token_ids) == 1200
    done = llm.generate("Hello", logit_bias=LOOP, max_tokens=-1, repetition_guard=True)
    assert done.stop_reason == "repetition"
    assert len(done.token_ids) in ENDS_AFTER
    with llm.stream("Hello", logit_bias=LOOP, max_tokens=-1, repetition_guard=True) as stream:
        assert list(stream)[-1].stop_reason == "repetition"


@pytest.mark.slow
def test_an_isolated_model_is_guarded_too() -> None:
    with pyggml.load(n_ctx=2048, n_threads=1, isolate=True) as llm:
        assert llm.chat(HELLO, logit_bias=LOOP).stop_reason == "repetition"


LISTS = {
    "numbers": "".join(f"{n}. I will not talk in class.\n" for n in range(1, 300)),
    "punishment": "I will not talk in class.\n" * 100,
    "table": "| n | square |\n|---|---|\n" + "".join(f"| {n} | {n * n} |\n" for n in range(300)),
    "empty table": "|---" * 40 + "|\n" + "| | | |\n" * 60,
    "rulers": ("-" * 200 + "\n" + "=" * 120 + "\n") * 3,
    "zeros": "\n".join(["0, " * 16] * 18),
    "code": "\n".join(f"        case {n}:\n            return {n};\n            break;" for n in range(100)),
    "refrain": "Row, row, row your boat,\nGently down the stream.\nMerrily, merrily, merrily, merrily.\n\n" * 12,
}


@pytest.mark.slow_except("punishment", "empty table", "rulers", "zeros", "refrain")
@pytest.mark.parametrize("name", LISTS)
def test_text_that_may_repeat_is_not_cut(llm: pyggml.LLM, name: str) -> None:
    lines = LISTS[name].splitlines(keepends=True)
    literals = (line.replace("\n", "\\n").replace('"', '\\"') for line in lines)
    grammar = "root ::= " + " ".join(f'"{line}"' for line in literals)
    done = llm.chat(HELLO, grammar=grammar)
    assert done.text == LISTS[name]
    assert done.finish_reason == "stop"


# --- over HTTP --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with servers.serving(pyggml.server.create_app(Settings(load={"n_ctx": 4096, "n_threads": 1}))) as url:
        yield url


REQUESTS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": HELLO},
    "/v1/completions": {"prompt": "Hello"},
    "/v1/responses": {"input": "Hello"},
    "/v1/messages": {"messages": HELLO, "max_tokens": -1, "model": "default"},
    "/api/chat": {"messages": HELLO, "model": "default", "stream": False},
    "/api/generate": {"prompt": "Hello", "model": "default", "stream": False},
}


@pytest.mark.slow_except("/v1/chat/completions", "/v1/messages")
@pytest.mark.parametrize("path", REQUESTS)
def test_every_protocol_ends_what_goes_round_in_circles(url: str, path: str) -> None:
    options = {"logit_bias": {str(token): bias for token, bias in LOOP.items()}}
    body = REQUESTS[path] | ({"options": options} if path.startswith("/api/") else options)
    reply = httpx.post(url + path, json=body, timeout=60).json()
    usage = reply.get("usage", {})
    found = usage.get("completion_tokens") or usage.get("output_tokens") or reply.get("eval_count")
    assert found in ENDS_AFTER, reply
    assert "length" in str(reply) or "max_tokens" in str(reply) or "incomplete" in str(reply)


@pytest.mark.slow
def test_minus_one_is_the_rest_of_the_context_everywhere(url: str, llm: pyggml.LLM) -> None:
    assert llm.generate([5] * (llm.n_ctx - 10), max_tokens=-1, ignore_eos=True).timings.generated_tokens == 11
    more = {"ignore_eos": True, "temperature": 0}
    lengths: dict[str, dict[str, Any]] = {
        "/v1/chat/completions": {"max_tokens": -1, **more},
        "/v1/completions": {"max_tokens": -1, **more},
        "/v1/responses": {"max_output_tokens": -1, **more},
        "/v1/messages": {"max_tokens": -1, **more},
        "/api/generate": {"options": {"num_predict": -2, **more}},
    }
    for path, options in lengths.items():
        reply = httpx.post(url + path, json=REQUESTS[path] | options, timeout=60).json()
        usage = reply.get("usage", {})
        found = usage.get("completion_tokens") or usage.get("output_tokens") or reply.get("eval_count")
        assert found > 3900, (path, reply)
