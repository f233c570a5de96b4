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
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from pyggml.child_process import child_command

_QUESTION, _ANSWER = "What colour is the sky?", "blue"
_TIMEOUT_S = 300


class Probe(NamedTuple):
    """What the engine said, by topic ("build", "cpu", "memory", ...), and what ended it too early; None: nothing."""

    facts: dict[str, Any]
    failure: str | None


def probe(command: Sequence[str] | None = None, timeout_s: float = _TIMEOUT_S) -> Probe:
    """Runs the process, and returns what it said."""
    command = command or child_command(__name__)
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired as late:
        return Probe(_facts(late.stdout or b""), f"it did not end within {timeout_s:.0f} seconds")
    facts = _facts(done.stdout)
    is_whole = done.returncode == 0 and "self_test" in facts
    return Probe(facts, None if is_whole else _why(done.returncode, done.stderr.decode(errors="replace").split("\n")))


def main() -> None:
    """What the process does."""
    for topic, fact in _topics():
        print(json.dumps({topic: fact}, default=str), flush=True)


def _facts(lines: bytes) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for line in lines.splitlines():
        with contextlib.suppress(ValueError):  # a line that was cut off, or that a driver printed
            facts |= json.loads(line)
    return facts


def _why(code: int, complaint: Sequence[str]) -> str:
    last = next((line for line in reversed(complaint) if line.strip()), "it gave no reason")
    if code >= 0:
        return last.removeprefix("ImportError: ")
    if code == -signal.SIGILL:
        return "it was ended by SIGILL: the build has instructions that this processor does not know"
    names = {number.value: number.name for number in signal.Signals}
    return f"it was ended by {names.get(-code, f'signal {-code}')}: {last}"


def _topics() -> Iterator[tuple[str, Any]]:
    import pyggml
    from pyggml import system

    yield "build", {"pyggml": pyggml.__version__, **dataclasses.asdict(system.build_info())}
    yield "cpu", {**dataclasses.asdict(system.cpu_limits()), "used": system.cpu_features()}
    yield "memory", dataclasses.asdict(system.memory_limits())
    devices = pyggml.devices()
    yield "devices", [dataclasses.asdict(device) for device in devices]
    yield "cache", _cache()
    yield "self_test", [_self_test(device.name) for device in devices if device.type in ("cpu", "gpu", "igpu")]


def _cache() -> dict[str, Any]:
    from pyggml import InvalidParameterError, cache

    try:
        place = cache.cache_dir()
    except InvalidParameterError as error:
        return {"writable": False, "error": str(error)}
    there = next(folder for folder in (place, *place.absolute().parents) if folder.exists())
    sizes, free = [entry.n_bytes for entry in cache.cache_entries()], shutil.disk_usage(there).free
    facts = {"path": str(place), "n_models": len(sizes), "size_bytes": sum(sizes), "free_bytes": free}
    try:
        tempfile.TemporaryFile(dir=there).close()
    except OSError as error:
        return {**facts, "writable": False, "error": f"{place} cannot be written to: {error.strerror}"}
    return {**facts, "writable": True}


def _self_test(device: str) -> dict[str, Any]:
    """What the shipped model answers on a device."""
    import pyggml

    answer, failed = "", None
    try:
        with pyggml.load(device=device) as llm:
            answer = llm.chat([{"role": "user", "content": _QUESTION}], max_tokens=20).message.content or ""
    except Exception as error:
        failed = f"{type(error).__name__}: {error}"
    return {"device": device, "right": _ANSWER in answer.lower(), "answer": answer, "error": failed}
