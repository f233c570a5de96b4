"""min_tokens, bad_words and allowed_token_ids, with the meaning that they have in vLLM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pyggml

PROMPT = "Once upon a time"


@pytest.fixture(scope="module")
def llm() -> Iterator[pyggml.LLM]:
    with pyggml.load(n_ctx=2048, n_parallel=4, n_threads=1) as llm:
        yield llm


def end_at(llm: pyggml.LLM, index: int) -> dict[str, Any]:
    """Parameters whose greedy output ends before its token of this index."""
    token_ids = llm.generate(PROMPT, max_tokens=index + 1).token_ids
    assert token_ids[index] not in token_ids[:index]
    return {"stop_token_ids": [token_ids[index]], "max_tokens": 40}


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_no_stop_token_among_the_first(llm: pyggml.LLM, temperature: float) -> None:
    given = end_at(llm, 3) | {"temperature": temperature, "seed": 5}
    assert len(llm.generate(PROMPT, **end_at(llm, 3)).token_ids) == 3
    for seed in range(3):
        done = llm.generate(PROMPT, **given | {"seed": seed}, min_tokens=10)
        assert len(done.token_ids) >= 10
        assert not {*given["stop_token_ids"], *llm.stop_tokens} & set(done.token_ids)


def test_no_stop_string_among_the_first(llm: pyggml.LLM) -> None:
    free = llm.generate(PROMPT, max_tokens=30)
    stop = llm.tokenizer.piece(free.token_ids[2]).decode()
    done = llm.generate(PROMPT, max_tokens=30, stop=stop, min_tokens=3)
    assert len(done.token_ids) > 3
    assert done.text.startswith(llm.detokenize(free.token_ids[:3]))


def test_a_grammar_may_end_earlier(llm: pyggml.LLM) -> None:
    assert llm.generate(PROMPT, choices=["no"], min_tokens=20).text == "no"
    done = llm.generate(PROMPT, regex="a+", min_tokens=5, max_tokens=20)
    assert len(done.token_ids) >= 5


def test_bad_words_do_not_appear(llm: pyggml.LLM) -> None:
    """Neither words of one token nor of several, greedy or sampled."""
    free = llm.generate(PROMPT, max_tokens=20)
    words = free.text.split()
    assert len(words) > 3
    for bad in (words[1], " ".join(words[1:3])):
        for temperature in (0.0, 0.8):
            params: dict[str, Any] = {"temperature": temperature, "seed": 1}
            done = llm.generate(PROMPT, max_tokens=20, bad_words=[bad], **params)
            assert f" {bad} " not in f" {done.text} "
    pair = free.token_ids[3:5]
    done = llm.generate(PROMPT, max_tokens=20, bad_words=[pair])
    assert done.token_ids[:4] == free.token_ids[:4]
    assert done.token_ids[4] != free.token_ids[4]


@pytest.mark.parametrize("params", [{}, {"temperature": 1.0, "seed": 2}])
def test_only_allowed_tokens(llm: pyggml.LLM, params: dict[str, Any]) -> None:
    allowed = [300, 301, 500]
    done = llm.generate(PROMPT, max_tokens=12, allowed_token_ids=allowed, logprobs=5, **params)
    assert set(done.token_ids) <= set(allowed)
    assert len(done.token_ids) == 12  # without a stop token it does not end
    if not params:
        assert done.token_ids[0] == allowed[np.argmax(llm.logits(PROMPT)[-1][allowed])]


def test_allowed_tokens_with_a_grammar(llm: pyggml.LLM) -> None:
    letters = [llm.tokenize(each, add_special=False)[0] for each in "ab"]
    done = llm.generate(PROMPT, regex="[a-z]{3}", allowed_token_ids=letters)
    assert done.finish_reason == "stop"
    assert set(done.text) <= set("ab")
    with pytest.raises(pyggml.GrammarError, match="no token of allowed_token_ids"):
        llm.generate(PROMPT, regex="[0-9]{3}", allowed_token_ids=letters)


def test_processed_logprobs_are_those_of_the_draw(llm: pyggml.LLM) -> None:
    """Against the softmax of what top_k leaves, at a temperature."""
    params: dict[str, Any] = {"temperature": 0.5, "top_k": 4, "seed": 1, "logit_bias": {300: 100.0}}
    done = llm.generate(PROMPT, max_tokens=1, logprobs=8, logprobs_mode="processed_logprobs", **params)
    assert done.logprobs is not None
    (one,) = done.logprobs
    row = llm.logits(PROMPT)[-1].astype(np.float64)
    row[300] += 100
    ids = np.argsort(-row)[:4]
    expected = row[ids] / 0.5 - np.logaddexp.reduce(row[ids] / 0.5)
    assert [each.token_id for each in one.top] == ids.tolist()
    assert [each.logprob for each in one.top] == pytest.approx(expected.tolist(), abs=1e-4)
    assert one.token_id == done.token_ids[0] == 300


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"min_tokens": 9, "max_tokens": 8}, "min_tokens=9 is more than max_tokens=8"),
        ({"min_tokens": -1}, "min_tokens"),
        ({"bad_words": "no"}, "bad_words must be a sequence"),
        ({"bad_words": [""]}, "each of bad_words"),
        ({"allowed_token_ids": []}, "allowed_token_ids is empty"),
        ({"logprobs_mode": "raw_logits"}, "logprobs_mode"),
    ],
)
def test_invalid_constraints(given: dict[str, Any], message: str) -> None:
    with pytest.raises(pyggml.InvalidParameterError, match=message):
        pyggml.SamplingParams(**given)


def test_tokens_outside_the_vocabulary(llm: pyggml.LLM) -> None:
    for given in ({"allowed_token_ids": [10**6]}, {"bad_words": [[10**6]]}):
        with pytest.raises(pyggml.InvalidParameterError, match="1000000"):
            llm.generate(PROMPT, **given)


def test_engines_take_bad_words_as_token_ids(llm: pyggml.LLM) -> None:
    with pyggml.Context(llm.model, n_ctx=64) as context:
        engine = pyggml.Engine(context)
        prompt = llm.tokenize(PROMPT)
        first = engine.submit(prompt, max_tokens=1).read_all()
        assert engine.submit(prompt, max_tokens=1, bad_words=[first]).read_all() != first
        with pytest.raises(pyggml.InvalidParameterError, match="no tokenizer for bad_words"):
            engine.submit(prompt, bad_words=["word"])
        engine.close()
