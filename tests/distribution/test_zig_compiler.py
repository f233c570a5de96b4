"""Arguments of gcc and clang as zig takes them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import zig_compiler
from support.paths import ROOT

LINUX = "x86_64-linux-gnu.2.28"
ARM = "aarch64-linux-gnu.2.28"


def test_options_that_zig_lacks_are_left_out() -> None:
    arguments = zig_compiler.translated(["-Wl,--exclude-libs,ALL", "-Wl,--gc-sections,--exclude-libs,ALL"], LINUX)
    assert arguments == ["-Wl,--gc-sections", "-fno-sanitize=undefined"]


@pytest.mark.parametrize(
    ("march", "mcpu"),
    [
        ("armv8-a", "generic+v8a"),
        ("armv8.2-a+dotprod+fp16", "generic+v8_2a+dotprod+fullfp16"),
        ("armv8.6-a+dotprod+fp16+sve+i8mm+sve2", "generic+v8_6a+dotprod+fullfp16+sve+i8mm+sve2"),
        ("armv9.2-a+sme", "generic+v9_2a+sme"),
    ],
)
def test_an_architecture_of_arm_becomes_a_processor_with_its_features(march: str, mcpu: str) -> None:
    assert zig_compiler.translated([f"-march={march}"], ARM)[0] == f"-mcpu={mcpu}"


def test_instruction_sets_of_x86_stay() -> None:
    assert zig_compiler.translated(["-mavx2", "-march=x86-64"], LINUX)[:2] == ["-mavx2", "-march=x86-64"]


def test_a_library_for_linux_hides_the_memory_functions_of_its_standard_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    (option,) = [each for each in zig_compiler.translated(["-shared"], LINUX) if "version-script" in each]
    script = Path(option.removeprefix("-Wl,--version-script="))
    assert script.parent == tmp_path
    assert script.read_text() == zig_compiler.HIDDEN_SYMBOLS
    assert not any("version-script" in each for each in zig_compiler.translated(["-shared"], "aarch64-macos"))
    assert not any("version-script" in each for each in zig_compiler.translated(["-c", "a.c"], LINUX))


def test_the_programs_of_a_toolchain_pass_their_arguments_on(tmp_path: Path) -> None:
    """With a stand-in for zig's package, which is 170 MB."""
    zig = tmp_path / "ziglang" / "zig"
    zig.parent.mkdir()
    (zig.parent / "__init__.py").touch()
    zig.write_text('#!/bin/sh\necho "$@"\n')
    zig.chmod(0o700)
    command = [sys.executable, str(ROOT / "tools" / "zig_compiler.py")]

    def output(*arguments: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        run = subprocess.run([*command, *arguments], env=environment, stdout=subprocess.PIPE, text=True, check=True)
        return run.stdout.strip()

    assert output("cc", ARM, "-c", "a b.c") == f"cc -target {ARM} -c a b.c -fno-sanitize=undefined"
    assert output("ar", ARM, "qc", "a.a", "a.o") == "ar qc a.a a.o"
