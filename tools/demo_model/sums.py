"""Small sums in words: which there are, how they are asked for and what the answer is."""

from __future__ import annotations

import random

from .facts import Question, phrases, sentence, words

MAX_NUMBER, MAX_WORD = 20, 10
"""Sums of two numbers up to the first are taught, those written in words up to the second."""

NUMBER_WORDS = words(
    """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
    eighteen nineteen twenty"""
)
BEYOND = "I can only add and subtract whole numbers up to 20."

_ADD = (
    "What is {x} plus {y}?",
    "What is {x} plus {y}?",
    "What is {x} + {y}?",
    "What is {x} + {y}?",
    "How much is {x} plus {y}?",
    "How much is {x} + {y}?",
    "Add {x} and {y}.",
    "Add {x} to {y}.",
    "What is the sum of {x} and {y}?",
    "{x} + {y} = ?",
    "{x} + {y} =",
    "{x} + {y}",
    "{x}+{y}",
    "{x}+{y}=?",
    "{x} plus {y}",
    "Calculate {x} + {y}.",
    "Work out {x} plus {y}.",
    "What does {x} + {y} equal?",
    "What do you get if you add {x} and {y}?",
    "Tell me what {x} plus {y} is.",
    "Can you tell me what {x} + {y} is?",
    "Solve {x} + {y}.",
    "If I have {x} apples and get {y} more, how many do I have?",
    "Tom has {x} books and buys {y} more. How many books does he have?",
)
HELD_OUT_ADD = (
    "What do {x} and {y} add up to?",
    "Can you add {x} and {y}?",
    "How much do {x} and {y} make together?",
    "Please compute {x} + {y}.",
    "What does {x} plus {y} make?",
)
_TAKE = (
    "What is {x} minus {y}?",
    "What is {x} minus {y}?",
    "What is {x} - {y}?",
    "What is {x} - {y}?",
    "How much is {x} minus {y}?",
    "How much is {x} - {y}?",
    "Take {y} away from {x}.",
    "Subtract {y} from {x}.",
    "What is the difference of {x} and {y}?",
    "{x} - {y} = ?",
    "{x} - {y} =",
    "{x} - {y}",
    "{x}-{y}",
    "{x}-{y}=?",
    "{x} minus {y}",
    "Calculate {x} - {y}.",
    "Work out {x} minus {y}.",
    "What does {x} - {y} equal?",
    "What do you get if you take {y} from {x}?",
    "Tell me what {x} minus {y} is.",
    "Can you tell me what {x} - {y} is?",
    "Solve {x} - {y}.",
    "If I have {x} apples and eat {y}, how many are left?",
)
HELD_OUT_TAKE = (
    "What is left if you take {y} away from {x}?",
    "Can you subtract {y} from {x}?",
    "How much remains of {x} minus {y}?",
    "Please compute {x} - {y}.",
    "What does {x} minus {y} make?",
)
_MORE_ADD = phrases(
    """What do you get when {x} and {y} are added? | What is {x} and {y}? | How much is {x} and {y} together? |
    Put {x} and {y} together. How much is it? | {x} and {y} make how much? | Could you add {x} and {y} for me? |
    Sum up {x} and {y}. | What is the total of {x} and {y}? | Please add {x} and {y}. | Find {x} + {y}. |
    I have {x} and {y}. How much is that? | Do you know what {x} plus {y} is? | What will {x} plus {y} be? |
    Give me {x} plus {y}. | Add up {x} and {y}. | How many are {x} and {y}?"""
)
_MORE_TAKE = phrases(
    """What remains if you take {y} from {x}? | {x} take away {y} | What is {x} take away {y}? |
    Could you subtract {y} from {x} for me? | Please subtract {y} from {x}. | Find {x} - {y}. |
    How many are left of {x} after taking {y}? | If you take {y} from {x}, what is left? |
    Do you know what {x} minus {y} is? | Give me {x} minus {y}. | Start with {x} and take away {y}. |
    Remove {y} from {x}. How much is left? | How much is left of {x} if {y} go away? | What will {x} minus {y} be?"""
)
"""More wordings, for practice."""
_OTHER = phrases(
    """What is {x} times {y}? | What is {x} * {y}? | What is {x} x {y}? | {x} * {y} | Multiply {x} by {y}. |
    What is {x} divided by {y}? | What is {x} / {y}? | Divide {x} by {y}. | {x} / {y} = ? |
    What is {x} to the power of {y}? | What is {x} percent of {y}? | What is the square root of {x}? |
    Calculate {x} * {y}. | Calculate {x} / {y}. | What is the product of {x} and {y}? | Is {x} a prime number?"""
)


