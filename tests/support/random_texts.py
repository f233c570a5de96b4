"""Random texts by the grammar of a JSON schema, drawn token by token and validated by ``jsonschema``."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

import pyggml
from pyggml import errors
from pyggml.schema.grammar import EVERYTHING_VALID
from support import exact_json

MAX_TOKENS = 250
#: Tokens that lead to the end of a text, outside of strings, those that lead there sooner first; digits may go on.
_CLOSERS = (rb"\s?[}\]]+", rb'"', rb"[,:]", rb"[0-9]|null|true|false")
_STRING_END = rb'"\s?[}\],:]*'
_CONTENT = rb"(?s).*\S.*"
#: How often a text ends where it may, a string does, an array or object does, something but white space is drawn, and
#: late in a text what leads to its end.
_END, _END_STRING, _CLOSE, _NO_SPACE, _CLOSE_LATE = 0.5, 0.3, 0.3, 0.95, 0.85
#: Tokens after which it is late; drawn for each text.
_FREE_TOKENS = (0, 10, 30, 80)
_ESCAPED = re.compile(rb"\\.", re.DOTALL)
#: Names that the schema requires, or has, which are tried at the start of a string: by chance they would not be drawn.
_N_NAMES = 12
_N_TRIES = 4  # of one subset, before it is searched


class Finding(NamedTuple):
    """One drawn text.

    Attributes:
        kind: "valid"; "invalid"; "unfinished" after ``MAX_TOKENS``; "refused": no grammar, or none that can be
            followed; "unchecked": the validator cannot use the schema, or the text has a number that is too long.
        text: the text, "" if refused.
        reason: of "invalid", "refused" and "unchecked".
    """

    kind: Literal["valid", "invalid", "unfinished", "refused", "unchecked"]
    text: str = ""
    reason: str = ""


class Vocabulary:
    """A vocabulary, with its tokens that lead to the end of a text."""

    def __init__(self, vocab: pyggml.Vocab) -> None:
        self.vocab = vocab
        self.pieces = [vocab.piece(token_id) for token_id in range(vocab.n_tokens)]
        self.everything = _Subset(range(vocab.n_tokens), vocab.n_tokens)
        self.ends = _Subset(vocab.eog_ids, vocab.n_tokens)
        self.closers = [self._matching(closer) for closer in _CLOSERS]
        self.string_ends = self._matching(_STRING_END)
        self.content = self._matching(_CONTENT)

    def _matching(self, pattern: bytes) -> _Subset:
        matches = re.compile(pattern).fullmatch
        return _Subset([i for i, piece in enumerate(self.pieces) if piece and matches(piece)], len(self.pieces))


class _Subset:
    """Tokens among which one that a mask allows is drawn, in a few microseconds even if there are 100,000."""

    def __init__(self, ids: Iterable[int], n_tokens: int) -> None:
        self.ids = list(ids)
        flags = np.zeros(-(-n_tokens // 32) * 32, np.uint8)
        flags[self.ids] = 1
        self.bits = np.packbits(flags, bitorder="little").view(np.uint32)

    def drawn(self, mask: npt.NDArray[np.uint32], rng: random.Random) -> int | None:
        """Draw an allowed token; None if there is none. Alone among 32 neighbours, a token is drawn more often."""
        if not self.ids:
            return None
        for _ in range(_N_TRIES):
            token_id = rng.choice(self.ids)
            if int(mask[token_id // 32]) >> token_id % 32 & 1:
                return token_id
        allowed = mask & self.bits
        words = np.flatnonzero(allowed)
        if not words.size:
            return None
        at = int(words[rng.randrange(words.size)])
        word = int(allowed[at])
        return at * 32 + rng.choice([bit for bit in range(32) if word >> bit & 1])


def check(schema: Any, vocabulary: Vocabulary, n: int, rng: random.Random) -> Iterator[Finding]:
    """Draw ``n`` texts by the grammar of a schema, and validate each in the draft that the schema declares."""
    try:
        text = pyggml.grammar_of(schema, **EVERYTHING_VALID)
        grammar = pyggml.Grammar.compile(text, vocabulary.vocab)
    except (errors.GrammarError, errors.InvalidParameterError) as error:
        yield from [Finding("refused", reason=str(error))] * n
        return
    with grammar:
        try:
            validator = exact_json.validator_of(schema)
        except exact_json.HugeNumberError as error:
            yield from [Finding("unchecked", reason=str(error))] * n
            return
        drawer = Drawer(grammar, vocabulary, _names(schema), rng)
        for _ in range(n):
            yield _checked(validator, drawer)


def _names(schema: Any) -> list[str]:
    """Names of members anywhere in a schema; those that are required are there more often."""
    names: list[str] = []
    pending = [schema]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            required, properties = value.get("required"), value.get("properties")
            names += [name for name in required if isinstance(name, str)] * 4 if isinstance(required, list) else []
            names += list(properties) if isinstance(properties, dict) else []
        pending += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return names


def _checked(validator: Any, drawer: Drawer) -> Finding:
    try:
        data = drawer.draw()
    except errors.GrammarError as error:
        return Finding("refused", reason=str(error))
    if data is None:
        return Finding("unfinished")
    try:
        text = data.decode()
    except ValueError as error:
        return Finding("invalid", repr(data), str(error))
    verdict = exact_json.judge(validator, text)
    return Finding(verdict.kind, text, verdict.reason)


class Drawer:
    """Draws texts by one grammar."""

    def __init__(
        self, grammar: pyggml.CompiledGrammar, vocabulary: Vocabulary, names: list[str], rng: random.Random
    ) -> None:
        """Prepare for a grammar.

        Args:
            grammar: the grammar, compiled for the vocabulary.
            vocabulary: the vocabulary.
            names: texts that strings should often have, such as names of members.
            rng: source of all choices.
        """
        self.grammar = grammar
        self.vocabulary = vocabulary
        self.names = names
        self.rng = rng
        self.mask = np.zeros(grammar.n_mask_words, np.uint32)

    def draw(self) -> bytes | None:
        """A random text that the grammar allows, with a bias to its end; None if it is too long."""
        data = b""
        n_free = self.rng.choice(_FREE_TOKENS)
        is_in_string = False
        with self.grammar.matcher() as matcher:
            while matcher.n_accepted < MAX_TOKENS:
                is_late = matcher.n_accepted >= n_free
                token_ids = self._name(matcher, is_late=is_late) if is_in_string and data.endswith(b'"') else []
                if not token_ids:
                    token_ids = [self._token(matcher, data, is_in_string=is_in_string, is_late=is_late)]
                if matcher.is_terminated:
                    return data
                piece = b"".join(self.vocabulary.pieces[token_id] for token_id in token_ids)
                data += piece
                if b'"' in piece or b"\\" in piece:
                    is_in_string = _ESCAPED.sub(b"", data).count(b'"') % 2 == 1
        return None

    def _token(self, matcher: pyggml.GrammarMatcher, data: bytes, *, is_in_string: bool, is_late: bool) -> int:
        """Draw and accept a token."""
        subsets = self._preferred(is_in_string=is_in_string, is_late=is_late)
        allowed = matcher.mask(out=self.mask)
        drawn = (subset.drawn(allowed, self.rng) for subset in (*subsets, self.vocabulary.everything))
        token_id = next((each for each in drawn if each is not None), None)
        assert token_id is not None, f"nothing may follow {data[-100:]!r}"
        assert matcher.accept(token_id), f"{token_id} is in the mask after {data[-100:]!r}, but is not accepted"
        return token_id

    def _preferred(self, *, is_in_string: bool, is_late: bool) -> Iterator[_Subset]:
        """Tokens from which the next one is drawn, if there are any."""
        rng, vocabulary = self.rng, self.vocabulary
        if is_in_string:
            if rng.random() < (_CLOSE_LATE if is_late else _END_STRING):
                yield vocabulary.string_ends
            return
        if is_late or rng.random() < _END:
            yield vocabulary.ends
        if is_late and rng.random() < _CLOSE_LATE:
            yield from vocabulary.closers
        elif rng.random() < _CLOSE:
            yield vocabulary.closers[0]
        if rng.random() < _NO_SPACE:
            yield vocabulary.content

    def _name(self, matcher: pyggml.GrammarMatcher, *, is_late: bool) -> list[int]:
        """Accept one of the names and its quote; returns its tokens, none if no name is allowed."""
        if not self.names or self.rng.random() > (_CLOSE_LATE if is_late else _CLOSE):
            return []
        for _ in range(_N_NAMES):
            name = json.dumps(self.rng.choice(self.names), ensure_ascii=False).encode("utf-8", "surrogatepass")[1:]
            token_ids = self.vocabulary.vocab.tokenize(name, add_special=False, parse_special=False)
            n_accepted = matcher.accept_tokens(token_ids)
            if n_accepted == len(token_ids):
                return [int(token_id) for token_id in token_ids]
            matcher.rollback(n_accepted)
        return []
