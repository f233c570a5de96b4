"""The command as a user starts it: in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
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
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
        **options,
    )
    return Run(done.returncode, done.stdout, done.stderr)


def fails(code: int, *arguments: object, **options: Any) -> str:
    """Runs a command that must fail in one line without a traceback, and returns that line."""
    done = pyggml(*arguments, **options)
    assert done.code == code, done
    assert done.err.startswith("pyggml"), done.err
    assert done.err.count("\n") == 1, done.err
    return done.err
