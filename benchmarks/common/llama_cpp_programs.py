"""Upstream's own programs to compare with, built from the pinned engine into a scratch folder.

    python benchmarks/common/llama_cpp_programs.py                 build all of them now (a few minutes on two cores)
    python benchmarks/common/llama_cpp_programs.py --for-devices   the two that benchmarks/gpu.py compares with

Programs for devices are built without any backend, and use the modules of the pyggml that is installed: both sides run
the same kernels, and CUDA's, which take most of the time to compile, are compiled once.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRATCH = ROOT / "build" / "upstream"

_AMX_FIX = ROOT / "csrc" / "kernels" / "backend" / "upstream_amx.h"
#: Without the header, what gcc makes of upstream's code for AMX ends the process; it says why. This takes the place of
#: CXXFLAGS, which therefore follow.
AMX_FLAGS = f"-DCMAKE_CXX_FLAGS=-include {_AMX_FIX} {os.environ.get('CXXFLAGS', '')}"

_OPTIONS = (
    AMX_FLAGS,
    "-DCMAKE_BUILD_TYPE=Release",
    "-DLLAMA_OPENSSL=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
)
_WITHOUT_BACKENDS = ("-DGGML_BACKEND_DL=ON", "-DGGML_NATIVE=OFF", "-DGGML_CPU=OFF", "-DLLAMA_BUILD_SERVER=OFF")
_FOR_DEVICES = ("llama-bench", "llama-batched-bench")


def llama_bench() -> Path:
    """Path of llama-bench, built on the first call."""
    return _program("llama-bench")


def llama_batched_bench() -> Path:
    """Path of llama-batched-bench, built on the first call."""
    return _program("llama-batched-bench")


def llama_server() -> Path:
    """Path of llama-server, built on the first call."""
    return _program("llama-server")


def llama_simple() -> Path:
    """Path of llama-simple, upstream's smallest greedy loop, built on the first call."""
    return _program("llama-simple")


def decode_speed(model: Path, n_tokens: int, n_threads: int) -> float:
    """Tokens per second that llama-bench decodes: one stream, one repetition after its own warm-up."""
    return bench(llama_bench(), model, n_threads, n_prompt=0, n_tokens=n_tokens)


def bench(program: Path, model: Path, n_threads: int, n_prompt: int, n_tokens: int) -> float:
    """Tokens per second of a llama-bench, upstream's or a fork's, after its own warm-up.

    One of ``n_prompt``, tokens of the prompt that it computes, and ``n_tokens``, which it decodes in one stream, is 0.
    """
    command = [program, "-m", model, "-t", n_threads, "-p", n_prompt, "-n", n_tokens, "-r", 1, "-o", "json"]
    printed = _output(program, command)
    results, _end = json.JSONDecoder().raw_decode(printed, printed.index("["))
    return float(results[0]["avg_ts"])


def batched_bench(
    program: Path, model: Path, n_threads: int, n_streams: Sequence[int], n_prompt: int, n_tokens: int
) -> list[float]:
    """Tokens per second that so many streams decode together, after a prompt each, in a llama-batched-bench."""
    n_ctx = max(n_streams) * (n_prompt + n_tokens)
    command = [program, "-m", model, "-t", n_threads, "-tb", n_threads, "-c", n_ctx, "-npp", n_prompt, "-ntg", n_tokens]
    command += ["-npl", ",".join(map(str, n_streams))]
    # | PP | TG | B | N_KV | T_PP s | S_PP t/s | T_TG s | S_TG t/s | ...; forks have no other format.
    rows = [[cell.strip() for cell in line.split("|")[1:]] for line in _output(program, command).splitlines()]
    speeds = {int(row[2]): float(row[7]) for row in rows if len(row) > 9 and row[2].isdecimal()}
    return [speeds[n] for n in n_streams]


def _output(program: Path, command: Sequence[object]) -> str:
    """Return the output of a program. It runs in its own folder, because some programs write a log."""
    words = [str(part) for part in command]
    done = subprocess.run(words, cwd=program.parent, capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


def tree() -> Path:
    """The folder of upstream's complete sources, fetched on the first call."""
    path = SCRATCH / "llama.cpp"
    if not path.exists():
        _run(sys.executable, ROOT / "vendor" / "sync.py", "--full", path)
    return path


def quantize(source: Path, target: Path, file_type: int, n_threads: int) -> None:
    """Run upstream's quantiser, which is part of the engine, on a GGUF file; ``file_type`` is a ``llama_ftype``."""
    code = (
        "import sys; from pyggml import ffi, lib\n"
        "params = ffi.new('llama_model_quantize_params *', lib.llama_model_quantize_default_params())\n"
        "params.ftype, params.nthread = int(sys.argv[3]), int(sys.argv[4])\n"
        "sys.exit(lib.llama_model_quantize(sys.argv[1].encode(), sys.argv[2].encode(), params))"
    )
    _run(sys.executable, "-c", code, source, target, file_type, n_threads)


def build_for_devices() -> Path:
    """Build those programs, without modules yet, and return their folder."""
    return _build("devices", _FOR_DEVICES, _WITHOUT_BACKENDS)


def for_devices(modules: Path) -> Path:
    """A folder with llama-bench and llama-batched-bench that use a package's backends; built on the first call.

    Args:
        modules: the folder of an installed pyggml whose backends are loadable modules.

    Raises:
        FileNotFoundError: they are not.
    """
    backends = sorted(modules.glob("libggml-*.so"))
    if not backends:
        raise FileNotFoundError(f"{modules} has no libggml-*.so: build pyggml with a GPU or with PYGGML_PORTABLE=ON")
    folder = build_for_devices()
    for old in set(folder.glob("libggml-*.so")) - {folder / "libggml-base.so"}:
        old.unlink()
    for backend in backends:
        shutil.copy2(backend, folder)
    # The modules need our ggml-base by its name. As a link to upstream's, which the program has loaded already, it is
    # that same library to the loader, so that the process has one.
    for needed in modules.glob("lib*ggml-base.so"):
        link = folder / needed.name
        link.unlink(missing_ok=True)
        link.symlink_to("libggml-base.so")
    return folder


def _program(name: str) -> Path:
    return _build("build", [name], ()) / name


def _build(name: str, programs: Sequence[str], options: Sequence[str]) -> Path:
    """The folder with programs, built on the first call."""
    folder = SCRATCH / name
    missing = [program for program in programs if not (folder / "bin" / program).exists()]
    if missing:
        # The interpreter's own cmake, if it has one, even outside of an activated environment.
        cmake = shutil.which("cmake", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}") or "cmake"
        _run(cmake, "-S", tree(), "-B", folder, *_OPTIONS, *options)
        _run(cmake, "--build", folder, "--target", *missing, "--parallel", os.cpu_count() or 2)
    return folder / "bin"


def _run(*command: object) -> None:
    subprocess.run([str(part) for part in command], check=True)


if __name__ == "__main__":
    if "--for-devices" in sys.argv:
        print(build_for_devices())
    else:
        for build in (llama_bench, llama_batched_bench, llama_server):
            print(build())
