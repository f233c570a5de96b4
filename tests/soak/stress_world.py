"""The models of the stress test, what has been seen of them, and who watches that nothing hangs."""

from __future__ import annotations

import faulthandler
import itertools
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from soak.stress_requests import Ask, chosen, faults_of

import pyggml
from pyggml import LLM, Completion, Stream

# How models are loaded: (weight, options). The first is reproducible to the bit, and each round has one of these.
# Several models that each insist on two threads would crawl on two cores; left to itself, an engine yields.
EXACT: dict[str, Any] = {"n_parallel": 1, "prefix_cache": False, "n_threads": 1}
OPTIONS: list[tuple[float, dict[str, Any]]] = [
    (2, EXACT),
    (1, {"n_parallel": 1}),
    (3, {"n_parallel": 4}),
    (2, {"n_parallel": 8, "n_ctx": 512}),  # too little room: requests are preempted
    (1, {"n_parallel": 16, "n_ctx": 1024, "prefix_cache": False}),
    (1, {"n_parallel": 3, "n_batch": 64, "n_ubatch": 32}),
    (2, {"n_parallel": 4, "n_ctx": 256, "max_queue": 3, "queue_full": "raise"}),
    (2, {"n_parallel": 2, "max_queue": 2, "queue_full": "wait"}),
]
N_THREADS = [1, None]
N_MODELS = 4
LOOK_S = 0.01
N_REFERENCES = 1000  # answers that are kept to compare others with
NEAR_TIE = 0.25  # between two logits; in ten minutes rounding was seen to turn a choice between two 0.14 apart,
ROUNDING = 1.0  # and to move the one of 120,000 that it moves farthest by 0.33; a wrong cache moves them by several


@dataclass(eq=False)
class Loaded:
    """A model that users share. Whoever closes it says so first."""

    llm: LLM
    options: dict[str, Any]
    closing: bool = False
    n_steps: int = 0  # as the watch has last seen it
    moved: int = 0  # when that was another number than before

    @property
    def is_exact(self) -> bool:
        return EXACT.items() <= self.options.items()

    def look(self, now: int) -> None:
        with suppress(pyggml.ClosedError):
            n_steps = self.llm.stats().n_decode_steps
            if n_steps != self.n_steps:
                self.n_steps, self.moved = n_steps, now


@dataclass(eq=False)
class Doing:
    """A user's current action, and its model."""

    what: str
    loaded: Loaded | None
    since: int

    def is_late(self, now: int, patience_s: float) -> bool:
        """A slow machine is none's fault: the clock starts again when the engine computes, up to a point."""
        stuck = self.loaded is not None and now > max(self.since, self.loaded.moved) + patience_s
        return stuck or now > self.since + 10 * patience_s


class Watch:
    """Knows what everybody is doing, and ends the process when something hangs.

    Its clock is its own looks, one a second: a process that is stopped for a while does not hang.
    """

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._now = 0
        self._all: set[Doing] = set()
        threading.Thread(target=self._run, name="watch", daemon=True).start()

    @contextmanager
    def doing(self, what: str, loaded: Loaded | None = None) -> Iterator[None]:
        doing = Doing(what, loaded, self._now)
        self._all.add(doing)
        try:
            yield
        finally:
            self._all.remove(doing)

    def _run(self) -> None:
        while True:
            # Should the GIL never be given back, this thread hangs too; then C has to say so.
            faulthandler.dump_traceback_later(10 * self._patience_s, exit=True)
            time.sleep(1)
            self._look()

    def _look(self) -> None:
        self._now += 1
        doing = self._all.copy()
        models = {each.loaded for each in doing if each.loaded}
        for loaded in models:
            loaded.look(self._now)
        late = [each.what for each in doing if each.is_late(self._now, self._patience_s)]
        if late:
            self._give_up(late, models)

    def _give_up(self, late: list[str], models: set[Loaded]) -> None:
        print(f"HANG: {', '.join(late)}", flush=True)
        faulthandler.dump_traceback(all_threads=True)
        for loaded in models:
            with suppress(pyggml.ClosedError):
                print(loaded.options, loaded.llm.stats(), flush=True)
        os._exit(2)


