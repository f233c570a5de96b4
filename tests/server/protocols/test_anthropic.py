"""Anthropic's API, as its own client sees it."""

from __future__ import annotations

import asyncio
import json
import re
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import anthropic
import httpx
import pydantic
import pytest
from support.servers import servers

import pyggml
from pyggml.chat.types import ChatMessage
from pyggml.server import ModelSpec, Settings, create_app
from pyggml.server.protocols.anthropic import responses
from pyggml.server.protocols.anthropic.requests import CreateMessage

FORMAT = {"type": "json_schema", "schema": {"type": "integer"}}
HELLO: Any = {"role": "user", "content": "Hello"}
SKY: Any = {"role": "user", "content": "What colour is the sky?"}
WEATHER: Any = {
    "name": "get_weather",
    "description": "Tells the weather.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"enum": ["Paris", "Rome"]}},
        "required": ["city"],
        "additionalProperties": False,
    },
}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with servers.serving() as url:
        yield url


@pytest.fixture(scope="module")
def thinking_url(thinking_path: Path) -> Iterator[str]:
    with servers.serving(create_app(Settings(models=(ModelSpec(str(thinking_path)),)))) as url:
        yield url


@pytest.fixture
def client(url: str) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=url, api_key="none", max_retries=0) as client:
        yield client


def ask(client: anthropic.Anthropic, *messages: Any, **options: Any) -> Any:
    return client.messages.create(**{"model": "default", "max_tokens": 50, "messages": messages or [SKY], **options})


def streamed(client: anthropic.Anthropic, *messages: Any, **options: Any) -> Any:
    """The message that the client makes of the events."""
    options = {"model": "default", "max_tokens": 50, "messages": messages or [SKY], **options}
    with client.messages.stream(**options) as stream:
        kinds = [event.type for event in stream]
        message = stream.get_final_message()
    assert kinds[0] == "message_start"
    assert kinds[-2:] == ["message_delta", "message_stop"]
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == len(message.content)
    return message


def plain(message: Any) -> Any:
    """The parts that two answers to the same question share: without ids and cache hits."""
    content = [{name: value for name, value in each.items() if name != "id"} for each in message.to_dict()["content"]]
    return content, message.stop_reason, message.stop_sequence, message.usage.output_tokens


def test_a_question(client: anthropic.Anthropic) -> None:
    answer = ask(client)
    assert (answer.content[0].text, answer.stop_reason) == ("The sky is blue.", "end_turn")
    assert (answer.type, answer.role, answer.model) == ("message", "assistant", "pyggml-demo-q8_0")
    assert plain(streamed(client)) == plain(answer)
    assert answer._request_id is not None
    assert answer.id == f"msg_{answer._request_id}"


def test_what_is_refused_before_it_is_read_has_a_request_id_too(url: str) -> None:
    answer = httpx.get(f"{url}/v1/messages", headers={"x-request-id": "mine"})
    assert (answer.status_code, answer.json()["request_id"], answer.headers["request-id"]) == (405, "mine", "mine")


def test_coroutines_get_the_same(client: anthropic.Anthropic, url: str) -> None:
    expected = ask(client)

    async def main() -> None:
        async with anthropic.AsyncAnthropic(base_url=url, api_key="none", max_retries=0) as aclient:
            asked = {"model": "default", "max_tokens": 50, "messages": [SKY]}
            assert plain(await aclient.messages.create(**asked)) == plain(expected)  # type: ignore[call-overload]
            async with aclient.messages.stream(**asked) as stream:  # type: ignore[arg-type]
                text = "".join([piece async for piece in stream.text_stream])
                assert plain(await stream.get_final_message()) == plain(expected)
            assert text == expected.content[0].text

    asyncio.run(main())


def test_what_is_counted(client: anthropic.Anthropic) -> None:
    messages: Any = [{"role": "user", "content": "Where do fish live?"}]
    counted = client.messages.count_tokens(model="default", messages=messages).input_tokens
    with pyggml.load() as llm:
        assert counted == len(llm.tokenize_chat(messages))
    first, second = ask(client, *messages).usage, streamed(client, *messages).usage
    assert first.input_tokens + first.cache_read_input_tokens == counted
    assert (second.input_tokens, second.cache_read_input_tokens) == (1, counted - 1)
    tools = client.messages.count_tokens(model="default", messages=messages, tools=[WEATHER]).input_tokens
    used = ask(client, *messages, tools=[WEATHER], max_tokens=1).usage
    assert tools == used.input_tokens + used.cache_read_input_tokens > counted


