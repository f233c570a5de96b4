"""Parts of the script that makes portable wheels; `make wheels` runs it as a whole."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import cuda_wheel
import portable_wheels
import pytest


def test_the_tag_and_the_compiler_have_the_same_glibc() -> None:
    arm = portable_wheels.ARCHITECTURES["aarch64"]
    assert (arm.tag, arm.target) == ("manylinux_2_28_aarch64", "aarch64-linux-gnu.2.28")


def test_cmake_finds_the_programs_of_the_toolchain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portable_wheels, "WORK", tmp_path)
    file = portable_wheels.write_toolchain(portable_wheels.ARCHITECTURES["aarch64"])
    script = f'include("{file}")\nmessage("${{CMAKE_SYSTEM_PROCESSOR}} ${{CMAKE_CXX_COMPILER}} ${{CMAKE_AR}}")\n'
    (tmp_path / "print.cmake").write_text(script)
    done = subprocess.run(
        ["cmake", "-P", tmp_path / "print.cmake"], stderr=subprocess.PIPE, text=True, check=True, env=with_programs()
    )
    processor, *programs = done.stderr.split()
    assert processor == "aarch64"
    assert [Path(program).name for program in programs] == ["c++", "ar"]
    assert all(os.access(program, os.X_OK) for program in programs)
    before = file.stat().st_mtime_ns
    portable_wheels.write_toolchain(portable_wheels.ARCHITECTURES["aarch64"])
    assert file.stat().st_mtime_ns == before  # or everything would be compiled again


def with_programs() -> dict[str, str]:
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def test_pythons_are_found_in_pyenv_and_stand_ins_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shims, versions = tmp_path / "shims", tmp_path / "versions" / "3.99.1" / "bin"
    shims.mkdir()
    versions.mkdir(parents=True)
    for name in ("python3.98", "python3.99"):
        (shims / name).write_text("#!/bin/sh\nexit 127\n")
        (shims / name).chmod(0o700)
    (versions / "python3.99").symlink_to(sys.executable)
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setenv("PATH", str(shims), prepend=os.pathsep)
    assert portable_wheels.find_python("python3.99") == str(versions / "python3.99")
    assert portable_wheels.find_python("python3.98") is None


def test_a_wheel_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = tmp_path / "a-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("a.txt", "a" * 1000)
    # A stand-in for twine, which the environment of the tests lacks.
    monkeypatch.setattr(portable_wheels, "PYTHON", "true")
    portable_wheels.check(wheel, cuda_wheel.Steps())
    monkeypatch.setattr(portable_wheels, "LIMIT_BYTES", 1000)
    with pytest.raises(SystemExit, match=r"^a-1-py3-none-any\.whl has 0\.0 MB; the limit is 0 MB$"):
        portable_wheels.check(wheel, cuda_wheel.Steps())
