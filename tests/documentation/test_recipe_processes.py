"""docs/how-to/use-with-multiprocessing.md: its programs as they are, under other start methods, and failing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support import recipes
from support.event_loops import until

TEXTS = 4  # as many as the page asks for


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    return recipes.write_programs("use-with-multiprocessing", tmp_path)


def run(directory: Path, command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, **environment}
    return subprocess.run(
        command, cwd=directory, env=variables, capture_output=True, text=True, timeout=200, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize("program", ["stories.py", pytest.param("pool.py", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "method", ["spawn", *(pytest.param(name, marks=pytest.mark.slow) for name in ("fork", "forkserver"))]
)
def test_every_text_is_told(programs: Path, program: str, method: str) -> None:
    file = programs / program
    file.write_text(file.read_text().replace('"spawn"', f'"{method}"'))
    done = run(programs, recipes.command("use-with-multiprocessing", f"python {program}"))
    assert (done.returncode, done.stderr) == (0, "")
    assert len([line for line in done.stdout.splitlines() if line]) >= TEXTS


@pytest.mark.slow
def test_a_model_from_before_the_fork_says_so(programs: Path) -> None:
    (programs / "early.py").write_text(
        "import multiprocessing, pyggml, stories\n"
        "stories.load()\n"
        "with multiprocessing.get_context('fork').Pool(1) as pool:\n"
        "    try:\n"
        "        pool.map(stories.tell, ['Tim'])\n"
        "    except pyggml.EngineError as error:\n"
        "        print(error)\n"
        "    try:\n"
        "        pool.map(print, [stories.llm])\n"
        "    except pyggml.CopyError as error:\n"
        "        print(error)\n"
        "print(stories.tell('Tim'))\n"
    )
    done = run(programs, [sys.executable, "early.py"])
    fork, copy, *text = done.stdout.splitlines()
    assert "before a fork" in fork
    assert "another process loads its own" in copy
    assert text


@pytest.mark.slow
def test_a_model_that_is_missing_breaks_the_executor(programs: Path) -> None:
    done = run(programs, recipes.command("use-with-multiprocessing", "python stories.py"), MODEL="missing.gguf")
    assert done.returncode == 1
    assert "BrokenProcessPool" in done.stderr
    assert "ModelNotFoundError" in done.stderr


@pytest.mark.slow
def test_an_interrupt_ends_all_processes(programs: Path) -> None:
    file, names = programs / "stories.py", '["Tim", "Anna", "Ben", "Lily"]'
    file.write_text(file.read_text().replace(names, f"{names} * 5_000"))
    command = recipes.command("use-with-multiprocessing", "python stories.py")
    at_once = os.environ | {"PYTHONUNBUFFERED": "1"}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=programs, env=at_once, stdout=pipe, stderr=pipe, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        os.killpg(process.pid, signal.SIGINT)
        try:
            process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        assert process.returncode != 0
        until(lambda: not any_left(process.pid))


def any_left(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
