"""Chat handlers, which answer conversations, and chat formatters, which make prompts of them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

import pyggml
from pyggml.compat._llama.chat_results import completion_to_call, completion_to_chat, grammar_of_response_format
from pyggml.compat._llama.token_loop import Ids, Scores
from pyggml.compat.llama_cpp.llama_grammar import LlamaGrammar

if TYPE_CHECKING:
    from pyggml.compat.llama_cpp.llama import Llama


class LlamaChatCompletionHandler(Protocol):
    """A function that answers a conversation: it takes the arguments of ``create_chat_completion`` and ``llama``."""

    def __call__(self, *, llama: Llama, messages: Any, **kwargs: Any) -> Any:
        """Answer a conversation, with a dictionary or an iterator of them.

        Args:
            llama: the model.
            messages: the conversation.
            **kwargs: the other arguments of :meth:`Llama.create_chat_completion`.
        """


@dataclasses.dataclass
class ChatFormatterResponse:
    """A prompt, and what ends the answer to it.

    Attributes:
        prompt: the prompt.
        stop: strings that end the answer.
        stopping_criteria: ends the answer after a token.
        added_special: True if the prompt begins with the special tokens that the model expects.
    """

    prompt: str
    stop: str | list[str] | None = None
    stopping_criteria: Callable[[Ids, Scores], bool] | None = None
    added_special: bool = False


class ChatFormatter(Protocol):
    """A function that makes the prompt of a conversation."""

    def __call__(self, *, messages: Any, **kwargs: Any) -> ChatFormatterResponse:
        """Make the prompt of a conversation.

        Args:
            messages: the conversation.
            **kwargs: the other arguments of :meth:`Llama.create_chat_completion`.
        """


def chat_formatter_to_chat_completion_handler(chat_formatter: ChatFormatter) -> LlamaChatCompletionHandler:
    """Return a chat format as a chat handler.

    Args:
        chat_formatter: makes the prompts.
    """

    def handler(
        *,
        llama: Llama,
        messages: Any,
        functions: Any = None,
        function_call: Any = None,
        tools: Any = None,
        tool_choice: Any = None,
        stream: bool = False,
        stop: str | list[str] | None = None,
        response_format: Mapping[str, Any] | None = None,
        grammar: LlamaGrammar | None = None,
        logprobs: bool | None = None,
        top_logprobs: int | None = None,
        **options: Any,
    ) -> Any:
        called = {"functions": functions, "function_call": function_call, "tools": tools, "tool_choice": tool_choice}
        formatted = chat_formatter(messages=messages, **called)
        tool = _required_tool(functions, function_call, tools, tool_choice)
        if tool is not None:
            grammar = LlamaGrammar.from_json_schema(json.dumps(tool["parameters"]))
        elif response_format is not None:
            grammar = grammar_of_response_format(response_format) or grammar
        completion = llama.create_completion(
            llama.tokenize(formatted.prompt.encode(), add_bos=not formatted.added_special, special=True),
            stream=stream,
            stop=[*_as_list(stop), *_as_list(formatted.stop)],
            stopping_criteria=formatted.stopping_criteria,
            grammar=grammar,
            logprobs=(top_logprobs or 0) if logprobs else None,
            **options,
        )
        return (
            completion_to_chat(completion, stream)
            if tool is None
            else completion_to_call(completion, tool["name"], stream)
        )

    return cast("LlamaChatCompletionHandler", handler)


def _required_tool(functions: Any, function_call: Any, tools: Any, tool_choice: Any) -> Mapping[str, Any] | None:
    """Return the function that the answer must call; None: the answer is text."""
    if isinstance(function_call, Mapping) and not tools:
        name, known = function_call["name"], list(functions or ())
    elif isinstance(tool_choice, Mapping):
        name, known = tool_choice["function"]["name"], [tool["function"] for tool in tools or ()]
    else:
        return None
    for function in known:
        if function["name"] == name:
            return cast("Mapping[str, Any]", function)
    raise pyggml.InvalidParameterError(f"Tool choice '{name}' not found in tools.")


def _as_list(stop: str | Sequence[str] | None) -> list[str]:
    return [stop] if isinstance(stop, str) else list(stop or ())
