"""Hidden states of chosen layers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import device_kinds
from support.checkpoints import lora_files, models

import pyggml
from pyggml import Context, Model
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


def test_adapters(shelf: device_kinds.Shelf, tmp_path: Path) -> None:
    path = shelf("llama")
    file = lora_files.write_adapter(tmp_path / "law.gguf", path)
    whole = lora_files.merged(tmp_path / "whole.gguf", path, [(file, 0.5)])
    with pyggml.load(whole, n_ctx=256, n_threads=1) as merged:
        expected = merged.embed([PROMPT], layers=[1, -1])
    with pyggml.load(path, n_ctx=256, n_threads=1) as llm, llm.load_adapter(file, "law"):
        plain = llm.embed([PROMPT], layers=[1, -1])
        assert np.abs(plain - expected).max(axis=(0, 2)).min() > 1e-3
        adapted = llm.embed([PROMPT], layers=[1, -1], adapter={"law": 0.5})
        np.testing.assert_allclose(adapted, expected, rtol=1e-3, atol=1e-4)
        np.testing.assert_array_equal(llm.embed([PROMPT], layers=[1, -1]), plain)
        with pytest.raises(pyggml.InvalidParameterError, match="there is no adapter 'tax'"):
            llm.embed([PROMPT], layers=[1], adapter="tax")


def test_cancelling_gives_up_later_texts(small: pyggml.LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, may_go_on = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        may_go_on.wait()

    n_texts = before_each_text(small, monkeypatch, wait)

    async def cancel() -> None:
        task = asyncio.create_task(small.aembed([PROMPT] * 5, layers=[0]))
        await asyncio.to_thread(begun.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        may_go_on.set()

    asyncio.run(cancel())  # waits for its threads
    assert n_texts() == 1


def test_closing_waits_for_one_text(shelf: device_kinds.Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    with pyggml.load(shelf("llama"), n_ctx=256, n_threads=1) as llm:
        closing = threading.Thread(target=llm._embedder.close)

        def close() -> None:
            if closing.ident is None:
                closing.start()
            closing.join(0.01)

        n_texts = before_each_text(llm, monkeypatch, close)
        with pytest.raises(pyggml.ClosedError, match="the model was closed"):
            llm.embed([PROMPT] * 100, layers=[0])
        closing.join()
        n_computed = n_texts()
        with pytest.raises(pyggml.ClosedError, match="the model was closed"):  # and makes no other context
            llm.embed([PROMPT], layers=[0])
        assert n_texts() == n_computed


def before_each_text(llm: pyggml.LLM, monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> Callable[[], int]:
    """Have work done before each text is computed; return a function that counts the texts."""
    encoder: Any = llm._embedder._layer_states._encoder
    compute, n_texts = encoder.layer_states, 0

    def layer_states(*args: Any) -> Any:
        nonlocal n_texts
        n_texts += 1
        work()
        return compute(*args)

    monkeypatch.setattr(encoder, "layer_states", layer_states)
    return lambda: n_texts


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
                with pytest.raises(pyggml.UnsupportedArchitectureError, match="the hidden states"):
                    llm.embed("a", layers=[0])
            assert llm.embed("a").ndim == 1


def test_rows_of_an_earlier_batch(shelf: device_kinds.Shelf) -> None:
    """They have no hidden states of layers that were not kept then."""
    with Model(shelf("llama")) as model, Context(model, n_ctx=256, n_threads=1, embeddings=True) as context:
        context.decode([1, 2, 3], output="all")
        context.keep_layers([1])
        with pytest.raises(pyggml.InvalidParameterError, match="the last batch had 0 tokens"):
            context.layer(1, n=3)
        context.decode([4, 5], output="all")
        assert context.layer(1).shape == (2, model.n_embd)
