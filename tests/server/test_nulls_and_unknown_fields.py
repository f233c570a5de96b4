"""Request bodies: a null is an absent field in every protocol, and unknown fields of messages are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

import pytest
from pydantic import ValidationError

import pyggml.server.app  # noqa: F401  # imports all bodies
from pyggml.chat.messages import checked_messages
from pyggml.chat.tools import checked_tools
from pyggml.errors import InvalidParameterError
from pyggml.server.http.errors import RequestError
from pyggml.server.http.generation import ChatInput
from pyggml.server.http.request_body import Body
from pyggml.server.protocols.anthropic.requests import CreateMessage
from pyggml.server.protocols.ollama import requests as ollama
from pyggml.server.protocols.openai.chat_request import ChatRequest
from pyggml.server.protocols.responses.request import CreateResponse

if TYPE_CHECKING:
    from pyggml.server.models.pool import LoadedModel

REQUIRED: dict[str, Any] = {
    **dict.fromkeys(("model", "content", "id", "name", "query", "text", "thinking", "tool_use_id"), "a"),
    **dict.fromkeys(("text_1", "text_2"), "a"),
    "texts": ["a"],
    "input": "a",
    "prompt": "a",
    "job_id": "a",
    "max_tokens": 1,
    "scale": 1.0,
    "tokens": [1],
    "role": "user",
    "function": {"name": "a"},
    "messages": [{"role": "user", "content": "a"}],
    "input_schema": {},
    "schema": {},
    "custom_id": "a",
    "params": {},
    "requests": [{"custom_id": "a", "params": {}}],
    "input_file_id": "a",
    "endpoint": "/v1/embeddings",
}
ANTHROPICS_CALL: dict[str, Any] = {"type": "tool_use", "id": "call", "name": "f"}
TYPES = {
    "Text": "text",
    "Thinking": "thinking",
    "RedactedThinking": "redacted_thinking",
    "ToolUse": "tool_use",
    "ToolResult": "tool_result",
    "ToolChoice": "auto",
    "ThinkingConfig": "enabled",
    "JSONFormat": "json_schema",
    "ServerToolBlock": "web_search_tool_result",
}
#: Fields that a body needs although each by itself is optional.
ALSO: dict[str, dict[str, Any]] = {
    "AdapterScale": {"id": 0},
    "RerankRequest": {"documents": ["a"]},
    "Tokenize": {"content": "a"},
    "Tool": {"input_schema": {}},
}


def bodies(cls: type[Body] = Body) -> Iterator[type[Body]]:
    for each in cls.__subclasses__():
        yield each
        yield from bodies(each)


@pytest.mark.parametrize("body", dict.fromkeys(bodies()), ids=lambda body: f"{body.__module__}.{body.__name__}")
def test_a_null_is_an_absent_field(body: type[Body]) -> None:
    required = {field.alias or name for name, field in body.model_fields.items() if field.is_required()}
    given = {name: TYPES[body.__name__] if name == "type" else REQUIRED[name] for name in required}
    names = {*body.model_fields}
    for field in body.model_fields.values():
        names.update(getattr(field.validation_alias, "choices", ()))
    given |= {name: value for name, value in ALSO.get(body.__name__, {}).items() if name in body.model_fields}
    expected = body.model_validate(given)
    assert body.model_validate({**given, **dict.fromkeys(names - {*given, "json_schema"} | {"other"})}) == expected
    for name in required:
        with pytest.raises(ValidationError, match="required"):
            body.model_validate({**given, name: None})


def test_a_null_beside_another_name_of_the_field() -> None:
    body = ChatRequest.model_validate({"messages": [], "repeat_penalty": None, "repetition_penalty": 1.5})
    assert body.repeat_penalty == 1.5


def openai(message: dict[str, Any]) -> ChatInput:
    return ChatRequest.model_validate({"messages": [message]}).to_chat(cast("LoadedModel", None))


def responses(item: dict[str, Any]) -> ChatInput:
    return CreateResponse.model_validate({"input": [item]}).to_chat()


def of_ollama(message: dict[str, Any]) -> ChatInput:
    return ollama.ChatRequest.model_validate({"model": "m", "messages": [message]}).to_chat()


def anthropic(message: dict[str, Any]) -> ChatInput:
    return CreateMessage.model_validate({"model": "m", "max_tokens": 1, "messages": [message]}).to_chat()


@pytest.mark.parametrize("read", [openai, responses, of_ollama, anthropic])
def test_unknown_fields_of_a_message(read: Callable[[dict[str, Any]], ChatInput]) -> None:
    message = {"role": "user", "content": "a"}
    (plain,) = checked_messages(read(message).messages)
    assert checked_messages(read({**message, "pictures": None}).messages) == [plain]
    with pytest.raises((ValidationError, RequestError, InvalidParameterError), match=r"pictures.*known are .*role"):
        checked_messages(read({**message, "pictures": ["a"]}).messages)


@pytest.mark.parametrize("empty", [None, "", " ", "null", "{}", {}, ...])
@pytest.mark.parametrize(
    ("read", "call"),
    [
        (openai, lambda fields: {"role": "assistant", "tool_calls": [{"function": {"name": "f", **fields}}]}),
        (responses, lambda fields: {"type": "function_call", "name": "f", "call_id": None, **fields}),
        (of_ollama, lambda fields: {"role": "assistant", "tool_calls": [{"function": {"name": "f", **fields}}]}),
        (anthropic, lambda fields: {"role": "assistant", "content": [{**ANTHROPICS_CALL, **renamed(fields)}]}),
    ],
)
def test_calls_without_arguments(
    read: Callable[[dict[str, Any]], ChatInput], call: Callable[[dict[str, Any]], dict[str, Any]], empty: Any
) -> None:
    fields = {} if empty is ... else {"arguments": empty}
    (message,) = checked_messages(read(call(fields)).messages)
    assert message["tool_calls"][0]["function"] == {"name": "f", "arguments": "{}"}


def renamed(fields: dict[str, Any]) -> dict[str, Any]:
    return {"input": fields["arguments"]} if fields else {}


def test_what_openais_clients_send_back() -> None:
    """With all the fields of a response, most of them null."""
    call = {"id": "call", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    sent = {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "annotations": [{"type": "url_citation"}],
        "audio": None,
        "function_call": None,
        "tool_calls": [call],
        "reasoning": "so",
        "name": None,
    }
    (message,) = checked_messages(openai(sent).messages)
    assert message.pop("tool_calls")[0]["function"] == call["function"]
    assert message == {"role": "assistant", "content": "", "reasoning_content": "so"}


def test_nulls_in_tools_and_variables() -> None:
    function: dict[str, Any] = {
        "name": "f",
        "description": None,
        "parameters": {"type": None, "properties": {}},
        "strict": None,
    }
    for tool in ({"type": None, "function": function}, {**function, "function": None}):
        assert checked_tools([tool])["f"].parameters == {"type": "object", "properties": {}}
    body = ChatRequest.model_validate({"messages": [], "chat_template_kwargs": {"enable_thinking": None}})
    assert body.to_chat(cast("LoadedModel", None)).options["template_kwargs"] == {}
