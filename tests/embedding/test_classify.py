"""Classification of texts: labels and scores of a model's head."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.checkpoints import lora_files, models

import pyggml
from pyggml import Context
from pyggml.gguf import GGUFReader
from pyggml.types import Classification

TEXTS = ["Dogs eat meat.", "It rained.", "words " * 30]
LABELS = ["good", "bad", "neither"]


@pytest.fixture(scope="module")
def classifier(model_dir: Path) -> Iterator[pyggml.LLM]:
    path = models.write_bert(
        model_dir / "classifier.gguf", seed=5, ranks=True, n_labels=3, classifier__output_labels=LABELS
    )
    with pyggml.load(path, n_threads=1) as llm:
        llm.classify("makes the context")
        yield llm


def outputs(llm: pyggml.LLM, text: str) -> list[float]:
    """The head's outputs, by the engine itself."""
    ids = llm.tokenize(text)
    with Context(llm.model, n_ctx=128, embeddings=True, pooling="rank", attention="non-causal", n_threads=1) as context:
        context.encode(ids)
        return [float(number) for number in context.embeddings_seq(0)]


def test_labels_and_scores(classifier: pyggml.LLM) -> None:
    found = classifier.classify(TEXTS)
    for text, each in zip(TEXTS, found, strict=True):
        raw = np.array(outputs(classifier, text))
        expected = np.exp(raw) / np.exp(raw).sum()
        np.testing.assert_allclose(list(each.scores.values()), expected, rtol=1e-4)
        assert list(each.scores) == LABELS
        assert each.label == LABELS[int(raw.argmax())]
        assert each.score == max(each.scores.values())
        np.testing.assert_allclose(list(classifier.classify(text, activation="none").scores.values()), raw, rtol=1e-4)
        np.testing.assert_allclose(
            list(classifier.classify(text, activation="sigmoid").scores.values()), 1 / (1 + np.exp(-raw)), rtol=1e-4
        )
    assert classifier.classify(TEXTS[0]) == found[0]
    assert asyncio.run(classifier.aclassify(TEXTS)) == found
    assert classifier.classify([]) == []
    assert classifier.classify([classifier.tokenize(TEXTS[1])]) == [found[1]]


def test_labels_that_the_file_lacks(model_dir: Path) -> None:
    path = models.write_bert(model_dir / "one-score.gguf", seed=5, ranks=True)
    with pyggml.load(path, n_threads=1) as llm:
        found = llm.classify("a")
        assert isinstance(found, Classification)
        assert list(found.scores) == ["LABEL_0"]
        assert 0 < found.score < 1


def test_outputs_that_are_probabilities(model_dir: Path) -> None:
    """The engine's graph of a Qwen3 ends with a softmax, and a second one would flatten the scores."""
    path = models.write_qwen3_reranker(model_dir / "qwen-classifier.gguf", seed=3)
    with pyggml.load(path, n_threads=1) as llm:
        ids = llm.tokenize(TEXTS[0])
        with Context(llm.model, n_ctx=128, embeddings=True, pooling="rank", n_threads=1) as context:
            context.decode(ids, output="all")
            expected = context.embeddings_seq(0)
        found = llm.classify([ids])[0]
        np.testing.assert_allclose(list(found.scores.values()), expected, rtol=1e-5)
        assert list(found.scores) == ["yes", "no"]
        assert sum(found.scores.values()) == pytest.approx(1)
        assert llm.classify([ids], activation="none") == [found]
        for activation in ("softmax", "sigmoid"):
            with pytest.raises(pyggml.InvalidParameterError, match="after a softmax"):
                llm.classify([ids], activation=activation)
    with GGUFReader(path) as reader:
        metadata = dict(reader.metadata) | {"qwen3.classifier.output_labels": ["yes"]}
        weights = {name: reader.dequantized(name) for name in reader.tensors}
    weights["cls.output.weight"] = weights["cls.output.weight"][:1]
    with (
        pyggml.load(models.write(model_dir / "qwen-one-label.gguf", metadata, weights), n_threads=1) as llm,
        pytest.raises(pyggml.UnsupportedArchitectureError, match="is 1 for every text"),
    ):
        llm.classify("a")


def test_adapters(model_dir: Path, tmp_path: Path) -> None:
    path = models.write_bert(
        model_dir / "adapted-classifier.gguf", seed=5, ranks=True, n_labels=3, classifier__output_labels=LABELS
    )
    file = lora_files.write_adapter(tmp_path / "law.gguf", path)
    with pyggml.load(lora_files.merged(tmp_path / "whole.gguf", path, [(file, 1.0)]), n_threads=1) as whole:
        expected = list(whole.classify(TEXTS[0]).scores.values())
    with pyggml.load(path, n_threads=1, lora=f"{file}:0") as llm:
        assert np.abs(np.array(list(llm.classify(TEXTS[0]).scores.values())) - expected).max() > 1e-3
        adapted = llm.classify(TEXTS[0], adapter="law")
        np.testing.assert_allclose(list(adapted.scores.values()), expected, rtol=1e-3)
        assert asyncio.run(llm.aclassify(TEXTS[0], adapter="law")) == adapted
        llm.default_adapters = "law"
        assert llm.classify(TEXTS[0]) == adapted


def test_refusals(classifier: pyggml.LLM, llm: pyggml.LLM) -> None:
    with pytest.raises(pyggml.InvalidParameterError, match="no classifier head"):
        llm.classify("a")
    with pytest.raises(pyggml.InvalidParameterError, match="activation"):
        classifier.classify("a", activation="tanh")  # type: ignore[call-overload]
    with pytest.raises(pyggml.ContextOverflowError):
        classifier.classify("words " * 3000)
    assert classifier.classify("words " * 3000, truncate=True).label in LABELS
