"""Grammars and trigger patterns, made up and damaged: refused with a GrammarError, or followed, within a time."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from support.checkpoints import models

import pyggml
from fuzz import damage
from fuzz.refusal import refused
from fuzz.sampled import DeadEnd, sampled
from pyggml.errors import GrammarError, InferError, InvalidParameterError

MAX_SECONDS = 60.0
MAX_CPU_SECONDS = 15.0  # of what has a time-out of less than one
TIMEOUT_S = 0.5

NAMES = ("root", "a", "b", "c-d", "e")
LITERALS = (
    '"a"',
    '"th"',
    '""',
    '"é"',
    r'"\x41"',
    r'"\u00e9"',
    r'"\U0001F600"',
    r'"\""',
    '"' + "x" * 300 + '"',
    r'"\n"',
)
CLASSES = ("[a-z]", "[^a]", "[a-]", "[]", "[^]", r"[\x00-\x7f]", "[é-😀]", "[z-a]", "[^\n]", ".", r"[\]\\]", "[ -~]")
TOKENS = ("<[5]>", "!<[5]>", "<[99999999]>", "<the>", "<th", "!<the>", "<[-1]>", "<|im_end|>", "<[]>")
REPEATED = (
    "*",
    "+",
    "?",
    "{2}",
    "{0,3}",
    "{1,}",
    "{,3}",
    "{0}",
    "{3,1}",
    "{100000}",
    "{2}{3}",
    "{99999999999999999999}",
    "{",
    "{,}",
)
PATTERNS = (
    "a", "(a)", "a|b", "(a*)*", "(.*)*x", "^a$", r"\b", r"\d+", "[a-z]{2,5}", "(?:a|b)*?c", "(?=a)a", "(?!b)a",
    r"(a)\1", "[", ")",
    "a{1000}", "(a{99}){99}", "a{2,1}", "[[:alpha:]]", r"\u00e9", "é", "(" * 90 + "a" + ")" * 90, "", ".", "(|)",
    "[^]", "[]",
    r"\cA", r"\x4", "(?<n>a)", "a**", "*", r"[\s\S]*?(th)[\s\S]*", "^", "(^|$)*", "x" * 5000, "(?=.*a)", r"\B\B\B",
    "[z-a]",
)  # fmt: skip


class Prepared(NamedTuple):
    """Objects that all cases use."""

    llm: pyggml.LLM


def prepare(folder: Path) -> Prepared:
    path = models.write_llama(folder / "tiny.gguf", models.byte_vocabulary())
    return Prepared(pyggml.load(path, n_ctx=512, n_parallel=1, n_threads=1))


def make(random: np.random.Generator) -> list[Any]:
    """Rules, changes of their text, patterns of a lazy grammar, and what it is used for."""
    parts: list[Any] = [
        ["rule", f"{name} ::= {_alternatives(random, 3, NAMES[i:])}\n"] for i, name in enumerate(NAMES, 1)
    ]
    if random.random() < 0.1:
        parts.pop(int(random.integers(len(parts))))
    if random.random() < 0.25:
        parts.append(["change", int(random.integers(1 << 30))])
    if random.random() < 0.2:
        parts += [["pattern", _pattern(random)] for _ in range(int(random.integers(1, 3)))]
    return [*parts, [str(random.choice(["sampled", "generated"], p=[0.8, 0.2])), int(random.integers(1 << 30))]]


def run(prepared: Prepared, parts: list[Any], folder: Path) -> str:
    del folder
    text = "".join(text for kind, text in parts if kind == "rule")
    for seed in [seed for kind, seed in parts if kind == "change"]:
        text = damage.with_changed_span(text.encode(), np.random.default_rng(seed)).decode("utf-8", "replace")
    patterns = [pattern for kind, pattern in parts if kind == "pattern"]
    start = time.process_time()
    outcomes = [
        _generated(prepared.llm, text, patterns, seed)
        if kind == "generated"
        else _sampled(prepared.llm, text, patterns, seed)
        for kind, seed in parts
        if kind in ("generated", "sampled")
    ]
    seconds = time.process_time() - start
    assert seconds < MAX_CPU_SECONDS, f"took {seconds:.1f} s"
    return outcomes[0] if outcomes else "nothing"


def _sampled(llm: pyggml.LLM, text: str, patterns: list[str], seed: int) -> str:
    with pyggml.Sampler(llm.model) as sampler:
        try:
            if patterns:
                sampler.grammar_lazy(text, trigger_patterns=patterns)
            else:
                sampler.grammar(text)
        except (GrammarError, InvalidParameterError) as error:
            return refused(error)
        start = time.monotonic()
        try:
            for number in range(3):
                if time.monotonic() < start + TIMEOUT_S:
                    sampled(sampler, np.random.default_rng([seed, number]))
        except InferError as error:
            return f"accepted, and then {refused(error)}"
        except DeadEnd:  # [z-a], say, which is nothing
            return "followed to a dead end"
    return "followed"


def _generated(llm: pyggml.LLM, text: str, patterns: list[str], seed: int) -> str:
    try:
        grammar = pyggml.Grammar(text, lazy=bool(patterns), trigger_patterns=patterns)
        done = llm.generate(
            "the", grammar=grammar, temperature=1.0, seed=seed % 1000, max_tokens=60, timeout_s=TIMEOUT_S
        )
    except (GrammarError, InvalidParameterError) as error:
        return refused(error)
    return f"generated, {done.finish_reason}"


def _alternatives(random: np.random.Generator, depth: int, names: tuple[str, ...]) -> str:
    """Sequences of literals, classes and these rules; now and then of any, and of what no grammar has."""
    return " | ".join(_sequence(random, depth, names) for _ in range(int(random.integers(1, 4))))


def _sequence(random: np.random.Generator, depth: int, names: tuple[str, ...]) -> str:
    return " ".join(_symbol(random, depth, names) for _ in range(int(random.integers(0, 4)))) or '""'


def _symbol(random: np.random.Generator, depth: int, names: tuple[str, ...]) -> str:
    kind = random.random()
    if kind < 0.4:
        symbol = _one(random, LITERALS)
    elif kind < 0.6:
        symbol = _one(random, CLASSES)
    elif kind < 0.85:
        symbol = _one(random, NAMES if random.random() < 0.05 or not names else names)
    elif kind < 0.86:
        symbol = _one(random, TOKENS)
    else:
        symbol = f"({_alternatives(random, depth - 1, names)})" if depth else '"b"'
    if random.random() < 0.7:
        return symbol
    return symbol + _one(random, REPEATED if random.random() < 0.02 else REPEATED[:6])


def _pattern(random: np.random.Generator) -> str:
    some = [_one(random, PATTERNS) for _ in range(int(random.choice([1, 2, 4])))]
    pattern = "".join(some)
    if random.random() < 0.3:
        pattern = damage.with_changed_span(pattern.encode(), random).decode("utf-8", "replace")
    return pattern


def _one(random: np.random.Generator, choices: tuple[str, ...]) -> str:
    return choices[int(random.integers(len(choices)))]
