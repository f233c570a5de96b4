"""``/v1/responses``, as OpenAI's own client sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pydantic
import pytest
from support.servers import servers

import pyggml.server

SKY = "What colour is the sky?"
WEATHER: Any = {
    "type": "function",
    "name": "weather",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"city": {"enum": ["Paris", "Rome"]}},
        "required": ["city"],
        "additionalProperties": False,
    },
}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with servers.serving() as url:
        yield f"{url}/v1"


def last_response(events: list[Any]) -> Any:
    assert events[-1].type in ("response.completed", "response.incomplete")
    return events[-1].response


@pytest.fixture
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        yield client


def test_a_question(client: openai.OpenAI) -> None:
    answer = client.responses.create(model="default", input=SKY, metadata={"mine": "1"})
    assert (answer.output_text, answer.status, answer.metadata) == ("The sky is blue.", "completed", {"mine": "1"})
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens
    cut = client.responses.create(model="default", input=SKY, max_output_tokens=2)
    assert cut.status == "incomplete"
    assert cut.incomplete_details is not None
    assert cut.incomplete_details.reason == "max_output_tokens"
    assert cut.output[0].status == "incomplete"  # type: ignore[union-attr]


def test_instructions_and_earlier_turns_reach_the_model(client: openai.OpenAI) -> None:
    brief = client.responses.create(model="default", input=SKY, instructions="Be brief.")
    assert brief.output_text == "Blue."
    first = client.responses.create(model="default", input=SKY)
    turns: Any = [{"role": "user", "content": SKY}, *(item.model_dump() for item in first.output)]
    question: Any = {"role": "user", "content": [{"type": "input_text", "text": "What colour is grass?"}]}
    second = client.responses.create(model="default", input=[*turns, question])
    assert second.output_text == "Grass is green."
    assert second.usage is not None
    assert second.usage.input_tokens_details.cached_tokens >= 10


def test_a_streamed_answer_is_the_whole_one(client: openai.OpenAI) -> None:
    whole = client.responses.create(model="default", input="Tell me a story", max_output_tokens=60)
    with client.responses.stream(model="default", input="Tell me a story", max_output_tokens=60) as stream:
        events = [*stream]
    assert events[-1].type == "response.incomplete"
    assert events[-1].response.output_text == whole.output_text
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == whole.output_text
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events if "delta" not in event.type]
    assert kinds == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.incomplete",
    ]


def test_a_schema_is_followed(client: openai.OpenAI) -> None:
    class Verdict(pydantic.BaseModel):
        is_blue: bool

    parsed = client.responses.parse(model="default", input=SKY, text_format=Verdict).output_parsed
    assert isinstance(parsed, Verdict)


def test_logprobs(client: openai.OpenAI) -> None:
    answer = client.responses.create(
        model="default", input=SKY, top_logprobs=3, include=["message.output_text.logprobs"]
    )
    part = answer.output[0].content[0]  # type: ignore[union-attr,index]
    assert "".join(entry.token for entry in part.logprobs) == part.text  # type: ignore[union-attr]
    assert {len(entry.top_logprobs) for entry in part.logprobs} == {3}  # type: ignore[union-attr]


def test_a_tool_is_called_and_its_result_is_read(client: openai.OpenAI) -> None:
    with client.responses.stream(
        model="default", input=SKY, tools=[WEATHER], tool_choice="required", max_output_tokens=400
    ) as stream:
        events = [*stream]
    call = last_response(events).output[-1]
    assert call.type == "function_call"
    assert call.arguments in ('{"city": "Paris"}', '{"city": "Rome"}', '{"city":"Paris"}', '{"city":"Rome"}')
    deltas = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
    assert "".join(deltas) == call.arguments
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "It is sunny."}
    turns: Any = [{"role": "user", "content": SKY}, call.model_dump(), result]
    assert client.responses.create(model="default", input=turns, tools=[WEATHER], max_output_tokens=9).usage


def test_reasoning_is_an_item_of_its_own(thinking_path: Path) -> None:
    grammar = 'root ::= "It may be.</think>Yes"'
    app = pyggml.server.create_app(thinking_path, sampling={"grammar": grammar})
    with servers.serving(app) as url, openai.OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        answer = client.responses.create(model="default", input="Is it?")
        with client.responses.stream(model="default", input="Is it?") as stream:
            deltas = [event.delta for event in stream if event.type == "response.reasoning_text.delta"]
            streamed = stream.get_final_response()
    for each in (answer, streamed):
        reasoning, message = each.output
        assert reasoning.type == "reasoning"
        assert reasoning.content is not None
        assert reasoning.content[0].text.strip() == "It may be."
        assert message.type == "message"
        assert each.output_text == "Yes"
        assert each.usage is not None
        assert 0 < each.usage.output_tokens_details.reasoning_tokens < each.usage.output_tokens
    assert "".join(deltas).strip() == "It may be."


@pytest.mark.slow_except(every=3)
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"previous_response_id": "resp_1"}, "send the whole conversation"),
        ({"tools": [{"type": "web_search"}], "tool_choice": "required"}, "no tool of the type web_search"),
        ({"input": [{"type": "item_reference", "id": "a"}]}, "the item 'a', which is not stored"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt is not supported"),
        ({"conversation": "conv_1"}, "continue a stored response"),
        ({"background": True}, "background is not supported"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "file:///x"}]}]}, "input_image"),
        ({"input": []}, "empty"),
        ({"temperature": -1}, "temperature"),
    ],
)
def test_what_is_refused(body: dict[str, Any], said: str, client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match=said):
        client.responses.create(**{"model": "default", "input": SKY, **body})


@pytest.mark.slow
def test_in_an_event_loop(url: str) -> None:
    async def ask() -> list[str]:
        async with openai.AsyncOpenAI(base_url=url, api_key="none") as client:
            many = [client.responses.create(model="default", input=SKY) for _ in range(6)]
            return [answer.output_text for answer in await asyncio.gather(*many)]

    assert asyncio.run(ask()) == ["The sky is blue."] * 6
