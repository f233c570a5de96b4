"""Rules for all examples, and runs of those that need no input."""

from __future__ import annotations

import ast
import re

import pytest
from support.examples import EXAMPLES, SCRIPTS, printed, run

README = (EXAMPLES / "README.md").read_text("utf-8")
MAX_LINES = 150
#: Arguments that an example cannot do without.
ARGUMENTS = {
    "agent.py": (EXAMPLES / "data" / "handbook", "What is 2 plus 3?"),
    "classifier.py": (EXAMPLES / "data" / "messages.csv",),
    "documents.py": (EXAMPLES / "data" / "handbook",),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_it_is_small_listed_and_says_how_to_run_it(name: str) -> None:
    source = (EXAMPLES / name).read_text("utf-8")
    assert source.count("\n") <= MAX_LINES
    title, blank, command, *_ = (ast.get_docstring(ast.parse(source)) or "").splitlines()
    assert title.endswith(".")
    assert not blank
    assert command.startswith(f"python examples/{name}")
    assert f"[{name}]({name})" in README
    assert f"$ python examples/{name}" in README


def test_links_of_the_readme_lead_somewhere() -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", README)
    assert len(targets) > len(SCRIPTS)
    assert all((EXAMPLES / target).exists() for target in targets)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_help(name: str) -> None:
    assert f"python examples/{name}" in printed(name, "--help")


@pytest.mark.slow_except("raw_llama_loop.py")
@pytest.mark.parametrize("name", [name for name in SCRIPTS if name not in ("demo.py", "raw_ggml_graph.py")])
def test_a_model_that_is_not_there_is_named_in_one_line(name: str) -> None:
    done = run(name, *ARGUMENTS.get(name, ()), "-m", "no-such.gguf")
    assert done.returncode == 1
    assert "no-such.gguf" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["demo.py", "embed_engine.py", "raw_ggml_graph.py", "raw_llama_loop.py"])
def test_it_runs(name: str) -> None:
    assert printed(name, *(["--no-download"] if name == "demo.py" else [])).strip()


@pytest.mark.slow
def test_raw_ggml_graph_on_a_device_that_is_not_there() -> None:
    done = run("raw_ggml_graph.py", "CUDA99")
    assert done.returncode != 0
    assert 'no device "CUDA99"' in done.stderr
    assert "Traceback" not in done.stderr
