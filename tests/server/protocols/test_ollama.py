"""Ollama's API, as its own client sees it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import ollama
import pydantic
import pytest
from starlette.applications import Starlette
from support.checkpoints import models
from support.servers import servers

import pyggml
from pyggml import ToolCallDelta
from pyggml.server import ModelSpec, Settings, create_app
from pyggml.server.protocols.ollama.generate_and_chat import _ToolCalls
from pyggml.server.protocols.ollama.models import _format_n_params

NAME = "pyggml-demo-q8_0"
SKY: list[Any] = [{"role": "user", "content": "What colour is the sky?"}]


@pytest.fixture(scope="module")
def app() -> Starlette:
    return create_app()


@pytest.fixture(scope="module")
def url(app: Starlette) -> Iterator[str]:
    with servers.serving(app) as url:
        yield url


@pytest.fixture(scope="module")
def small_url(tiny_path: Path) -> Iterator[str]:
    with servers.serving(create_app(Settings(models=(ModelSpec(str(tiny_path)),), load={"n_ctx": 64}))) as url:
        yield url


@pytest.fixture(scope="module")
def thinking_url(thinking_path: Path) -> Iterator[str]:
    with servers.serving(create_app(Settings(models=(ModelSpec(str(thinking_path)),)))) as url:
        yield url


@pytest.fixture(scope="module")
def encoding_url(bert_path: Path) -> Iterator[str]:
    with servers.serving(create_app(Settings(models=(ModelSpec(str(bert_path)),)))) as url:
        httpx.post(f"{url}/api/embed", json={"model": "default", "input": "a"})  # makes its context, which stays
        yield url


@pytest.fixture(scope="module")
def calling_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    vocabulary = models.byte_vocabulary("<tool_call>", "</tool_call>", "<|im_start|>", words=["<tool_call>\n"])
    template = models.VOCABULARIES / "templates" / "Qwen-Qwen2.5-7B-Instruct.jinja"
    vocabulary["tokenizer.chat_template"] = template.read_text()
    path = models.write_llama(tmp_path_factory.mktemp("calling") / "calling.gguf", vocabulary, context_length=4096)
    with servers.serving(create_app(Settings(models=(ModelSpec(str(path)),)))) as url:
        yield url


@pytest.fixture
def client(url: str) -> Iterator[ollama.Client]:
    client = ollama.Client(host=url)
    yield client
    client._client.close()


def joined(pieces: Any) -> dict[str, Any]:
    """The whole message of a streamed chat."""
    *begun, last = pieces
    assert not any(piece.done for piece in begun)
    assert last.done
    return {
        "content": "".join(piece.message.content or "" for piece in begun),
        "thinking": "".join(piece.message.thinking or "" for piece in begun),
        "calls": [call.function.model_dump() for piece in begun for call in piece.message.tool_calls or ()],
        "reason": last.done_reason,
        "n_tokens": last.eval_count,
    }


def whole(answer: ollama.ChatResponse) -> dict[str, Any]:
    message = answer.message
    return {
        "content": message.content,
        "thinking": message.thinking or "",
        "calls": [call.function.model_dump() for call in message.tool_calls or ()],
        "reason": answer.done_reason,
        "n_tokens": answer.eval_count,
    }


def test_a_chat(client: ollama.Client) -> None:
    answer = client.chat("default", SKY)
    assert (answer.message.content, answer.message.role) == ("The sky is blue.", "assistant")
    assert (answer.model, answer.done, answer.done_reason) == ("default", True, "stop")
    assert datetime.fromisoformat(str(answer.created_at).replace("Z", "+00:00")).year > 2000
    assert joined(client.chat("default", SKY, stream=True)) == whole(answer)


def test_coroutines_get_the_same(client: ollama.Client, url: str) -> None:
    expected = whole(client.chat("default", SKY))

    async def main() -> None:
        aclient = ollama.AsyncClient(host=url)
        try:
            assert whole(await aclient.chat("default", SKY)) == expected
            pieces = [piece async for piece in await aclient.chat("default", SKY, stream=True)]
            assert joined(pieces) == expected
        finally:
            await aclient._client.aclose()

    asyncio.run(main())


def test_prompts(client: ollama.Client) -> None:
    with pyggml.load() as llm:
        continued = llm.generate("Once upon a time", max_tokens=20)
        told = llm.chat([{"role": "system", "content": "Answer in one word."}, *SKY])
    raw = client.generate("default", "Once upon a time", raw=True, options={"num_predict": 20})
    assert (raw.response, raw.done_reason, raw.eval_count) == (continued.text, "length", 20)
    assert raw.prompt_eval_count == continued.prompt_tokens
    answer = client.generate("default", SKY[0]["content"], system="Answer in one word.")
    assert (answer.response, answer.prompt_eval_count) == (told.message.content, told.prompt_tokens)
    pieces = list(client.generate("default", "Once upon a time", raw=True, stream=True, options={"num_predict": 20}))
    assert "".join(piece.response or "" for piece in pieces) == continued.text


def test_it_streams_unless_told_otherwise(url: str) -> None:
    answer = httpx.post(f"{url}/api/chat", json={"model": "default", "messages": SKY, "stream": None, "options": None})
    assert answer.headers["content-type"] == "application/x-ndjson"
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert [line["done"] for line in lines] == [False] * (len(lines) - 1) + [True]
    assert "".join(line["message"]["content"] for line in lines) == "The sky is blue."
    durations = {name: value for name, value in lines[-1].items() if name.endswith("_duration")}
    assert len(durations) == 4
    assert sum(durations.values()) < 2 * 60e9
    assert durations["total_duration"] > durations["prompt_eval_duration"] > 0


def test_options(client: ollama.Client) -> None:
    options = {"temperature": 1.5, "top_k": 40, "top_p": 0.95, "min_p": 0.01, "repeat_penalty": 1.1, "num_predict": 12}
    with pyggml.load() as llm:
        params = {name: value for name, value in options.items() if name != "num_predict"}
        expected = llm.generate("Once", max_tokens=12, seed=7, penalty_last_n=llm.n_ctx, **params)  # type: ignore[arg-type]
    ignored = {"num_ctx": 99, "num_gpu": 1, "num_keep": 4, "tfs_z": 1.0, "penalize_newline": False}
    mine = {**options, **ignored, "seed": 7, "repeat_last_n": -1}
    answer = client.generate("default", "Once", raw=True, options=mine)
    assert answer.response == expected.text
    drawn = {client.generate("default", "Once", raw=True, options={**mine, "seed": -1}).response for _ in range(4)}
    assert len(drawn) > 1
    stopped = client.generate("default", "Once", raw=True, options={"num_predict": -1, "stop": [","]})
    assert (stopped.done_reason, "," in (stopped.response or "")) == ("stop", False)


def test_a_prompt_that_shifts_without_a_limit_ends(small_url: str) -> None:
    """At 10 times the size of the context, as in ollama."""
    options = {"num_predict": -1, "ignore_eos": True, "repetition_guard": False}
    body = {"model": "default", "prompt": "Once", "raw": True, "shift": True, "stream": False, "options": options}
    answer = httpx.post(f"{small_url}/api/generate", json=body, timeout=60).json()
    assert (answer["done_reason"], answer["eval_count"]) == ("length", 10 * 64)


def test_an_empty_request_loads_the_model(client: ollama.Client) -> None:
    assert client.generate("default").done_reason == "load"
    assert (client.chat("default").done_reason, client.chat("default").message.content) == ("load", "")
    assert client.embed("default", []).embeddings == []


class Sums(pydantic.BaseModel):
    total: int
    is_even: bool


def test_formats(client: ollama.Client) -> None:
    answer = client.chat("default", SKY, format=Sums.model_json_schema(), options={"num_predict": 100})
    Sums.model_validate_json(answer.message.content or "")
    free = client.generate("default", "Say", format="json", options={"num_predict": 60, "temperature": 0})
    assert (free.response or "").lstrip().startswith("{")


def favourite(colour: str) -> str:
    """Notes a colour.

    Args:
        colour: the colour.
    """
    return colour


def test_tools(calling_url: str) -> None:
    # What makes random weights open a call, and come to its end.
    bias = {models.N_BYTE_VOCAB: 60.0, ord('"'): 8.0, ord("}"): 8.0}
    options = {"logit_bias": bias, "num_predict": 300}
    caller = ollama.Client(host=calling_url)
    answer = caller.chat("default", SKY, tools=[favourite], options=options)
    calls = answer.message.tool_calls or ()
    assert len(calls) > 1
    assert all(call.function.name == "favourite" for call in calls)
    assert all(isinstance(call.function.arguments["colour"], str) for call in calls)
    assert joined(caller.chat("default", SKY, tools=[favourite], options=options, stream=True)) == whole(answer)
    result = {"role": "tool", "tool_name": "favourite", "content": favourite(**calls[0].function.arguments)}
    again = caller.chat("default", [*SKY, answer.message, result], tools=[favourite], options={"num_predict": 1})
    assert (again.prompt_eval_count or 0) > (answer.prompt_eval_count or 0)
    caller._client.close()


def test_misspelled_options_are_logged(url: str, caplog: pytest.LogCaptureFixture) -> None:
    options = {"num_predict": 1, "temprature": 0, "num_ctx": 99}
    assert (
        httpx.post(f"{url}/api/generate", json={"model": NAME, "prompt": "Hi", "options": options}).status_code == 200
    )
    warnings = [record.getMessage() for record in caplog.records if "is ignored" in record.getMessage()]
    assert warnings == ["a request has the unknown field 'temprature', which is ignored: did it mean 'temperature'?"]


def test_a_call_that_is_cut_off_is_no_call() -> None:
    calls = _ToolCalls()
    grown = [calls.add(ToolCallDelta(0, "a", "f", '{"x":')), calls.add(ToolCallDelta(0, arguments_text=" 1}"))]
    assert grown == [[], []]
    [done] = calls.add(ToolCallDelta(1, "b", "g", '{"y'))
    assert done == {"id": "a", "function": {"index": 0, "name": "f", "arguments": {"x": 1}}}
    assert calls.end() == []


def test_thinking(thinking_url: str, client: ollama.Client) -> None:
    thinker = ollama.Client(host=thinking_url)
    options = {"grammar": 'root ::= "I see" "</think>" "It is blue"'}
    thinks: tuple[Any, ...] = (True, None, "low")
    for think in thinks:
        answer = thinker.chat("default", SKY, think=think, options=options)
        assert ((answer.message.thinking or "").strip(), answer.message.content) == ("I see", "It is blue")
    pieces = thinker.chat("default", SKY, think=True, options=options, stream=True)
    assert joined(pieces) == whole(thinker.chat("default", SKY, think=True, options=options))
    generated = thinker.generate("default", "Why?", think=True, options=options)
    assert ((generated.thinking or "").strip(), generated.response) == ("I see", "It is blue")
    again = [*SKY, {"role": "assistant", "content": "Blue.", "thinking": "I see"}, *SKY]
    assert thinker.chat("default", again, options={"num_predict": 1}).eval_count == 1
    thinker._client.close()
    with pytest.raises(ollama.ResponseError, match="does not support thinking") as caught:
        client.chat("default", SKY, think=True)
    assert caught.value.status_code == 400


def test_logprobs(client: ollama.Client) -> None:
    with pyggml.load() as llm:
        expected = llm.chat(SKY, logprobs=2)
        texts = [llm.tokenizer.piece(token_id).decode() for token_id in expected.token_ids]
    answer = client.chat("default", SKY, logprobs=True, top_logprobs=2)
    assert [each.token for each in answer.logprobs or ()] == texts
    found = [each.logprob for each in answer.logprobs or ()]
    assert found == pytest.approx([each.logprob for each in expected.logprobs or ()], abs=0.05)
    assert [len(each.top_logprobs or ()) for each in answer.logprobs or ()] == [2] * len(texts)
    pieces = client.generate("default", "Once", raw=True, logprobs=True, stream=True, options={"num_predict": 3})
    assert sum(len(piece.logprobs or ()) for piece in pieces) == 3


@pytest.mark.slow
def test_vectors(encoding_url: str, bert_path: Path) -> None:
    texts = ["the sky", "the fish " * 400]
    with pyggml.load(bert_path) as llm:
        first, long = map(llm.tokenize, texts)
        cut = long[: llm.n_ctx - 1] + long[-1:]  # the token that ends every text is kept
        assert len(long) > llm.n_ctx
        expected = llm.embed([first, cut], normalize=True)
        plain = llm.embed(texts[0])
    encoder = ollama.Client(host=encoding_url)
    answer = encoder.embed("default", texts)
    np.testing.assert_allclose(answer.embeddings, expected, atol=1e-5)
    assert answer.prompt_eval_count == len(first) + len(cut)
    [short] = encoder.embed("default", texts[0], dimensions=8).embeddings
    np.testing.assert_allclose(short, expected[0, :8] / np.linalg.norm(expected[0, :8]), atol=1e-5)
    np.testing.assert_allclose(encoder.embeddings("default", texts[0]).embedding, plain, atol=1e-5)
    with pytest.raises(ollama.ResponseError, match="tokens"):
        encoder.embed("default", texts, truncate=False)
    with pytest.raises(ollama.ResponseError, match="does not generate"):
        encoder.chat("default", SKY)
    encoder._client.close()


def test_models(client: ollama.Client, thinking_url: str) -> None:
    report = pyggml.inspect(pyggml.SHIPPED_MODEL)
    [listed] = client.list().models
    assert (listed.model, listed.size) == (f"{NAME}:latest", pyggml.SHIPPED_MODEL.stat().st_size)
    assert listed.modified_at is not None
    assert listed.modified_at.timestamp() == int(pyggml.SHIPPED_MODEL.stat().st_mtime)
    assert len(listed.digest or "") == 64
    assert listed.details is not None
    assert (listed.details.family, listed.details.quantization_level) == ("llama", "Q8_0")
    assert listed.details.parameter_size == "3.48M"
    assert client.chat(listed.model or "", SKY).message.content == "The sky is blue."

    shown = client.show(listed.model or "")
    assert shown.template == report.metadata["tokenizer.chat_template"]
    assert (shown.license, shown.capabilities) == ("mit", ["completion", "tools"])
    assert shown.modelinfo is not None
    assert shown.modelinfo["llama.context_length"] == 1024
    assert shown.modelinfo["general.parameter_count"] == report.n_params
    assert str(pyggml.SHIPPED_MODEL.parent) not in shown.model_dump_json()
    with pytest.raises(ollama.ResponseError, match="stranger"):
        client.show("stranger")

    [running] = client.ps().models
    assert (running.name, running.context_length, running.digest) == (f"{NAME}:latest", 1024, listed.digest)
    assert (running.size or 0) > report.n_bytes
    assert running.size_vram is not None

    thinker = ollama.Client(host=thinking_url)
    assert thinker.show("default").capabilities == ["completion", "tools", "thinking"]
    thinker._client.close()


@pytest.mark.parametrize(("n_params", "text"), [(8e9, "8B"), (8.03e9, "8.0B"), (134_515_008, "134.52M"), (9e3, "9K")])
def test_numbers_of_weights(n_params: float, text: str) -> None:
    assert _format_n_params(int(n_params)) == text


def test_what_is_refused(client: ollama.Client, url: str) -> None:
    asks: list[Callable[[], Any]] = [
        lambda: client.pull("llama3"),
        lambda: client.push("llama3"),
        lambda: client.create("mine", from_="default"),
        lambda: client.copy("default", "mine"),
        lambda: client.delete("default"),
    ]
    for ask in asks:
        with pytest.raises(ollama.ResponseError, match="pyggml serve hf:org/repo") as caught:
            ask()
        assert caught.value.status_code == 403
    fields: list[tuple[dict[str, Any], str]] = [
        ({"suffix": "the end"}, "suffix"),
        ({"template": "{{ .Prompt }}"}, "template"),
        ({"context": [1, 2]}, "context"),
        ({"images": [b"aaaa"]}, "images"),
        ({"raw": True, "system": "x"}, "system"),
        ({"options": {"top_p": 2}}, r"options\.top_p"),
    ]
    for options, field in fields:
        with pytest.raises(ollama.ResponseError, match=f"^{field}: ") as caught:
            client.generate("default", "x", **options)
        assert caught.value.status_code == 400
    with pytest.raises(ollama.ResponseError, match=r"messages\.0\.images"):
        client.chat("default", [{"role": "user", "content": "x", "images": [b"aaaa"]}])
    with pytest.raises(ollama.ResponseError, match="stranger") as caught:
        client.chat("stranger", SKY)
    assert caught.value.status_code == 404
    assert httpx.post(f"{url}/api/chat", content=b"{").json().keys() == {"error"}


def test_something_is_here(url: str) -> None:
    assert httpx.head(url).status_code == 200
    assert httpx.get(f"{url}/api/version").json()["version"].count(".") == 2


def test_a_client_that_leaves_frees_its_place(url: str, app: Starlette) -> None:
    [served] = app.state.worker.models.loaded
    before = served.llm.stats()
    body = {"model": "default", "prompt": "Once", "raw": True, "options": {"ignore_eos": True, "num_predict": 900}}
    with httpx.stream("POST", f"{url}/api/generate", json=body) as answer:
        next(answer.iter_lines())
    servers.eventually(lambda: served.llm.stats().n_finished > before.n_finished)
    assert served.llm.stats().n_running == 0
    assert served.llm.stats().n_generated_tokens - before.n_generated_tokens < 900
