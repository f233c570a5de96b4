"""Probe of the engine in a separate process: a crash of a broken build cannot take down the command.

The process prints one JSON object per line, each as soon as it is known, so that a crash loses no earlier facts.
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
    """Facts of the engine by topic ("build", "cpu", "memory", ...), and the error that stopped it; None: none."""

    facts: dict[str, Any]
    failure: str | None


def probe(command: Sequence[str] | None = None, timeout_s: float = _TIMEOUT_S) -> Probe:
    """Run the process, and return its facts."""
    command = command or child_command(__name__)
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired as late:
        return Probe(_facts(late.stdout or b""), f"timeout after {timeout_s:.0f} seconds")
    facts = _facts(done.stdout)
    if done.returncode == 0 and "self_test" in facts:
        return Probe(facts, None)
    return Probe(facts, _failure(done.returncode, done.stderr.decode(errors="replace").split("\n")))


def main() -> None:
    """Print the facts, one topic per line."""
    for topic, fact in _topics():
        print(json.dumps({topic: fact}, default=str), flush=True)


def _facts(lines: bytes) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for line in lines.splitlines():
        with contextlib.suppress(ValueError):  # a truncated line, or output of a driver
            facts |= json.loads(line)
    return facts


def _failure(code: int, stderr: Sequence[str]) -> str:
    last = next((line for line in reversed(stderr) if line.strip()), "no error message")
    if code >= 0:
        return last.removeprefix("ImportError: ")
    if code == -signal.SIGILL:
        return "crashed with SIGILL: the build uses instructions that this processor lacks"
    names = {number.value: number.name for number in signal.Signals}
    return f"crashed with {names.get(-code, f'signal {-code}')}: {last}"


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
        folder = cache.cache_dir()
    except InvalidParameterError as error:
        return {"writable": False, "error": str(error)}
    existing = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    sizes, free = [entry.n_bytes for entry in cache.cache_entries()], shutil.disk_usage(existing).free
    facts = {"path": str(folder), "n_models": len(sizes), "size_bytes": sum(sizes), "free_bytes": free}
    try:
        tempfile.TemporaryFile(dir=existing).close()
    except OSError as error:
        return {**facts, "writable": False, "error": f"{folder} is not writable: {error.strerror}"}
    return {**facts, "writable": True}


def _self_test(device: str) -> dict[str, Any]:
    """Run the shipped model on a device."""
    import pyggml

    answer, failed = "", None
    try:
        with pyggml.load(device=device) as llm:
            answer = llm.chat([{"role": "user", "content": _QUESTION}], max_tokens=20).message.content or ""
    except Exception as error:
        failed = f"{type(error).__name__}: {error}"
    return {"device": device, "right": _ANSWER in answer.lower(), "answer": answer, "error": failed}
