"""Conversations for the shipped model: facts, sums, small talk and stories on request."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass

from . import facts, stories, world
from .fact_tables import KINDS

MAX_TOTAL, MAX_MINUEND = 20, 10
"""Additions are taught up to the first as their result, subtractions from numbers up to the second."""

_BRIEF_SYSTEM = (
    "Answer with as few words as possible.",
    "Answer briefly.",
    "Be brief.",
    "Give short answers.",
    "You are a helpful assistant. Answer briefly.",
)
_SYSTEM = (
    "You are a helpful assistant.",
    "You are a friendly assistant.",
    "You are a small language model.",
    "Answer the questions of the user.",
    "You answer questions and tell stories.",
    "You are a teacher. Answer in full sentences.",
    "Be polite and helpful.",
)
_UNKNOWN_QUESTIONS = (
    "What is the capital of {x}?",
    "What colour is {x}?",
    "What is {x}?",
    "What is a {x}?",
    "Who is {x}?",
    "Where is {x}?",
    "What does {x} mean?",
    "What does a {x} eat?",
    "Tell me about {x}.",
    "What do you know about {x}?",
    "Can you explain {x}?",
    "How do I use {x}?",
    "Why is {x} so {y}?",
    "When was {x} born?",
    "How old is {x}?",
    "Write about {x} and {y}.",
)
_UNKNOWN_REPLY = "I do not know that. I am only a small demonstration model."
_SMALL_TALK: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        ("Hello!", "Hello", "Hi!", "Hi", "Hi there!", "Good morning!", "Hey!", "Good evening!"),
        "Hello! How can I help you?",
    ),
    (("How are you?", "How are you today?", "Are you well?"), "I am well, thank you. How can I help you?"),
    (
        ("Thank you!", "Thanks!", "Thank you very much!", "Thanks a lot!", "That is very kind of you."),
        "You are welcome!",
    ),
    (("Goodbye!", "Bye!", "See you soon!", "Good night!"), "Goodbye! Have a nice day."),
    (
        (
            "Who are you?",
            "What are you?",
            "What is your name?",
            "Tell me about yourself.",
            "Introduce yourself.",
        ),
        "I am the small demonstration model that comes with pyggml.",
    ),
    (
        (
            "What can you do?",
            "How can you help me?",
            "Can you help me?",
            "What can I ask you?",
            "Help me, please.",
        ),
        "I can tell short stories, answer simple questions and add small numbers.",
    ),
    (
        ("Are you a person?", "Are you human?", "Are you a real person?"),
        "No, I am a small language model.",
    ),
)
_REPEAT = ("Repeat: {}", "Say: {}", "Repeat after me: {}", "Please say: {}", "Repeat these words: {}")
_STORY_REQUESTS = (
    "Tell me a story about {hero}.",
    "Tell me a short story about {hero}.",
    "Write a story about {hero}.",
    "Write a short story about {hero}.",
    "Can you tell me a story about {hero}?",
    "I want to hear a story about {hero}.",
    "Please tell me a story about {hero}.",
)
_ANY_STORY = ("Tell me a story.", "Tell me a short story.", "Write a story.", "Can you tell me a story?")
_ADD = (
    "What is {x} plus {y}?",
    "What is {x} + {y}?",
    "How much is {x} plus {y}?",
    "How much is {x} + {y}?",
    "Add {x} and {y}.",
    "What is the sum of {x} and {y}?",
    "{x} + {y} = ?",
    "Calculate {x} + {y}.",
)
_TAKE = (
    "What is {x} minus {y}?",
    "What is {x} - {y}?",
    "How much is {x} minus {y}?",
    "How much is {x} - {y}?",
    "Take {y} away from {x}.",
    "{x} - {y} = ?",
    "Calculate {x} - {y}.",
)


@dataclass(frozen=True)
class Turn:
    """One question and its answer."""

    user: str
    assistant: str


@dataclass(frozen=True)
class Chat:
    """A conversation, with a system message where there is one."""

    turns: tuple[Turn, ...]
    system: str | None = None


def sum_is_held_out(sign: str, x: int, y: int) -> bool:
    """Whether training never shows this sum, in any wording and in neither order of its numbers."""
    low, high = sorted((x, y))
    return hashlib.sha256(f"{sign}|{low}|{high}".encode()).digest()[0] < 26


def sums(sign: str, *, held_out: bool) -> list[tuple[int, int]]:
    """The sums of this sign ('+' or '-') that are held out, or those that are not."""
    numbers = range(MAX_TOTAL + 1)
    if sign == "+":
        pairs = [(x, y) for x in numbers for y in numbers if x + y <= MAX_TOTAL]
    else:
        pairs = [(x, y) for x in numbers for y in numbers if y <= x <= MAX_MINUEND]
    return [(x, y) for x, y in pairs if sum_is_held_out(sign, x, y) == held_out]


def sum_question(sign: str, x: int, y: int, phrasing: str) -> facts.Question:
    """A sum put into words."""
    word, result = ("plus", x + y) if sign == "+" else ("minus", x - y)
    return facts.Question(phrasing.format(x=x, y=y), f"{x} {word} {y} is {result}.", f"{result}.")


def sum_phrasings(sign: str) -> tuple[str, ...]:
    """The ways of asking for a sum of this sign."""
    return _ADD if sign == "+" else _TAKE


TAUGHT_SUMS = {sign: sums(sign, held_out=False) for sign in "+-"}
_ALL_FACTS = [(kind, row) for kind in KINDS for row in kind.rows]


class Talker:
    """Draws conversations.

    Facts come in shuffled rounds rather than by single draws, so that none is seen less often than another.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._round: list[tuple[facts.Kind, facts.Row]] = []

    def chat(self) -> Chat:
        """The next conversation."""
        kind = self._rng.random()
        if kind < 0.14:
            return self._story()
        if kind < 0.20:
            return self._name()
        if kind < 0.40:
            return self._system(self._questions()[:1])
        return self._system(self._several_turns())

    def _next_fact(self) -> tuple[facts.Kind, facts.Row]:
        if not self._round:
            self._round = self._rng.sample(_ALL_FACTS, len(_ALL_FACTS))
        return self._round.pop()

    def _questions(self) -> list[facts.Question]:
        """A question, and sometimes one or two more that only make sense after it."""
        if self._rng.random() < 0.28:
            sign = "+" if self._rng.random() < 0.75 else "-"
            x, y = self._rng.choice(TAUGHT_SUMS[sign])
            return [sum_question(sign, x, y, self._rng.choice(sum_phrasings(sign)))]
        kind, row = self._next_fact()
        found = [facts.question(kind, row, self._rng.choice(facts.training_phrasings(kind, row)))]
        while self._rng.random() < 0.12:
            found.append(facts.question(kind, self._rng.choice(kind.rows), self._rng.choice(kind.follow)))
        return found

    def _several_turns(self) -> list[facts.Question]:
        questions: list[facts.Question] = []
        for _ in range(self._rng.choice((1, 2, 2, 3, 3, 4, 6))):
            draw = self._rng.random()
            if draw < 0.10:
                asked, reply = self._rng.choice(_SMALL_TALK)
                questions.append(facts.Question(self._rng.choice(asked), reply, reply))
            elif draw < 0.16:
                questions.append(self._unknown())
            elif draw < 0.25:
                questions.append(self._repeat())
            else:
                questions += self._questions()
        return questions

    def _unknown(self) -> facts.Question:
        """Something that no table tells, about made-up words."""
        text = self._rng.choice(_UNKNOWN_QUESTIONS).format(x=self._word(), y=self._word())
        return facts.Question(text, _UNKNOWN_REPLY, "I do not know.")

    def _repeat(self) -> facts.Question:
        """A few words to say again: practice in looking back, which keeps names straight in stories."""
        known = [*world.GIRLS, *world.BOYS, *world.ANIMALS, *f"{world.TOYS}|{world.COLOURS}".split("|")]
        said = [
            self._word() if self._rng.random() < 0.2 else self._rng.choice(known)
            for _ in range(self._rng.randint(1, 6))
        ]
        words = self._rng.choice((" ", ", ", " ")).join(said)
        return facts.Question(self._rng.choice(_REPEAT).format(words), words, words)

    def _word(self) -> str:
        consonants, vowels = "bcdfghjklmnprstvwxz", "aeiou"
        syllables = self._rng.randint(2, 4)
        word = "".join(self._rng.choice(consonants) + self._rng.choice(vowels) for _ in range(syllables))
        word += self._rng.choice(("", "n", "s", "r", "x", "th"))
        return word.capitalize() if self._rng.random() < 0.5 else word

    def _system(self, questions: list[facts.Question]) -> Chat:
        """The questions as a conversation, some of them under a system message."""
        draw = self._rng.random()
        if draw < 0.15:
            turns = tuple(Turn(self._worded(q.text), q.brief) for q in questions)
            return Chat(turns, self._rng.choice(_BRIEF_SYSTEM))
        turns = tuple(Turn(self._worded(q.text), q.reply) for q in questions)
        return Chat(turns, self._rng.choice(_SYSTEM) if draw < 0.33 else None)

    def _worded(self, text: str) -> str:
        """The question as it is, or in the careless or polite form that people type."""
        draw = self._rng.random()
        if draw < 0.06:
            return text.rstrip("?.!")
        if draw < 0.12:
            return text[0].lower() + text[1:].rstrip("?.!")
        if draw < 0.17:
            return self._rng.choice(("Hi! ", "Hello! ", "Please answer: ", "Question: ", "One more question. ")) + text
        return text

    def _story(self) -> Chat:
        """A story on request."""
        if self._rng.random() < 0.3:
            return Chat((Turn(self._rng.choice(_ANY_STORY), stories.story(self._rng)),))
        hero, what, name = stories.request(self._rng)
        asked = self._rng.choice(_STORY_REQUESTS).format(hero=hero)
        return Chat((Turn(asked, stories.story(self._rng, what, name)),))

    def _name(self) -> Chat:
        """Somebody tells a name and asks for it again later."""
        name = self._rng.choice(world.GIRLS + world.BOYS)
        told = self._rng.choice(("My name is {}.", "I am {}.", "Hello, my name is {}.", "Hi, I am {}.", "Call me {}."))
        asked = self._rng.choice(("What is my name?", "Do you know my name?", "Who am I?", "Can you say my name?"))
        turns = [Turn(told.format(name), f"Nice to meet you, {name}!")]
        if self._rng.random() < 0.5:
            turns += [Turn(q.text, q.reply) for q in self._questions()]
        turns.append(Turn(asked, f"Your name is {name}."))
        return Chat(tuple(turns))
