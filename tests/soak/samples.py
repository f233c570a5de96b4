"""Resources held by a process, a row every few seconds in a CSV file; and a check for growth."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import median

from soak.stress import Holdings

HELD = ("threads", "descriptors", "handles")  # of which there may not be more; memory may differ by MAX_GROWTH
MEMORY = {"rss_bytes": "resident memory", "allocated_bytes": "allocated memory"}
MAX_GROWTH = 0.01
LEAST_PARTS = 6
ALLOCATORS_WARM_S = 1200.0  # what the second part must come after, for its memory to say anything


@dataclass(frozen=True)
class Sample:
    """A row.

    Attributes:
        seconds: since the beginning.
        quiet: nothing was going on, and unused memory had been given back.
        rss_bytes: resident memory; its median under traffic says little, as models come and go.
        allocated_bytes: of it and of what is not resident, what malloc has given out; a leak shows here first.
        threads: of the process.
        descriptors: that are open.
        handles: live native objects, of all kinds.
        requests: that have ended so far.
        tokens: generated so far.
        preemptions: so far, of models that were closed.
    """

    seconds: float
    quiet: bool
    rss_bytes: int
    allocated_bytes: int
    threads: int
    descriptors: int
    handles: int
    requests: int
    tokens: int
    preemptions: int

    @staticmethod
    def now(seconds: float, quiet: bool, requests: int, tokens: int, preemptions: int) -> Sample:
        """Of this process."""
        held = Holdings.now()
        n_handles = sum(held.handles.values())
        return Sample(
            round(seconds, 1), quiet, held.rss_bytes, held.allocated_bytes, held.threads,
            held.descriptors, n_handles, requests, tokens, preemptions,
        )  # fmt: skip


class Totals:
    """Counts of models that come and go: each counts from its own beginning.

    What a model does between the last look and its end is lost.
    """

    def __init__(self) -> None:
        self.counts = [0, 0, 0]
        self._seen: dict[int, tuple[int, ...]] = {}

    def see(self, model: int, counts: tuple[int, int, int]) -> None:
        """Adds what `model`, a number that a later one may have again, has counted since it was seen last."""
        before = self._seen.get(model, (0, 0, 0))
        if before > counts:
            before = (0, 0, 0)  # another model
        self._seen[model] = counts
        self.counts = [total + now - then for total, now, then in zip(self.counts, counts, before, strict=True)]


def writer(file: Path) -> Callable[[Sample], None]:
    """Begins a file; what it returns adds a row, which is on disk when it returns."""
    names = [each.name for each in fields(Sample)]
    file.write_text(",".join(names) + "\n")

    def write(sample: Sample) -> None:
        with file.open("a", newline="") as rows:
            csv.writer(rows).writerow(int(value) if value is True or value is False else value
                                      for value in asdict(sample).values())  # fmt: skip

    return write


def read(file: Path) -> list[Sample]:
    with file.open(newline="") as rows:
        return [
            Sample(float(row.pop("seconds")), row.pop("quiet") == "1", **{name: int(n) for name, n in row.items()})
            for row in csv.DictReader(rows)
        ]


def parts(samples: Sequence[Sample]) -> list[list[Sample]]:
    """Split the samples of silence into hours, or a shorter time into sixths."""
    n = max(LEAST_PARTS, round(samples[-1].seconds / 3600))
    found: list[list[Sample]] = [[] for _ in range(n)]
    for sample in samples:
        if sample.quiet:
            found[min(int(n * sample.seconds / samples[-1].seconds), n - 1)].append(sample)
    return found


def growth(samples: Sequence[Sample]) -> Iterator[str]:
    """Yield what grew: compare the last part with the second, as the first still fills caches."""
    _, early, *_, late = parts(samples)
    if not early or not late:
        yield "too short: nothing was quiet in the second or the last part of the time"
        return
    if early[0].seconds < ALLOCATORS_WARM_S:
        print("too short to judge the memory: allocators and caches were still filling in the second part")
    else:
        for what, name in MEMORY.items():
            before, after = (median(getattr(each, what) for each in part) for part in (early, late))
            if after > before * (1 + MAX_GROWTH):
                yield f"{name}: {before / 1e6:.1f} MB became {after / 1e6:.1f} MB, {after / before - 1:+.1%}"
    for what in HELD:
        # The most of each part, as how many there are depends on which model happens to be loaded; but for a few
        # samples, which met a thread that was about to end.
        first, last = (most_of_the_time([getattr(each, what) for each in part]) for part in (early, late))
        if last > first:
            yield f"{what}: {first:g} became {last:g}"


def most_of_the_time(counts: Sequence[int]) -> int:
    """Return the 90th percentile."""
    return sorted(counts)[(9 * len(counts) - 1) // 10]
