"""Every sampler by name, in the engine: its effect on the choice of one token."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import pyggml
from pyggml._core.ffi import ffi, lib
from pyggml._core.fields import fields_of
from pyggml.types import DEFAULT_SAMPLERS

Floats = npt.NDArray[Any]
PROMPT = "x"
HOT = 12.0  # where the tiny model's choice is spread over some dozens of tokens
N = 400


@pytest.fixture(scope="module")
def llm(tiny_path: Path) -> Iterator[pyggml.LLM]:
    with pyggml.load(tiny_path, n_ctx=2048, n_parallel=16, n_threads=1) as llm:
        yield llm


@pytest.fixture(scope="module")
def logits(llm: pyggml.LLM) -> Floats:
    row: Floats = llm.logits(PROMPT)[-1].astype(np.float64)
    return row


def softmax(logits: Floats) -> Floats:
    weights: Floats = np.exp(logits - logits.max())
    p: Floats = weights / weights.sum()
    return p


def first_tokens(llm: pyggml.LLM, n: int = N, **params: Any) -> Counter[int]:
    """Counts of first tokens, including stop tokens."""
    params = {"temperature": HOT, "max_tokens": 1, **params}
    done = llm.generate_batch([PROMPT] * n, **params)
    return Counter(int(one.stop_reason or -1) if not one.token_ids else one.token_ids[0] for one in done)


def test_the_usual_order() -> None:
    assert DEFAULT_SAMPLERS[0] == "penalties"
    assert DEFAULT_SAMPLERS[-1] == "temperature"


@pytest.mark.slow
def test_temperature(llm: pyggml.LLM, logits: Floats) -> None:
    p = softmax(logits / HOT)
    counts = first_tokens(llm, 2000)
    top = np.argsort(-p)[:10]
    for token in top:
        assert abs(counts[int(token)] / 2000 - p[token]) < 5 * np.sqrt(p[token] / 2000)


def test_top_k(llm: pyggml.LLM, logits: Floats) -> None:
    assert set(first_tokens(llm, top_k=3)) == set(np.argsort(-logits)[:3])


def test_top_p(llm: pyggml.LLM, logits: Floats) -> None:
    p = softmax(logits)  # the temperature comes last
    order = np.argsort(-p)
    kept = order[: int(np.searchsorted(np.cumsum(p[order]), 0.999)) + 1]
    assert set(first_tokens(llm, top_p=0.999)) == set(kept)


def test_min_p(llm: pyggml.LLM, logits: Floats) -> None:
    p = softmax(logits)
    assert set(first_tokens(llm, min_p=1e-3, temperature=1000.0)) == set(np.flatnonzero(p >= 1e-3 * p.max()))


def test_typical_p(llm: pyggml.LLM, logits: Floats) -> None:
    p = softmax(logits)
    surprise = np.abs(-np.log(p) + (p * np.log(p)).sum())
    order = np.argsort(surprise)
    kept = order[: int(np.searchsorted(np.cumsum(p[order]), 0.5)) + 1]
    assert set(first_tokens(llm, typical_p=0.5)) <= set(kept)


def test_top_n_sigma(llm: pyggml.LLM, logits: Floats) -> None:
    kept = set(np.flatnonzero(logits >= logits.max() - 0.5 * logits.std()))
    assert set(first_tokens(llm, top_n_sigma=0.5, temperature=1000.0)) <= kept
    assert len(first_tokens(llm, temperature=1000.0)) > len(kept)


@pytest.mark.slow
def test_xtc(llm: pyggml.LLM, logits: Floats) -> None:
    """With certainty it drops every token above the threshold but the least likely of them."""
    p = softmax(logits)
    order = np.argsort(-p)
    threshold = float(p[order[2]] + p[order[3]]) / 2  # three are above
    counts = first_tokens(llm, xtc_probability=1.0, xtc_threshold=threshold, temperature=1.0)
    assert order[0] not in counts
    assert order[1] not in counts
    assert order[2] in counts
    half = first_tokens(llm, 2000, xtc_probability=0.5, xtc_threshold=threshold, temperature=1.0)
    assert abs(half[int(order[0])] / 2000 - p[order[0]] / 2) < 0.05


def test_min_keep(llm: pyggml.LLM, logits: Floats) -> None:
    assert set(first_tokens(llm, min_p=1.0, temperature=1000.0)) == {int(logits.argmax())}
    best = set(np.argsort(-logits)[:4])
    assert set(first_tokens(llm, min_p=1.0, min_keep=4, temperature=1000.0)) == best
    assert set(first_tokens(llm, top_k=1, min_keep=4, temperature=1000.0)) == best


@pytest.mark.slow
def test_dynatemp(llm: pyggml.LLM, logits: Floats) -> None:
    p = softmax(logits)
    entropy = -(p * np.log(p)).sum() / np.log(len(p))
    temperature = 15.0 * entropy**0.5 + 5.0 * (1 - entropy**0.5)
    expected = softmax(logits / temperature)
    counts = first_tokens(llm, 2000, temperature=10.0, dynatemp_range=5.0, dynatemp_exponent=0.5)
    for token in np.argsort(-expected)[:5]:
        assert abs(counts[int(token)] / 2000 - expected[token]) < 5 * np.sqrt(expected[token] / 2000)


def test_penalties(llm: pyggml.LLM, logits: Floats) -> None:
    favourite = int(logits.argmax())
    prompt = [*llm.tokenize(PROMPT), favourite]
    after = llm.logits(prompt)[-1]
    again = int(after.argmax())
    done = llm.generate([*prompt, again], presence_penalty=1000.0, max_tokens=1)
    assert again not in done.token_ids
    assert favourite not in done.token_ids


DRY: dict[str, Any] = {
    "dry_multiplier": 1000.0, "dry_base": 1.0, "dry_allowed_length": 2, "dry_penalty_last_n": 500,
}  # fmt: skip


def test_dry(llm: pyggml.LLM) -> None:
    """A greedy model that repeats itself stops doing so."""
    free = llm.generate(PROMPT, max_tokens=60, ignore_eos=True).token_ids
    held = llm.generate(PROMPT, max_tokens=60, ignore_eos=True, dry_sequence_breakers=(), **DRY).token_ids
    assert repeats(free) > 0
    assert repeats(held) == 0


def test_dry_is_set_up_once_and_starts_afresh_for_each_request(llm: pyggml.LLM) -> None:
    """Its breakers are looked for in the whole vocabulary, so samplers are copied from one that was never used."""

    def ask(**changes: Any) -> list[int]:
        return llm.generate(PROMPT, max_tokens=60, ignore_eos=True, **{**DRY, **changes}).token_ids

    kinds: tuple[dict[str, Any], ...] = (
        {},
        {"dry_sequence_breakers": ("e",)},
        {"dry_sequence_breakers": ()},
        {"dry_allowed_length": 9},
        {"dry_multiplier": 0.01},
        {"dry_penalty_last_n": 4},
    )
    first = [ask(**kind) for kind in kinds]
    assert [ask(**kind) for kind in kinds] == first  # in the cache by now
    for i in range(20):  # more than it holds
        ask(dry_base=1.0 + i)
    assert [ask(**kind) for kind in reversed(kinds)] == first[::-1]
    assert len({tuple(ids) for ids in first}) > 2
    with ThreadPoolExecutor(8) as pool:
        assert {len(ids) for ids in pool.map(lambda kind: ask(**kind), kinds * 4)} == {60}


def test_dry_sequence_breakers(llm: pyggml.LLM) -> None:
    """A repetition does not reach across one: then ``c`` is free to follow ``ab`` again."""
    wants_c: dict[str, Any] = {"logit_bias": {ord("c"): 100.0}, "max_tokens": 1}
    assert llm.generate(list(b"abcabcab"), **wants_c).text == "c"
    assert llm.generate(list(b"abcabcab"), **wants_c, **DRY, dry_sequence_breakers=()).text != "c"
    assert llm.generate(list(b"abcabcab"), **wants_c, **DRY, dry_sequence_breakers=["b"]).text == "c"


def repeats(token_ids: list[int]) -> int:
    """Count the runs of four tokens that occur again."""
    runs = [tuple(token_ids[i : i + 4]) for i in range(len(token_ids) - 3)]
    return len(runs) - len(set(runs))


@pytest.mark.parametrize("version", [1, 2])
def test_mirostat(llm: pyggml.LLM, version: int) -> None:
    """The surprise of what it chooses stays near the target."""
    surprise = {}
    for tau in (0.5, 4.0):
        done = [
            llm.generate(
                PROMPT, temperature=8.0, mirostat=version, mirostat_tau=tau, seed=i, max_tokens=100, ignore_eos=True
            )
            for i in range(4)
        ]
        surprise[tau] = np.mean([_surprise(llm, one.token_ids, 8.0) for one in done])
    assert surprise[0.5] + 1 < surprise[4.0] < 5


def _surprise(llm: pyggml.LLM, token_ids: list[int], temperature: float) -> float:
    prompt = llm.tokenize(PROMPT)
    rows = llm.logits([*prompt, *token_ids])[len(prompt) - 1 : -1].astype(np.float64)
    p = [softmax(row / temperature)[token] for row, token in zip(rows, token_ids, strict=True)]
    return float(np.mean(-np.log2(p)))


def test_adaptive_p(llm: pyggml.LLM, logits: Floats) -> None:
    """It prefers tokens whose probability is near the target to the likeliest one."""
    p = softmax(logits / 5.0)
    mean = {}
    for target in (0.0, 1.0):
        counts = first_tokens(llm, adaptive_target=target, temperature=5.0)
        mean[target] = sum(p[token] * n for token, n in counts.items()) / N
    assert mean[0.0] < 0.8 * mean[1.0]


def test_the_order_matters(llm: pyggml.LLM, logits: Floats) -> None:
    """min_p before the temperature sees the model's own probabilities, after it the flattened ones."""
    few = first_tokens(llm, min_p=0.05, samplers=["min_p", "temperature"])
    many = first_tokens(llm, min_p=0.05, samplers=["temperature", "min_p"])
    p, flat = softmax(logits), softmax(logits / HOT)
    assert set(few) <= set(np.flatnonzero(p >= 0.05 * p.max()))
    assert set(many) <= set(np.flatnonzero(flat >= 0.05 * flat.max()))
    assert len(many) > len(few)


