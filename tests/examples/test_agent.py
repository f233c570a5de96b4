"""examples/agent.py: its tools, and a model that calls them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support.examples import module

import pyggml

agent = module("agent")


@pytest.mark.parametrize(
    ("expression", "value"),
    [("17 * 23", 391), ("2 * (3 + 4) - -1", 15), ("7 / 2", 3.5), ("7 // 2 % 2", 1), (" 1.5 + 1", 2.5)],
)
def test_the_calculator(expression: str, value: float) -> None:
    assert agent.calculate(expression) == value


@pytest.mark.parametrize(
    "expression", ["2 ** 9", "abs(1)", "x", "'a' * 9", "True + 1", "(1, 2)", "1 if 2 else 3", "1 +"]
)
def test_the_calculator_runs_nothing_but_calculations(expression: str) -> None:
    with pytest.raises((ValueError, SyntaxError)):
        agent.calculate(expression)


def test_files_below_the_folder_and_no_others(tmp_path: Path) -> None:
    (tmp_path / "house" / "cellar").mkdir(parents=True)
    (tmp_path / "secret.txt").write_text("1234")
    (tmp_path / "house" / "door.md").write_text("It is red.")
    (tmp_path / "house" / "cellar" / "boiler.txt").write_text("hot " * 5000)
    files = agent.Files(tmp_path / "house")
    [names] = (each["enum"] for each in files.description["function"]["parameters"]["properties"].values())
    assert names == ["cellar/boiler.txt", "door.md"]
    assert files.read_file("door.md") == "It is red."
    assert len(files.read_file("cellar/boiler.txt")) == agent.MAX_FILE_CHARACTERS
    with pytest.raises(KeyError):
        files.read_file("../secret.txt")
    with pytest.raises(ValueError, match="0 files"):
        agent.Files(tmp_path / "house" / "cellar" / "none")


@pytest.mark.parametrize("rounds", [0, 1, pytest.param(3, marks=pytest.mark.slow)])
def test_calls_are_run_and_rounds_are_limited(
    pyggml_llm: pyggml.LLM, tmp_path: Path, capsys: pytest.CaptureFixture[str], rounds: int
) -> None:
    (tmp_path / "door.md").write_text("The door is red.")
    answer = agent.Agent(pyggml_llm, tmp_path, rounds, must_call=True).answer("What is 2 plus 3?")
    assert isinstance(answer, str)
    assert answer
    calls = re.findall(r"^  (\w+)\((.*)\) returns (.*)$", capsys.readouterr().out, re.MULTILINE)
    assert min(rounds, 1) <= len(calls) <= rounds
    for name, arguments, result in calls:
        given = json.loads(arguments)
        if name == "read_file":
            assert (given, result) == ({"path": "door.md"}, "The door is red.")
        else:
            assert name == "calculate"
            assert re.fullmatch(r"[0-9(][0-9 .()+*/%-]*", given["expression"])
            assert result.startswith("error: ") or float(result) == agent.calculate(given["expression"])


def test_an_error_goes_back_to_the_model(pyggml_llm: pyggml.LLM, tmp_path: Path) -> None:
    (tmp_path / "door.md").write_text("The door is red.")
    made = agent.Agent(pyggml_llm, tmp_path, 1, must_call=False)
    assert made._run(pyggml.ToolCall("1", "calculate", '{"expression": "1 / 0"}')) == "error: division by zero"
