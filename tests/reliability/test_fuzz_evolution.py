"""Coverage-guided fuzzing, on a small library with the instrumentation that the engine gets."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from fuzz import evolution, fuzzer
from fuzz.fuzzer import Part
from support.paths import ROOT

REACHED = ROOT / "csrc" / "tests" / "support" / "reached.c"
WORD = "reach"  # a library that goes one block further with each letter of it
LETTERS = " else ".join(f"if (at == {i} && *text == '{letter}') {{ at = next(at); }}" for i, letter in enumerate(WORD))
LIBRARY = f"""
__attribute__((noinline)) static int next(int at) {{
    return at + 1;
}}

int walk(const char * text) {{
    int at = 0;
    for (; *text; ++text) {{
        {LETTERS}
    }}
    return at;
}}
"""
CHILD = """
import ctypes, json, sys
library = ctypes.CDLL(sys.argv[1])
for line in sys.stdin:
    print(library.walk("".join(json.loads(line)).encode()), flush=True)
"""


def make(random: np.random.Generator) -> list[Part]:
    """A few letters: fewer than the word has."""
    return [chr(97 + letter) for letter in random.integers(26, size=random.integers(1, 4))]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    gcc = shutil.which("gcc")
    if gcc is None or sys.platform != "linux":
        pytest.skip("needs gcc on Linux")
    folder = tmp_path_factory.mktemp("library")
    (folder / "walk.c").write_text(LIBRARY)
    compile = [gcc, "-O1", "-fPIC", "-c"]
    subprocess.run([*compile, "-fsanitize-coverage=trace-pc", "walk.c", "-o", "walk.o"], cwd=folder, check=True)
    subprocess.run([*compile, REACHED, "-o", "reached.o"], cwd=folder, check=True)
    subprocess.run([gcc, "-shared", "walk.o", "reached.o", "-o", "libwalk.so"], cwd=folder, check=True)
    return folder / "libwalk.so"


@contextmanager
def walking(library: Path, guide: evolution.Evolution) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", CHILD, str(library)]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"PYGGML_REACHED": str(guide.reached.path)},
    ) as child:
        yield child
        child.kill()


def depth(child: subprocess.Popen[str], case: list[Part]) -> int:
    assert child.stdin
    assert child.stdout
    print(json.dumps(case), file=child.stdin, flush=True)
    return int(child.stdout.readline())


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzzer, "named", lambda _: SimpleNamespace(make=make))


@pytest.mark.slow
def test_cases_go_on_from_those_that_went_further(library: Path, tmp_path: Path) -> None:
    """To where no fresh case can go; and another run begins with what this one has kept."""
    guide = evolution.Evolution("toy", 1, tmp_path)
    reached, number = 0, 0
    case: list[Part] = []
    with walking(library, guide) as child:
        while reached < len(WORD) and number < 20_000:
            case = guide.made(number)
            reached = depth(child, case)
            guide.judge(case, is_finding=False)
            number += 1
    assert reached == len(WORD), guide
    kept = [json.loads(line) for line in (tmp_path / "toy.jsonl").read_text().splitlines()]
    assert case in kept

    again = evolution.Evolution("toy", 2, tmp_path)
    assert sorted(again.made(number) for number in range(len(kept))) == sorted(kept)


def test_findings_are_not_changed_further(library: Path, tmp_path: Path) -> None:
    guide = evolution.Evolution("toy", 1, tmp_path)
    with walking(library, guide) as child:
        assert depth(child, [WORD[0]]) == 1
    guide.judge([WORD[0]], is_finding=True)
    assert not (tmp_path / "toy.jsonl").exists()


def test_a_build_that_notes_nothing_is_refused(tmp_path: Path) -> None:
    guide = evolution.Evolution("toy", 1, tmp_path)
    with pytest.raises(SystemExit, match="make fuzz-engine"):
        guide.judge(guide.made(0), is_finding=False)
