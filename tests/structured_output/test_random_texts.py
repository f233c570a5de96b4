"""Random texts by the grammars of schemas are valid under them, by ``jsonschema``."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from support import random_texts
from support.checkpoints import models
from support.random_schemas import random_schema

import pyggml

N_TEXTS = 3


@pytest.fixture(scope="module")
def vocabulary() -> Iterator[random_texts.Vocabulary]:
    with pyggml.Model(models.VOCABULARIES / "ggml-vocab-gpt-2.gguf", vocab_only=True) as model:
        yield random_texts.Vocabulary(model.vocab)


def findings(vocabulary: random_texts.Vocabulary, seeds: range) -> Iterator[random_texts.Finding]:
    for seed in seeds:
        schema = random_schema(random.Random(seed))
        yield from random_texts.check(schema, vocabulary, N_TEXTS, np.random.default_rng(seed))


@pytest.mark.parametrize(
    "seeds", [range(12), pytest.param(range(12, 600), marks=pytest.mark.slow)], ids=["sample", "sweep"]
)
def test_texts_of_random_schemas_are_valid(vocabulary: random_texts.Vocabulary, seeds: range) -> None:
    counts: Counter[str] = Counter()
    for finding in findings(vocabulary, seeds):
        assert finding.kind != "invalid", finding
        counts[finding.kind] += 1
    assert counts["valid"] > counts.total() / 2


def test_an_invalid_text_is_found(vocabulary: random_texts.Vocabulary) -> None:
    """With another schema's grammar, so that the validator is known to work."""
    rng = np.random.default_rng(1)
    with pyggml.Grammar.compile({"type": "string", "maxLength": 3}, vocabulary.vocab) as grammar:
        found = random_texts._checked({"type": "integer"}, grammar, vocabulary, rng)
    assert found.kind == "invalid"
    assert "integer" in found.reason
