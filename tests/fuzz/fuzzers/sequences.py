"""Sequences of calls from threads and event loops, with closes, forks, signals, garbage and ends of the interpreter."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from fuzz.fuzzer import Finding
from fuzz.sequences import case

MAX_SECONDS = 600.0  # the server of the cases finds hangs sooner, by a clock that a paused machine does not turn


def prepare(_folder: Path) -> subprocess.Popen[str]:
    """The process that forks one for each case."""
    command = [sys.executable, "-m", "fuzz.sequences.server"]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    _heard(server)
    return server


def make(random: np.random.Generator) -> list[Any]:
    return case.make(random)


def run(prepared: subprocess.Popen[str], parts: list[Any], folder: Path) -> str:
    assert prepared.stdin
    prepared.stdin.write(json.dumps({"steps": parts, "folder": str(folder)}) + "\n")
    prepared.stdin.flush()
    answer = _heard(prepared)
    if "wrong" in answer:
        raise Finding(answer["wrong"], answer["words"])
    return str(answer["outcome"])


def _heard(server: subprocess.Popen[str]) -> dict[str, Any]:
    assert server.stdout
    heard: dict[str, Any] = json.loads(server.stdout.readline())
    return heard
