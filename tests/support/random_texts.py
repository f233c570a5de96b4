"""Random texts by the grammar of a JSON schema, drawn token by token and validated by ``jsonschema``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import jsonschema
import numpy as np
import numpy.typing as npt

import pyggml
from pyggml import errors
from pyggml.schema.grammar import EVERYTHING_VALID

MAX_TOKENS = 400
_CLOSERS = re.compile(rb'[\s"\]},:0-9]*')
#: How often a text ends where it may, and how often a token that leads to its end is preferred.
_END, _CLOSE = 0.5, 0.6

_DEFAULT_DRAFT = jsonschema.Draft202012Validator


class Finding(NamedTuple):
    """One drawn text.

    Attributes:
        kind: "valid"; "invalid"; "unfinished" after ``MAX_TOKENS``; "refused": no grammar, or none that can be
            followed; "unchecked": the validator cannot use the schema.
        text: the text, "" if refused.
        reason: of "invalid", "refused" and "unchecked".
    """

    kind: Literal["valid", "invalid", "unfinished", "refused", "unchecked"]
    text: str = ""
    reason: str = ""


class Vocabulary:
    """A vocabulary, and its tokens that often lead to the end of a text."""

    def __init__(self, vocab: pyggml.Vocab) -> None:
        self.vocab = vocab
        pieces = [vocab.piece(token_id) for token_id in range(vocab.n_tokens)]
        self.pieces = pieces
        self.closers = np.array([bool(piece) and _CLOSERS.fullmatch(piece) is not None for piece in pieces])
        self.ends = np.zeros(len(pieces), bool)
        self.ends[list(vocab.eog_ids)] = True


def check(schema: Any, vocabulary: Vocabulary, n: int, rng: np.random.Generator) -> Iterator[Finding]:
    """Draw ``n`` texts by the grammar of a schema, and validate each in the draft that the schema declares."""
    try:
        text = pyggml.grammar_of(schema, **EVERYTHING_VALID)
        grammar = pyggml.Grammar.compile(text, vocabulary.vocab)
    except (errors.GrammarError, errors.InvalidParameterError) as error:
        yield from [Finding("refused", reason=str(error))] * n
        return
    with grammar:
        for _ in range(n):
            yield _checked(schema, grammar, vocabulary, rng)


def _checked(schema: Any, grammar: pyggml.CompiledGrammar, vocabulary: Vocabulary, rng: np.random.Generator) -> Finding:
    try:
        data = draw(grammar, vocabulary, rng)
    except errors.GrammarError as error:
        return Finding("refused", reason=str(error))
    if data is None:
        return Finding("unfinished")
    try:
        text = data.decode()
        value = json.loads(text, parse_constant=_no_constant)
    except ValueError as error:
        return Finding("invalid", repr(data), f"not JSON: {error}")
    try:
        found = next((each for each in validator_of(schema).iter_errors(value) if not _is_leap_second(each)), None)
    except Exception as failure:  # a reference that it cannot resolve, a pattern that Python cannot compile ...
        return Finding("unchecked", text, f"{type(failure).__name__}: {failure}")
    return Finding("valid", text) if found is None else Finding("invalid", text, found.message)


def draw(grammar: pyggml.CompiledGrammar, vocabulary: Vocabulary, rng: np.random.Generator) -> bytes | None:
    """A random text that the grammar allows, with a bias to its end; None if it is too long."""
    data = b""
    with grammar.matcher() as matcher:
        for _ in range(MAX_TOKENS):
            allowed = np.unpackbits(matcher.mask().view(np.uint8), bitorder="little")[: grammar.n_vocab].astype(bool)
            token_id = _drawn(allowed, vocabulary, rng)
            assert token_id is not None, f"nothing may follow {data[-100:]!r}"
            assert matcher.accept(token_id), f"{token_id} is in the mask after {data[-100:]!r}, but is not accepted"
            if matcher.is_terminated:
                return data
            data += vocabulary.pieces[token_id]
    return None


def _drawn(allowed: npt.NDArray[np.bool_], vocabulary: Vocabulary, rng: np.random.Generator) -> int | None:
    for subset, probability in ((vocabulary.ends, _END), (vocabulary.closers, _CLOSE)):
        if rng.random() < probability and (found := np.flatnonzero(allowed & subset)).size:
            return int(rng.choice(found))
    found = np.flatnonzero(allowed)
    return int(rng.choice(found)) if found.size else None


def validator_of(schema: Any) -> Any:
    """The validator of a schema's declared draft, with its formats."""
    draft: Any = jsonschema.validators.validator_for(schema, default=_DEFAULT_DRAFT)
    return draft(schema, format_checker=draft.FORMAT_CHECKER)


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON value")


def _is_leap_second(error: jsonschema.ValidationError) -> bool:
    """Return True for a time that RFC 3339 allows and Python's ``datetime`` does not."""
    return error.validator == "format" and isinstance(error.instance, str) and ":60" in error.instance
