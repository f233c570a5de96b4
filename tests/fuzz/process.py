"""Run cases in a separate process, and report how it ended when it did."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from fuzz.fuzzer import Fuzzer, Part, environment

TESTS = Path(__file__).resolve().parent.parent
START_SECONDS = 120.0
MAX_MEMORY = 3 << 30  # resident; a case that takes more would end another machine
LOOK_SECONDS = 0.2


@dataclass(frozen=True)
class Result:
    """The result of a case.

    Attributes:
        outcome: in a few words; those that are the same are counted together.
        is_finding: it must not happen.
        words: what else is known.
    """

    outcome: str
    is_finding: bool = False
    words: str = ""


def _share_of_a_core() -> float:
    """Estimate a process's share of a core on an overloaded machine."""
    return min(1.0, (os.cpu_count() or 1) / max(os.getloadavg()[0], 0.1))


class Process:
    """A child that is started again when it has died."""

    def __init__(self, name: str, fuzzer: Fuzzer, seed: int, reached: Path | None = None) -> None:
        """`reached`: a file in which the library notes what is reached (reached.py)."""
        self._command = [sys.executable, "-m", "fuzz.child", name, str(seed)]
        self._max_seconds = fuzzer.MAX_SECONDS
        self._environment = {**os.environ, "PYTHONFAULTHANDLER": "1", **environment(fuzzer)}
        if reached:
            self._environment["PYGGML_REACHED"] = str(reached)
        self._child: subprocess.Popen[bytes] | None = None
        self._heard = b""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 -- closed by __exit__

    def __enter__(self) -> Process:  # noqa: PYI034 -- Self is not in Python 3.10
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._errors.close()

    def stop(self) -> None:
        """Ends the child; the next case has a new one."""
        if self._child:
            self._child.kill()
            self._child.communicate()
        self._child, self._heard = None, b""

    def run(self, case: int | list[Part]) -> Result:
        """Tries a case: one of the seed's, by its number, or these parts."""
        if self._child is None:
            self._start()
        assert self._child
        assert self._child.stdin
        try:
            self._child.stdin.write(json.dumps(case).encode() + b"\n")
            self._child.stdin.flush()
        except BrokenPipeError:
            return self._died()
        return self._listen(self._max_seconds)

    def _start(self) -> None:
        self._errors.seek(0)
        self._errors.truncate()
        self._child = subprocess.Popen(
            self._command,
            cwd=TESTS,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=self._environment,
        )
        ready = self._listen(START_SECONDS)
        if ready.is_finding:
            raise RuntimeError(f"the fuzzer does not start: {ready.outcome}: {ready.words}")

    def _listen(self, seconds: float) -> Result:
        assert self._child
        assert self._child.stdout
        waited, looked = 0.0, time.monotonic()
        while b"\n" not in self._heard:
            now = time.monotonic()
            waited += min(now - looked, 5 * LOOK_SECONDS) * _share_of_a_core()  # and if it was stopped, hardly at all
            looked = now
            if waited > seconds:
                return self._killed("hang", signal.SIGABRT)  # Python's faulthandler says where
            if self._memory() > MAX_MEMORY:
                return self._killed("memory", signal.SIGABRT)
            if select.select([self._child.stdout], [], [], LOOK_SECONDS)[0]:
                heard = os.read(self._child.stdout.fileno(), 1 << 16)
                if not heard:
                    return self._died()
                self._heard += heard
        line, _, self._heard = self._heard.partition(b"\n")
        answer = json.loads(line)
        if "wrong" in answer:
            return Result(answer["wrong"], True, answer["words"])
        return Result(answer.get("outcome", "ready"))

    def _memory(self) -> int:
        assert self._child
        try:
            pages = Path(f"/proc/{self._child.pid}/statm").read_text().split()[1]
        except OSError:
            return 0
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def _died(self) -> Result:
        assert self._child
        code = self._child.wait()
        name = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        return self._finding(name)

    def _killed(self, why: str, number: signal.Signals) -> Result:
        assert self._child
        self._child.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):  # stop() kills it
            self._child.wait(timeout=5)
        return self._finding(why)

    def _finding(self, outcome: str) -> Result:
        self.stop()
        self._errors.seek(0)
        words = self._errors.read().decode(errors="replace")
        return Result(outcome, True, words[-4000:])
