"""Results as JSON: plainly, and in the form that OpenAI's client reads."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from support.paths import DATA

import pyggml
from pyggml import ChatChunk, ChatCompletion, ChatMessage, Chunk, Completion, Timings, ToolCall, ToolCallDelta
from pyggml.types import TextOffsets

PROMPT = "Once upon a time"
MESSAGES = [{"role": "user", "content": "What colour is the sky?"}]
#: What OpenAI's own classes accept, recorded by tools/record_openai_forms.py.
FORMS: dict[str, Any] = json.loads((DATA / "openai_forms.json").read_text(encoding="utf-8"))

CALL = ToolCall("call_1", "get_weather", '{"city": "Paris"}')
CALLED = ChatCompletion(
    '<tool_call>{"name"...', [5, 6], "tool_calls", 2, 9, 3, Timings(), message=ChatMessage("assistant", "", "", (CALL,))
)


@pytest.fixture(scope="module")
def llm() -> Iterator[pyggml.LLM]:
    with pyggml.load(n_ctx=512, n_parallel=2) as llm:
        yield llm


def as_sent(value: dict[str, Any]) -> dict[str, Any]:
    """Send a value as strict JSON and return what arrives; values that strict JSON cannot represent raise."""
    received: dict[str, Any] = json.loads(json.dumps(value, allow_nan=False))
    return received


def require_openais(value: dict[str, Any]) -> dict[str, Any]:
    received = as_sent(value)
    jsonschema.validate(received, FORMS[received["object"]])
    return received


# --- plain ---------------------------------------------------------------------------------------------------------


def test_a_completion_is_its_attributes(llm: pyggml.LLM) -> None:
    done = llm.generate(PROMPT, max_tokens=4, logprobs=2, prompt_logprobs=1)
    plain = as_sent(done.to_dict())
    assert list(plain) == [name for name in vars(done) if not name.startswith("_")]
    for name in ("text", "token_ids", "finish_reason", "stop_reason", "prompt_tokens", "cached_tokens"):
        assert plain[name] == getattr(done, name)
    assert plain["timings"] == {
        **vars(done.timings),
        "ttft_s": done.timings.ttft_s,
        "itl_s": done.timings.itl_s,
        "tokens_per_s": done.timings.tokens_per_s,
    }
    assert done.logprobs is not None
    assert plain["logprobs"][0] == {
        "token_id": done.token_ids[0],
        "logprob": done.logprobs[0].logprob,
        "top": [top._asdict() for top in done.logprobs[0].top],
    }
    assert plain["prompt_logprobs"][0] is None
    assert len(plain["prompt_logprobs"]) == done.prompt_tokens


@pytest.mark.slow
def test_an_answer_and_its_pieces(llm: pyggml.LLM) -> None:
    stream = llm.stream_chat(MESSAGES, max_tokens=8, logprobs=1)
    chunks = [as_sent(chunk.to_dict()) for chunk in stream]
    plain = as_sent(stream.completion.to_dict())
    assert plain["message"] == {"role": "assistant", "content": stream.completion.message.content}
    assert "".join(chunk["content"] for chunk in chunks) == plain["message"]["content"]
    assert chunks[-1]["finish_reason"] == plain["finish_reason"]
    assert [entry for chunk in chunks for entry in chunk["logprobs"]] == plain["logprobs"]


def test_calls_are_in_the_form_of_messages() -> None:
    assert as_sent(CALLED.to_dict())["message"]["tool_calls"] == [CALL.to_dict()]
    delta = ToolCallDelta(0, "call_1", "get_weather")
    assert as_sent(ChatChunk("", [5], tool_calls=(delta,)).to_dict())["tool_calls"] == [delta.to_dict()]


def test_counters_and_other_results(llm: pyggml.LLM, tmp_path: Path) -> None:
    stats = llm.stats()
    assert as_sent(stats.to_dict()) == {
        **vars(stats),
        "not_batch_invariant": list(stats.not_batch_invariant),
        "tokens_per_step": stats.tokens_per_step,
        "cached_fraction": stats.cached_fraction,
    }
    report = pyggml.inspect(None)
    assert as_sent(report.to_dict())["ok"] is True
    assert as_sent(report.estimate(n_ctx=512).to_dict())["fits"] is True
    assert as_sent(pyggml.perplexity(llm, "Once upon a time. " * 40, n_ctx=64).to_dict())["n_ctx"] == 64
    path = tmp_path / "small.gguf"
    assert as_sent(pyggml.quantize(pyggml.SHIPPED_MODEL, path, "q4_0", requantize=True).to_dict())["path"] == str(path)


def test_a_token_that_cannot_be_is_written_as_a_number() -> None:
    never = pyggml.TokenLogprobs(5, -math.inf, [pyggml.TokenLogprob(6, -math.inf)])
    chunk = Chunk("a", [5], logprobs=[never])
    assert as_sent(chunk.to_dict())["logprobs"][0]["logprob"] == -9999.0
    assert require_openais({**chunk.to_dict("openai"), "object": "chat.completion.chunk", "choices": []})
    logprobs = as_sent(chunk.to_dict("openai"))["choices"][0]["logprobs"]
    assert (logprobs["token_logprobs"], logprobs["top_logprobs"]) == (
        [-9999.0],
        [dict.fromkeys(("token_id:5", "token_id:6"), -9999.0)],
    )


# --- OpenAI's ------------------------------------------------------------------------------------------------------


def test_openais_completion(llm: pyggml.LLM) -> None:
    done = llm.generate(PROMPT, max_tokens=5)
    now = int(time.time())
    found = require_openais(done.to_dict("openai", model="demo"))
    assert found.pop("id").startswith("cmpl-")
    assert 0 <= found.pop("created") - now <= 60
    assert found == {
        "object": "text_completion",
        "model": "demo",
        "choices": [
            {"index": 0, "text": done.text, "logprobs": None, "finish_reason": "length", "stop_reason": "max_tokens"}
        ],
        "usage": {
            "prompt_tokens": done.prompt_tokens,
            "completion_tokens": 5,
            "total_tokens": done.prompt_tokens + 5,
            "prompt_tokens_details": {"cached_tokens": done.cached_tokens},
        },
    }
    assert done.to_dict("openai")["id"] != llm.generate(PROMPT, max_tokens=1).to_dict("openai")["id"]
    unknown = Completion("a", [5], "stop", 2, 3, 0, Timings())
    assert unknown.to_dict("openai")["id"] != unknown.to_dict("openai")["id"]


def test_openais_logprobs_of_a_completion(llm: pyggml.LLM) -> None:
    done = llm.generate(PROMPT, max_tokens=5, logprobs=3)
    found = require_openais(done.to_dict("openai", tokenizer=llm.tokenizer))["choices"][0]["logprobs"]
    assert "".join(found["tokens"]) == done.text
    for token, offset in zip(found["tokens"], found["text_offset"], strict=True):
        assert done.text[offset:].startswith(token)
    assert [len(top) for top in found["top_logprobs"]] == [3] * 5
    assert found["top_logprobs"][0][found["tokens"][0]] == found["token_logprobs"][0]  # greedy
    unnamed = require_openais(done.to_dict("openai"))["choices"][0]["logprobs"]
    assert unnamed["tokens"] == [f"token_id:{token_id}" for token_id in done.token_ids]
    nothing = llm.generate(PROMPT, max_tokens=0, logprobs=1)
    assert require_openais(nothing.to_dict("openai"))["choices"][0]["logprobs"]["text_offset"] == []


class Pieces:
    """A tokenizer with parts of characters: "a", "é" whole and in halves, the parts of "€", and a special token."""

    PIECES = (b"a", "é".encode(), b"\xc3", b"\xa9", b"\xe2\x82", b"\xac b", b"")

    def piece(self, token_id: int) -> bytes:
        return self.PIECES[token_id]

    def decode(self, token_ids: Sequence[int], *, remove_special: bool) -> str:
        assert not remove_special
        return "".join(f"<|{token_id}|>" for token_id in token_ids)


@pytest.mark.parametrize(
    ("token_ids", "offsets"),
    [
        ([0, 2, 3, 0], [0, 1, 1, 2]),
        ([4, 5, 1, 0], [0, 0, 3, 4]),  # "€ béa"
        ([2, 0, 4, 6, 0], [0, 1, 2, 2, 3]),  # what is never completed is one U+FFFD
        ([3, 0], [0, 1]),
    ],
)
def test_offsets_of_parts_of_characters(token_ids: list[int], offsets: list[int]) -> None:
    logprobs = [pyggml.TokenLogprobs(token_id, -1, []) for token_id in token_ids]
    text = b"".join(map(Pieces().piece, token_ids)).decode(errors="replace")
    found = Chunk(text, token_ids, logprobs=logprobs).to_dict("openai", tokenizer=Pieces())["choices"][0]["logprobs"]
    assert found["text_offset"] == offsets
    for token, offset in zip(found["tokens"], offsets, strict=True):
        assert token.startswith("bytes:") or text[offset:].startswith(token)
    in_chunks = TextOffsets(Pieces())
    assert [in_chunks.of([each])[0] for each in logprobs] == offsets


def test_alternatives_that_are_parts_of_characters_or_special() -> None:
    likeliest = [pyggml.TokenLogprob(token_id, -token_id) for token_id in (2, 3, 4, 6)]
    (top,) = Chunk("a", [0], logprobs=[pyggml.TokenLogprobs(0, -9, likeliest)]).to_dict("openai", tokenizer=Pieces())[
        "choices"
    ][0]["logprobs"]["top_logprobs"]
    assert top == {"bytes:\\xc3": -2, "bytes:\\xa9": -3, "bytes:\\xe2\\x82": -4, "<|6|>": -6, "a": -9}


def test_openais_chat(llm: pyggml.LLM) -> None:
    done = llm.chat(MESSAGES, max_tokens=6, logprobs=2)
    found = require_openais(done.to_dict("openai", id="chatcmpl-1", created=7, tokenizer=llm.tokenizer))
    assert (found["id"], found["created"], found["object"]) == ("chatcmpl-1", 7, "chat.completion")
    (choice,) = found["choices"]
    assert choice["message"] == {"role": "assistant", "content": done.message.content}
    content = choice["logprobs"]["content"]
    assert bytes(byte for token in content for byte in token["bytes"]).decode() == done.text
    assert [len(token["top_logprobs"]) for token in content] == [2] * len(done.token_ids)
    assert found["usage"]["completion_tokens"] == len(done.token_ids)


def test_openais_stream_of_a_chat(llm: pyggml.LLM) -> None:
    stream = llm.stream_chat(MESSAGES, max_tokens=6)
    found = [require_openais(chunk.to_dict("openai", id="chatcmpl-1")) for chunk in stream]
    assert {(chunk["id"], chunk["object"]) for chunk in found} == {("chatcmpl-1", "chat.completion.chunk")}
    deltas = [chunk["choices"][0]["delta"] for chunk in found]
    assert "".join(delta.get("content", "") for delta in deltas) == stream.completion.message.content
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in found]
    assert reasons == [None] * (len(found) - 1) + [stream.completion.finish_reason]
    assert all("usage" not in chunk for chunk in found)


@pytest.mark.parametrize("method", ["stream", "stream_chat"])
def test_a_stream_in_openais_form_is_one_response(llm: pyggml.LLM, method: str) -> None:
    stream = getattr(llm, method)(PROMPT if method == "stream" else MESSAGES, max_tokens=40, ignore_eos=True)
    forms = [as_sent(each.to_dict("openai")) for each in (*stream, stream.completion)]
    assert len(forms) >= 2  # a busy machine may read all tokens at once
    assert {(each["id"], each["created"], each["model"]) for each in forms} == {
        (forms[0]["id"], forms[0]["created"], "pyggml-demo-q8_0")
    }
    ends = [(each["choices"][0]["finish_reason"], each["choices"][0].get("stop_reason")) for each in forms[:-1]]
    assert ends == [(None, None)] * (len(forms) - 2) + [("length", "max_tokens")]


def test_openais_tool_calls() -> None:
    (choice,) = require_openais(CALLED.to_dict("openai"))["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"] == {"role": "assistant", "content": None, "tool_calls": [CALL.to_dict()]}
    pieces = [ToolCallDelta(0, "call_1", "get_weather"), ToolCallDelta(0, arguments_text='{"city": "Paris"}')]
    chunks = [require_openais(ChatChunk("", [5], tool_calls=(piece,)).to_dict("openai")) for piece in pieces]
    first, second = (chunk["choices"][0]["delta"]["tool_calls"][0] for chunk in chunks)
    assert first == {
        "index": 0,
        "id": "call_1",
        "type": "function",
        "function": {"name": "get_weather", "arguments": ""},
    }
    assert second == {"index": 0, "function": {"arguments": '{"city": "Paris"}'}}


@pytest.mark.parametrize("reason", ["cancelled", "timeout"])
def test_reasons_that_openai_has_no_word_for(reason: Any) -> None:
    done = Completion("a", [5], reason, None, 3, 0, Timings())
    choice = require_openais(done.to_dict("openai"))["choices"][0]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("length", reason)
    assert done.to_dict()["finish_reason"] == reason


@pytest.mark.slow
def test_other_forms_are_refused() -> None:
    done: Any = Completion("a", [5], "stop", 2, 3, 0, Timings())
    with pytest.raises(pyggml.InvalidParameterError, match="'plain' or 'openai', not 'ollama'"):
        done.to_dict("ollama")
    with pytest.raises(pyggml.InvalidParameterError, match=r"model, id are for to_dict\('openai'\)"):
        done.to_dict(model="demo", id="1")
    with pytest.raises(pyggml.InvalidParameterError, match="no parameter 'modle'; it has id, model"):
        done.to_dict("openai", modle="demo")
