"""Lists, counts and JSON: what people ask for when they try structured output."""

from __future__ import annotations

import json
import random

from .facts import Question, sentence, words
from .sums import NUMBER_WORDS
from .world import BOYS, COLOURS, FOODS, GIRLS, PET_NAMES, TOYS, any_name

_NAMED = {
    "colours": words("red blue green yellow white"),
    "animals": words("dog cat horse cow bird"),
    "fruits": words("apple pear cherry banana plum"),
    "flowers": words("rose tulip lily daisy sunflower"),
    "days": words("Monday Tuesday Wednesday Thursday Friday"),
    "months": words("January February March April May"),
    "countries": words("France Germany Italy Spain Japan"),
    "cities": words("Paris London Rome Berlin Madrid"),
    "toys": words("ball kite doll drum boat"),
}
_ASK_LIST = (
    "Name {n} {what}.",
    "List {n} {what}.",
    "Tell me {n} {what}.",
    "Give me {n} {what}.",
    "Can you name {n} {what}?",
)
_ASK_COUNT = ("Count to {n}.", "Count from one to {n}.", "Can you count to {n}?", "Please count to {n}.")
_PETS = ("dog", "cat", "bird", "rabbit", "pony", "fish")
_NUMBER_HEADS = ("{n} numbers:", "A list of {n} numbers:", "{n} small numbers:", "Numbers:")
_WORD_HEADS = ("{n} {what}:", "A list of {n} {what}:", "{what}:", "Tags:")


def _joined(items: list[str]) -> str:
    return f"{', '.join(items[:-1])} and {items[-1]}"


def question(rng: random.Random) -> Question:
    """A request to count, or to name a few things."""
    if rng.random() < 0.35:
        n = rng.randint(2, 20)
        counted = sentence(", ".join(NUMBER_WORDS[1 : n + 1])) + "."
        asked = rng.choice(_ASK_COUNT).format(n=NUMBER_WORDS[n] if rng.random() < 0.6 else n)
        return Question(asked, counted, counted, counted)
    what = rng.choice(list(_NAMED))
    n = rng.randint(2, 5)
    number = NUMBER_WORDS[n]
    some = _named(what, n)
    asked = rng.choice(_ASK_LIST).format(n=number if rng.random() < 0.7 else n, what=what)
    short = sentence(", ".join(some)) + "."
    return Question(asked, f"Here are {number} {what}: {_joined(some)}.", short, short)


def _named(what: str, n: int) -> list[str]:
    return _NAMED[what][:n]


def plain(rng: random.Random) -> str:
    """A heading and what it announces, most often as JSON."""
    draw = rng.random()
    if draw < 0.3:
        n = rng.randint(2, 6)
        values = [rng.randint(0, 20) for _ in range(n)]
        return f"{sentence(rng.choice(_NUMBER_HEADS).format(n=NUMBER_WORDS[n]))} {_dumped(rng, values)}"
    if draw < 0.5:
        what, n = rng.choice(list(_NAMED)), rng.randint(1, 5)
        heading = rng.choice(_WORD_HEADS).format(n=NUMBER_WORDS[n], what=what)
        return f"{sentence(heading)} {_dumped(rng, rng.sample(_NAMED[what], n))}"
    return _record(rng)


def _record(rng: random.Random) -> str:
    """Return a description of a person or thing as a JSON object, after a short introduction."""
    owner = any_name(rng, rng.random() < 0.5)
    kind = rng.choice(_PETS)
    pet = {
        "name": rng.choice(PET_NAMES),
        "kind": kind,
        "age": rng.randint(1, 12),
        "colour": rng.choice(COLOURS.split("|")),
        "legs": 2 if kind == "bird" else 0 if kind == "fish" else 4,
        "tame": rng.random() < 0.7,
        "likes": rng.sample(TOYS.split("|"), rng.randint(1, 3)),
    }
    person = {
        "name": rng.choice(GIRLS + BOYS),
        "age": rng.randint(5, 80),
        "city": rng.choice(_NAMED["cities"]),
        "likes": rng.sample([food.split(" ", 1)[1] for food in FOODS.split("|")], rng.randint(1, 3)),
        "friends": rng.sample(GIRLS + BOYS, rng.randint(1, 3)),
    }
    if rng.random() < 0.65:
        thing = rng.choice((kind, "pet", "pet"))
        heading = rng.choice((f"{owner} had a {thing}:", f"A {thing}:", f"{owner} has a {thing}:", f"My {thing}:"))
        record = pet
    else:
        heading, record = rng.choice(("A person:", "A child:", f"{person['name']}:", "A friend:", "My friend:")), person
    kept = rng.sample(list(record), rng.randint(1, len(record)))
    if rng.random() < 0.6:
        kept.sort(key=list(record).index)
    return f"{heading} {_dumped(rng, {key: record[key] for key in kept})}"


def _dumped(rng: random.Random, value: object) -> str:
    return json.dumps(value) if rng.random() < 0.8 else json.dumps(value, separators=(",", ":"))
