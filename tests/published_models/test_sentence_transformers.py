"""all-MiniLM-L6-v2 as published gives the token ids and vectors of sentence-transformers.

``tools/compare_embeddings.py --record`` wrote down what those are, for texts of many languages and lengths.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from published_models.conftest import published
from support.paths import DATA

import pyggml
from pyggml.integrations.sentence_transformers import SentenceEncoder
from pyggml.options.embedding_profile import EmbeddingProfile, read_profile

RECORD = np.load(DATA / "minilm.npz")
TEXTS: list[str] = json.loads(str(RECORD["texts"]))
IDS: list[list[int]] = json.loads(str(RECORD["ids"]))
LIMIT = 256


@pytest.fixture(scope="module")
def minilm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pyggml.LLM]:
    path = tmp_path_factory.mktemp("minilm") / "model.gguf"
    pyggml.convert(published("minilm"), path)
    with pyggml.load(path, n_threads=2) as llm:
        llm.embed(".", pooling="mean")  # opens a context for embeddings; in a test it would count as a leak
        yield llm


def cut(ids: list[int]) -> list[int]:
    return ids if len(ids) <= LIMIT else [*ids[: LIMIT - 1], ids[-1]]


def test_its_files_are_read(minilm: pyggml.LLM) -> None:
    profile = read_profile(minilm.model.metadata)
    assert profile == EmbeddingProfile(pooling=("mean",), normalize=True, max_tokens=LIMIT)
    assert minilm.family.name == "bert"


def test_ids_are_the_same(minilm: pyggml.LLM) -> None:
    assert [cut(minilm.tokenize(text)) for text in TEXTS] == IDS
    assert any(len(ids) == LIMIT for ids in IDS)


def test_vectors_are_the_same(minilm: pyggml.LLM) -> None:
    found, expected = minilm.embed(IDS, pooling="mean", normalize=True), RECORD["vectors"]
    assert isinstance(found, np.ndarray)
    assert (found * expected).sum(axis=-1).min() >= 0.99999


def test_the_interface_of_sentence_transformers(minilm: pyggml.LLM) -> None:
    encoder = SentenceEncoder(minilm)
    assert encoder.get_max_seq_length() == LIMIT
    assert (encoder.encode(TEXTS) * RECORD["vectors"]).sum(axis=-1).min() >= 0.99999


def test_it_needs_nothing_that_inspect_does_not_know() -> None:
    report = pyggml.inspect(published("minilm"))
    assert report.ok
    assert not report.problems


def test_smaller_types_stay_close(tmp_path: Path) -> None:
    directory = published("minilm")
    for outtype, least in (("f16", 0.9999), ("bf16", 0.999), ("q8_0", 0.998)):
        pyggml.convert(directory, tmp_path / "model.gguf", outtype)
        with pyggml.load(tmp_path / "model.gguf", n_threads=2) as llm:
            found = llm.embed(IDS[:16], pooling="mean", normalize=True)
        assert (found * RECORD["vectors"][:16]).sum(axis=-1).min() >= least, outtype
