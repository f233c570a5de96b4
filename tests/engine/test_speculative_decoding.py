"""Guessed tokens: text, logprobs and ends of every request are those without, whatever is guessed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import device_kinds
from support.checkpoints import models
from support.speculation import FORMATS, check, facts

import pyggml
from pyggml import LLM, Context, Engine, Model

#: Architectures, with their types: a plain one, norms of heads, a window with soft caps, experts, fused projections,
#: sinks, parallel blocks, floats.
MODELS = (
    ("llama", "q4_k_m"),
    ("qwen3", "q8_0"),
    ("window", "q4_0"),
    ("mixtral", "q4_k_m"),
    ("phi3", "f16"),
    ("gpt-oss", "q8_0"),
    ("falcon", "q8_0"),
    ("llama", "bf16"),
)
IDS = [f"{name}-{ftype}" for name, ftype in MODELS]


@pytest.fixture(scope="module")
def plain() -> Iterator[LLM]:
    with pyggml.load(n_ctx=2048, n_parallel=1, n_threads=1, speculative="off", prefix_cache=False) as llm:
        yield llm


# --- random requests --------------------------------------------------------------------------------------------------


def check_model(shelf: device_kinds.Shelf, model: tuple[str, str], seed: int, n: int) -> None:
    path, rng = shelf(*model), random.Random(seed)
    options: dict[str, Any] = {"n_ctx": 512, "n_threads": 1}
    with (
        pyggml.load(path, n_parallel=1, prefix_cache=False, speculative="off", **options) as expected,
        pyggml.load(path, n_parallel=rng.choice((1, 3, 8)), **options) as found,
    ):
        check(expected, found, rng, n)
        stats = found.stats()
        assert expected.stats().n_drafted_lookup == expected.stats().n_drafted_forced == 0
    assert stats.n_drafted_lookup > stats.n_accepted_lookup > 0
    assert stats.n_drafted_forced > 0


@pytest.mark.parametrize("model", MODELS[:3], ids=IDS[:3])
def test_random_requests(shelf: device_kinds.Shelf, model: tuple[str, str]) -> None:
    check_model(shelf, model, 1, 30)


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS, ids=IDS)
def test_two_thousand_random_requests(shelf: device_kinds.Shelf, model: tuple[str, str]) -> None:
    for seed in range(5):
        check_model(shelf, model, 100 + seed, 50)


def test_random_requests_to_a_trained_model(plain: LLM, llm: LLM) -> None:
    """Here grammars and repetitions make guesses right, and sampled texts have likely tokens."""
    texts = [
        "Tim had a red ball. Tim had a ",
        "The cat sat. The dog sat. ",
        '{"name": "Tim"} {"name": "',
        "Once upon a time",
    ]
    check(plain, llm, random.Random(3), 40, texts)
    stats = llm.stats()
    assert stats.n_accepted_lookup > 0
    assert stats.n_accepted_forced > 0


def test_rows_of_prompts_count(shelf: device_kinds.Shelf) -> None:
    """Prompts that end in the same step have rows of logits as well, of which a step has a limited number."""
    prompts = [[5 + i, 6, 7] * 4 for i in range(60)]
    params: dict[str, Any] = {"ignore_eos": True, "logit_bias": {9: 100.0}, "num_speculative_tokens": 15}
    each = [{"max_tokens": 5 + 7 * i % 40} | params for i in range(60)]
    with pyggml.load(shelf("llama", "f32"), n_ctx=4096, n_parallel=24, n_threads=1) as llm:
        streams = [llm.stream(prompt, **given) for prompt, given in zip(prompts, each, strict=True)]
        assert [len(stream.finish().token_ids) for stream in streams] == [given["max_tokens"] for given in each]
        assert llm.stats().n_accepted_lookup > 0


def test_too_few_cells(shelf: device_kinds.Shelf) -> None:
    """Requests are preempted, and guesses get what is left."""
    path, rng = shelf("llama", "q4_k_m"), random.Random(8)
    options: dict[str, Any] = {"n_threads": 1}
    with (
        pyggml.load(path, n_ctx=200, n_parallel=1, prefix_cache=False, speculative="off", **options) as expected,
        pyggml.load(path, n_ctx=200, n_parallel=6, **options) as found,
    ):
        check(expected, found, rng, 40)
        prompt = [5, 6, 7] * 20
        many: dict[str, Any] = {"ignore_eos": True, "max_tokens": 130, "num_speculative_tokens": 15}
        alone = expected.generate(prompt, ignore_eos=True, max_tokens=130)
        for done in found.generate_batch([prompt] * 6, **many):
            assert done.token_ids == alone.token_ids
        assert found.stats().n_preemptions > 0
        full: dict[str, Any] = {"ignore_eos": True, "max_tokens": -1}
        assert facts(found.generate(prompt, **full, num_speculative_tokens=15)) == facts(
            expected.generate(prompt, **full)
        )


# --- ends -------------------------------------------------------------------------------------------------------------

LOOP = [5, 6, 7, 8] * 10


@pytest.fixture(scope="module")
def looping(shelf: device_kinds.Shelf) -> Iterator[tuple[LLM, LLM]]:
    """A model without guesses, and with fifteen in each step: its last token forever, so all of them are right."""
    path = shelf("llama", "f32")
    options: dict[str, Any] = {"n_ctx": 4096, "n_parallel": 2, "n_threads": 1}
    with pyggml.load(path, speculative="off", **options) as off, pyggml.load(path, **options) as on:
        yield off, on


def test_fewer_steps(looping: tuple[LLM, LLM]) -> None:
    off, on = looping
    params: dict[str, Any] = {"logit_bias": {9: 100.0}, "max_tokens": 100, "ignore_eos": True}
    before = on.stats().n_decode_steps
    done = on.generate(LOOP, **params, num_speculative_tokens=15)
    assert facts(done) == facts(off.generate(LOOP, **params))
    assert on.stats().n_decode_steps - before < 25
    timings = done.timings
    assert timings.n_drafted_lookup >= timings.n_accepted_lookup > 70
    assert timings.n_drafted_forced == timings.n_accepted_forced == 0


@pytest.mark.parametrize("n", range(1, 20))
def test_max_tokens(looping: tuple[LLM, LLM], n: int) -> None:
    params: dict[str, Any] = {"logit_bias": {9: 100.0}, "max_tokens": n, "ignore_eos": True}
    found = looping[1].generate([*LOOP, *[9] * 10], **params, num_speculative_tokens=15)
    assert (found.token_ids, found.finish_reason, found.stop_reason) == ([9] * n, "length", "max_tokens")


def test_repetition_guard(looping: tuple[LLM, LLM]) -> None:
    params: dict[str, Any] = {"logit_bias": {9: 100.0}, "max_tokens": 3000, "repetition_guard": True, "logprobs": 1}
    off, on = (facts(llm.generate(LOOP, **params)) for llm in looping)
    assert off == on
    assert off[4] == "repetition"


def test_stop_token_among_the_guesses(looping: tuple[LLM, LLM]) -> None:
    """The guesses go on after a stop token, and nothing behind it is kept."""
    prompt = [1, 2, 3, 4, 5, 1, 2]
    params: dict[str, Any] = {"max_tokens": 12, "ignore_eos": True, "allowed_token_ids": [3, 4, 5], "logprobs": 2}
    off, on = looping
    free = off.generate(prompt, **params)
    for stop in set(free.token_ids):
        expected = off.generate(prompt, **params, stop_token_ids=[stop])
        assert facts(on.generate(prompt, **params, stop_token_ids=[stop], num_speculative_tokens=15)) == facts(expected)
        assert expected.stop_reason == stop


def test_cancelled_streams(looping: tuple[LLM, LLM]) -> None:
    """A cancelled request leaves its cells as a prefix of the right tokens."""
    off, on = looping
    params: dict[str, Any] = {"max_tokens": 200, "ignore_eos": True, "temperature": 1.0, "seed": 4}
    whole = off.generate(LOOP, **params)
    for n_chunks in (1, 2, 5):
        with on.stream(LOOP, **params, num_speculative_tokens=8) as stream:
            for _ in range(n_chunks):
                next(stream)
            stream.cancel()
        told = stream.completion.token_ids
        assert told == whole.token_ids[: len(told)]
        follow_up = [*LOOP, *told, 7]
        done = on.generate(follow_up, max_tokens=5, num_speculative_tokens=15)
        assert done.token_ids == off.generate(follow_up, max_tokens=5).token_ids


def test_shifted_contexts(shelf: device_kinds.Shelf) -> None:
    """The context drops tokens now and then, and what was looked up before that is not there any more."""
    path, rng = shelf("llama", "f32"), random.Random(2)
    options: dict[str, Any] = {"n_ctx": 64, "n_parallel": 1, "n_threads": 1}
    with pyggml.load(path, speculative="off", **options) as off, pyggml.load(path, **options) as on:
        for seed in range(4):
            prompt = [rng.randrange(1, 250) for _ in range(20)]
            params: dict[str, Any] = {"max_tokens": 200, "ignore_eos": True, "overflow": "shift", "logprobs": 1}
            params |= {"temperature": 1.0, "seed": seed, "logit_bias": {7: 6.0, 8: 6.0, 9: 5.0}}
            found = on.generate(prompt, **params, num_speculative_tokens=rng.choice((1, 4, 15)))
            assert facts(found) == facts(off.generate(prompt, **params))
        assert on.stats().n_accepted_lookup > 30


def test_several_answers_to_a_prompt(looping: tuple[LLM, LLM]) -> None:
    params: dict[str, Any] = {"temperature": 1.2, "seed": 9, "max_tokens": 30, "ignore_eos": True, "logprobs": 3}
    off, on = (
        [facts(done) for done in llm.generate_n(LOOP, 4, **params | guesses)]
        for llm, guesses in zip(looping, ({}, {"num_speculative_tokens": 6}), strict=True)
    )
    assert off == on


def test_an_error_in_the_middle(looping: tuple[LLM, LLM]) -> None:
    """A request that fails after some right guesses fails as without them."""
    params: dict[str, Any] = {"grammar": 'root ::= "aaaaaaaa" "b"', "allowed_token_ids": [], "max_tokens": 20}
    letter = looping[0].tokenize("a", add_special=False)
    params["allowed_token_ids"] = letter
    for llm in looping:
        with pytest.raises(pyggml.GrammarError, match="allowed_token_ids"):
            llm.generate("aaaaaaaa b", **params)


# --- which requests guess ---------------------------------------------------------------------------------------------


def test_forced_text(llm: LLM, plain: LLM) -> None:
    params: dict[str, Any] = {"json_schema": FORMATS[3]["json_schema"], "max_tokens": 60}
    done = llm.generate("A person:", **params, speculative="forced", num_speculative_tokens=8)
    assert facts(done) == facts(plain.generate("A person:", **params))
    timings = done.timings
    assert timings.n_accepted_forced >= 3
    assert timings.n_drafted_lookup == 0
    assert llm.generate("A person:", **params, speculative="lookup").timings.n_drafted_forced == 0


def test_lazy_grammar(llm: LLM, plain: LLM) -> None:
    grammar = pyggml.Grammar(
        'root ::= "." " Then she went home to the red house."', lazy=True, trigger_patterns=["\\."]
    )
    params: dict[str, Any] = {"grammar": grammar, "max_tokens": 60}
    done = llm.generate("Once upon a time", **params, speculative="forced", num_speculative_tokens=8)
    assert facts(done) == facts(plain.generate("Once upon a time", **params))
    assert done.text.endswith(". Then she went home to the red house.")
    assert done.timings.n_accepted_forced > 0


def test_off(llm: LLM) -> None:
    done = llm.generate(LOOP, max_tokens=20, ignore_eos=True, speculative="off", num_speculative_tokens=8)
    assert done.timings.n_drafted_lookup == 0


def test_streams_of_cells(shelf: device_kinds.Shelf) -> None:
    """A KV cache that is divided has no guesses; insisting on them is an error."""
    path = shelf("llama", "f32")
    options: dict[str, Any] = {"n_ctx": 1024, "n_parallel": 4, "n_threads": 1, "kv_unified": False}
    with pyggml.load(path, **options) as llm:
        done = llm.generate(LOOP, max_tokens=20, ignore_eos=True, num_speculative_tokens=8)
        assert len(done.token_ids) == 20
        assert done.timings.n_drafted_lookup == 0
        with pytest.raises(pyggml.InvalidParameterError, match="kv_unified is off"):
            llm.generate(LOOP, speculative="lookup")
    with pytest.raises(pyggml.InvalidParameterError, match='speculative="forced" is not possible here: kv_unified'):
        pyggml.load(path, speculative="forced", **options)


@pytest.mark.parametrize("name", ["mamba", "jamba"])
def test_states_that_cannot_be_cut_back(shelf: device_kinds.Shelf, name: str) -> None:
    with pyggml.load(shelf(name), n_ctx=256, n_parallel=2, n_threads=1) as llm:
        done = llm.generate(LOOP, max_tokens=20, ignore_eos=True, num_speculative_tokens=8)
        assert done.timings.n_drafted_lookup == 0
        with pytest.raises(pyggml.InvalidParameterError, match="recurrent layers"):
            llm.generate(LOOP, speculative="lookup")


def test_not_where_a_batch_changes_bits(model_dir: Path) -> None:
    """Attention without our kernels is not batch-invariant, so guesses would change the output."""
    with Model(models.write_llama(model_dir / "speculative.gguf")) as model:
        options: dict[str, Any] = {
            "n_ctx": 256,
            "n_seq_max": 2,
            "kv_unified": True,
            "n_threads": 1,
            "flash_attn": "off",
        }
        with Engine(Context(model, **options), stop_token_ids=()) as engine:
            assert engine.stats().not_batch_invariant
            request = engine.submit(LOOP, max_tokens=20, num_speculative_tokens=8)
            assert len(request.read_all()) == 20
            assert request.timings.n_drafted_lookup == 0
            with pytest.raises(pyggml.InvalidParameterError, match="not batch-invariant"):
                engine.submit(LOOP, speculative="lookup")


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"speculative": "guess"}, "speculative"),
        ({"speculative": True}, "speculative"),
        ({"num_speculative_tokens": 0}, "num_speculative_tokens"),
        ({"num_speculative_tokens": 16}, "num_speculative_tokens"),
    ],
)
def test_wrong_parameters(params: dict[str, Any], named: str) -> None:
    with pytest.raises(pyggml.InvalidParameterError, match=named):
        pyggml.SamplingParams(**params)
    if "speculative" in params:
        with pytest.raises(pyggml.InvalidParameterError, match=named):
            pyggml.load(**params)


def test_isolated() -> None:
    """Guesses are made in the engine's process, and counted here."""
    with pyggml.load(n_ctx=1024, n_parallel=2, n_threads=1, isolate=True, speculative="lookup") as llm:
        params: dict[str, Any] = {"max_tokens": 40, "ignore_eos": True}
        done = llm.generate(LOOP, **params, num_speculative_tokens=4)
        assert done.timings.n_drafted_lookup > 0
        assert llm.stats().n_drafted_lookup == done.timings.n_drafted_lookup
        assert done.token_ids == llm.generate(LOOP, **params, speculative="off").token_ids
