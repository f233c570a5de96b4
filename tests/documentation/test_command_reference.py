"""Command lines in the docs: the reference equals the output of ``--help``, and every command line parses."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from support.checkpoints.hf_llama import HFLlama
from support.paths import ROOT
from update_outputs import CONSOLE, SHOWN_IN_A_SHELL

from pyggml.cli.program import COMMANDS, program
from pyggml.source import SHIPPED_MODEL

PAGES = sorted({ROOT / "README.md", *(ROOT / "docs").rglob("*.md")} - {*SHOWN_IN_A_SHELL})  # the others are run
OPERATORS = re.compile(r"[|&;<>]+")


def commands(page: Path) -> list[list[str]]:
    """The arguments of each ``pyggml`` in a line that is to be typed."""
    found = []
    for block in CONSOLE.findall(page.read_text()):
        for line in block.replace("\\\n", "").splitlines():
            if line.startswith("$ "):
                found += [words[1:] for words in simple_commands(line[2:]) if words[:1] == ["pyggml"]]
    return found


def simple_commands(line: str) -> list[list[str]]:
    """The commands of a pipeline, without redirections, assignments and comments."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    found: list[list[str]] = [[]]
    is_target = False
    for word in lexer:
        if OPERATORS.fullmatch(word):
            is_target = word[0] in "<>"
            if not is_target:
                found.append([])
            elif found[-1][-1:] == ["2"]:  # the number of a descriptor
                found[-1].pop()
        elif is_target:
            is_target = False
        elif found[-1] or not re.match(r"\w+=", word):
            found[-1].append(word)
    return found


def test_command_lines_are_found() -> None:
    line = "PYGGML_CACHE=/x pyggml generate 'a # b' 2> notes.txt | pyggml chat -m x > y && ls  # and so on"
    assert simple_commands(line) == [["pyggml", "generate", "a # b"], ["pyggml", "chat", "-m", "x"], ["ls"]]
    assert [page.name for page in PAGES if commands(page)]


@pytest.mark.slow_except(every=2)
@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=lambda page: page.name)
def test_command_lines_can_be_typed(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands and options exist, and take such values. Nothing is run: that is for the tests of commands."""
    monkeypatch.setattr(click.Command, "invoke", lambda _command, _context: None)
    for arguments in commands(page):
        try:
            program.main(list(arguments), "pyggml", standalone_mode=False)
        except click.ClickException as error:
            pytest.fail(f"pyggml {shlex.join(arguments)}: {error.format_message()}")


@pytest.mark.slow
def test_the_guide_can_be_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYGGML_CACHE", str(tmp_path / "cache"))
    HFLlama(head_dim=32).write(tmp_path / "my-model")  # which a quantised cache can hold
    (tmp_path / "model.gguf").symlink_to(SHIPPED_MODEL)
    (tmp_path / "text.txt").write_text("The quick brown fox jumps over the lazy dog. " * 20)
    lines = commands(ROOT / "docs" / "tutorial" / "getting-started.md")
    assert {line[0] for line in lines} >= {"convert", "quantize", "inspect", "cache"}
    for arguments in lines:
        command = [sys.executable, "-m", "pyggml", *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (arguments, done)
        assert done.stdout, arguments


def test_the_reference_is_what_help_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import make_command_help

    expected = make_command_help.page()
    assert all(f"## pyggml {name}\n" in expected for name in COMMANDS)
    assert make_command_help.PAGE.read_text() == expected, "run python tools/make_command_help.py"


def test_index_pages_list_all_pages() -> None:
    """As the site's navigation does, which is made of these lists."""
    docs = ROOT / "docs"
    listed = [
        (index.parent / link).relative_to(docs).as_posix()
        for index in (docs / "index.md", docs / "reference" / "api" / "index.md")
        for link in re.findall(r"^- \[[^\]]+\]\(([\w/-]+\.md)\)", index.read_text(), re.MULTILINE)
    ]
    pages = {page.relative_to(docs).as_posix() for page in docs.rglob("*.md")} - {"index.md"}
    assert sorted(listed) == sorted(pages)
