"""What the engine says about itself, in a process of its own: whatever is wrong with a build ends only that one.

It prints one JSON object per line, each as soon as it is known, so that what was said before the end is not lost.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

#: What the shipped model is asked, and a word of the only right answer.
QUESTION, ANSWER = "What colour is the sky?", "blue"

_COMPUTING = ("cpu", "gpu", "igpu")
_TIMEOUT_S = 300


class Probe(NamedTuple):
    """What it said, by topic ("build", "cpu", "memory", ...), and what ended it too early; None: nothing."""

    facts: dict[str, Any]
    failure: str | None


def probe(command: Sequence[str] | None = None, timeout_s: float = _TIMEOUT_S) -> Probe:
    """Runs it, and returns what it said."""
    # It finds the package where this process did, and nothing in the working directory that this one does not.
    program = f"import sys; sys.path[:] = {sys.path!r}; from pyggml.cli.doctor.probe import main; main()"
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command or [sys.executable, "-c", program], text=True, **pipes) as process:
        try:
            said, complaint = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            return Probe(_facts(process.communicate()[0]), f"it did not end within {timeout_s:.0f} seconds")
    facts = _facts(said)
    is_whole = process.returncode == 0 and "self_test" in facts
    return Probe(facts, None if is_whole else _why(process.returncode, complaint.strip()))


def main() -> None:
    """What the process does."""
    for topic, fact in _topics():
        print(json.dumps({topic: fact}, default=str), flush=True)


def _facts(lines: str) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for line in lines.splitlines():
        try:
            facts |= json.loads(line)
        except ValueError:
            continue  # a line that was cut off, or that a driver printed
    return facts


def _why(code: int, complaint: str) -> str:
    last = complaint.splitlines()[-1] if complaint else "it gave no reason"
    if code >= 0:
        return last.removeprefix("ImportError: ")
    names = {number.value: number.name for number in signal.Signals}
    if code == -signal.SIGILL:
        return "it was ended by SIGILL: the build has instructions that this processor does not know"
    return f"it was ended by {names.get(-code, f'signal {-code}')}" + (f": {last}" if complaint else "")


def _topics() -> Iterator[tuple[str, Any]]:
    import pyggml
    from pyggml import system
    from pyggml.cli.doctor.checks import DEVICE_KINDS

    yield "build", {"pyggml": pyggml.__version__, **dataclasses.asdict(system.build_info())}
    yield "cpu", {**dataclasses.asdict(system.cpu_limits()), "used": system.cpu_features()}
    yield "memory", dataclasses.asdict(system.memory_limits())
    yield "devices", [dataclasses.asdict(device) for device in pyggml.devices()]
    yield "advice", {kind: pyggml.device_advice(kind) for kind in DEVICE_KINDS}
    yield "cache", _cache()
    yield "self_test", [_self_test(device.name) for device in pyggml.devices() if device.type in _COMPUTING]


def _cache() -> dict[str, Any]:
    from pyggml import InvalidParameterError, cache

    try:
        place = cache.cache_dir()
    except InvalidParameterError as error:
        return {"error": str(error)}
    there = next(folder for folder in (place, *place.absolute().parents) if folder.exists())
    sizes, is_writable = [entry.n_bytes for entry in cache.cache_entries()], False
    with contextlib.suppress(OSError), tempfile.TemporaryFile(dir=there):
        is_writable = True
    holds = {"n_models": len(sizes), "size_bytes": sum(sizes)}
    return {"path": str(place), **holds, "free_bytes": shutil.disk_usage(there).free, "writable": is_writable}


def _self_test(device: str) -> dict[str, Any]:
    """What the shipped model answers on a device."""
    import pyggml

    answer, failed = None, None
    try:
        with pyggml.load(device=device) as llm:
            answer = llm.chat([{"role": "user", "content": QUESTION}], max_tokens=20).message.content
    except Exception as error:
        failed = f"{type(error).__name__}: {error}"
    return {"device": device, "right": ANSWER in (answer or "").lower(), "answer": answer, "error": failed}
