"""Packing of texts into passes: equal shares, the shortest call first, no call starves."""

from __future__ import annotations

import random

import numpy as np
import pytest

from pyggml._native.token_batch import TokenBatch
from pyggml.generation.embedding.job import Job
from pyggml.generation.embedding.pass_packing import pack

N_TOKENS, N_TEXTS = 512, 64


class Simulation:
    """Jobs that arrive at any time, and passes without computation."""

    def __init__(self) -> None:
        self.waiting: list[Job] = []
        self.n_jobs = self.n_passes = 0
        self.was_short = False

    def arrive(self, *lengths: int) -> Job:
        texts = TokenBatch(np.zeros(sum(lengths), np.int32), np.array(lengths, np.int32))
        job = Job("pooled", texts, 1)
        job.arrival, job.turn = self.n_jobs, self.n_passes
        self.n_jobs += 1
        self.waiting.append(job)
        return job

    def run_pass(self) -> dict[Job, list[int]]:
        """Return the lengths of the texts of each job in the next pass."""
        packed = pack(self.waiting, N_TOKENS, N_TEXTS, may_be_short=not self.was_short)
        self.was_short = packed.is_short
        chosen = {job: job.take(n).content.texts.lengths.tolist() for job, n in packed.calls}
        self.n_passes += 1
        for job in chosen:
            job.turn = self.n_passes
        self.waiting = [job for job in self.waiting if job.n_waiting]
        return chosen


def test_a_single_text_is_in_the_next_pass_whatever_bulk_calls_wait() -> None:
    simulation = Simulation()
    for _ in range(8):
        simulation.arrive(*[60] * 2048)
    for _ in range(20):
        simulation.run_pass()
        single = simulation.arrive(random.Random(0).randrange(1, 400))
        assert single in simulation.run_pass()


def test_a_single_text_gets_a_short_pass_beside_bulk_calls_but_not_twice_in_a_row() -> None:
    simulation = Simulation()
    bulk = [simulation.arrive(*[300] * 100) for _ in range(8)]
    for _ in range(20):
        first = simulation.arrive(30)
        assert simulation.run_pass() == {first: [30]}
        second = simulation.arrive(20)
        chosen = simulation.run_pass()
        assert chosen.pop(second) == [20]
        assert list(chosen.values()) == [[300]]
    assert sum(job.n_waiting for job in bulk) == 8 * 100 - 20


def test_many_single_texts_fill_passes() -> None:
    simulation = Simulation()
    for _ in range(60):
        simulation.arrive(30)
    simulation.arrive(*[60] * 500)
    assert sum(map(len, simulation.run_pass().values())) >= N_TOKENS // 30


def test_bulk_calls_share_passes_equally() -> None:
    simulation = Simulation()
    jobs = [simulation.arrive(*[60] * 200) for _ in range(4)]
    for _ in range(50):
        simulation.run_pass()
    left = [job.n_waiting for job in jobs]
    assert max(left) - min(left) <= 2


def test_a_call_alone_fills_passes() -> None:
    simulation = Simulation()
    job = simulation.arrive(*range(1, 120))
    assert sum(simulation.run_pass()[job]) > N_TOKENS - 120
    short = Simulation()
    few = short.arrive(*[2] * 500)
    assert len(short.run_pass()[few]) == N_TEXTS


def test_a_bulk_call_progresses_beside_a_stream_of_single_texts() -> None:
    simulation = Simulation()
    bulk = simulation.arrive(*[100] * 50)
    for _ in range(120):
        for _ in range(20):  # more than a pass takes
            simulation.arrive(100)
        simulation.run_pass()
    # Single texts arrive four times as fast as they are computed, and all that came before are served first.
    assert bulk.n_waiting < 50


def test_a_longer_text_than_a_pass_gets_one_alone() -> None:
    simulation = Simulation()
    long, short = simulation.arrive(900, 30), simulation.arrive(40)
    assert simulation.run_pass() == {short: [40]}
    assert simulation.run_pass() == {long: [900]}
    assert simulation.run_pass() == {long: [30]}


@pytest.mark.slow_except(every=40)
@pytest.mark.parametrize("seed", range(400))
def test_random_histories(seed: int) -> None:
    rng, simulation = random.Random(seed), Simulation()
    arrived: dict[Job, list[int]] = {}
    computed: dict[Job, list[int]] = {}
    missed: dict[Job, int] = {}
    for step in range(200):
        for _ in range(rng.choice([0, 0, 0, 1, 2, 5]) if step < 100 else 0):
            lengths = [rng.randrange(1, rng.choice([10, 100, 1000])) for _ in range(rng.choice([1, 1, 3, 40]))]
            arrived[simulation.arrive(*lengths)] = lengths
        before = {job: job.turn for job in simulation.waiting}
        chosen = simulation.run_pass()
        assert bool(chosen) == bool(before), "a pass is empty only if nothing waits"
        texts = [length for lengths in chosen.values() for length in lengths]
        assert len(texts) <= N_TEXTS
        assert sum(texts) <= N_TOKENS or len(texts) == 1
        for job, lengths in chosen.items():
            computed.setdefault(job, []).extend(lengths)
        # Whoever was left out is served before all that came, or were served, later.
        for job in before.keys() - chosen.keys():
            missed[job] = missed.get(job, 0) + 1
            assert job.turn <= simulation.n_passes - 1
    while simulation.waiting:
        for job, lengths in simulation.run_pass().items():
            computed.setdefault(job, []).extend(lengths)
    assert {job: sorted(lengths) for job, lengths in computed.items()} == {
        job: sorted(lengths) for job, lengths in arrived.items()
    }
