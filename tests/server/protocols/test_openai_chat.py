"""OpenAI's chats, as a client of HTTP sees them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
from support.paths import DATA
from support.servers import servers

import pyggml
from pyggml.server import create_app
from pyggml.server.settings.options import ModelSpec, Settings

ASKED = [{"role": "user", "content": "What colour is the sky?"}]
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"]},
    },
}
FORMS: dict[str, Any] = json.loads((DATA / "openai_forms.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with servers.serving() as url:
        yield url


@pytest.fixture(scope="module")
def eager_url(llm: pyggml.LLM) -> Iterator[str]:
    """A server whose model comes to the point in a call, instead of writing spaces."""
    bias = {i: value for text, value in (('"', 20.0), ("}", 8.0)) for i in llm.tokenize(text, add_special=False)}
    with servers.serving(create_app(Settings(sampling={"logit_bias": bias}))) as url:
        yield url


@pytest.fixture(scope="module")
def llm() -> Iterator[pyggml.LLM]:
    with pyggml.load() as llm:
        yield llm


def answered(url: str, messages: Sequence[Any] = ASKED, **body: Any) -> dict[str, Any]:
    answer = httpx.post(f"{url}/v1/chat/completions", json={"messages": messages, **body}, timeout=60)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    jsonschema.validate(found, FORMS["chat.completion"])
    return found


def streamed(url: str, messages: Sequence[Any] = ASKED, **body: Any) -> list[dict[str, Any]]:
    body = {"messages": messages, "stream": True, **body}
    with httpx.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=60) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream"), answer.read()
        names, data = zip(*servers.events([*answer.iter_lines()]), strict=True)
    assert set(names) == {""}
    assert data[-1] == "[DONE]"
    chunks = [json.loads(each) for each in data[:-1]]
    for chunk in chunks:
        jsonschema.validate(chunk, FORMS["chat.completion.chunk"])
    return chunks


def refused(url: str, **body: Any) -> dict[str, Any]:
    answer = httpx.post(f"{url}/v1/chat/completions", json={"messages": ASKED, **body}, timeout=60)
    assert answer.status_code == 400, answer.text
    error: dict[str, Any] = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    return error


@pytest.mark.slow
def test_it_answers_what_the_model_answers(url: str, llm: pyggml.LLM) -> None:
    expected = llm.chat(ASKED)
    found = answered(url, temperature=0)
    assert found["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": expected.message.content, "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
            "stop_reason": expected.stop_reason,
        }
    ]
    n_tokens = len(expected.token_ids)
    assert (found["usage"]["prompt_tokens"], found["usage"]["completion_tokens"]) == (expected.prompt_tokens, n_tokens)
    assert found["timings"]["predicted_n"] >= n_tokens
    assert found["timings"]["prompt_n"] + found["timings"]["cache_n"] == expected.prompt_tokens


def test_a_stream_says_the_same(url: str, llm: pyggml.LLM) -> None:
    expected = llm.chat(ASKED)
    chunks = streamed(url, temperature=0, stream_options={"include_usage": True})
    first, *middle, end, usage = chunks
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": "", "refusal": None}
    assert "".join(each["choices"][0]["delta"]["content"] for each in middle) == expected.message.content
    assert (end["choices"][0]["delta"], end["choices"][0]["finish_reason"]) == ({}, "stop")
    assert (usage["choices"], usage["usage"]["completion_tokens"]) == ([], len(expected.token_ids))
    assert all(each["usage"] is None for each in chunks[:-1])
    assert len({(each["id"], each["created"], each["model"]) for each in chunks}) == 1
    assert all("usage" not in each for each in streamed(url))


@pytest.mark.slow
def test_several_answers_stream_side_by_side(url: str) -> None:
    told = [{"role": "user", "content": "Tell me a story."}]
    whole = answered(url, told, n=3, seed=7, temperature=2, max_tokens=8)
    assert [choice["index"] for choice in whole["choices"]] == [0, 1, 2]
    assert whole["usage"]["completion_tokens"] > 8
    chunks = streamed(url, told, n=3, seed=7, temperature=2, max_tokens=8)
    texts = ["", "", ""]
    for choice in (each["choices"][0] for each in chunks):
        texts[choice["index"]] += choice["delta"].get("content", "")
    assert len(set(texts)) > 1
    assert sum(choice["choices"][0]["finish_reason"] is not None for choice in chunks) == 3


@pytest.mark.slow
def test_logprobs(url: str) -> None:
    plain = answered(url, logprobs=True)["choices"][0]["logprobs"]["content"]
    assert all(token["top_logprobs"] == [] for token in plain)
    tokens = answered(url, logprobs=True, top_logprobs=3)["choices"][0]["logprobs"]["content"]
    assert [len(token["top_logprobs"]) for token in tokens] == [3] * len(tokens)
    chunks = streamed(url, logprobs=True, top_logprobs=3)
    news = [each["choices"][0] for each in chunks[1:-1]]
    assert [token["token"] for each in news for token in each["logprobs"]["content"]] == [t["token"] for t in tokens]
    text = "".join(each["delta"]["content"] for each in news)
    assert bytes(byte for token in tokens for byte in token["bytes"]).decode() == text


@pytest.mark.slow_except("choice1")
@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
def test_tools_are_called(choice: Any, eager_url: str) -> None:
    one: dict[str, Any] = {"tools": [TOOL], "tool_choice": choice, "parallel_tool_calls": False, "max_tokens": 200}
    message = answered(eager_url, **one)["choices"][0]["message"]
    (call,) = message["tool_calls"]
    assert (message["content"], call["type"], call["function"]["name"]) == (None, "function", "get_weather")
    assert json.loads(call["function"]["arguments"])["city"] in ("Rome", "Oslo")
    deltas = [each["choices"][0]["delta"] for each in streamed(eager_url, **one)]
    first, *others = [piece for delta in deltas for piece in delta.get("tool_calls", [])]
    assert first["id"]
    assert (first["index"], first["type"], first["function"]["name"]) == (0, "function", "get_weather")
    assert all(set(piece) == {"index", "function"} for piece in others)
    pieces = "".join(piece["function"]["arguments"] for piece in [first, *others])
    assert json.loads(pieces)["city"] in ("Rome", "Oslo")
    told = [*ASKED, message, {"role": "tool", "tool_call_id": call["id"], "content": "It rains."}]
    assert answered(eager_url, told, tools=[TOOL], tool_choice="none", max_tokens=5)["choices"][0]["message"]["content"]


@pytest.mark.slow
def test_functions_as_they_were_before_tools(eager_url: str) -> None:
    body: dict[str, Any] = {
        "functions": [TOOL["function"]],
        "function_call": {"name": "get_weather"},
        "max_tokens": 200,
    }
    message = answered(eager_url, **body)["choices"][0]["message"]
    assert "tool_calls" not in message
    assert message["function_call"]["name"] == "get_weather"
    calls = [each["choices"][0]["delta"].get("function_call") for each in streamed(eager_url, **body)]
    assert json.loads("".join(call["arguments"] for call in calls if call))["city"] in ("Rome", "Oslo")
    told = [*ASKED, message, {"role": "function", "name": "get_weather", "content": "It rains."}]
    assert answered(eager_url, told, max_tokens=5)["choices"][0]["message"]["content"]


def test_token_ids(url: str, llm: pyggml.LLM) -> None:
    expected = llm.chat(ASKED).token_ids
    assert answered(url, return_token_ids=True)["choices"][0]["token_ids"] == expected
    chunks = streamed(url, return_token_ids=True)
    assert [each for chunk in chunks[1:] for each in chunk["choices"][0]["token_ids"]] == expected


def test_misspelled_fields_are_ignored_and_logged(url: str, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        assert answered(url, max_token=1, temprature=2, user="me", min_tokens=3)["usage"]["completion_tokens"] > 1
    warnings = [record.getMessage() for record in caplog.records if "is ignored" in record.getMessage()]
    assert sorted(warnings) == [
        "a request has the unknown field 'max_token', which is ignored: did it mean 'max_tokens'?",
        "a request has the unknown field 'temprature', which is ignored: did it mean 'temperature'?",
    ]


def test_a_timeout_of_the_request(url: str) -> None:
    choice = answered(url, timeout_s=1e-4)["choices"][0]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("length", "timeout")


def test_only_the_allowed_tools(eager_url: str) -> None:
    other = {"type": "function", "function": {**TOOL["function"], "name": "get_news"}}
    allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": "get_news"}}]}
    choice = {"type": "allowed_tools", "allowed_tools": allowed}
    message = answered(eager_url, tools=[TOOL, other], tool_choice=choice, max_tokens=200)["choices"][0]["message"]
    assert {call["function"]["name"] for call in message["tool_calls"]} == {"get_news"}


@pytest.mark.slow_except("form0", "form1", "form2")
@pytest.mark.parametrize(
    "form",
    [
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"const": "blue"}}}},
        {"response_format": {"type": "json_object", "schema": {"const": "blue"}}},
        {"json_schema": {"const": "blue"}},
        {"guided_json": {"const": "blue"}},
        {"structured_outputs": {"json": {"const": "blue"}}},
        {"grammar": 'root ::= "\\"blue\\""'},
        {"guided_grammar": 'root ::= "\\"blue\\""'},
        {"guided_choice": ['"blue"']},
        {"structured_outputs": {"choice": ['"blue"']}},
        {"guided_regex": '"bl[u]e"'},
        {"regex": '"bl[u]e"'},
        {"choices": ['"blue"']},
        {"structured_outputs": {"regex": '"bl[u]e"'}},
    ],
)
def test_forms_of_an_answer(form: dict[str, Any], url: str) -> None:
    choice = answered(url, **form, max_tokens=40)["choices"][0]
    assert choice["message"]["content"].strip() == '"blue"'


def test_probabilities_of_choices(url: str) -> None:
    modes: dict[str, Any] = {"logprobs": True, "top_logprobs": 5, "logprobs_mode": "processed_logprobs"}
    (one, *_) = answered(url, guided_choice=["A", "B"], **modes)["choices"][0]["logprobs"]["content"]
    assert {each["token"] for each in one["top_logprobs"]} == {"A", "B"}
    assert sum(math.exp(each["logprob"]) for each in one["top_logprobs"]) == pytest.approx(1, abs=1e-4)


def test_limits_on_tokens(url: str) -> None:
    assert answered(url, allowed_token_ids=[300], max_tokens=3)["usage"]["completion_tokens"] == 3
    assert answered(url, min_tokens=30, max_tokens=40)["usage"]["completion_tokens"] >= 30
    assert "blue" not in answered(url, bad_words=["blue"], max_tokens=20)["choices"][0]["message"]["content"]
    assert "allowed_token_ids" in refused(url, allowed_token_ids=[])["message"]


def test_any_object(url: str) -> None:
    for form in ({"response_format": {"type": "json_object"}}, {"structured_outputs": {"json_object": True}}):
        choice = answered(url, **form, max_tokens=400)["choices"][0]
        assert choice["message"]["content"].lstrip().startswith("{")
    assert answered(url, response_format={"type": "text"})["choices"][0]["message"]["content"] == "The sky is blue."


@pytest.mark.parametrize("texts", [['say "hi"\n', "Größe\\\x1b"], ["]-[^", "{1,2}|(a)*"], ["日本語 😀", "\t"]])
def test_a_choice_of_any_texts(texts: list[str], url: str) -> None:
    choice = answered(url, guided_choice=texts, max_tokens=40)["choices"][0]
    assert (choice["message"]["content"] in texts, choice["finish_reason"]) == (True, "stop")


@pytest.mark.slow
def test_values_that_mean_nothing(url: str) -> None:
    for value in (None, -1):
        limits = ("max_tokens", "max_completion_tokens", "n_predict")
        off: dict[str, Any] = dict.fromkeys(("top_k", "seed", "repeat_last_n", *limits), value)
        assert answered(url, **off, repetition_penalty=1.1)["choices"][0]["finish_reason"] == "stop"
    nothing: dict[str, Any] = dict.fromkeys(
        ("model", "stop", "temperature", "top_p", "n", "stream", "tools", "response_format", "logit_bias")
    )
    assert answered(url, **nothing, stop_token_ids=None, user="me", metadata={"a": "b"}, store=True, unknown=[1])
    assert answered(url, seed=2**53, temperature=1, stop="")["choices"][0]["finish_reason"] == "stop"
    assert answered(url, seed=-(2**63), temperature=1, stop=["", "e"])


@pytest.mark.slow
def test_how_long_an_answer_is(url: str) -> None:
    limits: list[dict[str, Any]] = [{"max_tokens": 2}, {"max_completion_tokens": 2, "max_tokens": 9}, {"n_predict": 2}]
    for limit in limits:
        found = answered(url, **limit)
        assert (found["usage"]["completion_tokens"], found["choices"][0]["finish_reason"]) == (2, "length")
    full = answered(url, max_tokens=None, ignore_eos=True)["choices"][0]
    assert (full["finish_reason"], full["stop_reason"]) == ("length", "context")
    stopped = answered(url, stop=["blue", "green"])["choices"][0]
    assert (stopped["message"]["content"], stopped["finish_reason"]) == ("The sky is ", "stop")
    blue = [token for text in (" blue", "blue") for token in httpx_tokens(url, text)]
    assert "blue" not in answered(url, stop_token_ids=blue)["choices"][0]["message"]["content"]


def httpx_tokens(url: str, text: str) -> list[int]:
    tokens: list[int] = httpx.post(f"{url}/tokenize", json={"content": text}).json()["tokens"]
    return tokens


def test_what_is_added_to_logits(url: str) -> None:
    blue = httpx_tokens(url, " blue")
    for bias in (
        {str(token): -100 for token in blue},
        [[token, False] for token in blue],
        [[" blue", -100]],
        {" blue": False},
    ):
        assert "blue" not in answered(url, logit_bias=bias, temperature=0)["choices"][0]["message"]["content"]


@pytest.mark.slow
def test_reasoning_is_asked_for_and_taken_back(url: str) -> None:
    for field in (
        {"reasoning_effort": "low"},
        {"reasoning_effort": "none"},
        {"enable_thinking": False},
        {"chat_template_kwargs": {"enable_thinking": False}},
    ):
        assert answered(url, **field)["choices"][0]["message"]["content"]
    for thought in ({"reasoning_content": "It is day.", "content": "Blue."}, {"reasoning": "It is day."}):
        told = [*ASKED, {"role": "assistant", **thought}, {"role": "user", "content": "And grass?"}]
        assert answered(url, told)["choices"][0]["message"]["content"]


def test_reasoning_comes_apart(thinking_path: Path) -> None:
    grammar = 'root ::= "It may be.</think>Yes"'
    with servers.serving(create_app(Settings(models=(ModelSpec(str(thinking_path)),)))) as url:
        message = answered(url, grammar=grammar)["choices"][0]["message"]
        deltas = [each["choices"][0]["delta"] for each in streamed(url, grammar=grammar)]
    assert (message["reasoning_content"].strip(), message["content"]) == ("It may be.", "Yes")
    for name in ("reasoning_content", "content"):
        assert "".join(delta.get(name, "") for delta in deltas) == message[name]


def test_messages_in_all_their_forms(url: str) -> None:
    parts = [{"type": "text", "text": "What colour"}, {"type": "text", "text": " is the sky?"}]
    conversations: list[Any] = [
        [{"role": "developer", "content": "Be kind."}, *ASKED],
        [{"role": "user", "content": parts, "name": "Ann"}],
        [*ASKED, {"role": "assistant", "content": None, "refusal": "No."}, *ASKED],
        [*ASKED, {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}, *ASKED],
    ]
    for messages in conversations:
        assert answered(url, messages)["choices"][0]["message"]["content"]


def test_the_last_message_is_continued(url: str) -> None:
    told = [*ASKED, {"role": "assistant", "content": "The sky"}]
    assert answered(url, told, continue_final_message=True)["choices"][0]["message"]["content"] == " is blue."


@pytest.mark.slow_except(every=6)
@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        ({"messages": None}, "messages", "required"),
        ({"messages": "text"}, "messages", "array"),
        ({"messages": []}, None, "at least one"),
        ({"messages": [123]}, "messages.0", "object"),
        ({"messages": [{}]}, "messages[0]", "no role"),
        ({"messages": [{"role": 123, "content": "a"}]}, "messages[0]", "the role 123"),
        ({"messages": [{"role": "user", "content": 123}]}, "messages[0].content", "a string"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0]", "image_url"),
        ({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "messages[0].content[0]", "audio"),
        ({"max_tokens": "x"}, "max_tokens", "integer"),
        ({"n": 0}, "n", "greater"),
        ({"n": 1000}, None, "128"),
        ({"temperature": -1}, "temperature", "greater"),
        ({"top_logprobs": 21, "logprobs": True}, "top_logprobs", "20"),
        ({"top_logprobs": 2}, "top_logprobs", "logprobs=true"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "stream=true"),
        ({"response_format": {"type": "sound"}}, None, "'text'"),
        ({"response_format": {"type": "json_object", "schema": 123}}, None, "123"),
        ({"response_format": {"type": "json_object", "schema": {"type": "hiccup"}}}, None, "hiccup"),
        ({"json_schema": {"$ref": "http://127.0.0.1:1/schema.json"}}, None, "schema.json"),
        ({"grammar": "root ::= ("}, None, "line 1"),
        ({"guided_regex": "("}, None, "the group does not end"),
        ({"grammar": 'root ::= "a"', "json_schema": {}}, None, "choose one"),
        ({"tools": [{"type": "function"}]}, None, "name"),
        ({"tool_choice": "required"}, None, "no tools"),
        ({"tools": [TOOL], "tool_choice": {}}, None, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "allowed_tools": 5}}, "tool_choice", "a list"),
        ({"response_format": {}}, None, "response_format"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "x"}}}, None, "get_weather"),
        ({"chat_template": "{{ 1 }}"}, "chat_template", "starting the server"),
        ({"continue_final_message": True}, None, "role 'user'"),
        ({"modalities": ["text", "audio"]}, "modalities", "text"),
        ({"reasoning_effort": "lowest"}, "reasoning_effort", "'minimal', 'low'"),
        ({"chat_template_kwargs": {"thinkin": 1}}, None, "'thinkin' of chat_template_kwargs; it reads"),
        ({"template_kwargs": {"messages": []}}, None, "chat_template_kwargs cannot set 'messages': other fields"),
        ({"logit_bias": {"123456789": 1}}, None, "123456789"),
        ({"logit_bias": {"1": "much"}}, None, "logit_bias"),
        ({"logit_bias": {"9" * 20: 1}}, None, "9" * 20),
    ],
)
def test_what_is_refused(body: dict[str, Any], param: str | None, words: str, url: str) -> None:
    error = refused(url, **body)
    assert words in error["message"]
    assert error["param"] == param or param is None


def test_a_prompt_that_is_too_long(url: str) -> None:
    assert refused(url, messages=[{"role": "user", "content": "a " * 9000}])["code"] == "context_length_exceeded"
