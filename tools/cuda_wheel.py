"""Make a wheel with CUDA on a machine that needs neither a GPU nor a driver nor a CUDA toolkit, and check it.

    python3 tools/cuda_wheel.py [--cuda 13] [--architectures "86-real;90-real"] [--system-toolkit] [--out dist/cuda13]

Needs Python with venv and pip, and a C++ compiler. An environment of its own gets the build requirements and, unless
the system's toolkit shall be used, NVIDIA's compiler and libraries as Python packages. The wheel is made there, with
ccache where that is installed; then it is

- read: which libraries does each of its own need (readelf)? Only libggml-cuda.so may need what a machine without CUDA
  lacks, and that only CUDA's own libraries, which come with the extra cuda12 or cuda13.
- installed into a fresh environment without CUDA's packages, where it has to import, to list its devices, to pass
  "pyggml doctor" and to generate on the CPU; `device="cuda"` has to work if the machine has a GPU and the libraries,
  else to raise DeviceError.

The wheel's version says which CUDA it is for, as PyTorch's do: 0.1.0+cu13.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD_TOOLS = ("cmake>=3.26", "ninja>=1.13", "wheel")

#: What every glibc Linux has that can run a Python with compiled packages.
SYSTEM = re.compile(
    r"lib(c|m|dl|rt|pthread)\.so\.\d+|libstdc\+\+\.so\.6|libgcc_s\.so\.1|ld-linux[\w-]*\.so\.\d+|libpyggml-[\w-]+\.so"
)
CUDA_MODULE = "libggml-cuda.so"
CUDA = re.compile(r"libcu(dart|blas|blasLt)\.so\.\d+")

#: Run by the Python of a fresh environment; prints one line of JSON.
TRIAL = """
import json
import pyggml

seen = [device.name for device in pyggml.devices()]
text = pyggml.load(device="cpu").generate("Once upon a time", max_tokens=24).text
try:
    with pyggml.load(device="cuda") as llm:
        on_cuda = llm.generate("Once upon a time", max_tokens=24).text
    refusal = None
except pyggml.DeviceError as error:
    on_cuda, refusal = None, str(error)
