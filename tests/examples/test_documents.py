"""examples/documents.py: an index that follows the files, and the nearest passages."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from support.examples import module, printed

import pyggml

documents = module("documents")

KEYS = "# Keys\n\nEvery flat has three keys.\n\nGuests may stay for two weeks.\n"
WASTE = "Paper is collected on Monday.\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "keys.md").write_text(KEYS)
    (tmp_path / "waste.txt").write_text(WASTE)
    (tmp_path / "photo.png").write_bytes(b"\x89PNG")
    return tmp_path


def passages(folder: Path) -> set[tuple[str, int, str]]:
    with closing(sqlite3.connect(folder / ".passages.sqlite")) as index:
        return set(index.execute("SELECT path, line, text FROM passages"))


FIRST = {
    ("rules/keys.md", 3, "Keys\n\nEvery flat has three keys."),
    ("rules/keys.md", 5, "Keys\n\nGuests may stay for two weeks."),
    ("waste.txt", 1, "Paper is collected on Monday."),
}


def test_the_nearest_passage_is_cited_first(folder: Path) -> None:
    shown = printed("documents.py", folder, "Keys\n\nGuests may stay for two weeks.")
    assert shown.startswith("Index: 3 passages of 2 files added")
    assert re.search(r"^  from rules/keys.md:5, ", shown, re.MULTILINE)
    assert passages(folder) == FIRST


@pytest.mark.slow
def test_the_index_follows_the_files(folder: Path) -> None:
    printed("documents.py", folder)
    assert not printed("documents.py", folder)
    (folder / "waste.txt").write_text("Paper is collected on Friday.\n")
    assert "1 passages of 1 files added, 1 files removed" in printed("documents.py", folder)
    (folder / "rules" / "keys.md").unlink()
    assert "0 passages of 0 files added, 1 files removed" in printed("documents.py", folder)
    assert passages(folder) == {("waste.txt", 1, "Paper is collected on Friday.")}


@pytest.mark.slow
def test_another_model_computes_all_vectors_again(folder: Path, bert_path: Path) -> None:
    printed("documents.py", folder)
    shown = printed("documents.py", folder, "When?", "--embedder", bert_path, "-n", 1)
    assert "3 passages of 2 files added, 2 files removed" in shown
    assert "  from " in shown


def test_long_paragraphs_are_divided() -> None:
    text = f"{'word ' * 400}\n\n## Title\nshort\n"
    found = list(documents.split("a.md", text))
    assert [(each.line, len(each.text.split())) for each in found] == [(1, 150), (1, 150), (1, 100), (3, 2)]
    assert found[-1].text == "Title\n\nshort"


def test_one_passage_is_the_nearest(pyggml_llm: pyggml.LLM, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(WASTE)
    with closing(sqlite3.connect(":memory:")) as index:
        index.executescript(documents.SCHEMA)
        documents.update(index, pyggml_llm, tmp_path)
        assert documents.nearest(index, pyggml_llm, "Guests?", 2) == [documents.Passage("a.txt", 1, WASTE.strip())]


def test_an_empty_folder_is_named(pyggml_llm: pyggml.LLM) -> None:
    with closing(sqlite3.connect(":memory:")) as index:
        index.executescript(documents.SCHEMA)
        with pytest.raises(ValueError, match="no text"):
            documents.nearest(index, pyggml_llm, "Guests?", 2)