class World:
    """The models of a round, and what has been seen so far."""

    def __init__(self, watch: Watch, rng: random.Random) -> None:
        self.watch = watch
        self.tally: Counter[str] = Counter()
        self.n_faults = 0
        self.widest_gap = 0.0  # between the logits of two tokens of which one engine took one, one the other
        self.referee = pyggml.load(**EXACT)
        self.pausing = False
        self.over = False
        self.streams: dict[object, tuple[Ask, Stream]] = {}  # by user
        self._rng = rng
        self._models: list[Loaded] = []
        self._references: dict[str, list[int]] = {}
        self._logits: dict[int, npt.NDArray[np.float32]] = {}
        self._lock = threading.Lock()
        self._reload_lock = threading.Lock()

    def count(self, what: str, n: int = 1) -> None:
        with self._lock:
            self.tally[what] += n

    def fault(self, what: str) -> None:
        with self._lock:
            self.n_faults += 1
        print(f"FAULT: {what}", flush=True)

    def some_model(self, rng: random.Random) -> Loaded:
        return rng.choice(self._models)

    def open_models(self) -> None:
        self._models = [self._load(EXACT)] + [self._load(chosen(self._rng, OPTIONS)) for _ in range(N_MODELS - 1)]

    def reload(self, rng: random.Random) -> None:
        """Puts another model in the place of one, and closes that one under its users."""
        with self._reload_lock:
            place = rng.randrange(len(self._models))
            old, self._models[place] = self._models[place], self._load(chosen(rng, OPTIONS))
        old.closing = True
        old.llm.close()

    def close_models(self) -> None:
        """Close all models, when all users are idle: the engines must be idle, too."""
        for loaded in self._models:
            if not until(partial(is_idle, loaded.llm)):
                self.fault(f"requests were lost: {loaded.llm.stats()}, {loaded.options}")
            stats = loaded.llm.stats()
            self.count("preempted", stats.n_preemptions)
            self.count("reused", stats.n_cached_tokens)
            loaded.closing = True
            loaded.llm.close()
        self._models = []

    def judge(self, loaded: Loaded, ask: Ask, answer: Completion) -> None:
        """Checks an answer that was read to its end."""
        self.count("answers")
        self.count("tokens", len(answer.token_ids))
        self.count(answer.finish_reason)
        for fault in faults_of(ask, answer, loaded.llm):
            self.fault(f"{fault}: {ask} gave {answer} with {loaded.options}")
        comes_again = ask.repeatable and isinstance(ask.prompt, str)
        if comes_again and answer.finish_reason in ("stop", "length"):
            self._compare(loaded, ask, answer.token_ids)

    def _compare(self, loaded: Loaded, ask: Ask, token_ids: list[int]) -> None:
        """With the first answer of an exact engine; others may differ where the sum of a batch flips a near tie."""
        reference = self._references.get(ask.key)
        if reference is None:
            if loaded.is_exact and len(self._references) < N_REFERENCES:
                self._references[ask.key] = token_ids
        elif loaded.is_exact:
            if reference != token_ids:
                self.fault(f"not reproducible: {ask} gave {token_ids} and before {reference}, {loaded.options}")
        elif ask.is_comparable:
            self.count("compared")
            if reference != token_ids:
                self.count("differed")
                self._require_near_tie(loaded, ask, token_ids, reference)

    def _require_near_tie(self, loaded: Loaded, ask: Ask, token_ids: list[int], reference: list[int]) -> None:
        """A wrong cache makes other answers too: but then the tokens that were chosen are not equally good."""
        n = next(i for i, (a, b) in enumerate(itertools.zip_longest(token_ids, reference)) if a != b)
        if n == min(len(token_ids), len(reference)):
            return  # one of them met a stop token there, which is not told
        assert isinstance(ask.prompt, str)
        row = self.referee.logits(self.referee.tokenize(ask.prompt) + reference[:n])[-1]
        gap = float(row[reference[n]] - row[token_ids[n]])
        self.widest_gap = max(self.widest_gap, gap)
        if gap > NEAR_TIE:
            self.fault(f"{ask} gave {token_ids} and alone {reference}, {gap:.2f} better at {n}, {loaded.options}")

    def judge_logits(self, loaded: Loaded, prompt: list[int], rows: npt.NDArray[np.float32]) -> None:
        """Equal to those of an exact engine, or nearly so from others, which spread what they compute over cells."""
        reference = self._logits.setdefault(len(prompt), self.referee.logits(prompt))
        farthest = float(np.abs(rows - reference).max())
        if not farthest <= (0 if loaded.is_exact else ROUNDING):
            self.fault(f"logits of {len(prompt)} tokens are off by {farthest}, {loaded.options}")

    def _load(self, options: dict[str, Any]) -> Loaded:
        options = {"n_threads": self._rng.choice(N_THREADS)} | options
        return Loaded(pyggml.load(**options), options)


def is_idle(llm: LLM) -> bool:
    stats = llm.stats()
    return stats.n_requests == stats.n_finished and stats.n_running == stats.n_queued == stats.n_cells_running == 0


def until(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Its clock is its own looks, as the watch's: to be stopped for a while costs none of the time."""
    for _ in range(round(seconds / LOOK_S)):
        if condition():
            return True
        time.sleep(LOOK_S)
    return condition()