print(json.dumps({"devices": seen, "text": text, "on_cuda": on_cuda, "refusal": refusal}))
"""


def needed_libraries(library: Path) -> list[str]:
    """Return the libraries that the system's loader has to find for one, by name, in the file's order."""
    return re.findall(r"\(NEEDED\).*\[(.*)\]", _dynamic_section(library))


def run_path(library: Path) -> list[str]:
    """Return the folders where a library looks for what it needs."""
    found = re.search(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", _dynamic_section(library))
    return found[1].split(":") if found else []


def _dynamic_section(library: Path) -> str:
    command = ["readelf", "--dynamic", "--wide", str(library)]
    environment = {**os.environ, "LC_ALL": "C"}
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment).stdout


def foreign_libraries(name: str, needed: Iterable[str]) -> list[str]:
    """Return the libraries that a file of the wheel must not need, because a machine may lack them.

    Args:
        name: of the file: only that of the CUDA backend may need CUDA's libraries. None may need the driver's.
        needed: what it needs.
    """
    return [
        each for each in needed if not SYSTEM.fullmatch(each) and not (name == CUDA_MODULE and CUDA.fullmatch(each))
    ]


def toolkit_requirements(cuda: str) -> list[str]:
    """Return the packages that the build needs of a CUDA, such as "13" or "13.0"; for 12, nvcc is not among them."""
    parts = "cudart,cublas,cccl,nvcc" if int(cuda.split(".")[0]) >= 13 else "cudart,cublas"
    return [f"cuda-toolkit[{parts}]=={cuda}.*"]


class Steps:
    """Runs commands, says what each is for, and how long it took."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    def say(self, text: str) -> None:
        """Print a line with the time since the start."""
        print(f"[{time.monotonic() - self._started:6.0f} s] {text}", flush=True)

    def run(self, what: str, command: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> str:
        """Run a command in an empty folder and return its output; exit if it fails."""
        self.say(what)
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [str(each) for each in command],
                cwd=folder,
                env={**os.environ, **(environment or {})},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
        if done.returncode != 0:
            sys.exit(f"{done.stdout[-8000:]}\n{what}: failed with exit status {done.returncode}")
        return done.stdout


def main() -> None:
    """Make the wheel and check it."""
    options = read_options()
    steps = Steps()
    with tempfile.TemporaryDirectory() as folder:
        made = build(options, steps, Path(folder))
        wheel = mark(made, f"cu{options.cuda.replace('.', '')}", options, steps)
    check_contents(wheel, steps)
    try_out(wheel, steps)


def read_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Makes a wheel with CUDA, and checks it.")
    parser.add_argument("--cuda", default="13", help="the toolkit's version, 13 or more precisely 13.0 (default: 13)")
    parser.add_argument(
        "--architectures", help='as CMake has them: "90", "86-real;90-real" (default: upstream\'s list)'
    )
    parser.add_argument("--system-toolkit", action="store_true", help="use the system's toolkit, not Python packages")
    parser.add_argument("--out", type=Path, help="the wheel's folder (default: dist/cuda13, by version)")
    options = parser.parse_args()
    options.work = ROOT / "build" / f"cuda{options.cuda}"
    options.out = (options.out or ROOT / "dist" / f"cuda{options.cuda}").resolve()
    options.python = options.work / "venv" / "bin" / "python"
    return options


def build(options: argparse.Namespace, steps: Steps, folder: Path) -> Path:
    """Build the wheel in the environment for that, in a folder of CMake's that later builds go on with."""
    if not options.python.exists():
        steps.run("make the build environment", [sys.executable, "-m", "venv", options.work / "venv"])
    pip = [options.python, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    packages = [] if options.system_toolkit else toolkit_requirements(options.cuda)
    what = f"install what the build needs ({', '.join(packages) or 'with the toolkit of the system'})"
    steps.run(what, [*pip, "install", *build_requirements(), *BUILD_TOOLS, *packages])
    settings = {"build-dir": str(options.work / "cmake"), "cmake.define.GGML_CUDA": "ON"}
    if options.architectures:
        settings["cmake.define.CMAKE_CUDA_ARCHITECTURES"] = options.architectures
    packaged_compiler = next(options.work.glob("venv/lib/python*/site-packages/nvidia/*/bin/nvcc"), None)
    if packaged_compiler and not options.system_toolkit:
        settings["cmake.define.CMAKE_CUDA_COMPILER"] = str(packaged_compiler)
    steps.run(
        f"build the wheel ({'with' if shutil.which('ccache') else 'without'} ccache)",
        [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder]
        + [f"--config-settings={name}={value}" for name, value in settings.items()]
        + [ROOT],
        {"PATH": f"{options.python.parent}{os.pathsep}{os.environ['PATH']}"},
    )
    return next(folder.glob("*.whl"))


def build_requirements() -> list[str]:
    """Return the build requirements of pyproject.toml."""
    found = re.search(r"^requires = \[(.*)\]$", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert found, "pyproject.toml has its build requirements on one line"
    return re.findall(r'"([^"]+)"', found[1])


def mark(made: Path, label: str, options: argparse.Namespace, steps: Steps) -> Path:
    """Add a local version to a wheel's name and metadata, and move it to its folder."""
    name, version, *tags = made.name.split("-")
    folder = made.parent / "unpacked"
    with zipfile.ZipFile(made) as archive:
        archive.extractall(folder)
    marked = f"{version}+{label}"
    metadata = folder / f"{name}-{version}.dist-info" / "METADATA"
    text = metadata.read_text(encoding="utf-8")
    metadata.write_text(text.replace(f"\nVersion: {version}\n", f"\nVersion: {marked}\n", 1), encoding="utf-8")
    metadata.parent.rename(folder / f"{name}-{marked}.dist-info")
    options.out.mkdir(parents=True, exist_ok=True)
    command = [options.python, "-m", "wheel", "pack", folder, "--dest-dir", options.out]
    steps.run(f"give it the version {marked}", command)
    return Path(options.out, "-".join([name, marked, *tags]))


def check_contents(wheel: Path, steps: Steps) -> None:
    """Print each library of a wheel with its size and dependencies; exit if a limit is exceeded."""
    steps.say(f"{wheel}: {wheel.stat().st_size / 1e6:.1f} MB")
    faults = []
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
        for library in sorted(Path(folder, "pyggml").glob("*.so")):
            needed = needed_libraries(library)
            path = ":".join(run_path(library))
            print(f"    {library.name} ({library.stat().st_size / 1e6:.1f} MB): {' '.join(needed)}, sought in {path}")
            faults += [f"{library.name} needs {name}" for name in foreign_libraries(library.name, needed)]
        if not Path(folder, "pyggml", CUDA_MODULE).exists():
            faults.append(f"there is no {CUDA_MODULE} in it")
    if faults:
        sys.exit("\n".join(faults))


def try_out(wheel: Path, steps: Steps) -> None:
    """Install a wheel into a fresh environment, without CUDA's packages, and use it there."""
    with tempfile.TemporaryDirectory() as folder:
        python = str(Path(folder, "bin", "python"))
        steps.run("make a fresh environment", [sys.executable, "-m", "venv", folder])
        pip = [python, "-m", "pip", "--disable-pip-version-check", "--quiet"]
        steps.run("install the wheel there", [*pip, "install", f"{wheel}[cli]"])
        result = json.loads(steps.run("load, generate, ask for CUDA", [python, "-c", TRIAL]).splitlines()[-1])
        steps.say(f"devices: {', '.join(result['devices'])}; on the CPU: {result['text']!r}")
        steps.say(f"on CUDA: {result['on_cuda']!r}" if result["on_cuda"] else f"DeviceError: {result['refusal']}")
        print(steps.run("ask the doctor", [python, "-m", "pyggml", "doctor"]))
    if not result["text"]:
        sys.exit("it generated nothing on the CPU")


if __name__ == "__main__":
    main()
