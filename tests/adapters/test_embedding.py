"""Vectors and scores of pairs with adapters."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from support.checkpoints import lora_files, models
from support.device_kinds import Shelf, prompt

import pyggml
from pyggml._native.adapter import Adapter

TEXTS = [prompt(number, 3 + 7 * number) for number in range(6)]
LOAD: dict[str, Any] = {"n_ctx": 256, "n_threads": 2, "device": "cpu"}


def distance(a: npt.NDArray[np.float32], b: npt.NDArray[np.float32]) -> float:
    return float(np.sqrt(((a - b) ** 2).mean()) / a.std())


@pytest.fixture
def llm(shelf: Shelf, tmp_path: Path) -> Iterator[pyggml.LLM]:
    model = shelf("llama")
    with pyggml.load(model, **LOAD) as llm:
        for number, name in enumerate(("law", "tax")):
            llm.load_adapter(lora_files.write_adapter(tmp_path / f"{name}.gguf", model, seed=number))
        yield llm


def merged(shelf: Shelf, folder: Path, scale: float = 1.0) -> Path:
    return lora_files.merged(folder / "merged.gguf", shelf("llama"), [(folder / "law.gguf", scale)])


def test_vectors_are_those_of_merged_weights(llm: pyggml.LLM, shelf: Shelf, tmp_path: Path) -> None:
    with pyggml.load(merged(shelf, tmp_path, 0.5), **LOAD) as whole:
        expected, tokens = whole.embed(TEXTS), whole.embed(TEXTS[3:4], pooling="none")[0]
    plain = llm.embed(TEXTS)
    assert distance(expected, plain) > 0.05
    assert distance(expected, llm.embed(TEXTS, adapter={"law": 0.5})) < 1e-4
    assert distance(tokens, llm.embed(TEXTS[3:4], pooling="none", adapter={"law": 0.5})[0]) < 1e-4
    assert llm.embed(TEXTS).tobytes() == plain.tobytes() == llm.embed(TEXTS, adapter={"law": 0.0}).tobytes()
    llm.default_adapters = {"law": 0.5}
    assert distance(expected, llm.embed_query(TEXTS)) < 1e-4  # type: ignore[arg-type]
    assert distance(expected, asyncio.run(llm.aembed_documents(TEXTS))) < 1e-4  # type: ignore[arg-type]
    assert llm.embed(TEXTS, adapter={}).tobytes() == plain.tobytes()
    assert distance(expected, llm.embed(TEXTS, layers=[-1])[:, 0]) < 1e-4
    ((_, chunk),) = llm.embed_iter(TEXTS, adapter={"law": 0.5})
    assert distance(expected, chunk) < 1e-4


@pytest.mark.slow
def test_callers_with_other_adapters(llm: pyggml.LLM) -> None:
    """Each has the bits that it has alone, and texts with the same adapters share passes."""
    choices: list[Any] = ["law", "tax", {}, {"law": 0.5, "tax": 1}] * 4
    alone = [llm.embed(TEXTS, adapter=choice).tobytes() for choice in choices]
    before, found = llm.embedding_stats().n_passes, dict[int, bytes]()
    barrier = threading.Barrier(len(choices))

    def embed(number: int) -> None:
        barrier.wait()
        found[number] = llm.embed(TEXTS, adapter=choices[number]).tobytes()

    threads = [threading.Thread(target=embed, args=(number,)) for number in range(len(choices))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[number] for number in range(len(choices))] == alone
    assert llm.embedding_stats().n_passes - before <= len(choices)


def test_what_is_refused(llm: pyggml.LLM) -> None:
    with pytest.raises(pyggml.InvalidParameterError, match="there is no adapter 'lew'"):
        llm.embed(TEXTS, adapter="lew")
    with pytest.raises(pyggml.InvalidParameterError, match="adapter must be the name"):
        llm.embed(TEXTS, adapter=3)  # type: ignore[call-overload]
    request = llm.embedding_request(TEXTS, adapter="law")
    llm.adapters["law"].close()
    with pytest.raises(pyggml.ClosedError):
        request.run()
    assert len(llm.embed(TEXTS)) == len(TEXTS)


def test_an_encoder_with_a_head(model_dir: Path, tmp_path: Path) -> None:
    """It generates nothing, so it has no engine."""
    path = models.write_bert(model_dir / "adapted-ranker.gguf", seed=3, ranks=True)
    file = lora_files.write_adapter(tmp_path / "law.gguf", path)
    whole = lora_files.merged(tmp_path / "whole.gguf", path, [(file, 1.0)])
    query, documents = "what do dogs eat?", ["Dogs eat meat.", "It rained.", "bones"]
    with pyggml.load(whole, n_threads=1) as llm:
        expected, vectors = llm.rerank(query, documents), llm.embed(documents)
    with pyggml.load(path, n_threads=1, lora=f"{file}:0") as llm:
        plain = llm.rerank(query, documents)
        np.testing.assert_allclose(llm.rerank(query, documents, adapter="law"), expected, rtol=1e-4)
        assert np.abs(plain - expected).max() > 1e-3
        assert distance(vectors, llm.embed(documents, adapter="law")) < 1e-4
        best = asyncio.run(llm.arerank(query, documents, top_n=1, adapter={"law": 1.0}))
        assert best[0].index == int(expected.argmax())
        with llm.load_adapter(file, "other"):
            assert [*llm.adapters] == ["law", "other"]


def test_a_head_is_computed_without_adapters(model_dir: Path, tmp_path: Path) -> None:
    """By upstream's graph, in silence."""
    path = models.write_bert(model_dir / "ranker-with-a-head.gguf", seed=3, ranks=True)
    file = lora_files.write_adapter(tmp_path / "head.gguf", path, chosen=lambda name: name == "cls.weight")
    with pyggml.load(path, n_threads=1) as llm:
        with pytest.raises(pyggml.UnsupportedArchitectureError, match="classifier head without adapters"):
            llm.load_adapter(file)
        plain = llm.embed(["bones"]).tobytes()
        with llm._embedder.adapters.load(file, "head", 1.0):  # as a caller of the C interface
            for _ in range(2):
                with pytest.raises(pyggml.UnsupportedArchitectureError, match=r"changes cls.*, but the engine"):
                    llm.rerank("what do dogs eat?", ["bones"], adapter="head")
            assert llm.embed(["bones"], adapter="head").tobytes() == plain  # has no head
        assert len(llm.rerank("what do dogs eat?", ["bones"])) == 1


