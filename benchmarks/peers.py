"""Other Python bindings of llama.cpp to compare with, each in its own environment in a scratch folder.

python benchmarks/peers.py       build them now (compiles for about ten minutes on two cores)
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRATCH = Path(__file__).resolve().parent.parent / "build" / "peers"

LLAMA_CPP_PYTHON = "0.3.36"


def llama_cpp_python() -> Path:
    """Path of a Python interpreter with llama-cpp-python, compiled for this machine's CPU on the first call."""
    return _environment("llama-cpp-python", LLAMA_CPP_PYTHON, cmake_args="-DLLAVA_BUILD=OFF")


def _environment(package: str, version: str, cmake_args: str) -> Path:
    folder = SCRATCH / f"{package}-{version}"
    python = folder / "bin" / "python"
    complete = folder / "complete"
    if not complete.exists():
        _run(sys.executable, "-m", "venv", "--clear", folder)
        install = [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-binary", package]
        _run(*install, f"{package}=={version}", CMAKE_ARGS=cmake_args, CMAKE_BUILD_PARALLEL_LEVEL="2")
        complete.touch()
    return python


def _run(*command: object, **variables: str) -> None:
    subprocess.run([str(part) for part in command], check=True, env=os.environ | variables)


if __name__ == "__main__":
    print(llama_cpp_python())
