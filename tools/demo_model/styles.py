"""Styles of answers: a full sentence, a few words, one word."""

from __future__ import annotations

import hashlib
import itertools
import random
from dataclasses import dataclass
from typing import Literal

from .facts import Question, phrases, words

Style = Literal["reply", "brief", "word"]
"""The field of :class:`Question` that a wish asks for."""

_VERBS = phrases(
    """Answer | Reply | Respond | Always answer | Please answer | Please reply | You answer | You reply |
    You must answer | Answer every question | Answer all questions | Answer the user | You always respond"""
)


def _combined(manners: str, more: str) -> list[str]:
    """Every verb with every manner, and what is no such pair."""
    crossed = [f"{verb} {manner}." for verb, manner in itertools.product(_VERBS, phrases(manners))]
    return crossed + phrases(more)


_WISHES: dict[Style, list[str]] = {
    "word": _combined(
        """in one word | with one word | in a single word | with a single word | in exactly one word |
        with just one word | with only one word | with one word only | using one word""",
        """Use one word. | One word answers only. | Give one-word answers. | Your answers are one word long. |
        Say only one word. | Use a single word for each answer. | One-word answers, please. | Be very brief: one word. |
        One word. | Never use more than one word. | Write just one word.""",
    ),
    "brief": _combined(
        """briefly | shortly | concisely | in a few words | in few words | with few words | as briefly as you can |
        with as few words as possible | in short""",
        """Be brief. | Be concise. | Give short answers. | Keep your answers short. | Keep it short. |
        Short answers, please. | Use few words. | No long answers. | Do not use full sentences. |
        You give short answers. | Your answers are short.""",
    ),
    "reply": _combined(
        """in full sentences | in a full sentence | in a complete sentence | with a whole sentence |
        in complete sentences | in one sentence | with one full sentence | with complete sentences |
        in whole sentences""",
        """Use full sentences. | Write full sentences. | Give complete sentences. | Always use a complete sentence. |
        Speak in full sentences. | Full sentences, please. | Your answers are full sentences.""",
    ),
}
_HELD_OUT_BY_HAND: dict[Style, list[str]] = {
    "word": phrases(
        """Only use one word. | Please give one-word replies. | You are a terse assistant. Reply using a single word. |
        I want one word, nothing more. | Each answer must be one word."""
    ),
    "brief": phrases(
        """Please be brief. | Make your answers short. | You are a helpful bot that gives short replies. |
        Keep answers brief. | Respond as shortly as possible."""
    ),
    "reply": phrases(
        """Please use full sentences. | Every answer is a complete sentence. |
        You are a polite assistant. Speak in whole sentences. | Write complete sentences. |
        Reply to me in full sentences."""
    ),
}

_ROLES = phrases(
    """assistant | bot | teacher | friend | guide | language model | chatbot | helper | pirate | robot | expert |
    storyteller | AI assistant | tutor | poet | librarian | coding assistant | writer"""
)
_ADJECTIVES = words("helpful friendly small polite kind careful wise honest clever cheerful")
_NEUTRAL = phrases(
    """Answer the questions of the user. | You answer questions and tell stories. | Be polite and helpful. |
    Answer the following questions. | You talk to children. | Be kind. | Help the user. | Be honest. |
    You are talking to a student. | You like stories. | Today is Monday. | Be friendly to everyone."""
)


@dataclass(frozen=True)
class Wish:
    """Style of the answers of a chat, and the instruction for it."""

    style: Style
    text: str


def _is_held_out(text: str) -> bool:
    return hashlib.sha256(text.encode()).digest()[0] < 20


_TAUGHT = {style: [text for text in texts if not _is_held_out(text)] for style, texts in _WISHES.items()}


def held_out() -> list[Wish]:
    """Wishes that training never shows: written by hand, and some of those that are put together."""
    wishes = []
    for style, texts in _WISHES.items():
        crossed = [text for text in texts if _is_held_out(text)]
        wishes += [Wish(style, text) for text in (*_HELD_OUT_BY_HAND[style], *crossed[:5])]
    return wishes


def wish(rng: random.Random) -> Wish:
    """A wish that training may show."""
    style: Style = rng.choice(("word", "word", "brief", "reply"))
    return Wish(style, rng.choice(_TAUGHT[style]))


def system(rng: random.Random) -> Wish:
    """A system message: who the assistant is, how it answers, or both."""
    draw = rng.random()
    if draw < 0.3:
        return Wish("reply", neutral(rng))
    chosen = wish(rng)
    if draw < 0.65:
        return chosen
    who = neutral(rng)
    both = rng.sample((who, chosen.text), 2) if draw > 0.9 else (who, chosen.text)
    return Wish(chosen.style, " ".join(both))


def neutral(rng: random.Random) -> str:
    """A system message that says nothing about the length of answers."""
    draw = rng.random()
    if draw < 0.3:
        return "You are a helpful assistant."
    if draw < 0.75:
        adjective = f"{rng.choice(_ADJECTIVES)} " if rng.random() < 0.7 else ""
        role = adjective + rng.choice(_ROLES)
        return f"You are {'an' if role[0] in 'aeiouAEIOU' else 'a'} {role}."
    return rng.choice(_NEUTRAL)


def in_style(question: Question, style: Style) -> str:
    """The answer as the wish wants it."""
    return {"reply": question.reply, "brief": question.brief, "word": question.word}[style]
