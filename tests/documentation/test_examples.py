"""Each example runs from beginning to end, as a user would run it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.paths import ROOT

EXAMPLES = ROOT / "examples"


def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_there_are_examples() -> None:
    assert (EXAMPLES / "raw_ggml_graph.py").is_file()


@pytest.mark.slow_except("tools.py")
@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_example(name: str) -> None:
    done = run(name)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert not done.stderr


@pytest.mark.slow
def test_raw_ggml_graph_on_a_device_that_is_not_there() -> None:
    done = run("raw_ggml_graph.py", "CUDA99")
    assert done.returncode != 0
    assert 'no device "CUDA99"' in done.stderr
