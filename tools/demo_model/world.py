"""The world of the stories: who lives there, and what has been settled about the story being told."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from .facts import words

GIRLS = words("Lily Anna Mia Rosa Emma Lucy Nora Sara Ella Maya Clara Daisy Ruby Alice Zoe Ivy")
BOYS = words("Tom Ben Max Sam Leo Jack Tim Finn Oscar Peter Hugo Noah Adam Felix Oliver Paul")
ANIMALS = words("cat dog fox rabbit bear mouse duck frog squirrel hedgehog pony goat lamb owl")

# Choices for World.pick.
TOYS = "ball|kite|doll|drum|boat|hat|scarf|book|teddy|lantern|bell|spoon|whistle|bucket"
COLOURS = "red|blue|green|yellow|white|brown|pink|orange|purple"
FOODS = "an apple|a pear|a sandwich|a cake|a pie|a bun|a cookie|a carrot|a bowl of soup|a piece of bread"
PLACES = "park|garden|forest|meadow|field|village|beach"
WATERS = "river|lake|pond|stream"
FEELINGS = "kind|clever|brave|curious|cheerful|gentle|shy|friendly"
WEATHERS = (
    "The sun was shining|The sky was blue|It was a warm day|A soft wind was blowing|The birds were singing|"
    "It was a cold morning|There were white clouds in the sky|The air was fresh"
)


def the(phrase: str) -> str:
    """The same thing when it is named again: its first indefinite article made definite."""
    return re.sub(r"\b(a|an) ", "the ", phrase, count=1)


@dataclass(frozen=True)
class Being:
    """Someone in a story: what they are, what they are called and which pronouns fit."""

    what: str
    name: str
    she: bool

    @property
    def subj(self) -> str:
        return "she" if self.she else "he"

    @property
    def obj(self) -> str:
        return "her" if self.she else "him"

    @property
    def poss(self) -> str:
        return "her" if self.she else "his"

    @property
    def full(self) -> str:
        """The name as others say it: an animal's tells what it is."""
        return f"{self.name} the {self.what}" if self.what in ANIMALS else self.name

    @property
    def Subj(self) -> str:  # noqa: N802 - the capital letter is the point
        return self.subj.capitalize()


class World:
    """The dice and the cast of one story."""

    def __init__(self, rng: random.Random, what: str | None = None, name: str | None = None) -> None:
        self.rng = rng
        self._taken: set[str] = set()
        self.hero = self.being(what, name)

    def pick(self, *choices: str) -> str:
        """One of the texts; a single text holds its choices between bars."""
        return self.rng.choice(choices[0].split("|") if len(choices) == 1 else choices)

    def being(self, what: str | None = None, name: str | None = None) -> Being:
        """Somebody who is not in the story yet."""
        if name is not None:
            she = name in GIRLS
        elif what in ("girl", "boy"):
            she = what == "girl"
        else:
            she = self.rng.random() < 0.5
        name = name or self.rng.choice([n for n in (GIRLS if she else BOYS) if n not in self._taken])
        if what is None:
            free = [animal for animal in ANIMALS if animal not in self._taken]
            what = self.rng.choice(free) if self.rng.random() < 0.5 else ("girl" if she else "boy")
        self._taken |= {name} | ({what} if what in ANIMALS else set())
        return Being(what, name, she)

    def opening(self) -> list[str]:
        """Who the story is about, and when."""
        hero, size = self.hero, self.pick("little", "little", "small", "young")
        named = self.pick("named", "called")
        first = self.pick(
            f"Once upon a time, there was a {size} {hero.what} {named} {hero.name}.",
            f"Once upon a time, there was a {size} {hero.what} {named} {hero.name}.",
            f"Once upon a time, a {size} {hero.what} {named} {hero.name} lived near a {self.pick(WATERS)}.",
            f"There once was a {size} {hero.what} {named} {hero.name}.",
            f"There was a {size} {hero.what} {named} {hero.name}.",
            f"{hero.name} was a {size} {hero.what}.",
            f"One day, a {size} {hero.what} {named} {hero.name} woke up early.",
            f"In a small house near the {self.pick(PLACES)}, there lived a {size} {hero.what} {named} {hero.name}.",
        )
        mood, parent = self.pick(FEELINGS), self.pick("mother|father|family|grandmother")
        second = self.pick(
            f"{hero.Subj} was very {mood}.",
            f"{hero.name} was {mood} and liked to {self.pick('play|sing|run|read|dance|explore|laugh')}.",
            f"Everyone said that {hero.subj} was {mood}.",
            f"{hero.Subj} lived with {hero.poss} {parent}" + ("." if "lived" in first else f" in a {self.home()}."),
        )
        return [first, second] if self.rng.random() < 0.75 else [first]

    def home(self) -> str:
        return self.pick("small house|little house|white house|house by the river")

    def one_day(self) -> str:
        """How the day of the story starts."""
        return self.pick("One day", "One day", "One morning", "One sunny morning", "One afternoon", "One summer day")

    def weather(self) -> list[str]:
        return [self.pick(WEATHERS) + "."] if self.rng.random() < 0.5 else []

    def ending(self, *own: str) -> list[str]:
        """A last sentence or two; ``own`` are endings that only this plot can have."""
        hero = self.hero
        last = self.pick(
            *own,
            f"{hero.name} was very happy.",
            f"That night, {hero.name} slept well.",
            f"It was the best day of {hero.poss} life.",
            f"{hero.name} never forgot that day.",
        )
        return [last, "The end."] if self.rng.random() < 0.15 else [last]