def test_no_samplers_at_all(llm: pyggml.LLM, logits: Floats) -> None:
    p = softmax(logits)
    counts = first_tokens(llm, 1000, samplers=[], temperature=1.0)
    best = int(p.argmax())
    assert abs(counts[best] / 1000 - p[best]) < 0.08


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"top_n_sigma": -1.0}, "top_n_sigma must be a finite number of at least 0"),
        ({"xtc_probability": 1.5}, "xtc_probability must be a finite number from 0 to 1"),
        ({"xtc_threshold": "a"}, "xtc_threshold must be a number"),
        ({"dry_multiplier": float("nan")}, "dry_multiplier must be a finite number"),
        ({"dry_base": 0.5}, "dry_base must be a finite number of at least 1"),
        ({"dry_allowed_length": -1}, "dry_allowed_length must be between 0"),
        ({"dry_penalty_last_n": 1.5}, "dry_penalty_last_n must be an integer"),
        ({"dry_sequence_breakers": "\n"}, "sequence of strings"),
        ({"dry_sequence_breakers": [""]}, "1 to 40 bytes"),
        ({"dry_sequence_breakers": ["x" * 41]}, "1 to 40 bytes"),
        ({"mirostat": 3}, "mirostat must be between 0 and 2"),
        ({"mirostat": 2, "top_k": 5}, "mirostat replaces top_k: use one"),
        ({"mirostat": 2, "samplers": ["top_k"]}, "mirostat replaces samplers: use one"),
        ({"mirostat": 1, "adaptive_target": 0.5}, "mirostat and adaptive_target"),
        ({"adaptive_target": 2.0}, "adaptive_target must be a finite number from 0 to 1"),
        ({"adaptive_decay": 1.0}, "adaptive_decay must be a finite number from 0 to 0.99"),
        ({"dynatemp_range": 1.0}, "dynatemp_range has no effect with a temperature of 0"),
        ({"min_keep": -1}, "min_keep must be between"),
        ({"samplers": "top_k"}, "samplers must be a sequence of names"),
        ({"samplers": ["top_q"]}, "unknown sampler 'top_q'; known are penalties, dry"),
        ({"samplers": ["top_k", "top_k"]}, "lists 'top_k' twice"),
        ({"samplers": ["top_k"], "min_p": 0.1}, "samplers leaves out min_p"),
        ({"samplers": ["top_k"], "temperature": 0.5}, "samplers leaves out temperature"),
        ({"samplers": ["temperature"], "frequency_penalty": 0.5}, "samplers leaves out penalties"),
    ],
)
def test_wrong_parameters(params: dict[str, Any], said: str) -> None:
    with pytest.raises(pyggml.InvalidParameterError, match=said):
        pyggml.SamplingParams(**params)


