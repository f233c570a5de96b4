"""Cases made from others: those that reached code that none before them had reached are kept, and changed further."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from fuzz import fuzzer
from fuzz.fuzzer import Part
from fuzz.reached import Reached

FRESH = 0.2  # of the cases have nothing of others
LEFT_OUT = 0.2  # of an older case's parts
TAKEN = 0.5  # of a fresh case's parts, at least one
MAX_PARTS = 16  # or they would grow, as most parts do no harm


class Evolution:
    """Of one fuzzer's cases. Kept ones are in a file of the folder, a line each, and another run begins with them."""

    def __init__(self, name: str, seed: int, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.reached = Reached()
        self._module = fuzzer.named(name)
        self._seed = seed
        self._file = folder / f"{name}.jsonl"
        self._older: list[list[Part]] = []
        if self._file.exists():
            self._older = [json.loads(line) for line in self._file.read_text().splitlines()]
        self._kept: list[list[Part]] = []
        self._is_older = False

    def made(self, number: int) -> list[Part]:
        """The next case: one of an earlier run, or what comes of those that were kept."""
        self._is_older = bool(self._older)
        if self._is_older:
            return self._older.pop()
        random = np.random.default_rng([self._seed, number])
        fresh = self._module.make(random)
        if not self._kept or random.random() < FRESH:
            return fresh
        return _crossed(self._kept[int(random.integers(len(self._kept)))], fresh, random)

    def judge(self, case: list[Part], is_finding: bool) -> None:
        """Keeps a case that has just ended, if it reached something new; findings are kept elsewhere."""
        is_new = self.reached.n_new() > 0
        if not is_new and not self.reached.n_seen():
            raise SystemExit("this build does not note what is reached: 'make fuzz-engine' makes one that does")
        if not is_new or is_finding:
            return
        self._kept.append(case)
        if not self._is_older:
            with self._file.open("a") as file:
                print(json.dumps(case), file=file)

    def __str__(self) -> str:
        return f", {self.reached.n_seen()} places reached, {len(self._kept)} cases kept"


def _crossed(kept: list[Part], fresh: list[Part], random: np.random.Generator) -> list[Part]:
    """Most of a kept case, with some of a fresh one's parts among them."""
    parts = [part for part in kept if random.random() >= LEFT_OUT]
    taken = [part for part in fresh if random.random() < TAKEN] or fresh[-1:]
    for part in taken:
        parts.insert(int(random.integers(len(parts) + 1)), part)
    while len(parts) > MAX_PARTS:
        del parts[int(random.integers(len(parts)))]
    return parts
