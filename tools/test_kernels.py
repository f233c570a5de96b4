"""Compile the C++ tests of kernels for one instruction set after the other, and run them.

    python tools/test_kernels.py [--sets avx2 vnni ...] [--sanitize] [--compiler clang++] [--types q4_k ...]

Each of csrc/tests/kernels/test_attention.cpp, test_gemm_float.cpp, for AMX test_gemm_bf16_amx.cpp, and test_qgemm.cpp,
the last one type of weights at a time. AVX-512 BF16 is only in test_gemm_float.cpp. Where this processor lacks
instructions of AVX-512, AVX-VNNI or AMX, plain C++ takes their place (csrc/tests/support/emulated_*.hpp), so that the
code for them runs all the same; those of ARM need a cross compiler and qemu.
With --sanitize, everything is compiled for the address and undefined-behaviour sanitizers, and plain C++ takes AMX's
place set1, whose instructions are assembler code that they do not look into. Exit status 1: something did not
compile, or failed.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GGML = ROOT / "vendor" / "llama.cpp" / "ggml"
TESTS = ROOT / "csrc" / "tests" / "kernels"
SUPPORT = TESTS.parent / "support"

WARNINGS = ("-Wall", "-Wextra", "-Werror")
# Upstream's quantisers are compiled as they are; of C++ tests, what contracts a product and a sum would change bits.
COMMON = (
    "-std=c++17", "-ffp-contract=off", f"-I{ROOT / 'csrc'}",
    "-isystem", str(GGML / "include"), "-isystem", str(GGML / "src"),
)  # fmt: skip
# Null pointers and sizes of objects are the address sanitizer's too; checked set1, they make a compiler need
# minutes for what vectors are unroll to.
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize=null,object-size,vptr", "-fno-sanitize-recover=all", "-g1")

AVX2 = ("-mavx2", "-mfma", "-mf16c")
AVX512 = (*AVX2, "-mavx512f", "-mavx512vl", "-mavx512bw", "-mavx512dq")


@dataclass(frozen=True)
class Set:
    """An instruction set: how to compile for it, and how where this processor lacks it."""

    flags: Sequence[str]
    needs: Sequence[str] = ()  # as /proc/cpuinfo calls them
    modelled: Sequence[str] | None = None
    is_arm: bool = False
    is_assembler: bool = False  # no compiler checks what it reads and writes
    tests: Sequence[str] = ("attention", "gemm_float")
    has_tiles: bool = True

    def flags_here(self, sanitize: bool) -> Sequence[str]:
        found = set(re.findall(r"\w+", Path("/proc/cpuinfo").read_text()))
        if self.modelled is None or (found.issuperset(self.needs) and not (sanitize and self.is_assembler)):
            return self.flags
        return self.modelled


def _modelled(header: str, *more: str) -> Sequence[str]:
    return (*AVX2, "-include", str(SUPPORT / header), *more)


VNNI = (*AVX512, "-mavx512vnni")
MODELLED_VNNI = _modelled("emulated_avx512.hpp", "-DPYG_MODELLED_VNNI")

SETS = {
    "avx2": Set(AVX2),
    "avxvnni": Set((*AVX2, "-mavxvnni"), ("avx_vnni",), _modelled("emulated_avxvnni.hpp")),
    "avx512": Set(AVX512, ("avx512bw", "avx512vl"), _modelled("emulated_avx512.hpp")),
    "vnni": Set((*VNNI, "-DPYG_WITHOUT_AMX"), ("avx512_vnni",), MODELLED_VNNI),
    "avx512bf16": Set(
        (*VNNI, "-mavx512bf16", "-DPYG_WITHOUT_AMX"),
        ("avx512_bf16",),
        (*MODELLED_VNNI, "-DPYG_MODELLED_BF16"),
        tests=("gemm_float",),
        has_tiles=False,
    ),
    "amx": Set(
        (*VNNI, "-DPYG_NEEDS_AMX"),
        ("amx_int8", "amx_bf16"),
        (*MODELLED_VNNI, "-include", str(SUPPORT / "emulated_amx.hpp")),
        is_assembler=True,
        tests=("attention", "gemm_float", "gemm_bf16_amx"),
    ),
    "neon": Set(("-march=armv8.2-a+dotprod",), is_arm=True),
    "i8mm": Set(("-march=armv8.2-a+dotprod+i8mm",), is_arm=True),
}
_TABLE = ROOT / "csrc" / "kernels" / "qgemm" / "types.def"
TYPES = [name.lower() for name in re.findall(r"^PYG_WEIGHT_TYPE\((\w+),", _TABLE.read_text(), re.MULTILINE)]


@dataclass(frozen=True)
class Tools:
    """Compiler and emulator of the tests."""

    cxx: str
    sanitize: bool
    scratch: Path

    def compiler(self, is_arm: bool) -> list[str]:
        return shlex.split(os.environ.get("ARM_CXX", "aarch64-linux-gnu-g++")) if is_arm else shlex.split(self.cxx)

    def runner(self, is_arm: bool) -> list[str]:
        return shlex.split(os.environ.get("ARM_RUN", "qemu-aarch64-static -cpu max")) if is_arm else []

    def options(self, is_arm: bool) -> list[str]:
        """Return the compiler flags of tests and engine. Emulated or unrolled code compiles too slowly beyond -O1."""
        return ["-O1", *(SANITIZE if self.sanitize else ()), *(["-static"] if is_arm else ())]

    def engine(self, is_arm: bool) -> list[str]:
        """Object files with upstream's conversions, which test_qgemm.cpp compares with."""
        folder = self.scratch / ("engine-arm" if is_arm else "engine")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "ggml-version.h").write_text('#define GGML_VERSION "0"\n#define GGML_COMMIT "0"\n')
        objects = []
        for name in ("ggml.c", "ggml-quants.c", "ggml-threading.cpp"):
            language = ["-x", "c", "-D_GNU_SOURCE"] if name.endswith(".c") else ["-std=c++17"]
            objects.append(str(folder / f"{name}.o"))
            subprocess.run(
                [*self.compiler(is_arm), *self.options(is_arm), "-w", "-ffunction-sections", f"-I{folder}",
                 f"-I{GGML / 'include'}", f"-I{GGML / 'src'}", *language,
                 "-c", str(GGML / "src" / name), "-o", objects[-1]],
                check=True,
            )  # fmt: skip
        return objects


