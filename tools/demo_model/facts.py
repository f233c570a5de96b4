"""Facts, and their conversion to questions.

A *fact* is one row of one :class:`Kind`. Every question is a fact put into one of its kind's phrasings, and
the reply depends on the fact alone, so that a reply is right or wrong without any judgement. For each fact
exactly one phrasing is held out of training: see :func:`held_out_phrasing`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

Row = dict[str, str]


@dataclass(frozen=True)
class Kind:
    """One kind of fact.

    Attributes:
        name: Unique name, part of what decides which phrasing is held out.
        rows: The facts. Each row's values fill the templates below.
        ask: The phrasings of the question.
        reply: The full answer, a sentence.
        brief: The answer in few words, for chats that ask for short answers.
        word: The answer in one word (a name may have more), for chats that ask for that.
        follow: How a second question of the same kind may be put ("And France?").
    """

    name: str
    rows: tuple[Row, ...]
    ask: tuple[str, ...]
    reply: str
    brief: str
    word: str
    follow: tuple[str, ...]


@dataclass(frozen=True)
class Question:
    """A question in words, with its answer as a full sentence, in few words and in one."""

    text: str
    reply: str
    brief: str
    word: str


def sentence(text: str) -> str:
    """The same text with a capital first letter."""
    return text[0].upper() + text[1:]


def a(noun: str) -> str:
    """The noun with its indefinite article. Fits every noun of the fact tables."""
    return ("an " if noun[0] in "aeiou" else "a ") + noun


_PLURALS = {
    "fish": "fish", "sheep": "sheep", "wolf": "wolves", "mouse": "mice", "goose": "geese", "fox": "foxes",
}  # fmt: skip


def many(noun: str) -> str:
    """The noun's plural. Fits the animals of the fact tables."""
    return _PLURALS.get(noun, noun + "s")


def bare(phrase: str) -> str:
    """The phrase without an article at its start."""
    return re.sub(r"^(a|an|the) ", "", phrase)


def phrases(text: str) -> list[str]:
    """The phrases of a text that holds them between bars."""
    return [phrase.strip() for phrase in " ".join(text.split()).split("|")]


def words(text: str) -> list[str]:
    """The words of a text."""
    return text.split()


def question(kind: Kind, row: Row, phrasing: str) -> Question:
    """The question that asks for this fact in this phrasing."""
    return Question(
        text=sentence(phrasing.format(**row)),
        reply=sentence(kind.reply.format(**row)),
        brief=sentence(kind.brief.format(**row)),
        word=sentence(kind.word.format(**row)),
    )


def held_out_phrasing(kind: Kind, row: Row) -> str:
    """The one phrasing of this fact that training never shows.

    A digest decides, not a random generator: the choice for one fact stays the same when other facts come
    or go.
    """

    def digest(phrasing: str) -> bytes:
        return hashlib.sha256("|".join([kind.name, *row.values(), phrasing]).encode()).digest()

    return min(kind.ask, key=digest)


def training_phrasings(kind: Kind, row: Row) -> list[str]:
    """Every phrasing of this fact but the held-out one."""
    kept_back = held_out_phrasing(kind, row)
    return [phrasing for phrasing in kind.ask if phrasing != kept_back]


def held_out_questions(kinds: Iterable[Kind]) -> Iterator[Question]:
    """One question per fact, in the phrasing that training never shows."""
    for kind in kinds:
        for row in kind.rows:
            yield question(kind, row, held_out_phrasing(kind, row))