@pytest.mark.slow
def test_ranges_and_order_of_python_and_c_are_the_same() -> None:
    count, out, ranges = 0, ffi.new("pyg_sampling_range *"), {}
    while lib.pyg_sampling_range_get(count, out):
        ranges[ffi.string(out.name).decode()] = (out.min, out.max)
        count += 1
    assert not lib.pyg_sampling_range_get(-1, out)
    largest = float(np.finfo(np.float32).max)
    fields = fields_of(pyggml.SamplingParams)
    for name, (low, high) in ranges.items():
        field = fields[name]
        smallest = float(np.finfo(np.float32).tiny) if field.above_low else max(field.low, -largest)
        if name in ("adaptive_target", "reasoning_budget"):
            smallest = -1  # in C, a negative number stands for None
        assert (low, high) == pytest.approx((smallest, min(field.high, largest)), rel=1e-6), name
    checked = {name for name, field in fields.items() if (field.low, field.high) != (-math.inf, math.inf)}
    counts = {"max_tokens", "n_keep", "num_speculative_tokens", "logprobs", "prompt_logprobs"}
    assert checked - set(ranges) == {*counts, "seed", "timeout_s"}
    order = [lib.pyg_sampler_order(i) for i in range(len(DEFAULT_SAMPLERS) + 1)]
    assert order.pop() == ffi.NULL
    assert tuple(ffi.string(name).decode() for name in order) == DEFAULT_SAMPLERS