def test_every_event_says_its_type(url: str) -> None:
    body = {"model": "default", "max_tokens": 5, "messages": [SKY], "stream": True}
    with httpx.stream("POST", f"{url}/v1/messages", json=body) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = servers.events([*answer.iter_lines()])
    assert all(json.loads(data)["type"] == name for name, data in events)
    begun = json.loads(events[0][1])["message"]
    assert (begun["content"], begun["stop_reason"], begun["usage"]["output_tokens"]) == ([], None, 0)
    assert begun["usage"]["input_tokens"] > 0


@pytest.mark.slow
def test_silence_is_broken_by_pings() -> None:
    long = {"role": "user", "content": "blue " * 600}  # takes a while to read
    body = {"model": "default", "max_tokens": 5, "messages": [long], "stream": True}
    with (
        servers.serving(create_app(Settings(ping_s=0.001))) as url,
        anthropic.Anthropic(base_url=url, api_key="none", max_retries=0) as client,
    ):
        with httpx.stream("POST", f"{url}/v1/messages", json=body, timeout=60) as answer:
            events = servers.events([*answer.iter_lines()])
        assert ("ping", '{"type":"ping"}') in events
        assert streamed(client).content[0].text == "The sky is blue."  # the client leaves them out


@pytest.mark.slow
def test_why_it_stops(client: anthropic.Anthropic) -> None:
    cut = ask(client, max_tokens=2)
    assert (cut.stop_reason, cut.stop_sequence, cut.usage.output_tokens) == ("max_tokens", None, 2)
    for answer in (ask(client, stop_sequences=["blue", "red"]), streamed(client, stop_sequences=["blue", "red"])):
        assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", "blue")
        assert answer.content[0].text == "The sky is "
    whole = streamed(client, max_tokens=100_000, extra_body={"ignore_eos": True})
    assert whole.stop_reason == "model_context_window_exceeded"


def test_the_answer_goes_on_with_its_beginning(client: anthropic.Anthropic) -> None:
    assert ask(client, SKY, {"role": "assistant", "content": "The sky is"}).content[0].text == " blue."
    for nothing in ([], "", [{"type": "redacted_thinking", "data": "x"}]):
        answer = ask(client, SKY, {"role": "assistant", "content": nothing})
        assert answer.content[0].text == "The sky is blue."


def test_an_answer_that_runs_out_of_time(client: anthropic.Anthropic) -> None:
    with (
        servers.serving(create_app(Settings(request_timeout=1e-4))) as url,
        anthropic.Anthropic(base_url=url, api_key="none", max_retries=0) as hurried,
    ):
        for paused in (ask(hurried), streamed(hurried)):
            assert paused.stop_reason == "pause_turn"
            again = {"role": "assistant", "content": paused.to_param()["content"]}
            assert ask(client, SKY, again).stop_reason == "end_turn"


@pytest.mark.slow_except("choice1")
@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "get_weather"}])
def test_a_tool_is_called(client: anthropic.Anthropic, choice: Any) -> None:
    options: Any = {"tools": [WEATHER], "tool_choice": {**choice, "disable_parallel_tool_use": True}, "max_tokens": 300}
    answer = ask(client, HELLO, **options)
    call = answer.content[-1]
    assert (answer.stop_reason, call.type, call.name) == ("tool_use", "tool_use", "get_weather")
    assert call.input["city"] in ("Paris", "Rome")
    assert plain(streamed(client, HELLO, **options)) == plain(answer)
    result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "Sunny."}]}
    again = ask(client, HELLO, answer.to_param(), {"role": "user", "content": [result]}, tools=[WEATHER])
    assert again.usage.output_tokens > 0


@pytest.mark.slow
def test_a_call_that_is_cut_off(client: anthropic.Anthropic) -> None:
    options: Any = {"tools": [WEATHER], "tool_choice": {"type": "any"}}
    n_whole = ask(client, HELLO, max_tokens=300, **options).usage.output_tokens
    for n in range(1, n_whole, 9):
        answer = ask(client, HELLO, max_tokens=n, **options)
        assert answer.stop_reason == "max_tokens"
        assert all([*each.input] == ["city"] for each in answer.content if each.type == "tool_use")
        begun, *_ = plain(streamed(client, HELLO, max_tokens=n, **options))  # a stream has its beginning
        assert begun[: len(answer.content)] == plain(answer)[0]


