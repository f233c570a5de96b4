"""The examples with SmolLM2: the sessions that examples/README.md shows, and what they claim."""

from __future__ import annotations

import csv
import io
import shutil
from pathlib import Path

import example_outputs
import pytest
from support.examples import EXAMPLES, printed

README = (EXAMPLES / "README.md").read_text("utf-8")
SESSIONS = {
    name: block for name, block in example_outputs.blocks(README).items() if example_outputs.needs_real_model(block)
}
EXPECTED = "cqpcqpqcqpcp"  # complaint, question or praise: the texts of messages.csv that have no label


@pytest.mark.usefixtures("smollm2_path")
@pytest.mark.parametrize("name", SESSIONS)
def test_a_session_goes_as_the_readme_shows(name: str) -> None:
    if "curl" in SESSIONS[name] and not shutil.which("curl"):
        pytest.skip("needs curl")
    stale = "if the new outputs are right: python tools/example_outputs.py"
    assert example_outputs.replayed(SESSIONS[name]) == SESSIONS[name], stale


@pytest.mark.parametrize(
    ("options", "least", "complaints"), [([], 8, 0), (["--calibrate"], 11, 3)], ids=["", "calibrated"]
)
def test_calibration_finds_the_complaints(smollm2_path: Path, options: list[str], least: int, complaints: int) -> None:
    shown = printed("classifier.py", EXAMPLES / "data" / "messages.csv", "-m", smollm2_path, *options)
    found = "".join(row["label"][0] for row in csv.DictReader(io.StringIO(shown)) if row["probability"])
    right = [label for label, expected in zip(found, EXPECTED, strict=True) if label == expected]
    assert len(right) >= least
    assert right.count("c") >= complaints
    assert options or not right.count("c")


def test_the_agent_answers_by_calculating(smollm2_path: Path) -> None:
    folder = EXAMPLES / "data" / "handbook"
    shown = printed("agent.py", folder, "What is 35 times 12?", "--must-call", "--rounds", 1, "-m", smollm2_path)
    assert 'calculate({"expression": "35 * 12"}) returns 420' in shown


def test_the_village_with_a_real_model(smollm2_path: Path) -> None:
    shown = printed("village.py", "-m", smollm2_path, "--characters", 20, "--budget", 120, stdin="I lost my kite\n")
    assert shown.count("[20 of 20 were ready in time; ") == 2
