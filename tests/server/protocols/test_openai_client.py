"""OpenAI's own client against the running server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import numpy as np
import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from support.response_forms import GetWeather, Pet
from support.servers import servers

from pyggml.server import Settings, create_app

ASKED: Any = [{"role": "user", "content": "What colour is the sky?"}]
STORY: Any = [{"role": "user", "content": "Tell me a story."}]
SAID = "The sky is blue."
# Lets a small model come to the point in JSON, instead of writing spaces.
EAGER: Any = {"max_tokens": 200, "extra_body": {"logit_bias": {'"': 20, "}": 8}}}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with servers.serving() as url:
        httpx.post(f"{url}/v1/embeddings", json={"input": "a"})  # makes their context, which then stays
        yield f"{url}/v1"


@pytest.fixture
def client(url: str) -> Iterator[OpenAI]:
    with OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        yield client


@pytest.mark.slow
def test_chats(client: OpenAI) -> None:
    answer = client.chat.completions.create(model="default", messages=ASKED, temperature=0)
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == (SAID, "stop")
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    stream = client.chat.completions.create(
        model="default", messages=ASKED, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == SAID
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == answer.usage.total_tokens


@pytest.mark.slow
def test_chats_in_an_event_loop(url: str) -> None:
    async def main() -> Sequence[str | None]:
        async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:

            async def whole() -> str | None:
                answer = await client.chat.completions.create(model="default", messages=ASKED)
                return answer.choices[0].message.content

            async def streamed() -> str:
                stream = await client.chat.completions.create(model="default", messages=ASKED, stream=True)
                return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

            return await asyncio.gather(whole(), streamed(), whole(), streamed())

    assert [*asyncio.run(main())] == [SAID] * 4


def test_the_helper_for_streams(client: OpenAI) -> None:
    with client.chat.completions.stream(model="default", messages=ASKED, logprobs=True, top_logprobs=2) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion()
    assert final.choices[0].message.content == SAID
    assert final.choices[0].logprobs is not None
    assert final.choices[0].logprobs.content is not None
    assert "".join(token.token for token in final.choices[0].logprobs.content) == SAID
    assert {"chunk", "content.delta", "content.done", "logprobs.content.delta"} <= set(kinds)


def test_a_pydantic_model_as_the_answer(client: OpenAI) -> None:
    asked: Any = [{"role": "user", "content": "A pet as JSON"}]
    answer = client.chat.completions.parse(model="default", messages=asked, response_format=Pet, **EAGER)
    assert isinstance(answer.choices[0].message.parsed, Pet)
    with client.chat.completions.stream(model="default", messages=asked, response_format=Pet, **EAGER) as stream:
        parsed = [event.parsed for event in stream if event.type == "content.done"]
    assert [type(each) for each in parsed] == [Pet]


@pytest.mark.slow
def test_tools(client: OpenAI) -> None:
    one: Any = {"tools": [openai.pydantic_function_tool(GetWeather)], "tool_choice": "required", **EAGER}
    one["parallel_tool_calls"] = False
    answer = client.chat.completions.create(model="default", messages=ASKED, **one).choices[0]
    assert (answer.finish_reason, answer.message.content) == ("tool_calls", None)
    parsed = client.chat.completions.parse(model="default", messages=ASKED, **one)
    assert parsed.choices[0].message.tool_calls is not None
    assert isinstance(parsed.choices[0].message.tool_calls[0].function.parsed_arguments, GetWeather)
    with client.chat.completions.stream(model="default", messages=ASKED, **one) as stream:
        done = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
        final = stream.get_final_completion()
    assert [event.name for event in done] == ["GetWeather"]
    assert final.choices[0].message.tool_calls is not None
    assert json.loads(final.choices[0].message.tool_calls[0].function.arguments)["city"] in ("Rome", "Oslo")
    told = [*ASKED, answer.message, {"role": "tool", "tool_call_id": "1", "content": "It rains."}]
    assert client.chat.completions.create(model="default", messages=told, max_tokens=5).choices[0].message.content


def test_completions_and_models(client: OpenAI) -> None:
    (model,) = client.models.list().data
    assert client.models.retrieve(model.id) == model
    prompt = "Once upon a time"
    whole = client.completions.create(model=model.id, prompt=prompt, max_tokens=8, logprobs=1, echo=True)
    stream = client.completions.create(model=model.id, prompt=prompt, max_tokens=8, stream=True)
    assert whole.choices[0].text == prompt + "".join(chunk.choices[0].text for chunk in stream)


def test_embeddings_in_both_encodings(client: OpenAI) -> None:
    texts = ["a dog", "a cat"]
    coded = client.embeddings.create(model="default", input=texts)  # the client asks for base64
    plain = client.embeddings.create(model="default", input=texts, encoding_format="float")
    for one, other in zip(coded.data, plain.data, strict=True):
        np.testing.assert_allclose(one.embedding, other.embedding, atol=1e-6)
        assert np.linalg.norm(one.embedding) == pytest.approx(1, abs=1e-4)


def test_raw_answers_have_the_request_s_id(client: OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model="default", messages=ASKED, extra_headers={"X-Request-Id": "mine"}
    )
    assert raw.headers["x-request-id"] == "mine"
    answer = raw.parse()
    assert answer.choices[0].message.content == SAID
    assert answer._request_id == "mine"


def test_errors_have_their_classes(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="stranger", messages=ASKED)
    assert (missing.value.code, missing.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.BadRequestError) as too_long:
        client.chat.completions.create(model="default", messages=[{"role": "user", "content": "a " * 9000}])
    assert too_long.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError, match="temperature"):
        client.chat.completions.create(model="default", messages=ASKED, temperature=-1)
    with pytest.raises(openai.BadRequestError, match="context"):
        client.chat.completions.create(
            model="default", messages=[{"role": "user", "content": "a " * 9000}], stream=True
        )


def test_a_full_queue_is_said_at_once() -> None:
    endless: Any = {"model": "default", "messages": STORY, "n": 8, "stream": True, "extra_body": {"ignore_eos": True}}
    with (
        servers.serving(create_app(Settings(load={"max_queue": 4}))) as url,
        OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
        client.chat.completions.create(**endless),
        pytest.raises(openai.RateLimitError) as full,
    ):
        client.chat.completions.create(model="default", messages=ASKED)
    assert full.value.code == "rate_limit_exceeded"
    assert int(full.value.response.headers["retry-after"]) > 0


def test_keys() -> None:
    with servers.serving(create_app(Settings(api_keys=("secret",)))) as url:
        with OpenAI(base_url=f"{url}/v1", api_key="secret", max_retries=0) as client:
            assert client.models.list().data
        for wrong in ("wrong", "none"):
            with (
                OpenAI(base_url=f"{url}/v1", api_key=wrong, max_retries=0) as client,
                pytest.raises(openai.AuthenticationError) as refused,
            ):
                client.chat.completions.create(model="default", messages=ASKED)
            assert (refused.value.code, refused.value.type) == ("invalid_api_key", "invalid_request_error")


def test_a_client_that_gives_up(client: OpenAI) -> None:
    """The request of a disconnected client is cancelled, so that the next answer does not wait for it."""
    endless: Any = {"model": "default", "messages": STORY, "extra_body": {"ignore_eos": True}}
    with pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=0.05).chat.completions.create(**endless)
    with client.chat.completions.create(**endless, stream=True) as stream:
        next(iter(stream))
    assert client.chat.completions.create(model="default", messages=ASKED).choices[0].message.content == SAID


def test_a_stream_that_fails_does_not_look_finished(caplog: pytest.LogCaptureFixture) -> None:
    app = create_app(Settings(load={"n_ctx": 100_000}))
    with servers.serving(app) as url, OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        stream = client.chat.completions.create(
            model="default", messages=STORY, stream=True, extra_body={"ignore_eos": True}
        )
        next(iter(stream))
        app.state.worker.models.loaded[0].llm.close()
        with pytest.raises(openai.APIError, match="closed"):
            list(stream)
    caplog.clear()  # the log of the failure holds on to its frames


@pytest.mark.slow
def test_a_task_that_is_cancelled_takes_its_answer_along() -> None:
    app = create_app(Settings(load={"n_ctx": 100_000}))

    async def main(url: str) -> None:
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
            endless: Any = {"model": "default", "messages": STORY, "n": 2, "extra_body": {"ignore_eos": True}}
            whole = asyncio.create_task(client.chat.completions.create(**endless))
            stream = await client.chat.completions.create(**endless, stream=True)
            await anext(aiter(stream))
            whole.cancel()
            await stream.close()

    with servers.serving(app) as url:
        asyncio.run(main(url))
        (served,) = app.state.worker.models.loaded
        servers.eventually(lambda: not served.llm.stats().n_running + served.llm.stats().n_queued)
