"""The loop over tokens: eval, sample, generate, states, and what the C API sees of it."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyggml
from pyggml.compat import llama_cpp
from pyggml.compat.llama_cpp import Llama, LlamaGrammar, MinTokensLogitsProcessor
from pyggml.compat.llama_cpp.llama_speculative import LlamaPromptLookupDecoding

from .conftest import PATH

PROMPT = b"Once upon a time"


@pytest.fixture(params=["demo", "mamba", "jamba"])
def path(request: pytest.FixtureRequest, mamba_path: Path, model_dir: Path) -> str:
    """Models with a KV cache, with a recurrent state, and with both."""
    from support.checkpoints import models

    paths: dict[str, Callable[[], Any]] = {
        "demo": lambda: PATH,
        "mamba": lambda: mamba_path,
        "jamba": lambda: models.write_jamba(model_dir / "jamba.gguf"),
    }
    return str(paths[request.param]())


def taken(tokens: Iterator[int], n: int) -> list[int]:
    return list(itertools.islice(tokens, n))


def test_eval_and_sample(llama: Llama) -> None:
    tokens = llama.tokenize(PROMPT)
    llama.reset()
    with pytest.raises(pyggml.EngineError, match="call eval"):
        llama.sample()
    llama.eval(tokens)
    assert llama.n_tokens == len(tokens)
    assert list(llama.eval_tokens) == llama.input_ids[: len(tokens)].tolist() == tokens
    assert llama.sample(temp=0) == int(np.argmax(llama.scores[len(tokens) - 1]))
    assert len(llama.eval_logits) == 1
    grammar = LlamaGrammar.from_string('root ::= "!"')
    assert llama.detokenize([llama.sample(grammar=grammar)]) == b"!"
    llama.n_tokens -= 1
    llama.eval([tokens[-1]])
    assert list(llama.eval_tokens) == tokens


def test_scores_of_all_tokens() -> None:
    with Llama(PATH, n_ctx=256, n_threads=1, n_batch=3, logits_all=True) as llama:
        tokens = llama.tokenize(PROMPT)
        llama.eval(tokens)
        assert llama.scores.shape == (256, llama.n_vocab())
        np.testing.assert_allclose(llama.scores[: len(tokens)], llama.llm.logits(tokens), atol=0.1)
        logprobs = Llama.logits_to_logprobs(llama.scores[: len(tokens)])
        np.testing.assert_allclose(np.exp(logprobs).sum(axis=-1), 1, atol=1e-4)
        with pytest.raises(ValueError, match="exceed context window of 256"):
            llama.eval([1] * 300)


def test_generate(path: str) -> None:
    with Llama(path, n_ctx=256, n_threads=1) as llama:
        tokens = llama.tokenize(PROMPT)
        expected = taken(llama.generate(tokens, temp=0), 6)
        assert llama.n_tokens == len(tokens) + 5
        again = [*tokens[:-2], *tokens[-2:]]
        assert taken(llama.generate(again, temp=0), 6) == expected  # reuses the beginning
        llama.eval(expected)
        assert taken(llama.generate(tokens, temp=0), 6) == expected


def test_sent_tokens_are_appended(llama: Llama) -> None:
    tokens, more = llama.tokenize(PROMPT), llama.tokenize(b" The end.", add_bos=False)
    generated = llama.generate(tokens, temp=0)
    first = next(generated)
    following = generated.send(more)
    generated.close()
    assert list(llama.eval_tokens) == [*tokens, first, *more]
    assert following == taken(llama.generate([*tokens, first, *more], temp=0), 1)[0]


def test_appending_and_criteria(llama: Llama) -> None:
    tokens = llama.tokenize(PROMPT)
    whole = taken(llama.generate(tokens, temp=0), 4)
    llama.reset()
    llama.eval(tokens[:2])
    assert taken(llama.generate(tokens[2:], temp=0, reset=False), 4) == whole
    ended = llama.generate(tokens, temp=0, stopping_criteria=lambda ids, _: len(ids) >= len(tokens) + 2)
    assert list(ended) == whole[:2]


def test_states(path: str) -> None:
    with Llama(path, n_ctx=256, n_threads=1, seed=3) as llama, Llama(path, n_ctx=256, n_threads=1) as other:
        tokens = llama.tokenize(PROMPT)
        llama.eval(tokens)
        state = llama.save_state()
        expected = taken(llama.generate(tokens, temp=0), 5)
        assert (state.n_tokens, len(state.llama_state), state.seed) == (len(tokens), state.llama_state_size, 3)
        other.eval(tokens[:2])
        other.load_state(state)
        assert list(other.eval_tokens) == tokens
        assert taken(other.generate(tokens, temp=0), 5) == expected


def test_states_keep_the_seed(llama: Llama) -> None:
    llama.set_seed(5)
    state = llama.save_state()
    options = {"max_tokens": 12, "temperature": 1.5, "top_k": 0}
    first = llama("x", **options)["choices"]
    assert llama("x", **options)["choices"] != first
    llama.load_state(state)
    assert llama("x", **options)["choices"] == first


def test_minimum_of_tokens(llama: Llama) -> None:
    token = llama.tokenize(b",", add_bos=False)[0]
    processors = llama_cpp.LogitsProcessorList([MinTokensLogitsProcessor(2, token)])
    generated = taken(llama.generate(llama.tokenize(PROMPT), temp=0, logits_processor=processors), 6)
    assert token not in generated[:2]


def test_guesses_are_checked() -> None:
    with (
        Llama(PATH, n_ctx=256, n_threads=1, draft_model=LlamaPromptLookupDecoding()) as drafting,
        Llama(PATH, n_ctx=256, n_threads=1) as plain,
    ):
        tokens = plain.tokenize(b"a b c a b c a b")
        for temp in (0.0, 1.0):
            drafting.set_seed(1)
            plain.set_seed(1)
            assert taken(drafting.generate(tokens, temp=temp), 20) == taken(plain.generate(tokens, temp=temp), 20)


def test_find_candidates() -> None:
    find = LlamaPromptLookupDecoding.find_candidate_pred_tokens
    assert find(np.array([1, 2, 3, 4, 1, 2]), 3, 2).tolist() == [3, 4]
    assert find(np.array([1, 2, 3]), 2, 5).tolist() == []
    assert find(np.array([7]), 2, 5).tolist() == []


def test_processors_must_leave_a_token(llama: Llama) -> None:
    llama.reset()
    llama.eval([1])
    with pytest.raises(pyggml.InferError):
        llama.sample(logits_processor=[lambda _, scores: scores * np.nan])
    with pytest.raises(pyggml.InvalidParameterError, match="logit_bias"):
        llama.sample(penalize_nl=False)
    with pytest.raises(pyggml.UnknownParameterError, match="did you mean 'temp'"):
        llama.sample(tempo=1)


def test_private_views(llama: Llama) -> None:
    llama.reset()
    llama.eval(llama.tokenize(PROMPT))
    assert llama._ctx.n_ctx() == llama.n_ctx()
    assert llama._ctx.kv_cache_seq_rm(-1, 2, -1)
    assert llama.n_tokens == 2
    with pytest.raises(pyggml.InvalidParameterError, match="only the last tokens"):
        llama._ctx.kv_cache_seq_rm(0, 0, 1)
    llama._ctx.kv_cache_clear()
    assert llama.n_tokens == 0
    assert llama._model.token_get_text(llama.token_eos()) == "<|endoftext|>"
    with pytest.raises(AttributeError, match=r"pyggml\.Model"):
        _ = importlib.import_module("pyggml.compat.llama_cpp._internals").LlamaModel
