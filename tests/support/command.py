"""The command as a user starts it, in a separate process; or in this one, where only its output counts."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Any
from unittest import mock

import pytest

from pyggml.cli import main


@dataclass(frozen=True)
class Run:
    """The result of a command."""

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


def called(*arguments: object, stdin: str = "", env: dict[str, str] | None = None, errors: str = "strict") -> Run:
    """Run the command as :func:`pyggml` does, but in this process, without the half second that a new one needs.

    Made for what fails early; how Python itself starts and ends, and its settings in the environment, it leaves out.
    """
    with contextlib.ExitStack() as stack:
        enter = stack.enter_context
        typed, out, err = (enter(tempfile.TemporaryFile(buffering=0)) for _ in range(3))  # noqa: SIM115
        typed.write(stdin.encode(errors=errors))
        typed.seek(0)
        enter(_signal_handlers_kept())
        enter(mock.patch.dict(os.environ, {**_inherited(), **(env or {})}, clear=True))
        enter(mock.patch.object(sys, "argv", ["pyggml", *map(str, arguments)]))
        enter(_standing_in("stdin", 0, typed))
        enter(_standing_in("stdout", 1, out))
        enter(_standing_in("stderr", 2, err))
        with pytest.raises(SystemExit) as ended:
            main()
        code = ended.value.code
        sys.stdout.flush()
        sys.stderr.flush()
        assert isinstance(code, int), code
        return Run(code, _text_of(out), _text_of(err))


@contextlib.contextmanager
def _standing_in(name: str, descriptor: int, file: IO[bytes]) -> Iterator[None]:
    """Lets a file be ``sys.stdin`` or the like and its descriptor, which the engine uses."""
    kept = os.dup(descriptor)
    os.dup2(file.fileno(), descriptor)
    try:
        mode = "r" if descriptor == 0 else "w"
        with open(descriptor, mode, encoding="utf-8", closefd=False) as stream, mock.patch.object(sys, name, stream):
            yield
    finally:
        os.dup2(kept, descriptor)
        os.close(kept)


@contextlib.contextmanager
def _signal_handlers_kept() -> Iterator[None]:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _text_of(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


def fails(code: int, *arguments: object, by: Callable[..., Run] = called, **options: Any) -> str:
    """Runs a command that must fail in one line without a traceback, and returns that line."""
    done = by(*arguments, **options)
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