def test_a_call_that_is_cut_off_is_left_out() -> None:
    body = CreateMessage.model_validate({"model": "m", "max_tokens": 9, "messages": [HELLO]})
    calls = [pyggml.ToolCall(text, "f", text) for text in ('{"city": "Paris"}', "", '{"city": "Pa')]
    message = ChatMessage(tool_calls=calls)
    completion = types.SimpleNamespace(message=message)
    found = responses._content(body, cast("pyggml.ChatCompletion", completion))
    assert [block["input"] for block in found] == [{"city": "Paris"}]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            {"content": [{"type": "image", "source": {}}]},
            "messages.0.content.0: content of the type 'image'.*only read",
        ),
        (
            {"content": [{"type": "tool_result", "tool_use_id": "a", "content": [{"type": "image"}]}]},
            "messages.0.content.0.content.0: content of the type 'image'",
        ),
        ({"content": [{"type": "search_result"}]}, "'search_result' is not supported: known are text, thinking, "),
        (
            {"content": [{"type": "text", "text": 5}]},
            "^messages.0.content.0.text: Input should be a valid string, not a number$",
        ),
        ({"content": ["Hello"]}, "must be an object"),
        ({"content": 5}, "^messages.0.content: Input should be a valid string, not a number$"),
        ({"tools": [{"name": "search"}]}, "^tools.0: .*'input_schema' is missing"),
        ({"regex": "a", "output_config": {"format": FORMAT}}, "output_config.format and regex were both given"),
    ],
)
def test_errors_name_the_field_and_the_reason(url: str, body: dict[str, Any], words: str) -> None:
    message = {"role": "user", "content": body.pop("content", "Hello")}
    body = {"model": "default", "max_tokens": 5, "messages": [message], **body}
    answer = httpx.post(f"{url}/v1/messages", json=body, timeout=60)
    assert answer.status_code == 400
    assert re.search(words, answer.json()["error"]["message"])


def test_tools_are_not_called_unasked(client: anthropic.Anthropic) -> None:
    assert ask(client, tools=[WEATHER], tool_choice={"type": "none"}).content[0].type == "text"


def test_the_beta_clients_tool_runner(client: anthropic.Anthropic) -> None:
    asked = []

    @anthropic.beta_tool
    def favourite(colour: str) -> str:
        """Notes a colour.

        Args:
            colour: the colour.
        """
        asked.append(colour)
        return "noted"

    runner = client.beta.messages.tool_runner(
        model="default", max_tokens=300, max_iterations=2, messages=[HELLO], tools=[favourite],
        tool_choice={"type": "any"},
    )  # fmt: skip
    answers = list(runner)
    assert answers[0].stop_reason == "tool_use"
    # Nothing is kept here, and the client knows: it sends the whole conversation again.
    first, second = (each.usage.input_tokens + (each.usage.cache_read_input_tokens or 0) for each in answers)
    assert second > first
    assert asked
    assert all(isinstance(colour, str) for colour in asked)


class Sums(pydantic.BaseModel):
    total: int
    is_even: bool


def test_structured_output(client: anthropic.Anthropic) -> None:
    parsed = client.messages.parse(model="default", max_tokens=100, messages=[HELLO], output_format=Sums)
    assert isinstance(parsed.parsed_output, Sums)
    older = ask(
        client, HELLO, extra_body={"output_format": {"type": "json_schema", "schema": Sums.model_json_schema()}}
    )
    assert Sums.model_validate_json(older.content[0].text) == parsed.parsed_output


def test_thinking(thinking_url: str) -> None:
    grammar = 'root ::= "I see" "</think>" "It is blue"'
    options: Any = {"extra_body": {"grammar": grammar}}
    with anthropic.Anthropic(base_url=thinking_url, api_key="none", max_retries=0) as client:
        answer = ask(client, thinking={"type": "enabled", "budget_tokens": 1024}, **options)
        thought, text = answer.content
        assert (thought.thinking.strip(), text.text) == ("I see", "It is blue")
        assert thought.signature
        assert plain(streamed(client, thinking={"type": "enabled", "budget_tokens": 1024}, **options)) == plain(answer)
        hidden: Any = {"type": "adaptive", "display": "omitted"}
        silent = ask(client, thinking=hidden, **options)
        assert (silent.content[0].thinking, silent.content[1].text) == ("", "It is blue")
        assert plain(streamed(client, thinking=hidden, **options)) == plain(silent)
        assert ask(client, SKY, answer.to_param(), HELLO, **options).usage.output_tokens > 0


def test_thinking_ends_at_its_budget(thinking_url: str) -> None:
    letters = [*range(97, 123)]  # so that the random model writes text
    body = {"model": "default", "max_tokens": 40, "messages": [HELLO], "allowed_token_ids": letters}
    thinking = {"type": "enabled", "budget_tokens": 4}
    found = httpx.post(f"{thinking_url}/v1/messages", json={**body, "thinking": thinking}, timeout=60).json()
    assert [block["type"] for block in found["content"]] == ["thinking", "text"]
    assert [len(found["content"][0]["thinking"].strip()), len(found["content"][1]["text"])] == [4, 35]
    refused = {**body, "thinking": {"type": "enabled", "budget_tokens": -5}}
    answer = httpx.post(f"{thinking_url}/v1/messages", json=refused, timeout=60)
    assert (answer.status_code, "thinking.budget_tokens" in answer.text) == (400, True)


