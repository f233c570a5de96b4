"""The corpus of the shipped model: an endless, deterministic stream of short documents."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from . import facts, stories
from .chats import TAUGHT_SUMS, Chat, Talker
from .fact_tables import KINDS

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
    """What stands between two end-of-text tokens."""

    segments: tuple[Segment, ...]
    is_chat: bool

    @property
    def text(self) -> str:
        return "".join(segment.text for segment in self.segments)


def chat_prompt(question: str, system: str | None = None) -> str:
    """What :data:`CHAT_TEMPLATE` makes of one question, with a generation prompt."""
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


def _statements(rng: random.Random) -> str:
    """One to three facts of one kind, told one after the other."""
    kind = rng.choice(KINDS)
    rows = rng.sample(kind.rows, min(len(kind.rows), rng.randint(1, 3)))
    return " ".join(facts.sentence(kind.reply.format(**row)) for row in rows)


def _sum_list(rng: random.Random) -> str:
    """One to four sums, one a line."""
    lines = []
    for _ in range(rng.randint(1, 4)):
        sign = rng.choice("++-")
        x, y = rng.choice(TAUGHT_SUMS[sign])
        lines.append(f"{x} {sign} {y} = {x + y if sign == '+' else x - y}")
    return "\n".join(lines)


def _plain(text: str) -> Document:
    return Document((Segment(text, own=True),), is_chat=False)


def documents(seed: int) -> Iterator[Document]:
    """The documents, forever. The same seed gives the same documents."""
    rng = random.Random(seed)
    talker = Talker(rng)
    while True:
        kind = rng.random()
        if kind < 0.25:
            yield _plain(stories.story(rng))
        elif kind < 0.29:
            yield _plain(stories.introduction(rng))
        elif kind < 0.38:
            yield _plain(_statements(rng))
        elif kind < 0.41:
            yield _plain(_sum_list(rng))
        else:
            yield Document(chat_segments(talker.chat()), is_chat=True)
