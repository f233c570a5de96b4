"""An answer in an event loop. Importing this imports asyncio, so it is done when first needed."""

from __future__ import annotations

from pyggml.chat.conversation import ChatAssembly, ChatJob
from pyggml.chat.types import ChatChunk, ChatCompletion
from pyggml.generation.astream import BaseAsyncStream


class AsyncChatStream(BaseAsyncStream[ChatChunk, ChatCompletion]):
    """A running answer, as an asynchronous iterator of ChatChunks; otherwise as any :class:`~pyggml.AsyncStream`."""

    def __init__(self, job: ChatJob) -> None:
        """Keeps the job until it is wanted."""
        super().__init__(job, ChatAssembly(job))
