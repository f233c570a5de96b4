"""Starts of an engine process that fail or are interrupted: no process is left, and no caller waits forever."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from isolation.test_isolate import engines, is_gone, linux
from support.event_loops import until
from support.interrupts import interrupted

import pyggml
from pyggml.isolation import Isolated
from pyggml.options import LoadOptions

N_POINTS = 120  # of the start; what follows is a call like any other


@pytest.mark.slow
@linux
def test_ctrl_c_while_it_is_started() -> None:
    before, n_threads = engines(), threading.active_count()
    path, options = Path(pyggml.SHIPPED_MODEL), LoadOptions(isolate=True, n_threads=1)

    def load() -> None:
        Isolated(path, options).close()

    places = []
    for place, error in itertools.islice(interrupted(load), N_POINTS):
        assert type(error) is KeyboardInterrupt, (place, error)
        error.__traceback__ = None
        until(lambda: threading.active_count() == n_threads)
        assert engines() == before, place
        places.append(place)
    assert any("process.py" in place for place in places)


DYING = """
import os, signal, sys
from pathlib import Path
import pyggml

def die(fraction):
    for task in Path("/proc/self/task").iterdir():
        print(*(task / "children").read_text().split(), flush=True)
    os.kill(os.getpid(), int(sys.argv[1]))

pyggml.load(isolate=True, n_threads=1, progress=die)
"""


@pytest.mark.slow
@linux
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_a_signal_to_the_program_while_it_loads(number: signal.Signals) -> None:
    done = subprocess.run(
        [sys.executable, "-c", DYING, str(int(number))], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == -number, done.stderr
    (pid,) = {int(word) for word in done.stdout.split()}
    until(lambda: is_gone(pid))
    assert ("KeyboardInterrupt" in done.stderr) == (number == signal.SIGINT)


def test_a_process_that_ends_before_it_says_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyggml.isolation.process._WORKER", "pyggml.no_such_module")
    with pytest.raises(
        pyggml.EngineError, match=r"ended with status 1; its last output: .*no_such_module.* while it loaded"
    ):
        pyggml.load(isolate=True)


@pytest.mark.slow
def test_no_room_for_its_last_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = threading.active_count()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "not there"))
    with pytest.raises(pyggml.EngineError, match=r"the engine's process could not be started: .*not there"):
        pyggml.load(isolate=True)
    until(lambda: threading.active_count() == before)
