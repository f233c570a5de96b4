"""A running answer in an event loop. This module imports asyncio, so it is itself imported only when needed."""

from __future__ import annotations

from pyggml.chat.conversation import ChatAssembly, ChatJob
from pyggml.chat.types import ChatChunk, ChatCompletion
from pyggml.generation.async_stream import BaseAsyncStream


class AsyncChatStream(BaseAsyncStream[ChatChunk, ChatCompletion]):
    """A running answer, as an asynchronous iterator of ChatChunks; otherwise as any :class:`~pyggml.AsyncStream`."""

    def __init__(self, job: ChatJob) -> None:
        """Keeps the job, which is submitted when the stream is entered or iterated."""
        super().__init__(job, ChatAssembly(job))