def test_a_refused_adapter_leaves_the_former_ones(model_dir: Path, tmp_path: Path) -> None:
    path = models.write_bert(model_dir / "ranker-of-a-context.gguf", seed=3, ranks=True)
    law = lora_files.write_adapter(tmp_path / "law.gguf", path)
    head = lora_files.write_adapter(tmp_path / "head.gguf", path, chosen=lambda name: name == "cls.weight")
    with (
        pyggml.Model(path) as model,
        pyggml.Context(model, n_ctx=256, n_threads=1, embeddings=True, pooling="rank") as context,
        Adapter(model, law) as used,
        Adapter(model, head) as refused,
    ):

        def score() -> bytes:
            context.encode([5, 6, 7])
            return context.embeddings_seq(0).tobytes()

        plain = score()
        context.set_adapters({used: 1.0})
        adapted = score()
        for _ in range(2):
            with pytest.raises(pyggml.UnsupportedArchitectureError, match="changes cls"):
                context.set_adapters({refused: 1.0})
            assert score() == adapted != plain
        with context.adapted({}):
            assert score() == plain


def test_an_adapter_is_closed_between_passes(llm: pyggml.LLM) -> None:
    """A call that needs more passes fails; what it computed before is not of another model."""
    many = [prompt(number, 200) for number in range(60)]
    outcomes: list[str] = []

    def embed() -> None:
        try:
            llm.embed(many, adapter="law")
            outcomes.append("computed")
        except pyggml.ClosedError:
            outcomes.append("closed")

    n_before = llm.embedding_stats().n_passes
    thread = threading.Thread(target=embed)
    thread.start()
    while llm.embedding_stats().n_passes == n_before and thread.is_alive():
        time.sleep(0.001)
    llm.adapters["law"].close()
    thread.join()
    assert outcomes in (["closed"], ["computed"])
    assert llm.embed(many[:1]).shape == (1, llm.n_dimensions)