def test_turns_in_the_librarys_form() -> None:
    asked: dict[str, Any] = {
        "model": "m",
        "max_tokens": 1,
        "system": [
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cch=a5145;Be kind."},
            {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}},
        ],
        "messages": [
            {"role": "user", "content": "One"},
            {"role": "user", "content": [{"type": "text", "text": "two"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "s"},
                    {"type": "redacted_thinking", "data": "x"},
                    {"type": "text", "text": "Let me see."},
                    {"type": "tool_use", "id": "a1", "name": "look", "input": {"at": [1]}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "a1", "content": "seen", "is_error": False},
                    {"type": "tool_result", "tool_use_id": "a1"},
                    {"type": "text", "text": "And?"},
                ],
            },
        ],
    }

    def text(*texts: str) -> list[dict[str, str]]:
        return [{"type": "text", "text": text} for text in texts]

    call = {"id": "a1", "type": "function", "function": {"name": "look", "arguments": {"at": [1]}}}
    assert CreateMessage.model_validate(asked).library_messages() == [
        {"role": "system", "content": text("Be kind.", "Be brief.")},
        {"role": "user", "content": text("One", "two")},
        {"role": "assistant", "content": text("Let me see."), "reasoning_content": "hm", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a1", "name": "look", "content": text("seen")},
        {"role": "tool", "tool_call_id": "a1", "name": "look", "content": text("")},
        {"role": "user", "content": text("And?")},
    ]


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aaaa"}}


@pytest.mark.slow_except(every=2)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"messages": []}, "messages: "),
        ({"messages": [{"role": "user", "content": [IMAGE]}]}, r"messages\.0\.content\.0: .*'image'"),
        ({"messages": [{"role": "tool", "content": "x"}]}, r"messages\.0\.role"),
        ({"max_tokens": -2}, "max_tokens"),
        ({"stop_sequences": [""]}, r"stop_sequences\.0"),
        (
            {"tools": [{"type": "web_search_20250305", "name": "web_search"}], "tool_choice": {"type": "any"}},
            "cannot call: web_search_20250305",
        ),
        ({"tools": [WEATHER], "tool_choice": {"type": "tool"}}, "needs the name"),
        ({"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "stranger"}}, "stranger"),
        ({"tool_choice": {"type": "any"}}, "no tools were given"),
        ({"extra_body": {"temperature": -1}}, "temperature"),
        ({"extra_body": {"mcp_servers": [{"name": "x"}]}}, "mcp_servers"),
        ({"messages": [{"role": "user", "content": "long " * 2000}]}, "context"),
    ],
)
def test_what_is_refused(client: anthropic.Anthropic, options: Any, message: str) -> None:
    with pytest.raises(anthropic.BadRequestError, match=message) as caught:
        ask(client, **options)
    assert caught.value.type == "invalid_request_error"
    assert caught.value.body["request_id"] == caught.value.request_id  # type: ignore[index]


def test_required_fields(url: str, client: anthropic.Anthropic) -> None:
    missing = httpx.post(f"{url}/v1/messages", json={"model": "default", "messages": [SKY]})
    assert (missing.status_code, missing.json()["error"]["type"]) == (400, "invalid_request_error")
    assert "max_tokens" in missing.json()["error"]["message"]
    with pytest.raises(anthropic.NotFoundError) as caught:
        ask(client, model="stranger")
    assert caught.value.type == "not_found_error"


def test_models(client: anthropic.Anthropic) -> None:
    [model] = client.models.list()
    assert (model.id, model.type, model.max_input_tokens) == ("pyggml-demo-q8_0", "model", 1024)
    assert model.created_at.year >= 2025
    assert client.models.retrieve(model.id) == model
    with pytest.raises(anthropic.NotFoundError):
        client.models.retrieve("stranger")


def test_what_is_ignored(client: anthropic.Anthropic) -> None:
    cached: Any = {"role": "user", "content": [{**SKY, "type": "text", "text": SKY["content"], "cache_control": None}]}
    ignored = {"service_tier": "auto", "metadata": {"user_id": "u"}, "extra_body": {"speed": "fast", "min_p": 0.1}}
    assert plain(ask(client, cached, **ignored)) == plain(ask(client))
