"""Compile the core's C++ for systems that this machine is not: Windows, macOS, and Linux with musl.

    python tools/cross_check.py [--targets aarch64-macos ...] [--jobs 2]

Compiles each source file of our own, with warnings as errors, by zig's clang against the headers of the target: that
a file compiles says that it uses no function that the system lacks. Left out are the parts that are compiled together
with the engine's own sources, which decide themselves what a system gets. For Windows, the C++ tests that need nothing
of the engine are linked as well, and run if Wine is installed.

zig has no headers of macOS's frameworks; our sources use none.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from zig_compiler import translated, zig_path

ROOT = Path(__file__).resolve().parent.parent
CSRC = ROOT / "csrc"
ENGINE = ROOT / "vendor" / "llama.cpp"

WARNINGS = ("-Wall", "-Wextra", "-Werror")
LANGUAGE = ("-std=c++17", "-O0", "-c")
INCLUDES = ("include", "src", "common", "vendor", "ggml/include", "ggml/src", "ggml/src/ggml-cpu", "ggml/src/ggml-rpc")
KERNEL_OPTIONS = ("-ffp-contract=off", "-Wno-unused-function", "-Wno-uninitialized")
DEFINITIONS = ('-DPYGGML_VERSION="0"', '-DPYGGML_ENGINE_BUILD="b0"', '-DPYGGML_BUILD_INFO=""')


WINDOWS = "x86_64-windows-gnu"
_SCHEDULING = tuple(f"engine/scheduling/{name}.cpp" for name in ("scheduler", "prefix_cache", "checkpoints"))
# Tests that need nothing of the engine -> the sources that they test.
WINDOWS_TESTS = {
    "engine/test_repetition": ("engine/repetition.cpp",),
    "engine/test_scheduler": _SCHEDULING,
    "engine/test_scheduler_random": _SCHEDULING,
    "kernels/test_work_shares": (),
    "platform/test_platform": (
        "platform/windows.cpp",
        "platform/windows_sockets.cpp",
        "platform/faults_elsewhere.cpp",
    ),
}


@dataclass(frozen=True)
class Target:
    """A system to compile for.

    Attributes:
        triple: as zig names it.
        flags: instruction set of the kernels.
        system: beginnings of the names of its files in csrc/platform.
    """

    triple: str
    flags: Sequence[str]
    system: Sequence[str]


_AVX2 = ("-mavx2", "-mfma", "-mf16c")
_ARM = ("-march=armv8.2-a+dotprod",)
_LINUX = ("linux", "posix")
_MACOS = ("faults_elsewhere", "pages_elsewhere", "macos", "posix")
_WINDOWS = ("faults_elsewhere", "pages_elsewhere", "windows")

TARGETS = {
    target.triple: target
    for target in (
        Target(WINDOWS, _AVX2, _WINDOWS),
        Target("x86_64-macos", _AVX2, _MACOS),
        Target("aarch64-macos", _ARM, _MACOS),
        Target("x86_64-linux-musl", _AVX2, _LINUX),
        Target("aarch64-linux-musl", _ARM, _LINUX),
    )
}


def listed_sources(cmake_file: Path, variable: str) -> list[str]:
    """Return the source files of a list in one of csrc's CMakeLists.txt, relative to its folder."""
    found = re.search(rf"set\({variable}\n(.*?)\)", cmake_file.read_text(encoding="utf-8"), re.DOTALL)
    assert found, f"{cmake_file} sets {variable}"
    return re.findall(r"\S+\.cpp", found[1])


def sources_of(target: Target) -> Iterator[tuple[Path, Sequence[str]]]:
    """Yield the files to compile for a target, each with its own flags."""
    for name in listed_sources(CSRC / "CMakeLists.txt", "PYGGML_CORE_SOURCES"):
        yield CSRC / name, ()
    for name in ("connection.cpp", "protocol.cpp", "transport.cpp"):
        yield CSRC / "remote" / name, ()
    kernels = listed_sources(CSRC / "kernels" / "CMakeLists.txt", "kernels")
    kernels += listed_sources(CSRC / "kernels" / "CMakeLists.txt", "multiply_row_groups")
    for name in kernels:
        yield CSRC / "kernels" / name, (*target.flags, *KERNEL_OPTIONS)
    for path in sorted((CSRC / "platform").glob("*.cpp")):
        if path.name.startswith(tuple(target.system)):
            yield path, ()


