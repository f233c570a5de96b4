"""Upstream's own programs to compare with, built from the pinned engine into a scratch folder.

python benchmarks/upstream.py       build all of them now (a few minutes on two cores)
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


def tree() -> Path:
    """The folder of upstream's complete sources, fetched on the first call."""
    path = SCRATCH / "llama.cpp"
    if not path.exists():
        _run(sys.executable, ROOT / "vendor" / "sync.py", "--full", path)
    return path


def quantize(source: Path, target: Path, file_type: int, n_threads: int) -> None:
    """Runs upstream's quantiser, which is part of the engine, on a GGUF file; ``file_type`` is a ``llama_ftype``."""
    code = (
        "import sys; from pyggml import ffi, lib\n"
        "params = ffi.new('llama_model_quantize_params *', lib.llama_model_quantize_default_params())\n"
        "params.ftype, params.nthread = int(sys.argv[3]), int(sys.argv[4])\n"
        "sys.exit(lib.llama_model_quantize(sys.argv[1].encode(), sys.argv[2].encode(), params))"
    )
    _run(sys.executable, "-c", code, source, target, file_type, n_threads)


def _program(name: str) -> Path:
    program = SCRATCH / "build" / "bin" / name
    if program.exists():
        return program
    options = [
        "-DLLAMA_OPENSSL=OFF",
        "-DLLAMA_BUILD_TESTS=OFF",
        "-DLLAMA_BUILD_UI=OFF",
        "-DLLAMA_USE_PREBUILT_UI=OFF",
    ]
    _run("cmake", "-S", tree(), "-B", SCRATCH / "build", "-DCMAKE_BUILD_TYPE=Release", *options)
    _run("cmake", "--build", SCRATCH / "build", "--target", name, "--parallel", "2")
    return program


def _run(*command: object) -> None:
    subprocess.run([str(part) for part in command], check=True)


if __name__ == "__main__":
    for build in (llama_bench, llama_batched_bench, llama_server):
        print(build())
