"""Memory, threads, descriptors, reads and writes that fail: an error each time, and the next call is right again."""

from __future__ import annotations

import errno
import gc
import os
import re
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np

from fuzz import faults
from fuzz.faults import Faults, Kind
from fuzz.faults.scenarios import SCENARIOS, World
from pyggml import lib
from pyggml.errors import EngineError, InferError

MAX_SECONDS = 90.0

#: Scenarios with several requests at once: one may lack memory to be submitted, which is the error of the call, while
#: another's step is given up on.
SEVERAL = ("batch", "generate", "tasks")

#: What gives up in the middle of a step (docs/reference/errors.md), if there is memory to say so.
_ABORT = re.compile("a check inside the engine failed|that of its error message")

environment = faults.environment


class Prepared:
    """The files, the answers when nothing fails, and how many calls could."""

    def __init__(self, folder: Path) -> None:
        os.environ["PYGGML_CACHE"] = str(folder / "cache")
        self.folder = folder
        self.world = World(folder)
        self.faults = Faults()
        self.answers: dict[str, Any] = {}
        self.warm: dict[str, int] = {}
        self.n_calls: dict[tuple[str, Kind], int] = {}

    def clean(self, work: Path) -> None:
        """Makes the folder new, and leaves nothing in the cache of imports."""
        shutil.rmtree(self.folder / "cache", ignore_errors=True)
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()

    def answer(self, name: str, work: Path) -> Any:
        """Run a scenario in a new folder, and return its answer."""
        self.clean(work)
        return SCENARIOS[name](self.world, work)

    def count(self, name: str, kind: Kind, work: Path) -> int:
        """Count the calls of a kind that can fail in a scenario, after a run of it without faults."""
        if name not in self.warm or self.warm[name] != self.world.n_loads:
            self.answer(name, work)  # what is made once and kept, as by the model, does not count
            self.warm[name] = self.world.n_loads
        if name not in self.answers:
            self.answers[name] = self.answer(name, work)
        if (name, kind) not in self.n_calls:
            self.clean(work)
            with self.faults.failing(kind, 0, self.folder) as count:
                SCENARIOS[name](self.world, work)
            self.n_calls[name, kind] = count.calls
        return self.n_calls[name, kind]


def prepare(folder: Path) -> Prepared:
    return Prepared(folder)


def make(random: np.random.Generator) -> list[Any]:
    """A scenario, what fails, and where: as a part of all calls that can."""
    kind = Kind(int(random.choice([int(each) for each in Kind], p=[0.5, 0.1, 0.1, 0.1, 0.15, 0.05])))
    error = int(random.choice(faults.ERRORS.get(kind, (0,))))
    return [
        {
            "scenario": str(random.choice(list(SCENARIOS))),
            "kind": kind.name,
            "at": float(random.random()),
            "lasts": bool(random.integers(2)) and error != errno.EINTR,
            "error": error,
        }
    ]


def run(prepared: Prepared, parts: list[Any], _folder: Path) -> str:
    outcome = "nothing"
    for part in parts:
        outcome = _try(prepared, part, prepared.folder / "work")
    return outcome


def _try(prepared: Prepared, part: dict[str, Any], work: Path) -> str:
    name, kind = part["scenario"], Kind[part["kind"]]
    n_calls = prepared.count(name, kind, work)
    if part["at"] is None:
        return f"{kind.name}: {n_calls} calls"
    if n_calls == 0:
        return f"{kind.name}: no such calls"
    nth = 1 + int(part["at"] * n_calls)
    prepared.clean(work)
    before = _handles()
    answer, may_be_lost = None, False
    with prepared.faults.failing(kind, nth, prepared.folder, lasts=part["lasts"], error=part["error"]) as count:
        try:
            answer = SCENARIOS[name](prepared.world, work)
            outcome = "right"
        except (InferError, MemoryError, OSError, RuntimeError) as error:
            outcome = _allowed(error)
            may_be_lost = isinstance(error, EngineError) or name in SEVERAL or bool(_ABORT.search(str(error)))
            error.__traceback__ = None
    if outcome == "right":
        assert answer == prepared.answers[name], f"{name}: with {count.hits} failures it answers {answer!r:.200}"
    again = _answer_after_loss(prepared, name, work) if may_be_lost else prepared.answer(name, work)
    assert again == prepared.answers[name], f"{name}: after {outcome} it answers {again!r:.200}"
    _require_no_more(before)
    return f"{kind.name}: {outcome}" if count.hits else f"{kind.name}: not reached"


def _answer_after_loss(prepared: Prepared, name: str, work: Path) -> Any:
    """The answer when nothing fails any more, from a model loaded again if the engine asks for that."""
    try:
        return prepared.answer(name, work)
    except EngineError as error:
        if "load the model again" not in str(error):
            raise
        error.__traceback__ = None
    prepared.world.renew()
    return prepared.answer(name, work)


def _allowed(error: BaseException) -> str:
    """The error's name, if it is one that such a failure may have."""
    if type(error) is RuntimeError and "can't start new thread" not in str(error):
        raise error
    if isinstance(error, (InferError, OSError)):
        assert str(error), "an error without a word"
    return type(error).__name__


def _handles() -> dict[int, int]:
    return {kind: lib.pyg_live_handles(kind) for kind in range(lib.PYG_HANDLE_KINDS)}


def _require_no_more(before: dict[int, int]) -> None:
    """No native objects are left over, but those of the model that stays loaded."""
    deadline = time.monotonic() + 2
    while True:
        gc.collect()
        left = {kind: n - before[kind] for kind, n in _handles().items() if n > before[kind]}
        if not left:
            return
        if time.monotonic() > deadline:
            raise AssertionError(f"native objects are left over: {left}")
        time.sleep(0.02)
