"""Get a Python for 64-bit ARM that runs here in an emulator, from packages of Debian or Ubuntu.

    python tools/arm_python.py build/arm

Downloads packages of arm64 and unpacks them below the folder. Nothing is installed, and apt's lists stay as they are.
Prints the command that runs the Python: the emulator (package qemu-user or qemu-user-static, unpacked as well if it is
not installed), the folder of ARM's libraries, and the interpreter.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

#: Python, and what its compiled packages expect of a system.
PACKAGES = ("python3", "libstdc++6")
EMULATORS = ("qemu-aarch64", "qemu-aarch64-static")


def main() -> None:
    """Unpack Python and print its command."""
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} FOLDER")
    print(shlex.join(arm_python(Path(sys.argv[1]))))


def arm_python(folder: Path) -> list[str]:
    """Return the command of an ARM Python in a folder, which is filled if it is not yet."""
    folder = folder.resolve()
    system = folder / "system"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        unpack_system(system, folder / "apt")
        if not any(shutil.which(name) for name in EMULATORS):
            unpack(["qemu-user-static"], [], folder / "emulator")
        (folder / "complete").touch()
    names = (path.name for path in (system / "usr" / "bin").iterdir())
    (python,) = [name for name in names if re.fullmatch(r"python3\.\d+", name)]
    return [emulator(folder), "-cpu", "max", "-L", str(system), str(system / "usr" / "bin" / python)]


def emulator(folder: Path) -> str:
    """Return the emulator's program: the system's, or the one that was unpacked."""
    found = [path for name in EMULATORS if (path := shutil.which(name))]
    return found[0] if found else str(folder / "emulator" / "usr" / "bin" / "qemu-aarch64-static")


def unpack_system(system: Path, apt: Path) -> None:
    """Unpack Python and all that it needs of ARM, with lists of packages of its own in the folder `apt`."""
    for name in ("state/lists/partial", "cache/archives/partial"):
        (apt / name).mkdir(parents=True)
    (apt / "status").touch()  # as if nothing were installed
    settings = {
        "Dir::State": apt / "state",
        "Dir::State::status": apt / "status",
        "Dir::Cache": apt / "cache",
        "APT::Architecture": "arm64",
        "APT::Architectures::": "arm64",
        "APT::Sandbox::User": "",
        "Acquire::Languages": "none",
    }
    options = [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]
    _run(["apt-get", *options, "update"], apt)
    plan = _run(["apt-get", *options, "--simulate", "--no-install-recommends", "install", *PACKAGES], apt)
    unpack(re.findall(r"^Inst (\S+)", plan, re.MULTILINE), options, system)
    shutil.rmtree(apt)


def unpack(packages: Sequence[str], options: Sequence[str], target: Path) -> None:
    """Download packages, with options of apt, and unpack them below a folder."""
    downloads = target.parent / "downloads"
    downloads.mkdir(parents=True)
    _run(["apt-get", *options, "download", *packages], downloads)
    for package in sorted(downloads.glob("*.deb")):
        _run(["dpkg-deb", "--extract", str(package), str(target)], downloads)
    shutil.rmtree(downloads)


def _run(command: Sequence[str], folder: Path) -> str:
    environment = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode != 0:
        sys.exit(f"{done.stdout}\n{shlex.join(command)}: failed with exit status {done.returncode}")
    return done.stdout


if __name__ == "__main__":
    main()
