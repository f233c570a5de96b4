"""Upstream's own programs, built from the pinned engine into a scratch folder, to compare with.

python benchmarks/upstream.py       builds all of them now (some minutes on two cores)
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCRATCH = ROOT / "build" / "upstream"


def llama_bench() -> Path:
    """Path of llama-bench, built on the first call."""
    return _program("llama-bench")


def llama_batched_bench() -> Path:
    """Path of llama-batched-bench, built on the first call."""
    return _program("llama-batched-bench")


def llama_server() -> Path:
    """Path of llama-server, built on the first call."""
    return _program("llama-server")


def decode_speed(model: Path, n_tokens: int, n_threads: int) -> float:
    """Tokens per second that llama-bench decodes: one stream, one repetition after its own warm-up."""
    command = [llama_bench(), "-m", model, "-t", n_threads, "-p", 0, "-n", n_tokens, "-r", 1, "-o", "json"]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout)[0]["avg_ts"])


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


if __name__ == "__main__":
    for build in (llama_bench, llama_batched_bench, llama_server):
        print(build())
