"""Word wrap of streamed text on a terminal: lines break between words, for any chunks and for wide characters."""

from __future__ import annotations

import random
from itertools import pairwise

import pyte
import pytest

from pyggml.cli.show.wrapping import WordWrap

PROSE = "In the beginning was the word, and the word was broken by every terminal that it was shown in. " * 3
CODE = "def count(words: list[str], least: int = 1) -> dict[str, int]:  # longer than the terminal is wide"


def rows(pieces: list[str], columns: int = 40) -> list[str]:
    """The rows of a terminal that shows a text written in chunks."""
    screen = pyte.Screen(columns, 60)
    screen.set_mode(pyte.modes.LNM)  # what a terminal's driver does to line feeds
    stream, wrap = pyte.Stream(screen), WordWrap()
    for piece in pieces:
        stream.feed(wrap.feed(piece, columns))
    return "\n".join(row.rstrip() for row in screen.display).rstrip("\n").split("\n")


def pieces_of(text: str, seed: int) -> list[str]:
    """A text in random pieces, as tokens may come."""
    chance, pieces = random.Random(seed), []
    while text:
        size = chance.randint(1, 12)
        pieces.append(text[:size])
        text = text[size:]
    return pieces


@pytest.mark.parametrize("columns", [12, 40, 79, 80])
@pytest.mark.parametrize("seed", range(5))
def test_prose_is_broken_between_words_and_loses_none(columns: int, seed: int) -> None:
    shown = rows(pieces_of(PROSE, seed), columns)
    assert " ".join(shown).split() == PROSE.split()
    assert all(len(row) < columns for row in shown)
    # No line could have taken the first word of the next.
    assert all(len(row) + 1 + len(after.split()[0]) >= columns for row, after in pairwise(shown))


@pytest.mark.parametrize("seed", range(5))
def test_pieces_change_nothing(seed: int) -> None:
    text = f"{PROSE}\n\n- {PROSE}\n```\n{CODE}\n```\n\n字字字字{PROSE}"
    assert rows(pieces_of(text, seed)) == rows([text])


def test_a_word_is_shown_while_it_is_incomplete() -> None:
    wrap = WordWrap()
    assert wrap.feed("one tw", 40) == "one tw"
    assert wrap.feed("o ", 40) == "o"
    assert wrap.feed("three", 40) == " three"


@pytest.mark.parametrize("opening", ["```python", "~~~", "````"])
def test_fenced_code_gets_no_line_breaks(opening: str) -> None:
    fence = opening.rstrip("python")
    wrap = WordWrap()
    text = f"{opening}\n{CODE}\n{'``' if fence == '~~~' else '~~~'}\n{CODE}\n{fence}\n"
    assert wrap.feed(text, 40) == text
    assert wrap.feed(CODE, 40) != CODE  # the fence is closed


@pytest.mark.parametrize("line", [f"    {CODE}", f"\t{CODE}", "| a cell | " * 8, "  | a cell | " * 8])
def test_indented_code_and_tables_get_no_line_breaks(line: str) -> None:
    assert WordWrap().feed(line, 40) == line.rstrip()


@pytest.mark.parametrize("start", ["- ", "    - ", "\t* ", "        12. ", "   ", "> "])
def test_lists_and_quotes_are_broken(start: str) -> None:
    assert all(len(row) < 40 for row in rows([start + PROSE]))
    assert WordWrap().feed(start + PROSE, 40).count("\n") > 5


def test_a_word_longer_than_a_row_is_left_to_the_terminal() -> None:
    address = "https://example.org/" + "x" * 100
    shown = rows(pieces_of(f"see {address} there", 1))
    assert shown == ["see", address[:40], address[40:80], address[80:], "there"]


def test_wide_characters() -> None:
    shown = rows(["天地玄黄宇宙洪荒" * 8], 21)
    assert "".join(shown).replace(" ", "") == "天地玄黄宇宙洪荒" * 8
    assert all(len(row.replace(" ", "")) <= 10 for row in shown)


def test_punctuation_does_not_begin_a_line_of_chinese() -> None:
    for n in range(4, 12):
        shown = rows(["天" * n + "。「" + "地" * 9], 13)
        assert not any(row.startswith("。") for row in shown)
        assert not any(row.rstrip().endswith("「") for row in shown)


def test_combining_characters_take_no_room() -> None:
    word = "e\u0301" * 8
    shown = WordWrap().feed(" ".join([word] * 4), 27)
    assert shown == f"{word} {word} {word}\n{word}"
    assert WordWrap().feed("1234567890 👩\u200d👩\u200d👧", 15).endswith("\n👩\u200d👩\u200d👧")


def test_a_resized_terminal() -> None:
    wrap = WordWrap()
    assert "\n" not in wrap.feed("a line that is not too long for it", 80)
    assert wrap.feed(" and more and more", 20) == " and\nmore and more"  # the first row has 14 cells now
    assert "\n" not in wrap.feed("narrow", 5)


@pytest.mark.slow
def test_spaces_at_the_end_of_a_line_are_left_out() -> None:
    assert WordWrap().feed("one  \ntwo\t\n\n  three", 40) == "one\ntwo\n\n  three"
