"""What the engine says of itself, told by a process of its own: whatever is wrong with a build ends that one only.

It prints one JSON object per line, each as soon as it is known, so that what ends it leaves what came before.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: What the shipped model is asked, and a word of the only right answer.
QUESTION = "What colour is the sky?"
ANSWER = "blue"

_COMPUTING = ("cpu", "gpu", "igpu")
_TIMEOUT_S = 300
_NO_LIMIT = 1 << 60  # the kernel's "none" is near 2**63, less what is used; ours is 2**64 - 1


@dataclass(frozen=True)
class Probe:
    """What came of it.

    Attributes:
        facts: what it told, by topic: "build", "cpu", "memory", "devices", "cache", "advice", "self_test".
        failure: what ended it before it was done; None: nothing.
    """

    facts: dict[str, Any]
    failure: str | None


def probe(command: Sequence[str] | None = None, timeout_s: float = _TIMEOUT_S) -> Probe:
    """Runs it, and returns what it told."""
    try:
        done = subprocess.run(
            command or _command(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s
        )
    except subprocess.TimeoutExpired as error:
        told = error.stdout.decode(errors="replace") if isinstance(error.stdout, bytes) else error.stdout or ""
        return Probe(_facts(told), f"it did not end within {timeout_s:.0f} seconds")
    facts = _facts(done.stdout)
    is_whole = done.returncode == 0 and "self_test" in facts
    return Probe(facts, None if is_whole else _why(done.returncode, done.stderr))


def main() -> None:
    """What the process does."""
    import pyggml

    for topic, fact in _topics(pyggml):
        print(json.dumps({topic: fact}), flush=True)


def _command() -> list[str]:
    # It finds the package where this process did, and nothing in the working directory that this one does not.
    program = f"import sys; sys.path[:] = {sys.path!r}; from pyggml.cli.doctor.probe import main; main()"
    return [sys.executable, "-c", program]


def _facts(lines: str) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for line in lines.splitlines():
        try:
            facts |= json.loads(line)
        except ValueError:
            continue  # a line that was cut off, or that a driver printed
    return facts


def _why(code: int, words: str) -> str:
    last = words.strip().splitlines()[-1] if words.strip() else "it gave no reason"
    if code >= 0:
        return last.removeprefix("ImportError: ")
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    if name == "SIGILL":
        return "it was ended by SIGILL: the build has instructions that this processor does not know"
    return f"it was ended by {name}" + (f": {last}" if words.strip() else "")


def _topics(pyggml: Any) -> Iterator[tuple[str, Any]]:
    from pyggml.backend import device_advice

    yield "build", _build(pyggml)
    yield "cpu", _cpu(pyggml)
    yield "memory", _memory(pyggml)
    yield "devices", [dataclasses.asdict(device) for device in pyggml.devices()]
    yield "advice", {kind: device_advice(kind) for kind in ("cuda", "rocm", "vulkan", "sycl", "mtl")}
    yield "cache", _cache(pyggml)
    yield "self_test", [_self_test(pyggml, device) for device in pyggml.devices() if device.type in _COMPUTING]


def _build(pyggml: Any) -> dict[str, Any]:
    ffi, lib = pyggml.ffi, pyggml.lib
    told = dict(line.split("=", 1) for line in ffi.string(lib.pyg_build_info()).decode().splitlines())
    registries = [lib.ggml_backend_reg_get(index) for index in range(lib.ggml_backend_reg_count())]
    return {
        "pyggml": pyggml.__version__,
        "engine": "llama.cpp " + ffi.string(lib.pyg_engine_build()).decode(),
        "compiler": told["compiler"],
        "build_type": told["build_type"],
        "system": told["system"],
        "portable": told["portable"] == "ON",
        "sanitize": told["sanitize"] or None,
        "options": [name for name in told if name.startswith("GGML_")],
        "backends": [ffi.string(lib.ggml_backend_reg_name(registry)).decode() for registry in registries],
        "module": str(Path(pyggml._ffi._pyggml.__file__).parent),
    }


def _cpu(pyggml: Any) -> dict[str, Any]:
    limits = pyggml.ffi.new("pyg_cpu_limits *")
    pyggml.lib.pyg_cpu_get_limits(limits)
    text = pyggml.ffi.string(pyggml.lib.llama_print_system_info()).decode()
    own = next((part for part in text.split("CPU : ")[1:]), "").split(" : ")[0]
    pairs = [part.split("=") for part in own.split("|") if "=" in part]
    return {
        "n_processors": limits.n_processors or None,
        "n_cores": limits.n_cores,
        "n_quota": limits.n_quota if limits.n_quota < 2**31 - 1 else None,
        "n_usable": pyggml.lib.pyg_cpu_count(),
        "used": [name.strip() for name, value in pairs if value.strip() != "0"],
    }


def _memory(pyggml: Any) -> dict[str, int | None]:
    limits = pyggml.ffi.new("pyg_memory_limits *")
    pyggml.lib.pyg_memory_get_limits(limits)
    names = {"machine": "machine_bytes", "groups": "cgroup_bytes", "address_space": "address_space_bytes"}
    found = {name: getattr(limits, field) for field, name in names.items()}
    known = {name: value if value < _NO_LIMIT else None for name, value in found.items()}
    return {"usable_bytes": pyggml.lib.pyg_memory_available(), **known}


def _cache(pyggml: Any) -> dict[str, Any]:
    from pyggml.importer.cache import cache_dir, cache_entries

    try:
        place = cache_dir()
    except pyggml.InvalidParameterError as error:
        return {"error": str(error)}
    there = next(folder for folder in (place, *place.absolute().parents) if folder.exists())
    entries = cache_entries()
    return {
        "path": str(place),
        "n_models": len(entries),
        "size_bytes": sum(entry.n_bytes for entry in entries),
        "free_bytes": shutil.disk_usage(there).free,
        "writable": _is_writable(there),
    }


def _is_writable(folder: Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _self_test(pyggml: Any, device: Any) -> dict[str, Any]:
    """What the shipped model answers on a device."""
    try:
        with pyggml.load(device=device.name) as llm:
            answer = llm.chat([{"role": "user", "content": QUESTION}], max_tokens=20).message.content
    except Exception as error:
        return {"device": device.name, "right": False, "answer": None, "error": f"{type(error).__name__}: {error}"}
    return {"device": device.name, "right": ANSWER in answer.lower(), "answer": answer, "error": None}