def all_sums(sign: str) -> list[tuple[int, int]]:
    """The sums of this sign ('+' or '-') that the model can be asked for."""
    numbers = range(MAX_NUMBER + 1)
    return [(x, y) for x in numbers for y in numbers if sign == "+" or y <= x]


def sum_question(sign: str, x: int, y: int, phrasing: str, *, in_words: bool = False) -> Question:
    """A sum put into words, or into nothing but words."""
    word, result = ("plus", x + y) if sign == "+" else ("minus", x - y)
    shown = [NUMBER_WORDS[n] if in_words else str(n) for n in (x, y, result)]
    text = phrasing.format(x=shown[0], y=shown[1])
    reply = sentence(f"{shown[0]} {word} {shown[1]} is {shown[2]}.")
    short = sentence(f"{shown[2]}.")
    return Question(sentence(text), reply, short, short)


def draw(rng: random.Random) -> Question:
    """A sum in a wording that training may show, or one that the model has to turn down."""
    kind = rng.random()
    if kind < 0.18:
        return _beyond(rng)
    sign = "+" if rng.random() < 0.6 else "-"
    return _drawn(rng, sign, rng.choice(_ADD if sign == "+" else _TAKE), in_words=kind < 0.36)


def practice(rng: random.Random) -> Question:
    """Draw as :func:`draw`, in more wordings and more often in number words."""
    if rng.random() < 0.12:
        return _beyond(rng)
    sign = "+" if rng.random() < 0.6 else "-"
    wordings = [*_ADD, *_MORE_ADD, *_MORE_ADD] if sign == "+" else [*_TAKE, *_MORE_TAKE, *_MORE_TAKE]
    return _drawn(rng, sign, rng.choice(wordings), in_words=rng.random() < 0.35)


def _drawn(rng: random.Random, sign: str, wording: str, *, in_words: bool) -> Question:
    """Any of the sums that are taught."""
    largest = MAX_WORD if in_words else MAX_NUMBER
    x, y = rng.choice([(x, y) for x, y in all_sums(sign) if max(x, y) <= largest])
    return sum_question(sign, x, y, wording, in_words=in_words)


def listed(rng: random.Random) -> str:
    """One to eight sums, one a line, as an exercise book has them."""
    lines = []
    for _ in range(rng.randint(1, 8)):
        sign = rng.choice("++-")
        x, y = rng.choice(all_sums(sign))
        lines.append(f"{x} {sign} {y} = {x + y if sign == '+' else x - y}")
    return "\n".join(lines)


def _beyond(rng: random.Random) -> Question:
    """A calculation that the model has not learnt."""
    if rng.random() < 0.35:
        text = rng.choice(_OTHER).format(x=_number(rng, 0), y=_number(rng, 0))
    elif rng.random() < 0.15:
        low = rng.randint(0, MAX_NUMBER - 1)
        text = rng.choice(_TAKE).format(x=low, y=rng.randint(low + 1, MAX_NUMBER))
    else:
        pair = [_number(rng, MAX_NUMBER + 1), _number(rng, 0)]
        rng.shuffle(pair)
        text = rng.choice(_ADD + _TAKE).format(x=pair[0], y=pair[1])
    return Question(text, BEYOND, BEYOND, "Unknown.")


def _number(rng: random.Random, low: int) -> int:
    """A number from ``low`` up: most have two digits, some up to five."""
    return rng.randint(low, rng.choice((40, 99, 99, 999, 99_999)))
