"""The corpus of the shipped model: an endless, deterministic stream of short documents."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from . import facts, lists, stories, sums
from .chats import Chat, Talker
from .fact_tables import KINDS
from .facts import a, sentence

END_OF_TEXT = "<|endoftext|>"
START_OF_TURN = "<|im_start|>"
END_OF_TURN = "<|im_end|>"

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
"""Renders messages exactly as :func:`chat_segments` does. The tokenizer adds the begin-of-text token."""


@dataclass(frozen=True)
class Segment:
    """A piece of a document. ``own`` marks text that the model has to write itself."""

    text: str
    own: bool


@dataclass(frozen=True)
class Document:
    """Document: the tokens between two end-of-text tokens."""

    segments: tuple[Segment, ...]
    is_chat: bool

    @property
    def text(self) -> str:
        return "".join(segment.text for segment in self.segments)


def chat_prompt(question: str, system: str | None = None) -> str:
    """Render one question with :data:`CHAT_TEMPLATE` and a generation prompt."""
    head = "" if system is None else f"{START_OF_TURN}system\n{system}{END_OF_TURN}\n"
    return f"{head}{START_OF_TURN}user\n{question}{END_OF_TURN}\n{START_OF_TURN}assistant\n"


def chat_segments(chat: Chat) -> tuple[Segment, ...]:
    """A conversation in the form of :data:`CHAT_TEMPLATE`, the prompts and the model's own text apart."""
    segments: list[Segment] = []
    for i, turn in enumerate(chat.turns):
        segments += [
            Segment(chat_prompt(turn.user, chat.system if i == 0 else None), own=False),
            Segment(turn.assistant + END_OF_TURN, own=True),
            Segment("\n", own=False),
        ]
    return tuple(segments)


_SAID = (("cat", "meow"), ("dog", "woof"), ("cow", "moo"), ("sheep", "baa"), ("pig", "oink"), ("duck", "quack"),
         ("horse", "neigh"), ("lion", "roar"), ("bee", "buzz"), ("snake", "hiss"), ("mouse", "squeak"))  # fmt: skip


def _statements(rng: random.Random) -> str:
    """One to three facts of one kind, told one after the other."""
    if rng.random() < 0.1:
        return " ".join(f"{sentence(a(what))} says {said}." for what, said in rng.sample(_SAID, rng.randint(1, 3)))
    kind = rng.choice(KINDS)
    rows = rng.sample(kind.rows, min(len(kind.rows), rng.randint(1, 3)))
    return " ".join(facts.sentence(kind.reply.format(**row)) for row in rows)


def _question_and_answer(rng: random.Random) -> str:
    """Questions and answers as plain text, the way people prompt a model that has no chat template."""
    asked, answered = rng.choice((("Q", "A"), ("Question", "Answer")))
    lines = []
    for _ in range(rng.randint(1, 3)):
        kind = rng.choice(KINDS)
        row = rng.choice(kind.rows)
        one = facts.question(kind, row, rng.choice(facts.training_phrasings(kind, row)))
        lines.append(f"{asked}: {one.text}\n{answered}: {one.reply}")
    return "\n".join(lines)


def _plain(text: str) -> Document:
    return Document((Segment(text, own=True),), is_chat=False)


def documents(seed: int, *, practice: bool = False) -> Iterator[Document]:
    """The documents, forever. The same seed gives the same documents; ``practice``: half are of what is hard."""
    rng = random.Random(seed)
    talker = Talker(rng)
    while True:
        if practice and rng.random() < 0.5:
            yield Document(chat_segments(talker.practice()), is_chat=True)
            continue
        kind = rng.random()
        if kind < 0.10:
            yield _plain(stories.story(rng))
        elif kind < 0.13:
            yield _plain(stories.pet_story(rng))
        elif kind < 0.15:
            yield _plain(stories.introduction(rng))
        elif kind < 0.19:
            yield _plain(_statements(rng))
        elif kind < 0.28:
            yield _plain(sums.listed(rng))
        elif kind < 0.32:
            yield _plain(lists.plain(rng))
        elif kind < 0.34:
            yield _plain(_question_and_answer(rng))
        else:
            yield Document(chat_segments(talker.chat()), is_chat=True)
