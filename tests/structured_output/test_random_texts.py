"""Random texts by the grammars of schemas are valid under them, by ``jsonschema``."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterator

import pytest
from support import exact_json, random_texts
from support.checkpoints import models
from support.ecmascript_patterns import python_pattern, with_python_patterns
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
        yield from random_texts.check(schema, vocabulary, N_TEXTS, random.Random(seed))


@pytest.mark.parametrize(
    "seeds", [range(12), pytest.param(range(12, 600), marks=pytest.mark.slow)], ids=["sample", "sweep"]
)
def test_texts_of_random_schemas_are_valid(vocabulary: random_texts.Vocabulary, seeds: range) -> None:
    counts: Counter[str] = Counter()
    for finding in findings(vocabulary, seeds):
        assert finding.kind != "invalid", finding
        counts[finding.kind] += 1
    assert counts["valid"] > counts.total() / 2


def test_numbers_are_judged_exactly() -> None:
    """Of floats, 0.3 would be no multiple of 0.1, and 1e300 would differ from its digits."""
    validator = exact_json.validator_of({"multipleOf": 0.1, "not": {"const": 1e300}})
    draft = type(validator)
    assert validator.is_valid(exact_json.loads("0.3", draft))
    assert not validator.is_valid(exact_json.loads("0.35", draft))
    assert not validator.is_valid(exact_json.loads("1" + "0" * 300, draft))
    assert exact_json.validator_of({"type": "integer"}).is_valid(exact_json.loads("1.0", draft))
    old = exact_json.validator_of({"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer"})
    assert not old.is_valid(exact_json.loads("1.0", type(old)))
    with pytest.raises(exact_json.HugeNumberError):
        exact_json.loads("1e99999", draft)


def test_formats_are_those_of_their_rfcs() -> None:
    for name, valid, invalid in (
        ("date-time", "0000-02-29T23:59:60Z", "0000-02-30T00:00:00Z"),
        ("relative-json-pointer", "100/a", "01/a"),
    ):
        validator = exact_json.validator_of({"anyOf": [{"format": name}, {"type": "null"}]})
        assert exact_json.judge(validator, json.dumps(valid)).kind == "valid"
        assert exact_json.judge(validator, json.dumps(invalid)).kind == "invalid"


def test_patterns_are_ecmascripts() -> None:
    """Of Python, U+0085 would be a space, and ``$`` would match before a line end."""
    cases = [
        (r"^\S$", "\x85", True),
        (r"^\s$", "\ufeff", True),
        (r"^[^\S]$", "\x85", False),
        ("^a$", "a\n", False),
        (r"^.$", "\r", False),
        (r"^[^]$", "\r", True),
        (r"^\d[\d\W]$", "1é", True),
        (r"^\d$", "\u0661", False),
        (r"^(?<n>[[\]|])$", "[", True),
        (r"\bé", "é", False),
        (r"^\$\.$", "$.", True),
    ]
    for pattern, text, is_match in cases:
        assert (re.search(python_pattern(pattern), text) is not None) == is_match, (pattern, text)
    schema = {
        "properties": {"pattern": {"pattern": "^a$"}},
        "patternProperties": {"^b$": False},
        "const": {"pattern": "$"},
    }
    assert with_python_patterns(schema) == {
        "properties": {"pattern": {"pattern": r"(?a:^a\Z)"}},
        "patternProperties": {r"(?a:^b\Z)": False},
        "const": {"pattern": "$"},
    }


def test_an_invalid_text_is_found(vocabulary: random_texts.Vocabulary) -> None:
    """With another schema's grammar, so that the validator is known to work."""
    with pyggml.Grammar.compile({"type": "string", "maxLength": 3}, vocabulary.vocab) as grammar:
        drawer = random_texts.Drawer(grammar, vocabulary, [], random.Random(1))
        found = random_texts._checked(exact_json.validator_of({"type": "integer"}), drawer)
    assert found.kind == "invalid"
    assert "integer" in found.reason
