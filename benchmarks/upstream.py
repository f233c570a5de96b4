"""Upstream's own programs, built from the pinned engine into a scratch folder, to compare with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCRATCH = ROOT / "build" / "upstream"


def llama_bench() -> Path:
    """Path of llama-bench, built on the first call (a few minutes on two cores)."""
    return _program("llama-bench")


def _program(name: str) -> Path:
    program = SCRATCH / "build" / "bin" / name
    if program.exists():
        return program
    tree = SCRATCH / "llama.cpp"
    if not tree.exists():
        _run(sys.executable, ROOT / "vendor" / "sync.py", "--full", tree)
    options = [
        "-DLLAMA_OPENSSL=OFF",
        "-DLLAMA_BUILD_TESTS=OFF",
        "-DLLAMA_BUILD_UI=OFF",
        "-DLLAMA_USE_PREBUILT_UI=OFF",
    ]
    _run("cmake", "-S", tree, "-B", SCRATCH / "build", "-DCMAKE_BUILD_TYPE=Release", *options)
    _run("cmake", "--build", SCRATCH / "build", "--target", name, "--parallel", "2")
    return program


def _run(*command: object) -> None:
    subprocess.run([str(part) for part in command], check=True)
