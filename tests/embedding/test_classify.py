"""Classification of texts: labels and scores of a model's head."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.checkpoints import models

import pyggml
from pyggml import Context
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


def test_refusals(classifier: pyggml.LLM, llm: pyggml.LLM) -> None:
    with pytest.raises(pyggml.InvalidParameterError, match="no classifier head"):
        llm.classify("a")
    with pytest.raises(pyggml.InvalidParameterError, match="activation"):
        classifier.classify("a", activation="tanh")  # type: ignore[call-overload]
    with pytest.raises(pyggml.ContextOverflowError):
        classifier.classify("words " * 3000)
    assert classifier.classify("words " * 3000, truncate=True).label in LABELS
