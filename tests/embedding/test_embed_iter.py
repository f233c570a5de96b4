"""Embeddings of streams of texts, with few of them in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyggml

TEXTS = [f"text {n} {'of words ' * (n % 9)}" for n in range(250)]


@pytest.fixture(scope="module")
def encoder(bert_path: Path) -> Iterator[pyggml.LLM]:
    with pyggml.load(bert_path, n_threads=1) as llm:
        llm.embed("makes the context, which is not any test's own")
        yield llm


class Source:
    """Texts that are counted when they are read, and an error at their end."""

    def __init__(self, texts: list[Any], error: Exception | None = None) -> None:
        self.texts, self.error, self.n_read = texts, error, 0

    def __iter__(self) -> Iterator[Any]:
        for text in self.texts:
            self.n_read += 1
            yield text
        if self.error is not None:
            raise self.error

    async def __aiter__(self) -> AsyncIterator[Any]:
        for text in self:
            yield text


def test_all_in_order(encoder: pyggml.LLM) -> None:
    chunks = list(encoder.embed_iter(iter(TEXTS), chunk_size=100, normalize=True))
    assert [len(texts) for texts, _ in chunks] == [100, 100, 50]
    assert [text for texts, _ in chunks for text in texts] == TEXTS
    np.testing.assert_array_equal(np.concatenate([rows for _, rows in chunks]), encoder.embed(TEXTS, normalize=True))
    assert list(encoder.embed_iter([])) == []


def test_few_texts_are_in_memory(encoder: pyggml.LLM) -> None:
    source, n_done = Source(TEXTS), 0
    for texts, _ in encoder.embed_iter(source, chunk_size=10):
        # The chunk that was yielded, and the next one, which is being computed.
        assert source.n_read - n_done <= 20
        n_done += len(texts)
    assert n_done == len(TEXTS)


def test_in_coroutines(encoder: pyggml.LLM) -> None:
    async def main(source: Any) -> list[Any]:
        n_done, found = 0, []
        async for texts, rows in encoder.aembed_iter(source, chunk_size=10):
            assert source.n_read - n_done <= 20
            n_done += len(texts)
            found.append(rows)
        return found

    class Asynchronous(Source):
        __iter__ = None  # type: ignore[assignment]

        async def __aiter__(self) -> AsyncIterator[Any]:
            for text in self.texts:
                self.n_read += 1
                yield text

    for kind in (Source, Asynchronous):
        np.testing.assert_array_equal(np.concatenate(asyncio.run(main(kind(TEXTS)))), encoder.embed(TEXTS))


def test_items_with_a_key(encoder: pyggml.LLM) -> None:
    rows = [{"id": n, "text": text} for n, text in enumerate(TEXTS[:20])]
    ((items, vectors),) = encoder.embed_iter(rows, key=lambda row: str(row["text"]), dtype="float16", dimensions=8)
    assert items == rows
    np.testing.assert_array_equal(vectors, encoder.embed(TEXTS[:20], dtype="float16", dimensions=8))


def test_progress(encoder: pyggml.LLM) -> None:
    counts: list[tuple[int, int | None]] = []
    for _ in encoder.embed_iter(TEXTS, chunk_size=120, progress=lambda *count: counts.append(count)):
        pass
    assert counts == [(120, 250), (240, 250), (250, 250)]
    counts.clear()
    for _ in encoder.embed_iter(iter(TEXTS[:5]), progress=lambda *count: counts.append(count)):
        pass
    assert counts == [(5, None)]


def test_an_iterable_that_raises(encoder: pyggml.LLM) -> None:
    source = Source(TEXTS[:25], OSError("the disk is gone"))
    done: list[int] = []
    with pytest.raises(OSError, match="the disk is gone"):
        done.extend(len(texts) for texts, _ in encoder.embed_iter(source, chunk_size=10))
    assert done == [10, 10, 5]

    async def main() -> None:
        async for texts, _ in encoder.aembed_iter(source, chunk_size=10):
            done.append(len(texts))

    done.clear()
    with pytest.raises(OSError, match="the disk is gone"):
        asyncio.run(main())
    assert done == [10, 10, 5]


def test_a_text_that_cannot_be_embedded(encoder: pyggml.LLM) -> None:
    done: list[int] = []
    chunks = encoder.embed_iter([*TEXTS[:23], None, *TEXTS], chunk_size=10)
    with pytest.raises(pyggml.InvalidParameterError, match=r"texts\[3\] must be text"):
        done.extend(len(texts) for texts, _ in chunks)
    assert done == [10, 10]


def test_it_is_given_up(encoder: pyggml.LLM) -> None:
    source = Source(TEXTS)
    for _ in encoder.embed_iter(source, chunk_size=10):
        break
    assert source.n_read <= 20
    assert not encoder._embedder.queue._waiting


def test_wrong_arguments_are_refused_at_once(encoder: pyggml.LLM) -> None:
    calls: list[dict[str, Any]] = [{"chunk_size": 0}, {"dtype": "int4"}, {"key": "text"}, {"progress": 3}]
    for wrong in calls:
        with pytest.raises(pyggml.InvalidParameterError):
            encoder.embed_iter(TEXTS, **wrong)
    with pytest.raises(pyggml.UnknownParameterError, match="it is 'chunk_size' here"):
        encoder.embed_iter(TEXTS, batch_size=3)  # type: ignore[call-arg]
