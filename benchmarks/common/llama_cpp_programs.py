"""Upstream's own programs to compare with, built from the pinned engine into a scratch folder.

    python benchmarks/common/llama_cpp_programs.py                 build all of them now (a few minutes on two cores)
    python benchmarks/common/llama_cpp_programs.py --for-devices   those that benchmarks/gpu.py compares with
    python benchmarks/common/llama_cpp_programs.py --pack FILE     the same as an archive (.tar.xz), with vocabularies

Programs for devices are built without any backend, and use the modules of the pyggml that is installed: both sides run
the same kernels, and CUDA's, which take most of the time to compile, are compiled once. They run on any machine of this
kind of processor with this C library or a later one: ``--programs`` of gpu.py takes the archive or its folder.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
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
    f"-DCMAKE_PROJECT_llama.cpp_INCLUDE={Path(__file__).with_name('upstream_unity.cmake')}",
    "-DCMAKE_BUILD_TYPE=Release",
    "-DLLAMA_OPENSSL=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
)
_WITHOUT_BACKENDS = (
    "-DGGML_BACKEND_DL=ON",
    "-DGGML_NATIVE=OFF",
    "-DGGML_CPU=OFF",
    "-DCMAKE_BUILD_RPATH_USE_ORIGIN=ON",
)
_FOR_DEVICES = ("llama-bench", "llama-batched-bench", "llama-server")
#: Of the models that gpu.py measures, by default and to be tried.
_VOCABULARIES = ("llama-bpe", "qwen2", "starcoder")


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


def for_devices(modules: Path, programs: Path | None = None) -> Path:
    """A folder with upstream's programs that use a package's backends; built on the first call.

    Args:
        modules: the folder of an installed pyggml whose backends are loadable modules.
        programs: an archive of :func:`pack` or its folder, in place of building them.

    Raises:
        FileNotFoundError: they are not.
    """
    backends = sorted(modules.glob("libggml-*.so"))
    if not backends:
        raise FileNotFoundError(f"{modules} has no libggml-*.so: build pyggml with a GPU or with PYGGML_PORTABLE=ON")
    folder = unpack(programs) if programs else build_for_devices()
    own = {path.name for path in backends} | {"libggml-base.so"}
    for path in folder.glob("libggml-*.so"):
        if path.name not in own:
            path.unlink()
    for backend in backends:
        if not _is_copy(folder / backend.name, backend):
            shutil.copy2(backend, folder)
    # The modules need our ggml-base by its name. As a link to upstream's, which the program has loaded already, it is
    # that same library to the loader, so that the process has one.
    for needed in modules.glob("lib*ggml-base.so"):
        link = folder / needed.name
        link.unlink(missing_ok=True)
        link.symlink_to("libggml-base.so")
    return folder


def pack(archive: Path) -> None:
    """Write the programs for devices with their libraries, stripped, and the vocabularies of models for measuring."""
    folder = build_for_devices()
    with tempfile.TemporaryDirectory() as scratch:
        chosen = Path(scratch) / "bin"
        chosen.mkdir()
        for path in sorted(folder.iterdir()):
            is_module = path.name.startswith("libggml-") and not path.name.startswith("libggml-base.so")
            if (path.name in _FOR_DEVICES or ".so" in path.name) and not is_module and "pyggml" not in path.name:
                shutil.copy2(path, chosen, follow_symlinks=False)
        _run("strip", "--strip-unneeded", *(path for path in chosen.iterdir() if not path.is_symlink()))
        with tarfile.open(archive, "w:xz") as tar:
            tar.add(chosen, "bin")
            for name in _VOCABULARIES:
                tar.add(
                    ROOT / "vendor" / "llama.cpp" / "models" / f"ggml-vocab-{name}.gguf",
                    f"models/ggml-vocab-{name}.gguf",
                )


def unpack(programs: Path) -> Path:
    """The programs of an archive of :func:`pack` or of its folder, copied to where a package's modules join them."""
    carried = SCRATCH / "carried"
    stamp = carried / "from"
    origin = f"{programs} {programs.stat().st_mtime}"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != origin:
        shutil.rmtree(carried, ignore_errors=True)
        if programs.is_dir():
            shutil.copytree(programs, carried, symlinks=True)
        else:
            with tarfile.open(programs) as tar:
                tar.extractall(carried)
        stamp.write_text(origin, encoding="utf-8")
    return carried / "bin"


def _is_copy(path: Path, original: Path) -> bool:
    if not path.exists():
        return False
    one, other = path.stat(), original.stat()
    return (one.st_size, int(one.st_mtime)) == (other.st_size, int(other.st_mtime))


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
    elif "--pack" in sys.argv:
        pack(Path(sys.argv[2]))
    else:
        for build in (llama_bench, llama_batched_bench, llama_server):
            print(build())
