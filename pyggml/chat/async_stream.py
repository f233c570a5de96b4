"""Running answers as asynchronous iterators. This module imports asyncio, so it is imported only when needed."""

from __future__ import annotations

from pyggml.chat.request import ChatRequest
from pyggml.chat.stream import ChatChunkBuilder
from pyggml.chat.types import ChatChunk, ChatCompletion
from pyggml.generation.async_stream import BaseAsyncStream
from pyggml.generation.engine import Engine


class AsyncChatStream(BaseAsyncStream[ChatChunk, ChatCompletion]):
    """A running answer as an asynchronous iterator of ChatChunks; otherwise as any :class:`~pyggml.AsyncStream`."""

    def __init__(self, engine: Engine, pending: ChatRequest) -> None:
        """Prepare a stream, which submits the request when it is entered or iterated.

        Args:
            engine: the engine to submit it to.
            pending: the request.
        """
        super().__init__(engine, pending, ChatChunkBuilder(pending))
