"""The command as a user starts it: in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Run:
    """What became of it."""

    code: int
    out: str
    err: str


def pyggml(*arguments: object, stdin: str = "", env: dict[str, str] | None = None, **options: Any) -> Run:
    """Runs ``pyggml arguments``; its output is no terminal."""
    done = subprocess.run(
        [sys.executable, "-m", "pyggml", *map(str, arguments)],
        input=stdin,
        env={**_inherited(), **(env or {})},
        capture_output=True,
        text=True,
        check=False,
        **options,
    )
    return Run(done.returncode, done.stdout, done.stderr)


def _inherited() -> dict[str, str]:
    """The environment without the width of a terminal, which processes of pytest-xdist have."""
    return {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}


def fails(code: int, *arguments: object, **options: Any) -> str:
    """Runs a command that must fail in one line without a traceback, and returns that line."""
    done = pyggml(*arguments, **options)
    assert done.code == code, done
    assert done.err.startswith("pyggml"), done.err
    assert done.err.count("\n") == 1, done.err
    return done.err


def interrupted(*arguments: object, once: Callable[[], object], by: signal.Signals = signal.SIGINT) -> Run:
    """Starts a command, and sends it a signal, that of Ctrl-C, when ``once()`` says so."""
    command = [sys.executable, "-m", "pyggml", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while not once():
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        process.send_signal(by)
        out, err = process.communicate()
    return Run(process.returncode, out, err)
