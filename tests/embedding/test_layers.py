"""Hidden states of chosen layers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support import device_kinds
from support.checkpoints import models

import pyggml
from pyggml.gguf import GGUFReader

PROMPT = [5, 6, 7, 8, 9, 10]


@pytest.fixture(scope="module")
def small(shelf: device_kinds.Shelf) -> Iterator[pyggml.LLM]:
    with pyggml.load(shelf("llama"), n_ctx=1024, n_threads=1) as llm:
        for options in ({}, {"layers": [0]}):  # makes the contexts, which are not any test's own
            llm.embed("a", **options)  # type: ignore[call-overload]
        yield llm


def test_the_embeddings_of_tokens(small: pyggml.LLM) -> None:
    with GGUFReader(small.model.path) as reader:
        table = reader.dequantized("token_embd.weight")
    found = small.embed([PROMPT], layers=[0], pooling="none")[0]
    np.testing.assert_array_equal(found, table[PROMPT][None])


def test_after_each_layer(small: pyggml.LLM, model_dir: Path) -> None:
    """The states after i layers are the output of a model that ends there, before its last norm."""
    n_layer = small.model.n_layer
    every = small.embed([PROMPT], layers=range(n_layer + 1), pooling="none")[0]
    assert every.shape == (n_layer + 1, len(PROMPT), small.model.n_embd)
    with GGUFReader(small.model.path) as reader:
        metadata = dict(reader.metadata)
        weights = {name: reader.dequantized(name) for name in reader.tensors}
        eps = float(metadata["llama.attention.layer_norm_rms_epsilon"])  # type: ignore[arg-type]
    for n in range(1, n_layer):
        kept = {
            name: rows for name, rows in weights.items() if not name.startswith("blk.") or int(name.split(".")[1]) < n
        }
        shorter = models.write(model_dir / f"first-{n}.gguf", metadata | {"llama.block_count": n}, kept)
        with pyggml.load(shorter, n_ctx=64, n_threads=1) as llm:
            expected = llm.embed([PROMPT], pooling="none")[0]
        normed = every[n] / np.sqrt((every[n] ** 2).mean(axis=1, keepdims=True) + eps)
        np.testing.assert_allclose(normed * weights["output_norm.weight"], expected, rtol=2e-3, atol=2e-3)


def test_the_output_and_pooling(small: pyggml.LLM) -> None:
    texts = [PROMPT, PROMPT[:3], [7] * 700]
    pooled = small.embed(texts, layers=[-1, 1])
    assert pooled.shape == (3, 2, small.model.n_embd)
    np.testing.assert_allclose(pooled[:, 0], small.embed(texts), rtol=1e-4, atol=1e-5)
    tokens = small.embed(texts, layers=[1], pooling="none")
    for i, rows in enumerate(tokens):
        assert rows.shape == (1, len(texts[i]), small.model.n_embd)
        np.testing.assert_allclose(pooled[i, 1], rows[0].mean(axis=0), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(asyncio.run(small.aembed(texts, layers=[-1, 1])), pooled)
    unit = small.embed("hello", layers=[0, 1], normalize=True)
    np.testing.assert_allclose(np.linalg.norm(unit, axis=-1), 1, rtol=1e-5)


def test_refusals(small: pyggml.LLM, shelf: device_kinds.Shelf, model_dir: Path) -> None:
    n = small.model.n_layer
    for wrong in ([], [n + 1], [-n - 2], ["a"], 3):
        with pytest.raises(pyggml.InvalidParameterError, match="layers"):
            small.embed("a", layers=wrong)  # type: ignore[arg-type]
    with pytest.raises(pyggml.InvalidParameterError, match="dtype do not work with layers"):
        small.embed("a", layers=[0], dtype="int8")
    for path in (models.write_bert(model_dir / "no-layers.gguf"), shelf("phi3")):
        with pyggml.load(path, n_threads=1) as llm:
            for _ in range(2):
                with pytest.raises(pyggml.UnsupportedArchitectureError, match="does not tell the hidden states"):
                    llm.embed("a", layers=[0])
            assert llm.embed("a").ndim == 1
