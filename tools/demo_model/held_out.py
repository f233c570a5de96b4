"""Held-out questions of the tests, with the expected answers."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from . import facts, styles, sums
from .fact_tables import KINDS


@dataclass(frozen=True)
class Asked:
    """A question, the system message above it and the one answer that is right."""

    question: str
    answer: str
    system: str | None = None


def fact_questions() -> list[Asked]:
    """One question per fact, in the phrasing that training never shows."""
    return [Asked(q.text, q.reply) for q in facts.held_out_questions(KINDS)]


def sum_questions() -> list[Asked]:
    """Every sum, in wordings that training never shows, which take turns; small ones in number words, too."""
    asked = []
    for sign, wordings in (("+", sums.HELD_OUT_ADD), ("-", sums.HELD_OUT_TAKE)):
        turns = itertools.cycle(wordings)
        pairs = sums.all_sums(sign)
        in_words = [(x, y) for x, y in pairs if max(x, y) <= sums.MAX_WORD]
        drawn = [sums.sum_question(sign, x, y, next(turns)) for x, y in pairs]
        drawn += [sums.sum_question(sign, x, y, next(turns), in_words=True) for x, y in in_words]
        asked += [Asked(q.text, q.reply) for q in drawn]
    return asked


def styled_questions() -> list[Asked]:
    """Facts under system messages that training never shows, in phrasings that it shows."""
    everything = [(kind, row) for kind in KINDS for row in kind.rows]
    asked = []
    for i, wish in enumerate(styles.held_out()):
        for kind, row in everything[i % 31 :: 31]:
            question = facts.question(kind, row, facts.training_phrasings(kind, row)[0])
            asked.append(Asked(question.text, styles.in_style(question, wish.style), wish.text))
    return asked
