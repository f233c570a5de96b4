"""Every Python block of the README and the docs runs, in order, as one program per file.

Recipes have tests of their own, test_recipe_*.py: their blocks are files of programs that need servers and clients.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hf_llama import HFLlama

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
RECIPES = [page for page in PAGES if page.name.startswith("recipe-")]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
# Pages whose console blocks are run as well, line by line, and must show what the commands then print.
SHOWN_IN_A_SHELL = [ROOT / "docs" / "command.md"]
CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
NUMBER = re.compile(r"\d[\d.,]* m?s|\d[\d.,]* tokens/s")  # which are not the same each time
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")


WITH_PYTHON = [page for page in PAGES if BLOCK.search(page.read_text()) and page not in RECIPES]


@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda page: page.name)
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = "\n".join(BLOCK.findall(page.read_text()))
    monkeypatch.setenv("PYGGML_CACHE", str(tmp_path / "cache"))
    HFLlama().write(tmp_path / "my-model")
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, f"{program}\n{done.stderr}"


@pytest.mark.parametrize("page", RECIPES, ids=lambda page: page.name)
def test_a_recipe_has_tests(page: Path) -> None:
    assert (ROOT / "tests" / f"test_{page.stem.replace('-', '_')}.py").exists()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", SHOWN_IN_A_SHELL, ids=lambda page: page.name)
def test_console_blocks_show_what_happens(page: Path, tmp_path: Path) -> None:
    for block in CONSOLE.findall(page.read_text()):
        for command, shown in COMMAND.findall(block):
            program = f'pyggml() {{ "{sys.executable}" -m pyggml "$@"; }}\n{command}'
            run = ["sh", "-c", program]
            done = subprocess.run(run, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            assert NUMBER.sub("#", done.stdout) == NUMBER.sub("#", shown), command
