"""The interface of fuzzers, and a lookup of them by name."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from fuzz import fuzzers

#: A value that JSON can hold. A case is a list of them, any of which may be left out when it is minimised.
Part = Any


class Finding(Exception):
    """A finding that describes itself better than an exception and its place would.

    Args: its kind, in a few words, and what else is known.
    """


class Fuzzer(Protocol):
    """A module in `fuzz.fuzzers`; its first line of documentation says what it does."""

    #: Of one case, on a busy machine. What takes longer is killed, and counts as a hang.
    MAX_SECONDS: float

    def prepare(self, folder: Path) -> Any:
        """Makes what all cases of a process share; the folder is empty, and the process's own."""

    def make(self, random: np.random.Generator) -> list[Part]:
        """Makes a case up, from nothing but these random numbers."""

    def run(self, prepared: Any, parts: list[Part], folder: Path) -> str:
        """Tries it, in an empty folder that is deleted afterwards; returns what came of it, in a few words.

        What may happen is a result ("generated", "ModelLoadError"). Any exception that leaves is a finding.
        """


def environment(fuzzer: Fuzzer) -> dict[str, str]:
    """Return the extra environment of a fuzzer's processes: its ``environment()``, if it has that function."""
    own = getattr(fuzzer, "environment", None)
    return {} if own is None else cast("dict[str, str]", own())


def names() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(fuzzers.__path__))


def named(name: str) -> Fuzzer:
    return cast(Fuzzer, importlib.import_module(f"fuzz.fuzzers.{name}"))


def case(fuzzer: Fuzzer, seed: int, number: int) -> list[Part]:
    """The case of that number: the same whoever asks, and whenever."""
    return fuzzer.make(np.random.default_rng([seed, number]))
