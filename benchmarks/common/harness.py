"""Shared code of the benchmarks: options, interleaved rounds, medians, tables, and a verdict on each claim.

Nothing here needs pyggml, because the workers of other bindings use it too.
"""

from __future__ import annotations

import argparse
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

Figures = dict[str, list[float]]


@dataclass(frozen=True)
class Claim:
    """A figure and its bound."""

    what: str
    measured: float
    bound: float
    is_upper: bool
    unit: str

    @property
    def holds(self) -> bool:
        return self.measured <= self.bound if self.is_upper else self.measured >= self.bound


def at_least(what: str, measured: float, bound: float, unit: str = "") -> Claim:
    return Claim(what, measured, bound, False, unit)


def at_most(what: str, measured: float, bound: float, unit: str = "") -> Claim:
    return Claim(what, measured, bound, True, unit)


def options(doc: str | None, *, rounds: int, models: Sequence[str]) -> argparse.Namespace:
    """Parse the scripts' common command line: ``rounds`` and ``model``, a list of names in SHAPES."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=rounds, help=f"default {rounds}")
    parser.add_argument("--model", nargs="+", default=list(models), help=f"default {' '.join(models)}")
    chosen = parser.parse_args()
    print(f"{n_cpus()} CPUs, load average {os.getloadavg()[0]:.2f} before the start", flush=True)
    return chosen


def n_cpus() -> int:
    """CPUs that this process and its children may use."""
    return len(os.sched_getaffinity(0))


def interleaved(sides: Mapping[str, Callable[[int], float]], rounds: int, unit: str) -> Figures:
    """Call each side once per round, with the round's number, and print the figures.

    Sides take turns, and every other round reverses the order, so that a machine whose speed drifts affects all alike.
    Round 0 warms up and does not count.
    """
    figures: Figures = {name: [] for name in sides}
    for n, names in turns(sides, rounds):
        measured = {name: sides[name](n) for name in names}
        line = "   ".join(f"{name} {measured[name]:.4g}" for name in sides)
        print(f"  {f'round {n}' if n else 'warm-up'}: {line} {unit}", flush=True)
        if n:
            for name, figure in measured.items():
                figures[name].append(figure)
    return figures


def turns(names: Iterable[str], rounds: int) -> Iterator[tuple[int, list[str]]]:
    """The number of each round, with the order of the sides in it. Round 0 warms up."""
    order = list(names)
    for n in range(rounds + 1):
        yield n, order if n % 2 else order[::-1]


def ratio(figures: Figures, numerator: str, denominator: str) -> float:
    """Median over the rounds of one side's figure divided by the other's in the same round."""
    return statistics.median(ratios(figures, numerator, denominator))


def ratios(figures: Figures, numerator: str, denominator: str) -> list[float]:
    """One side's figure divided by the other's, round by round."""
    return [a / b for a, b in zip(figures[numerator], figures[denominator], strict=True)]


def best(figures: Figures, names: Sequence[str]) -> str:
    """The side with the largest median."""
    return max(names, key=lambda name: statistics.median(figures[name]))


def together(call: Callable[[int], object], n: int) -> float:
    """Run ``call(0)`` to ``call(n - 1)``, one thread each, and return the seconds until all are done."""
    barrier = threading.Barrier(n + 1)
    failures: list[BaseException] = []

    def run(index: int) -> None:
        barrier.wait()
        try:
            call(index)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(n)]
    for thread in threads:
        thread.start()
    barrier.wait()
    start = time.perf_counter()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - start
    if failures:
        raise failures[0]
    return seconds


def table(figures: Mapping[str, Sequence[float]], unit: str) -> None:
    """Print the median, minimum and maximum of each side."""
    width = max(map(len, figures))
    print(f"  {'':{width}}  {'median':>9} {'least':>9} {'most':>9}  {unit}")
    for name, values in figures.items():
        numbers = " ".join(f"{value:9.4g}" for value in (statistics.median(values), min(values), max(values)))
        print(f"  {name:{width}}  {numbers}")


def verdict(claims: Sequence[Claim]) -> int:
    """Print every claim with its figure, and return the exit status: 0 when all hold, 1 otherwise."""
    width = max(len(claim.what) for claim in claims)
    print()
    for claim in claims:
        bound = f"{'<=' if claim.is_upper else '>='} {claim.bound:g}{claim.unit}"
        print(f"{'holds' if claim.holds else 'FAILS'}  {claim.what:{width}}  {claim.measured:.4g}{claim.unit}  {bound}")
    return 0 if all(claim.holds for claim in claims) else 1
