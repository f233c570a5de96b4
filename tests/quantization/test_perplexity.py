"""Perplexities, compared with those that numpy computes from the model's logits."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from support.checkpoints import models
from support.paths import ROOT

import pyggml
from pyggml import Context, EngineError, InvalidParameterError, Model, UnsupportedArchitectureError
from pyggml.source import SHIPPED_MODEL

TOOLS = ROOT / "tools"
TEXT = "The little dog liked to run in the garden. Once upon a time there was a cat. " * 40


def losses(llm: pyggml.LLM, ids: npt.NDArray[np.int32], n_ctx: int) -> npt.NDArray[np.float64]:
    """Of the second half of each chunk, by the definition of llama-perplexity, in float64."""
    bos = llm.model.vocab.bos if llm.model.vocab.add_bos else None
    scored = []
    for start in range(0, len(ids) - n_ctx + 1, n_ctx):
        chunk = ids[start : start + n_ctx].copy()
        if bos is not None:
            chunk[0] = bos
        logits = llm.logits(chunk.tolist()).astype(np.float64)[n_ctx // 2 : -1]
        highest = logits.max(axis=-1, keepdims=True)
        normalizers = highest[:, 0] + np.log(np.exp(logits - highest).sum(axis=-1))
        scored.append(normalizers - logits[np.arange(len(logits)), chunk[n_ctx // 2 + 1 :]])
    return np.concatenate(scored)


def assert_agrees(found: pyggml.Perplexity, expected: npt.NDArray[np.float64]) -> None:
    assert found.n_tokens == len(expected)
    # What is computed together is rounded together, and quantised weights meet activations of 8 bits.
    assert math.log(found.value) == pytest.approx(expected.mean(), abs=0.02)
    assert found.stderr / found.value == pytest.approx(expected.std() / math.sqrt(len(expected) - 1), rel=0.02)


@pytest.mark.slow_except("16")
@pytest.mark.parametrize("n_ctx", [16, 100, 512])
def test_the_shipped_model(n_ctx: int) -> None:
    with pyggml.load(n_threads=1) as llm:
        found = pyggml.perplexity(llm, TEXT, n_ctx=n_ctx, n_threads=1)
        ids = np.array(llm.tokenize(TEXT), np.int32)
        assert_agrees(found, losses(llm, ids, n_ctx))
        assert (found.n_ctx, found.n_chunks) == (n_ctx, len(ids) // n_ctx)
    assert 1 < found.value < llm.model.vocab.n_tokens


def test_chunks_of_several_passes(tmp_path: Path) -> None:
    """Each longer than what is computed at once; the scored half begins inside of a pass."""
    path = models.write_llama(tmp_path / "tiny.gguf", context_length=2048)
    ids = np.random.default_rng(0).integers(0, 256, 3000).astype(np.int32)
    with pyggml.load(path, n_ctx=2048, n_threads=1) as llm:
        assert_agrees(pyggml.perplexity(llm, ids, n_ctx=1300, n_threads=1), losses(llm, ids, 1300))


def test_chunks_begin_with_bos(tiny_path: Path) -> None:
    """The token that BOS replaces does not matter."""
    ids = np.random.default_rng(0).integers(0, 256, 256).astype(np.int32)
    others = ids.copy()
    others[::64] = 7
    one, two, three = (pyggml.perplexity(tiny_path, each, n_ctx=64, n_threads=1) for each in (ids, others, ids[::-1]))
    assert one == two
    assert one != three


def test_a_corpus_is_plain_text(tiny_path: Path) -> None:
    text = "<s>the<|im_end|> bath" * 20
    with pyggml.load(tiny_path, n_threads=1) as llm:
        ids = llm.tokenize(text, parse_special=False)
        assert pyggml.perplexity(llm, text, n_ctx=32) == pyggml.perplexity(llm, ids, n_ctx=32)


def test_chunks_know_nothing_of_each_other(tiny_path: Path) -> None:
    ids = np.random.default_rng(0).integers(0, 256, 640).astype(np.int32)
    together = pyggml.perplexity(tiny_path, ids, n_ctx=64, n_threads=1)
    alone = [math.log(pyggml.perplexity(tiny_path, part, n_ctx=64, n_threads=1).value) for part in np.split(ids, 10)]
    assert math.log(together.value) == pytest.approx(np.mean(alone), rel=1e-4)


def test_recurrent_models(mamba_path: Path) -> None:
    ids = np.random.default_rng(0).integers(0, 256, 320).astype(np.int32)
    with pyggml.load(mamba_path, n_threads=1) as llm:
        assert_agrees(pyggml.perplexity(llm, ids, n_ctx=32, n_threads=1), losses(llm, ids, 32))


def test_files_of_text(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    from_file = pyggml.perplexity(None, tmp_path / "text.txt", n_ctx=64, n_chunks=2, n_threads=1)
    assert from_file == pyggml.perplexity(None, TEXT, n_ctx=64, n_chunks=2, n_threads=1)
    assert (from_file.n_chunks, from_file.n_tokens) == (2, 2 * 31)


def test_progress_tells_and_stops(tiny_path: Path) -> None:
    told: list[float] = []
    pyggml.perplexity(tiny_path, [1] * 512 * 4, n_ctx=512, n_threads=1, progress=told.append)
    assert told == [0.25, 0.5, 0.75, 1.0]
    with pytest.raises(EngineError, match="a perplexity was stopped by its progress callback"):
        pyggml.perplexity(tiny_path, [1] * 2048, n_ctx=512, n_threads=1, progress=lambda done: done < 0.5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"text": [1] * 63}, "has 63 tokens, too few for a chunk of n_ctx=64"),
        ({"text": None}, "the text"),
        ({"text": [-1] * 64}, "-1"),
        ({"n_ctx": 8}, "n_ctx must be between 16"),
        ({"n_chunks": -1}, "n_chunks must be between 1"),
    ],
)
def test_arguments_that_cannot_be(tiny_path: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        pyggml.perplexity(**{"source": tiny_path, "text": [1] * 64, "n_ctx": 64, **arguments})


def test_models_that_predict_nothing(bert_path: Path, tmp_path: Path) -> None:
    for path in (bert_path, models.write_t5(tmp_path / "t5.gguf")):
        with pytest.raises(UnsupportedArchitectureError, match="does not predict"):
            pyggml.perplexity(path, "a text")


@pytest.mark.slow
def test_importances_keep_the_model_better(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two bits for a weight: with importances more is left of what the shipped model knows of its kind of texts."""
    monkeypatch.syspath_prepend(TOOLS)
    from demo_model.corpus import documents

    plain = (document.text for document in documents(99) if not document.is_chat)
    texts = list(itertools.islice(plain, 300))
    floats, small = tmp_path / "f16.gguf", tmp_path / "q2_k.gguf"
    pyggml.quantize(SHIPPED_MODEL, floats, "f16")
    imatrix = pyggml.compute_imatrix(floats, "\n\n".join(texts[:100]), n_ctx=128, n_threads=1)
    values = []
    for matter in (None, imatrix):
        pyggml.quantize(floats, small, "q2_k", imatrix=matter)
        values.append(pyggml.perplexity(small, "\n\n".join(texts[100:]), n_ctx=128, n_threads=1).value)
    assert values[1] < 0.995 * values[0]


# --- what it is made of -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_logprobs_of_rows(tiny: Model) -> None:
    with Context(tiny, n_ctx=256, n_threads=1) as context:
        context.decode([1, 2, 3, 4], output="all")
        logits = context.logits().astype(np.float64)
        expected = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        np.testing.assert_allclose(context.logprobs([5, 6, 7, 8]), expected[np.arange(4), [5, 6, 7, 8]], atol=1e-5)
        np.testing.assert_allclose(context.logprobs([9], first=2), expected[[2], [9]], atol=1e-5)
        assert context.logprobs([]).shape == (0,)
        for arguments in ({"token_ids": [1] * 5}, {"token_ids": [1], "first": 4}, {"token_ids": [tiny.vocab.n_tokens]}):
            with pytest.raises(InvalidParameterError):
                context.logprobs(**arguments)
    with Context(tiny, n_ctx=256, n_threads=1) as context, pytest.raises(EngineError, match="no output"):
        context.logprobs([1])
