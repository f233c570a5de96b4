"""Embeddings of a stream of texts, with a bounded number of them in memory.

While the caller uses the vectors of a chunk, the next one is computed; so two chunks are in memory.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Generator, Iterable, Iterator, Sized
from typing import Any, Generic, TypeVar

from pyggml._core.checks import INT32_MAX, callback, integer, iterate
from pyggml.generation.batch_generation import ItemProgress
from pyggml.generation.embedding.embedder import Embedder, EmbeddingRequest, in_thread
from pyggml.progress import progress_bar

T = TypeVar("T")
#: Texts of a chunk and their vectors.
Chunk = tuple[list[Any], Any]


class EmbeddingStream(Generic[T]):
    """Settings of a call of :meth:`LLM.embed_iter <pyggml.llm.LLM.embed_iter>`, and its chunks."""

    def __init__(
        self,
        embedder: Embedder,
        *,
        chunk_size: int,
        key: Callable[[T], Any] | None,
        progress: ItemProgress | None,
        **options: Any,
    ) -> None:
        self._embedder = embedder
        self._chunk_size = integer("chunk_size", chunk_size, 1, INT32_MAX)
        callback("key", key)
        callback("progress", None if progress is False else progress)
        self._key, self._progress, self._options = key, progress, options
        embedder.prepare([], **options)  # refuses invalid options before the first text is read

    def run(self, items: Iterable[T]) -> Generator[Chunk]:
        """Yield chunks, in order. Closing the iterator gives up what is not computed yet."""
        n_total, n_done = _n_items(items), 0
        chunks = _chunks(iterate("texts", items, "an iterable of texts"), self._chunk_size)
        bar = progress_bar("Embedding", self._progress, counts=True)
        with bar as report, contextlib.closing(self._submitted(chunks)) as submitted:
            for chunk, call in submitted:
                call.job.wait()
                n_done += len(chunk)
                if report is not None:
                    report(n_done, n_total)
                yield chunk, call.result()

    async def arun(self, items: Iterable[T] | AsyncIterable[T]) -> AsyncGenerator[Chunk]:
        """As :meth:`run`, for coroutines and for asynchronous iterables, too."""
        import asyncio  # imported late to keep "import pyggml" fast

        n_total, n_done = _n_items(items), 0
        chunks = _achunks(items, self._chunk_size)
        with progress_bar("Embedding", self._progress, counts=True) as report:
            task = asyncio.create_task(self._compute_next(chunks, 0))
            try:
                while (found := await task) is not None:
                    n_done += len(found[0])
                    task = asyncio.create_task(self._compute_next(chunks, n_done))
                    if report is not None:
                        report(n_done, n_total)
                    yield found
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    # --- inside -----------------------------------------------------------------------------------------------

    def _submitted(self, chunks: Iterator[list[T]]) -> Generator[tuple[list[T], EmbeddingRequest]]:
        """Submit each chunk before yielding the one before it. An error is raised when those before it are yielded."""
        current: tuple[list[T], EmbeddingRequest] | None = None
        following: tuple[list[T], EmbeddingRequest] | None = None
        error: Exception | None = None
        n_read = 0
        try:
            while error is None:
                try:
                    following = self._submit_next(chunks, n_read)
                except Exception as raised:
                    following, error = None, raised
                if current is not None:
                    yield current
                if following is None:
                    break
                n_read += len(following[0])
                current, following = following, None
        finally:
            for each in (current, following):
                if each is not None:
                    self._embedder.queue.cancel(each[1].job)
        if error is not None:
            raise error

    def _submit_next(self, chunks: Iterator[list[T]], n_before: int) -> tuple[list[T], EmbeddingRequest] | None:
        chunk = next(chunks, None)
        if chunk is None:
            return None
        call = self._prepare(chunk, n_before)
        self._embedder.queue.submit(call.job)
        return chunk, call

    async def _compute_next(self, chunks: AsyncIterator[list[T]], n_before: int) -> Chunk | None:
        async for chunk in chunks:
            call = await in_thread(True, functools.partial(self._prepare, chunk, n_before))
            await self._embedder.queue.arun(call.job)
            return chunk, await in_thread(True, call.result)
        return None

    def _prepare(self, chunk: list[T], n_before: int) -> EmbeddingRequest:
        try:
            texts: list[Any] = chunk if self._key is None else [self._key(item) for item in chunk]
            return self._embedder.prepare(texts, **self._options)
        except Exception as error:
            if n_before and sys.version_info >= (3, 11):
                error.add_note(f"texts[0] of this chunk is number {n_before} of all texts, counted from 0.")
            raise


def _chunks(items: Iterator[T], size: int) -> Iterator[list[T]]:
    """Yield the items in lists of ``size``. An error of the iterator is raised after the items before it."""
    chunk: list[T] = []
    error: Exception | None = None
    while error is None:
        try:
            chunk.append(next(items))
        except StopIteration:
            break
        except Exception as raised:
            error = raised
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
    if error is not None:
        raise error


async def _achunks(items: Iterable[T] | AsyncIterable[T], size: int) -> AsyncIterator[list[T]]:
    """As :func:`_chunks`."""
    if not isinstance(items, AsyncIterable):
        for chunk in _chunks(iterate("texts", items, "an iterable of texts"), size):
            yield chunk
        return
    chunk, error = [], None
    try:
        async for item in items:
            chunk.append(item)
            if len(chunk) == size:
                yield chunk
                chunk = []
    except Exception as raised:
        error = raised
    if chunk:
        yield chunk
    if error is not None:
        raise error


def _n_items(items: object) -> int | None:
    with contextlib.suppress(TypeError):  # of an array of no dimensions
        return len(items) if isinstance(items, Sized) else None
    return None
