"""Compiled grammars and their matchers, on upstream's vocabularies and the shipped model."""

from __future__ import annotations

import copy
import json
import random
import re
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from support.checkpoints import models

import pyggml
from pyggml import errors

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
TEXT = '{"name": "Ada", "age": 36}'


@pytest.fixture(scope="module", params=["llama-bpe", "llama-spm", "qwen2", "phi-3"])
def model(request: pytest.FixtureRequest) -> Iterator[pyggml.Model]:
    with pyggml.Model(models.VOCABULARIES / f"ggml-vocab-{request.param}.gguf", vocab_only=True) as model:
        yield model


@pytest.fixture(scope="module")
def bpe() -> Iterator[pyggml.Model]:
    with pyggml.Model(models.VOCABULARIES / "ggml-vocab-llama-bpe.gguf", vocab_only=True) as model:
        yield model


def bits(mask: npt.NDArray[Any], n_vocab: int) -> npt.NDArray[np.bool_]:
    unpacked = np.unpackbits(mask.view(np.uint8), bitorder="little").astype(bool)
    assert not unpacked[n_vocab:].any()
    return unpacked[:n_vocab]


def pieces_of(model: pyggml.Model, text: str) -> list[int]:
    """Token ids that spell a text inside another one: some vocabularies put a space in front of every text."""
    whole, found = model.vocab.tokenize("\n" + text, add_special=False), b""
    while found not in (b"\n", b" \n"):
        found += model.vocab.piece(whole.pop(0))
    return whole


