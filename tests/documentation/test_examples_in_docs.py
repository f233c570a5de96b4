"""README and docs: every Python block runs, and the outputs shown are those of the run.

Recipes have tests of their own, test_recipe_*.py: their blocks are files of programs that need servers and clients.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support import example_files
from update_outputs import CONSOLE, PAGES, PYTHON, RECIPES, ROOT, SHOWN_IN_A_SHELL, refreshed

LINK = re.compile(r"\]\((?!https?:)([^)#]+)")
RUN = [page for page in PAGES if PYTHON.search(page.read_text()) or page in SHOWN_IN_A_SHELL]


@pytest.mark.slow_except("hugging-face-checkpoints.md")
@pytest.mark.parametrize("page", RUN, ids=lambda page: page.name)
def test_examples_run_and_print_what_is_shown(page: Path, tmp_path: Path) -> None:
    example_files.write(tmp_path, page.read_text())
    stale = "if the new outputs are right: python tools/update_outputs.py"
    assert refreshed(page, tmp_path) == page.read_text(), stale


@pytest.mark.parametrize("page", RECIPES, ids=lambda page: page.name)
def test_a_recipe_has_tests(page: Path) -> None:
    named = f"docs/how-to/{page.name}"
    assert any(named in test.read_text() for test in (ROOT / "tests").rglob("test_recipe_*.py"))


@pytest.mark.parametrize("page", [*PAGES, *RECIPES], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_blocks_of_output_follow_code_that_runs() -> None:
    shown = sum(bool(found["shown"]) for page in PAGES for found in PYTHON.finditer(page.read_text()))
    assert shown >= 4
    assert all(CONSOLE.search(page.read_text()) for page in SHOWN_IN_A_SHELL)
