"""Rendered conversations, and parsers of answers to them."""

from __future__ import annotations

import json
import random
import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyggml._core import c_calls
from pyggml._core.cached_property import cached_property
from pyggml._core.checks import flag, utf8
from pyggml._core.ffi import lib
from pyggml._core.owner import Owner
from pyggml.chat.fallback_schemas import FallbackSchemas
from pyggml.chat.types import ChatDelta, ChatMessage, ToolCall, ToolCallDelta

if TYPE_CHECKING:
    from pyggml._core.ffi import CData

# Mistral's format: some templates reject ids with another length or alphabet.
_ID_LENGTH = 9
_ID_ALPHABET = string.ascii_letters + string.digits


@dataclass(frozen=True)
class ChatPrompt:
    """A rendered conversation, and the format of answers to it.

    Attributes:
        text: the prompt. Encode it with ``tokenize(text)``; it omits the BOS and EOS that this adds.
        grammar_lazy: the grammar applies only from a trigger on.
        grammar_prefix: end of the prompt that the grammar consumes before the answer; usually "".
        trigger_patterns: regular expressions that start a lazy grammar.
        trigger_tokens: ids of tokens that start a lazy grammar.
        preserved_tokens: special tokens whose text must be kept in the text fed to the parser.
        stop: strings that end the answer, in addition to the model's stop tokens.
        thinking_start: text that starts reasoning, such as "<think>"; "" if the template has no reasoning.
        thinking_ends: texts that end reasoning.
    """

    text: str
    grammar_lazy: bool
    grammar_prefix: str
    trigger_patterns: tuple[str, ...]
    trigger_tokens: tuple[int, ...]
    preserved_tokens: tuple[str, ...]
    stop: tuple[str, ...]
    thinking_start: str
    thinking_ends: tuple[str, ...]
    _grammar: str | None = field(repr=False)
    _fallback_schemas: FallbackSchemas = field(repr=False, compare=False)
    _format: CData = field(repr=False, compare=False)

    @cached_property
    def grammar(self) -> str | None:
        """GBNF grammar that the answer must match, or None.

        Raises:
            GrammarError: the schema of the answer or of a tool's parameters has constraints that a grammar cannot
                express; names the tool and gives a JSON pointer to the constraint.
        """
        return None if self._grammar is None else self._fallback_schemas.expand(self._grammar)

    def parser(self) -> ChatParser:
        """Create a parser for one answer to this prompt."""
        return ChatParser(self._format)


class ChatParser(Owner):
    """Parses one answer as it is generated; see :meth:`ChatPrompt.parser`. Use it from one thread at a time."""

    _instead_of_a_copy = "make one for each answer"

    def __init__(self, answer_format: CData) -> None:
        """Start to parse an answer.

        Args:
            answer_format: the native format of the prompt's answers, borrowed.
        """
        self._handle = c_calls.create(
            "pyg_chat_parser", lib.pyg_chat_parser_free, lib.pyg_chat_parser_clone, answer_format
        )
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[_Call] = []

    def feed(self, text: str, *, last: bool = False) -> ChatDelta:
        """Parse the next chunk of generated text.

        Args:
            text: the text, including the prompt's ``preserved_tokens``.
            last: the answer ends here, or was cut off here: held-back text is released.

        Returns:
            The chunk's addition to the message. Deltas are final: text that may become part of a tag or a tool call is
            held back until that is clear, and a tool's name until it is complete. Text that fits no format counts as
            content, unless it follows a call. The message is the same however its text is split into chunks; in a long
            one, a few characters may be held back until the next chunk.

        Raises:
            InvalidParameterError: the text contains an unpaired surrogate, or the answer has already ended.
        """
        data = utf8("the text", text)
        delta = json_from(lib.pyg_chat_parser_feed, self._handle, data, len(data), flag("last", last))
        calls = tuple(map(self._grow_call, delta["tool_calls"]))
        self._content.append(delta["content"])
        self._reasoning.append(delta["reasoning_content"])
        return ChatDelta(delta["content"], delta["reasoning_content"], calls)

    @property
    def message(self) -> ChatMessage:
        """The message so far: the sum of all deltas."""
        calls = tuple(ToolCall(call.id, call.name, "".join(call.arguments)) for call in self._calls)
        return ChatMessage("assistant", "".join(self._content), "".join(self._reasoning), calls)

    def _grow_call(self, delta: Mapping[str, Any]) -> ToolCallDelta:
        index: int = delta["index"]
        if index == len(self._calls):
            new_id = "".join(random.choices(_ID_ALPHABET, k=_ID_LENGTH))
            call = _Call(delta["id"] or new_id, delta["name"], [delta["arguments"]])
            self._calls.append(call)
            return ToolCallDelta(index, call.id, call.name, delta["arguments"])
        self._calls[index].arguments.append(delta["arguments"])
        return ToolCallDelta(index, arguments_text=delta["arguments"])


@dataclass
class _Call:
    id: str
    name: str
    arguments: list[str]


def json_from(function: Any, *args: object) -> Any:
    """Call a native function that returns JSON text through its last parameter but one, and parse the text."""
    return json.loads(decoded(c_calls.call_for_text(function, *args) or b""))


def decoded(text: bytes) -> str:
    """Decode a text from native code. A template may have cut it within a character."""
    return text.decode("utf-8", "replace")