def test_masks_of_a_text_and_its_end(model: pyggml.Model) -> None:
    with pyggml.Grammar.compile(PERSON, model) as grammar, grammar.matcher() as matcher:
        assert grammar.n_vocab == model.vocab.n_tokens
        assert grammar.n_mask_words == -(-grammar.n_vocab // 32)
        for token_id in pieces_of(model, TEXT):
            assert not matcher.is_complete
            allowed = bits(matcher.mask(), grammar.n_vocab)
            assert allowed[token_id]
            assert not allowed[list(model.vocab.eog_ids)].any()
            assert matcher.accept(token_id)
        assert matcher.is_complete
        assert not matcher.is_terminated
        assert bits(matcher.mask(), grammar.n_vocab)[list(model.vocab.eog_ids)].all()
        end = model.vocab.eog_ids[0]
        assert matcher.accept(end)
        assert matcher.is_terminated
        assert matcher.is_complete
        assert np.flatnonzero(bits(matcher.mask(), grammar.n_vocab)).tolist() == list(model.vocab.eog_ids)
        assert matcher.forced() == []
        assert not matcher.accept(pieces_of(model, "{")[0])


def test_masks_agree_with_accept(bpe: pyggml.Model) -> None:
    """On every token of the vocabulary at random positions."""
    rng = random.Random(4)
    grammar = pyggml.Grammar.compile(PERSON, bpe)
    matcher = grammar.matcher()
    ids = pieces_of(bpe, TEXT)
    for position in rng.sample(range(len(ids)), 3):
        matcher.reset()
        assert matcher.accept_tokens(ids[:position]) == position
        allowed = bits(matcher.mask(), grammar.n_vocab)
        candidates = {*np.flatnonzero(allowed).tolist()[:500], *rng.sample(range(grammar.n_vocab), 2000)}
        for token_id in candidates:
            accepted = matcher.accept(token_id)
            assert accepted == allowed[token_id]
            if accepted:
                matcher.rollback(1)
        assert matcher.n_accepted == position


def test_random_texts_match_the_schema(bpe: pyggml.Model) -> None:
    rng = random.Random(1)
    grammar = pyggml.Grammar.compile(PERSON, bpe)
    ends = set(bpe.vocab.eog_ids)
    for _ in range(5):
        matcher = grammar.matcher()
        ids: list[int] = []
        while not matcher.is_terminated:
            allowed = np.flatnonzero(bits(matcher.mask(), grammar.n_vocab)).tolist()
            ids.append(next((end for end in allowed if end in ends), None) or rng.choice(allowed))
            assert matcher.accept(ids[-1])
        found = json.loads(bpe.vocab.detokenize(ids[:-1]))
        assert list(found) == ["name", "age"]
        assert len(found["name"]) <= 8


def test_accept_stops_at_the_first_token_that_is_not_allowed(model: pyggml.Model) -> None:
    matcher = pyggml.Grammar.compile('root ::= "abc" [0-9]+', model).matcher()
    good, bad = pieces_of(model, "abc1"), pieces_of(model, "x")
    assert matcher.accept_tokens([*good, *bad, *good]) == len(good)
    assert matcher.n_accepted == len(good)
    assert not matcher.accept(bad[0])
    assert matcher.n_accepted == len(good)
    with pytest.raises(errors.InvalidParameterError, match=str(model.vocab.n_tokens)):
        matcher.accept_tokens([pieces_of(model, "2")[0], model.vocab.n_tokens])
    assert matcher.n_accepted == len(good)  # all ids are checked first
    assert matcher.accept_tokens([]) == 0


@pytest.mark.parametrize("number", ["0", "-12.5", "01", "-00.5", "1.255", "1e5"])
def test_a_limit_of_decimals(model: pyggml.Model, number: str) -> None:
    matcher = pyggml.Grammar.compile({"type": "number", "decimalPlaces": 2}, model).matcher()
    ids = pieces_of(model, number)
    is_allowed = matcher.accept_tokens(ids) == len(ids) and matcher.is_complete
    assert is_allowed == (number in ("0", "-12.5"))


def test_rollback_restores_masks(bpe: pyggml.Model) -> None:
    matcher = pyggml.Grammar.compile(PERSON, bpe).matcher()
    ids = [*pieces_of(bpe, TEXT), bpe.vocab.eog_ids[0]]
    masks = [matcher.mask()]
    for token_id in ids:
        assert matcher.accept(token_id)
        masks.append(matcher.mask())
    twin = matcher.copy()
    for back in range(len(ids), 0, -1):
        assert np.array_equal(matcher.mask(), masks[back])
        matcher.rollback()
        assert matcher.n_accepted == back - 1
    assert np.array_equal(matcher.mask(), masks[0])
    with pytest.raises(errors.InvalidParameterError, match="only 0 were accepted"):
        matcher.rollback(1)
    assert twin.is_terminated  # a copy is independent
    twin.rollback(len(ids))
    assert twin.accept_tokens(ids) == len(ids)
    twin.reset()
    assert twin.n_accepted == 0


def forced_texts(model: pyggml.Model, grammar: str) -> list[str]:
    return [
        model.vocab.piece(i, special=True).decode() for i in pyggml.Grammar.compile(grammar, model).matcher().forced()
    ]


def test_forced_tokens_are_those_of_the_vocabulary(model: pyggml.Model) -> None:
    matcher = pyggml.Grammar.compile('root ::= "{\\"name\\": \\"Ada\\", \\"age\\": 36}"', model).matcher()
    assert matcher.forced() == pieces_of(model, TEXT)
    assert matcher.forced(max_tokens=2) == pieces_of(model, TEXT)[:2]
    assert matcher.n_accepted == 0
    assert matcher.accept_tokens(matcher.forced()) == len(pieces_of(model, TEXT))
    assert matcher.is_complete
    assert matcher.forced() == []


def test_a_forced_token_stops_before_one_that_may_be_longer(bpe: pyggml.Model) -> None:
    # " worl" could become " world", which is one token.
    assert forced_texts(bpe, 'root ::= "hello worl" [dk] "!"') == ["hello"]
    assert forced_texts(bpe, 'root ::= "hello worl" [7;]') == ["hello", " wor", "l"]
    assert forced_texts(bpe, 'root ::= [a-z]+ "!"') == []
    assert forced_texts(bpe, 'root ::= "a"?') == []  # the text may end


def test_forced_special_tokens(bpe: pyggml.Model) -> None:
    start = "<|start_header_id|>"
    assert forced_texts(bpe, f'root ::= "{start}" ("user" | "assistant")') == [start]
    assert forced_texts(bpe, f"root ::= {start} [a-z]+") == [start]
    assert forced_texts(bpe, 'root ::= "a<|eot_id|>"') == ["a"]  # a token that ends texts does not match as text


def test_forced_tokens_are_a_prefix_of_every_text(bpe: pyggml.Model) -> None:
    rng = random.Random(2)
    grammar = pyggml.Grammar.compile(
        {
            "type": "object",
            "properties": {"kind": {"enum": ["circle", "circuit"]}, "on": {"type": "boolean"}},
            "required": ["kind", "on"],
        },
        bpe,
    )
    for _ in range(20):
        matcher = grammar.matcher()
        ids: list[int] = []
        while not matcher.is_complete and len(ids) < 12:  # most tokens are white space, without an end
            forced = matcher.forced()
            assert matcher.copy().accept_tokens(forced) == len(forced)
            before = bpe.vocab.detokenize(forced)
            follower, text = matcher.copy(), ""
            while len(text) < len(before):  # every random continuation begins with it
                token_id = rng.choice(np.flatnonzero(bits(follower.mask(), grammar.n_vocab)).tolist())
                assert follower.accept(token_id)
                text += bpe.vocab.detokenize([token_id])
            assert text.startswith(before)
            ids.append(rng.choice(np.flatnonzero(bits(matcher.mask(), grammar.n_vocab)).tolist()))
            assert matcher.accept(ids[-1])


def test_mask_into_arrays(bpe: pyggml.Model) -> None:
    grammar = pyggml.Grammar.compile(PERSON, bpe)
    matcher = grammar.matcher()
    rows = np.zeros((2, grammar.n_mask_words), np.int32)
    row = rows[1]
    assert matcher.mask(out=row) is row
    assert not rows[0].any()
    assert np.array_equal(rows[1].view(np.uint32), matcher.mask())
    frozen = matcher.mask()
    frozen.flags.writeable = False
    bad = [
        np.zeros(3, np.uint32),
        np.zeros(grammar.n_mask_words, np.int64),
        frozen,
        [0],
        np.asfortranarray(rows)[0][::-1],
    ]
    for out in bad:
        with pytest.raises(errors.InvalidParameterError, match="out must be"):
            matcher.mask(out=out)


def test_sources_of_grammars(bpe: pyggml.Model) -> None:
    for source in (PERSON, json.dumps(PERSON), pyggml.grammar_of(PERSON), pyggml.Grammar(pyggml.grammar_of(PERSON))):
        assert pyggml.Grammar.compile(source, bpe).matcher().accept_tokens(pieces_of(bpe, TEXT))
    assert pyggml.Grammar.compile(list[int], bpe.vocab).matcher().accept_tokens(pieces_of(bpe, "[1]")) > 0
    named = pyggml.Grammar('start ::= "<" [ab]+', root="start", prefix="<a")
    matcher = pyggml.Grammar.compile(named, bpe).matcher()
    assert matcher.is_complete
    assert matcher.accept(pieces_of(bpe, "b")[0])


def test_sources_that_are_refused(bpe: pyggml.Model) -> None:
    lazy = pyggml.Grammar('root ::= "a"', lazy=True, trigger_patterns=["a"])
    for source, vocab, error, words in (
        (lazy, bpe, errors.InvalidParameterError, "lazy"),
        (PERSON, "llama", errors.InvalidParameterError, "an LLM, an Engine, a Model or a Vocab, not str"),
        ("root ::= other", bpe, errors.GrammarError, "other"),
        ({"type": "text"}, bpe, errors.GrammarError, "text"),
        (pyggml.Grammar('root ::= "a"', prefix="b"), bpe, errors.GrammarError, "prefix"),
        (3, bpe, errors.InvalidParameterError, "schema"),
    ):
        with pytest.raises(error, match=re.escape(words)):
            pyggml.Grammar.compile(source, vocab)
    with pytest.raises(errors.InvalidParameterError, match="token"):
        pyggml.Grammar.compile(PERSON, bpe, stop_token_ids=[10**6])


def test_stop_tokens_of_an_llm(llm: pyggml.LLM) -> None:
    grammar = pyggml.Grammar.compile("root ::= [a-z]+", llm, stop_token_ids=[5])
    matcher = grammar.matcher()
    assert matcher.accept(llm.tokenize("a", add_special=False)[-1])
    allowed = bits(matcher.mask(), grammar.n_vocab)
    assert allowed[[*llm.stop_tokens, 5]].all()
    assert matcher.accept(5)
    assert matcher.is_terminated


def test_lifetimes() -> None:
    model = pyggml.Model(models.VOCABULARIES / "ggml-vocab-llama-bpe.gguf", vocab_only=True)
    grammar = pyggml.Grammar.compile(PERSON, model)
    matcher = grammar.matcher()
    model.close()
    grammar.close()
    grammar.close()
    assert matcher.mask().any()
    with pytest.raises(errors.ClosedError):
        grammar.matcher()
    with pytest.raises(errors.ClosedError):
        pyggml.Grammar.compile(PERSON, model)
    matcher.close()
    matcher.close()
    for use in (matcher.mask, matcher.forced, matcher.copy, matcher.reset, matcher.rollback):
        with pytest.raises(errors.ClosedError):
            use()
    assert (repr(matcher), repr(grammar)) == ("GrammarMatcher(closed)", "CompiledGrammar(n_vocab=128256, closed)")
    for owner in (matcher, grammar):
        with pytest.raises(errors.CopyError):
            copy.copy(owner)


def test_matchers_of_one_grammar_on_many_threads(bpe: pyggml.Model) -> None:
    grammar = pyggml.Grammar.compile(PERSON, bpe)
    expected, failures = [], []
    matcher = grammar.matcher()
    ids = pieces_of(bpe, TEXT)
    for token_id in ids:
        expected.append(matcher.mask())
        assert matcher.accept(token_id)

    def follow() -> None:
        own = grammar.matcher()
        for token_id, mask in zip(ids, expected, strict=True):
            if not (np.array_equal(own.mask(), mask) and own.accept(token_id)):
                failures.append(token_id)

    threads = [threading.Thread(target=follow) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