def main() -> None:
    """Compile for each target, and print the time that it took."""
    parser = argparse.ArgumentParser(description="Compiles the core's C++ for other systems.")
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=list(TARGETS), metavar="TRIPLE")
    parser.add_argument("--jobs", type=int, default=2, help="compilers at a time (default: 2)")
    options = parser.parse_args()
    failed = [name for name in options.targets if not compile_all(TARGETS[name], options.jobs)]
    if failed:
        sys.exit(f"does not compile for {', '.join(failed)}")
    if WINDOWS in options.targets:
        run_windows_tests()


def compile_all(target: Target, jobs: int) -> bool:
    """Compile all files for a target; return True if all compile."""
    started = time.monotonic()
    groups = list(unity_groups(target))
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        tasks = [pool.submit(compile_group, target, *group, Path(folder, f"{i}.cpp")) for i, group in enumerate(groups)]
        messages = [task.result() for task in tasks]
    print("".join(messages), end="")
    n_files = sum(len(files) for files, _ in groups)
    state = "does not compile" if any(messages) else "compiles"
    print(f"{target.triple}: {state}, {n_files} files, {time.monotonic() - started:.0f} s", flush=True)
    return not any(messages)


def run_windows_tests() -> None:
    """Link the tests for Windows, and run them if there is Wine; exit if one fails."""
    wine = next(filter(None, map(shutil.which, ("wine64", "wine", "/usr/lib/wine/wine64"))), None)
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"WINEPREFIX": str(Path(folder, "wine")), "WINEDEBUG": "-all"}
        for name, tested in WINDOWS_TESTS.items():
            program = Path(folder, f"{Path(name).name}.exe")
            files = [str(CSRC / "tests" / f"{name}.cpp"), *(str(CSRC / file) for file in tested)]
            includes = [f"-I{CSRC}", *(f"-isystem{ENGINE / folder}" for folder in INCLUDES)]
            command = [str(zig_path()), "c++", "-target", WINDOWS, "-std=c++17", "-O1", *includes]
            subprocess.run([*command, "-o", str(program), *files, "-lws2_32"], check=True)
            if wine:
                subprocess.run([wine, str(program)], env=environment, check=True, timeout=300)
        state = "run under Wine" if wine else "linked, but not run: there is no Wine"
        if wine:
            subprocess.run([Path(wine).with_name("wineserver"), "--wait"], env=environment, check=False)
    print(f"{WINDOWS}: {len(WINDOWS_TESTS)} C++ tests {state}", flush=True)


def unity_groups(target: Target) -> Iterator[tuple[list[Path], Sequence[str]]]:
    """Yield files that are compiled as one, as the build does: those of a folder with the same flags."""
    groups: dict[tuple[Path, Sequence[str]], list[Path]] = {}
    for path, flags in sources_of(target):
        # Kernels are compiled file by file, and one file includes what clashes with the others.
        alone = bool(flags) or path.name == "quantization_mix.cpp" or path.parent.name in ("platform", "remote")
        groups.setdefault((path if alone else path.parent, flags), []).append(path)
    for (_, flags), files in groups.items():
        yield files, flags


def compile_group(target: Target, files: Sequence[Path], flags: Sequence[str], unity: Path) -> str:
    """Compile files as one; return the compiler's messages, "" if there are none."""
    unity.write_text("".join(f'#include "{path}"\n' for path in files), encoding="utf-8")
    includes = [f"-I{CSRC}", *(f"-isystem{ENGINE / folder}" for folder in INCLUDES)]
    arguments = [*LANGUAGE, *WARNINGS, *flags, *DEFINITIONS, *includes, "-o", str(unity.with_suffix(".o")), str(unity)]
    command = [str(zig_path()), "c++", "-target", target.triple, *translated(arguments, target.triple)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.stdout if done.returncode != 0 or done.stdout else ""


if __name__ == "__main__":
    main()
