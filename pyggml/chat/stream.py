"""Running answers as iterators of chunks, which are parsed into a message."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from pyggml._core.json_forms import changed
from pyggml.chat import ChatParser, ChatPrompt
from pyggml.chat.request import ChatRequest
from pyggml.chat.types import ChatChunk, ChatCompletion, ChatMessage, ToolCall, call_text, json_object
from pyggml.errors import InvalidParameterError
from pyggml.generation.request import Request
from pyggml.generation.stream import BaseStream, ChunkBuilder
from pyggml.tokenizer import StopStrings, StreamDecoder, Tokenizer
from pyggml.types import Chunk

_MANY_TOKENS = 256


class ChatChunkBuilder(ChunkBuilder):
    """Builds chunks from an answer's tokens, and a message from all the chunks."""

    def __init__(self, pending: ChatRequest) -> None:
        """Build the answer to a request, which need not be submitted yet."""
        super().__init__(pending)
        self._pending = pending
        self._parser: ChatParser | None = None
        self._message = ChatMessage()  # once the answer has ended
        self._displays_reasoning = False

    def is_slow(self, token_ids: list[int]) -> bool:
        """Return True for many tokens: their text is parsed character by character; see :meth:`ChatParser.feed`."""
        return len(token_ids) >= _MANY_TOKENS

    def build(self, request: Request, token_ids: list[int]) -> ChatChunk:
        """Build the chunk of one read's tokens; cancel the request once the answer is complete."""
        is_first = self._parser is None
        parser = self._parser = self._parser or self._begin()
        chunk = super().build(request, token_ids)
        delta = parser.feed(chunk.text, last=chunk.finish_reason is not None)
        chat_chunk = ChatChunk(**{**vars(chunk), **vars(delta)}, _is_first=is_first)
        if self._pending.conversation.may_call_once and any(call.index > 0 for call in chat_chunk.tool_calls):
            request.cancel()
            first = tuple(call for call in chat_chunk.tool_calls if call.index == 0)
            return changed(chat_chunk, tool_calls=first, finish_reason="tool_calls", stop_reason=None)
        if chat_chunk.finish_reason == "stop" and _are_complete(parser.message.tool_calls):
            return changed(chat_chunk, finish_reason="tool_calls")
        return chat_chunk

    def append(self, chunk: Chunk) -> Chunk:
        """Append a chunk to the completion, and after the last one take the parsed message."""
        if chunk.finish_reason is not None and self._parser is not None:
            self._message = self._parser.message
            if self._pending.on_answer is not None:
                message = dataclasses.replace(self._message, tool_calls=tuple(self._calls()))
                self._pending.on_answer(message, chunk.finish_reason)
        return super().append(chunk)

    def text_to_display(self, chunk: Chunk) -> str:
        """Return the reasoning, an empty line, the content, and at the end the tool calls."""
        assert isinstance(chunk, ChatChunk)
        text = chunk.reasoning_content
        self._displays_reasoning |= bool(text)
        if chunk.content:
            text += "\n\n" * self._displays_reasoning + chunk.content
            self._displays_reasoning = False
        if chunk.finish_reason is not None and (calls := self._calls()):
            text += "\n" * bool(self._message.content or self._message.reasoning_content)
            text += "\n".join(map(call_text, calls))
        return text

    def cancel(self) -> ChatChunk:
        """End an unfinished answer as cancelled, and return the last chunk."""
        if not isinstance(self._last, ChatChunk):
            self._last = ChatChunk(**vars(super().cancel()))
            if self._parser is not None:
                self._message = self._parser.message
        return self._last

    def completion(self, request: Request | None) -> ChatCompletion:
        """Build the completion of an answer that has ended; without a request, an empty, cancelled one."""
        message = dataclasses.replace(self._message, tool_calls=tuple(map(self._typed, self._calls())))
        n_dropped = self._pending.n_dropped_messages
        return ChatCompletion(**vars(super().completion(request)), message=message, dropped_messages=n_dropped)

    def _calls(self) -> Sequence[ToolCall]:
        """The calls of an answer that has ended."""
        return self._message.tool_calls[: 1 if self._pending.conversation.may_call_once else None]

    def _begin(self) -> ChatParser:
        prompt, tokenizer = self._pending.prompt, self._pending.tokenizer
        assert prompt is not None  # the request has been submitted
        self._decoder = StreamDecoder(tokenizer, _preserved_tokens(prompt, tokenizer))
        self._stop = StopStrings(self._pending.stop)
        return prompt.parser()

    def _typed(self, call: ToolCall) -> ToolCall:
        tool = self._pending.conversation.tools.get(call.name)
        return tool.call(call.id, call.arguments_text) if tool else call


class ChatStream(BaseStream[ChatChunk, ChatCompletion]):
    """A running answer as an iterator of ChatChunks; otherwise as any :class:`~pyggml.Stream`."""

    def __init__(self, pending: ChatRequest, request: Request) -> None:
        """Read a request, which was submitted as ``pending``.

        Args:
            pending: the request as it was prepared: conversation, parameters, tokenizer.
            request: the same request in flight.
        """
        super().__init__(request, ChatChunkBuilder(pending), pending.min_tokens)


def _preserved_tokens(prompt: ChatPrompt, tokenizer: Tokenizer) -> dict[int, bytes]:
    """The special tokens that the parser has to see, and their text."""
    encoded = {text: tokenizer.encode(text, add_special=False, parse_special=True) for text in prompt.preserved_tokens}
    return {ids[0]: text.encode() for text, ids in encoded.items() if len(ids) == 1}


def _are_complete(calls: Sequence[ToolCall]) -> bool:
    """Return True if there are calls and none was cut off."""
    try:
        return bool([json_object(call.name, call.arguments_text) for call in calls])
    except InvalidParameterError:
        return False