@dataclass(frozen=True)
class Job:
    """A test, compiled for an instruction set."""

    name: str
    sources: Sequence[str]
    flags: Sequence[str]
    is_arm: bool

    def run(self, tools: Tools) -> bool:
        program = tools.scratch / self.name
        compiler = tools.compiler(self.is_arm)
        # gcc takes the undefined operand of its own functions for one that should have been written.
        quiet = () if "clang" in compiler[0] else ("-Wno-maybe-uninitialized", "-Wno-uninitialized")
        command = [
            *compiler, *COMMON, *WARNINGS, *quiet, *tools.options(self.is_arm), *self.flags, *self.sources,
            "-Wl,--gc-sections", "-o", str(program),
        ]  # fmt: skip
        started = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        compiled = time.monotonic()
        what = "does not compile"
        if done.returncode == 0:
            done = subprocess.run(
                [*tools.runner(self.is_arm), str(program)], capture_output=True, text=True, check=False
            )
            what = "passes" if done.returncode == 0 else "FAILS"
        ran = time.monotonic()
        print(
            f"{self.name:22} {what:16} {compiled - started:6.0f} s to compile, {ran - compiled:4.0f} s to run",
            flush=True,
        )
        if done.returncode != 0 or "skipped" in done.stdout:
            print((done.stdout + done.stderr)[:4000], flush=True)
        return done.returncode == 0


def jobs_of(name: str, types: Sequence[str], engine: Sequence[str], sanitize: bool) -> Iterator[Job]:
    chosen = SETS[name]
    flags = chosen.flags_here(sanitize)
    for test in chosen.tests:
        yield Job(f"{test}-{name}", [str(TESTS / f"test_{test}.cpp")], flags, chosen.is_arm)
    sources = [str(TESTS / "test_qgemm.cpp"), str(ROOT / "csrc" / "kernels" / "qgemm" / "pack.cpp"), *engine]
    for type in types if chosen.has_tiles else ():
        only = f"-DPYG_ONLY=GGML_TYPE_{type.upper()}"
        yield Job(f"{type}-{name}", sources, (*flags, only), chosen.is_arm)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    x86 = [name for name, each in SETS.items() if not each.is_arm]
    parser.add_argument("--sets", nargs="+", choices=SETS, default=x86, help=f"default {' '.join(x86)}")
    parser.add_argument("--types", nargs="*", choices=TYPES, default=TYPES, help="default: all")
    parser.add_argument("--sanitize", action="store_true", help="compile for sanitizers")
    parser.add_argument("--compiler", default=os.environ.get("CXX", "c++"), help="default: CXX, or c++")
    chosen = parser.parse_args()
    scratch = ROOT / "build" / "kernels-test"
    tools = Tools(chosen.compiler, chosen.sanitize, scratch / ("sanitized" if chosen.sanitize else "plain"))
    engines = {is_arm: tools.engine(is_arm) for is_arm in {SETS[name].is_arm for name in chosen.sets}}
    jobs = [
        job for name in chosen.sets for job in jobs_of(name, chosen.types, engines[SETS[name].is_arm], chosen.sanitize)
    ]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return 0 if all(list(pool.map(lambda job: job.run(tools), jobs))) else 1


if __name__ == "__main__":
    sys.exit(main())
