"""Chat formats and chat handlers: how a conversation becomes a prompt, by name or by a function of the caller's."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

import pyggml
from pyggml.compat._llama import formats
from pyggml.compat._llama.chat_handlers import ChatFormatter as ChatFormatter
from pyggml.compat._llama.chat_handlers import ChatFormatterResponse as ChatFormatterResponse
from pyggml.compat._llama.chat_handlers import LlamaChatCompletionHandler as LlamaChatCompletionHandler
from pyggml.compat._llama.chat_handlers import (
    chat_formatter_to_chat_completion_handler as chat_formatter_to_chat_completion_handler,
)
from pyggml.compat._llama.chat_results import completion_to_call, completion_to_chat, grammar_of_response_format
from pyggml.compat._llama.image_handlers import Gemma4ChatHandler as Gemma4ChatHandler
from pyggml.compat._llama.image_handlers import Llama3VisionAlpha as Llama3VisionAlpha
from pyggml.compat._llama.image_handlers import Llama3VisionAlphaChatHandler as Llama3VisionAlphaChatHandler
from pyggml.compat._llama.image_handlers import Llava15ChatHandler as Llava15ChatHandler
from pyggml.compat._llama.image_handlers import Llava16ChatHandler as Llava16ChatHandler
from pyggml.compat._llama.image_handlers import MiniCPMv26ChatHandler as MiniCPMv26ChatHandler
from pyggml.compat._llama.image_handlers import MoondreamChatHandler as MoondreamChatHandler
from pyggml.compat._llama.image_handlers import MTMDChatHandler as MTMDChatHandler
from pyggml.compat._llama.image_handlers import NanoLlavaChatHandler as NanoLlavaChatHandler
from pyggml.compat._llama.image_handlers import ObsidianChatHandler as ObsidianChatHandler
from pyggml.compat._llama.image_handlers import Qwen25VLChatHandler as Qwen25VLChatHandler
from pyggml.compat._llama.jinja_formatters import Jinja2ChatFormatter as Jinja2ChatFormatter
from pyggml.compat._llama.jinja_formatters import (
    hf_autotokenizer_to_chat_completion_handler as hf_autotokenizer_to_chat_completion_handler,
)
from pyggml.compat._llama.jinja_formatters import (
    hf_autotokenizer_to_chat_formatter as hf_autotokenizer_to_chat_formatter,
)
from pyggml.compat._llama.jinja_formatters import (
    hf_tokenizer_config_to_chat_completion_handler as hf_tokenizer_config_to_chat_completion_handler,
)
from pyggml.compat._llama.jinja_formatters import (
    hf_tokenizer_config_to_chat_formatter as hf_tokenizer_config_to_chat_formatter,
)

# Private names that published chat handlers use, such as RAGLite's.
_convert_completion_to_chat = completion_to_chat


def _convert_completion_to_chat_function(tool_name: str, completion_or_chunks: Any, stream: bool) -> Any:
    return completion_to_call(completion_or_chunks, tool_name, stream)


def _grammar_for_response_format(response_format: Mapping[str, Any], verbose: bool = False) -> Any:  # noqa: ARG001
    return grammar_of_response_format(response_format)


Messages = Sequence[Mapping[str, Any]]

# Formats whose models have templates in their files.
_FROM_FILE = ("functionary", "functionary-v1", "functionary-v2")
# Formats of models of 2023 whose default system messages are long.
_LEFT_OUT = ("openbuddy", "open-orca", "snoozy")


class LlamaChatCompletionHandlerNotFoundException(pyggml.InvalidParameterError):
    """There is no chat format of this name."""


class LlamaChatCompletionHandlerRegistry:
    """The chat handlers by name. All instances share them."""

    _chat_handlers: dict[str, LlamaChatCompletionHandler] = {}  # noqa: RUF012

    def register_chat_completion_handler(
        self, name: str, chat_handler: LlamaChatCompletionHandler, overwrite: bool = False
    ) -> None:
        """Add a handler.

        Args:
            name: its name, for ``chat_format``.
            chat_handler: the handler.
            overwrite: replace one of the same name.

        Raises:
            InvalidParameterError: there is one of this name.
        """
        if name in self._chat_handlers and not overwrite:
            raise pyggml.InvalidParameterError(f"there is a chat handler {name!r} already: pass overwrite=True")
        self._chat_handlers[name] = chat_handler

    def unregister_chat_handler(self, name: str) -> None:
        """Remove a handler.

        Args:
            name: its name.

        Raises:
            InvalidParameterError: there is none of this name.
        """
        if name not in self._chat_handlers:
            raise pyggml.InvalidParameterError(f"there is no chat handler {name!r}")
        del self._chat_handlers[name]

    def get_chat_completion_handler_by_name(self, name: str) -> LlamaChatCompletionHandler:
        """Return a handler.

        Args:
            name: its name.

        Raises:
            LlamaChatCompletionHandlerNotFoundException: there is none of this name.
        """
        found = self._chat_handlers.get(name)
        if found is None:
            raise LlamaChatCompletionHandlerNotFoundException(
                f"there is no chat format {name!r}{_way_out(name, self._chat_handlers)}"
            )
        return found


def _way_out(name: str, known: Iterable[str]) -> str:
    if name in _FROM_FILE:
        return ": leave out chat_format, because the template in the model's file has tools"
    if name in _LEFT_OUT:
        return ", which is not supported: pass the prompt to create_completion, or use register_chat_format"
    nearest = difflib.get_close_matches(name, known, n=1)
    return f": did you mean {nearest[0]!r}?" if nearest else f"; there are {', '.join(sorted(known))}"


def get_chat_completion_handler(name: str) -> LlamaChatCompletionHandler:
    """Return the chat handler of a name.

    Args:
        name: the name of a chat format.

    Raises:
        LlamaChatCompletionHandlerNotFoundException: there is none of this name.
    """
    return LlamaChatCompletionHandlerRegistry().get_chat_completion_handler_by_name(name)


_Handler = TypeVar("_Handler", bound=LlamaChatCompletionHandler)
_Formatter = TypeVar("_Formatter", bound=ChatFormatter)


def register_chat_completion_handler(name: str) -> Callable[[_Handler], _Handler]:
    """Decorate a chat handler, to use it by name.

    Args:
        name: the name, for ``chat_format``.
    """

    def register(handler: _Handler) -> _Handler:
        LlamaChatCompletionHandlerRegistry().register_chat_completion_handler(name, handler)
        return handler

    return register


def register_chat_format(name: str) -> Callable[[_Formatter], _Formatter]:
    """Decorate a function that makes prompts, to use it by name.

    Args:
        name: the name, for ``chat_format``.
    """

    def register(formatter: _Formatter) -> _Formatter:
        handler = chat_formatter_to_chat_completion_handler(formatter)
        LlamaChatCompletionHandlerRegistry().register_chat_completion_handler(name, handler)
        return formatter

    return register


# --- named formats ----------------------------------------------------------------------------------------------------


def _formatter(render: Callable[[Messages], str], stop: str | None) -> ChatFormatter:
    def formatter(messages: Messages, **kwargs: Any) -> ChatFormatterResponse:  # noqa: ARG001
        return ChatFormatterResponse(render(messages), stop)

    return cast("ChatFormatter", formatter)


def _register_formats() -> None:
    """Register the named formats, each also as a function of this module, such as ``format_chatml``."""
    formatters = {name: _formatter(each.render, each.stop) for name, each in formats.TEXT_FORMATS.items()}
    formatters["llama-2"] = _formatter(formats.render_llama2, None)
    formatters["mistral-instruct"] = _formatter(formats.render_mistral, "</s>")
    formatters["saiga"] = _formatter(formats.render_saiga, None)
    spellings = {"llama-2": "llama2", "llama-3": "llama3", "baichuan-2": "baichuan2"}
    for name, formatter in formatters.items():
        register_chat_format(name)(formatter)
        globals()[f"format_{spellings.get(name, name.replace('-', '_'))}"] = formatter


_register_formats()
