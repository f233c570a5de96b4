"""Reranking of documents: the best first, and documents that are too long."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.checkpoints import models

import pyggml
from pyggml.options.embedding_profile import EmbeddingProfile

QUERY = "what do dogs eat?"
DOCUMENTS: list[Any] = ["Dogs eat meat.", {"text": "It rained.", "id": 7}, "words " * 30, "bones"]
TEMPLATE = "<|im_end|>Query: {query}\nDocument: {document}<|endoftext|>"


@pytest.fixture(scope="module")
def ranker(model_dir: Path) -> Iterator[pyggml.LLM]:
    path = models.write_bert(model_dir / "ranker-of-documents.gguf", seed=3, ranks=True)
    with pyggml.load(path, n_threads=1) as llm:
        llm.rerank("makes the context", ["which is not any test's own"])
        yield llm


@pytest.fixture(scope="module")
def judge(model_dir: Path) -> Iterator[pyggml.LLM]:
    path = models.write_qwen3_reranker(
        model_dir / "judge-of-documents.gguf", chat_templates=["rerank"], chat_template__rerank=TEMPLATE
    )
    with pyggml.load(path, n_threads=1) as llm:
        llm.rerank("likewise", ["likewise"])
        yield llm


def test_the_best_documents(ranker: pyggml.LLM) -> None:
    scores = ranker.rerank(QUERY, DOCUMENTS)
    best = ranker.rerank(QUERY, DOCUMENTS, top_n=3)
    assert [each.index for each in best] == np.argsort(-scores)[:3].tolist()
    assert [each.score for each in best] == sorted(scores.tolist(), reverse=True)[:3]
    assert all(each.document is DOCUMENTS[each.index] for each in best)
    assert asyncio.run(ranker.arerank(QUERY, DOCUMENTS, top_n=99, normalize=True))[0].index == best[0].index
    assert ranker.rerank(QUERY, [], top_n=3) == []


def test_documents_that_are_not_text(ranker: pyggml.LLM) -> None:
    for wrong in ({"title": "x"}, None, {"text": 3}):
        with pytest.raises(pyggml.InvalidParameterError, match=r"documents\[1\] must be text"):
            ranker.rerank(QUERY, ["fine", wrong])  # type: ignore[list-item]
    wrong_options: list[dict[str, Any]] = [{"top_n": 0}, {"top_n": "3"}, {"long_documents": "cut"}]
    for options in wrong_options:
        with pytest.raises(pyggml.InvalidParameterError):
            ranker.rerank(QUERY, ["fine"], **options)


def test_long_documents_by_windows(ranker: pyggml.LLM) -> None:
    rng = np.random.default_rng(0)
    words = [f"word{n}" for n in rng.integers(0, 50, 400)]
    long = " ".join(words)
    documents = ["short", long, "another"]
    with pytest.raises(pyggml.ContextOverflowError, match=r'document 1 has .* pass long_documents="windows"'):
        ranker.rerank(QUERY, documents)
    scores = ranker.rerank(QUERY, documents, long_documents="windows")
    cut = ranker.rerank(QUERY, documents, long_documents="truncate")
    short = ranker.rerank(QUERY, [documents[0], documents[2]])
    for found in (scores, cut):
        assert found[[0, 2]].tolist() == short.tolist()
    # The windows as pairs of their own: each is as long as possible, and begins within the one before it.
    before, after = ranker.tokenize(QUERY), ranker.tokenize("")[1:]
    ids = ranker.tokenize(long, add_special=False)
    n = ranker.n_ctx - len(before) - len(after)
    starts = range(0, len(ids) - n + int(n * 0.75), int(n * 0.75))
    assert starts[-1] + n >= len(ids) > starts[-1]
    windows = [ranker.tokenizer.decode(ids[start : start + n]) for start in starts]
    expected = ranker.rerank(QUERY, windows)
    assert scores[1] == expected.max()
    assert cut[1] == expected[0]


def test_windows_of_a_template(judge: pyggml.LLM) -> None:
    long = "some words about nothing. " * 60
    scores = judge.rerank("what?", [long, "x"], long_documents="windows")
    windows, _ = judge._embedder._pair_reader.read("what?", [long], "windows")
    assert len(windows.lengths) > 2
    assert windows.lengths.max() <= judge.n_ctx
    for ids in windows.split():
        text = judge.detokenize(ids.tolist())
        assert text.startswith("<|im_end|>Query: what?\nDocument: ")
        assert text.endswith("<|endoftext|>")
    assert scores[1] == judge.rerank("what?", ["x"])[0]


def test_a_query_that_leaves_no_space(ranker: pyggml.LLM) -> None:
    with pytest.raises(pyggml.ContextOverflowError, match="shorten the query"):
        ranker.rerank("word " * 600, ["document"], long_documents="windows")


def test_a_model_that_tells_the_texts_apart(model_dir: Path, ranker: pyggml.LLM) -> None:
    """Its vocabulary has all tokens twice; here the first tokens after the shift stand for those of the second text."""
    profile = EmbeddingProfile(second_text_ids=50, score_activation="sigmoid")
    path = models.write_bert(model_dir / "ranker-of-two.gguf", seed=3, ranks=True, profile=profile)
    with pyggml.load(path, n_threads=1) as llm:
        ((*first, last),) = ranker.rerank_ids(QUERY, ["bones"])
        n_query = len(ranker.tokenize(QUERY))
        ids = [*first[:n_query], *(each + 50 for each in first[n_query:]), last + 50]
        assert llm.rerank_ids(QUERY, ["bones"]) == [ids]
        raw, score = llm.rerank(QUERY, ["bones"], normalize=False)[0], llm.rerank(QUERY, ["bones"])[0]
        assert score == pytest.approx(1 / (1 + np.exp(-raw)), rel=1e-5)
