"""The world of the stories: who lives there, and what has been settled about the story being told."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from .facts import a, words

GIRLS = words(
    """Lily Anna Mia Rosa Emma Lucy Nora Sara Ella Maya Clara Daisy Ruby Alice Zoe Ivy Sophie Julia Hannah Laura Kate
    Jane Mary Eva Lena Olivia Grace Amy Molly Nina Tina Sally Betty Carol Diana Helen Ines Jenny Kim Linda Martha Nancy
    Paula Rita Susan Vera Wendy Yara Amira Fatima Leila Priya Mei Yuki Ingrid Freya Elsa Greta Isabella Charlotte"""
)
BOYS = words(
    """Tom Ben Max Sam Leo Jack Tim Finn Oscar Peter Hugo Noah Adam Felix Oliver Paul John James David Daniel Lucas
    Henry George Harry Charlie William Thomas Robert Michael Simon Martin Mark Luke Matt Nick Alex Anton Bruno Carl
    Dylan Eric Frank Greg Ivan Jonas Karl Liam Mateo Nils Otto Omar Ali Ravi Kenji Wei Pablo Diego Theo Victor Walter"""
)
ANIMALS = words(
    """cat dog fox rabbit bear mouse duck frog squirrel hedgehog pony goat lamb owl bird hen pig cow horse lion tiger
    monkey elephant penguin turtle bee wolf deer dragon robot"""
)
ONLY_GIRLS, ONLY_BOYS = words("princess queen witch"), words("prince king wizard knight")
WHATS = [*ANIMALS, *ONLY_GIRLS, *ONLY_BOYS]
"""Everything a hero can be but a girl or a boy."""

# Choices for World.pick.
TOYS = "ball|kite|doll|drum|boat|hat|scarf|book|teddy|lantern|bell|spoon|whistle|bucket"
COLOURS = "red|blue|green|yellow|white|brown|pink|orange|purple"
FOODS = "an apple|a pear|a sandwich|a cake|a pie|a bun|a cookie|a carrot|a banana|a piece of bread"
PLACES = "park|garden|forest|meadow|field|village"
"""Places that one is *in*."""
WATERS = "river|lake|pond|stream"
FEELINGS = "kind|clever|brave|curious|cheerful|gentle|shy|friendly"
WEATHERS = (
    "The sun was shining|The sky was blue|It was a warm day|A soft wind was blowing|The birds were singing|"
    "There were white clouds in the sky|The air was fresh"
)


def the(phrase: str) -> str:
    """The same thing when it is named again: its first indefinite article made definite."""
    return re.sub(r"\b(a|an) ", "the ", phrase, count=1)


PET_NAMES = words(
    "Rex Spot Rusty Coco Bella Luna Fluffy Biscuit Pepper Snowy Ginger Shadow Buddy Milo Toby Patch Cookie Honey Bruno"
)


def made_up_word(rng: random.Random) -> str:
    """Return an invented word, without a capital letter."""
    consonants, vowels = "bcdfghjklmnprstvwxz", "aeiou"
    syllables = rng.randint(2, 3)
    word = "".join(rng.choice(consonants) + rng.choice(vowels) for _ in range(syllables))
    return word + rng.choice(("", "n", "s", "r", "x", "th"))


def any_name(rng: random.Random, she: bool) -> str:
    """Return a name, sometimes an invented one, which the model has to copy from the text."""
    if rng.random() < 0.06:
        return made_up_word(rng).capitalize()
    return rng.choice(GIRLS if she else BOYS)


@dataclass(frozen=True)
class Being:
    """Character of a story: species, name and pronouns."""

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
        return f"{self.name} the {self.what}" if self.what in WHATS else self.name

    @property
    def Subj(self) -> str:  # noqa: N802 - the capital letter is the point
        return self.subj.capitalize()

    @property
    def Poss(self) -> str:  # noqa: N802
        return self.poss.capitalize()


class World:
    """The dice and the cast of one story."""

    def __init__(self, rng: random.Random, what: str | None = None, name: str | None = None) -> None:
        self.rng = rng
        self._taken: set[str] = set()
        self._dated = False
        self.hero = self.being(what, name)

    def pick(self, *choices: str) -> str:
        """One of the texts; a single text holds its choices between bars."""
        return self.rng.choice(choices[0].split("|") if len(choices) == 1 else choices)

    def being(self, what: str | None = None, name: str | None = None) -> Being:
        """Return a character who is not in the story yet."""
        she = self._is_she(what, name)
        while name is None or name in self._taken:
            name = any_name(self.rng, she)
        if what is None:
            what = ("girl" if she else "boy") if self.rng.random() < 0.5 else self._free_animal()
        self._taken |= {name, what} - {"girl", "boy"}
        return Being(what, name, she)

    def _is_she(self, what: str | None, name: str | None) -> bool:
        if what == "girl" or what in ONLY_GIRLS or name in GIRLS:
            return True
        if what == "boy" or what in ONLY_BOYS or name in BOYS:
            return False
        return self.rng.random() < 0.5

    def _free_animal(self) -> str:
        return self.rng.choice([animal for animal in ANIMALS if animal not in self._taken])

    def opening(self, *, timeless: bool = False) -> list[str]:
        """Return the opening of a story: its character and time. ``timeless``: no particular day."""
        hero, size = self.hero, self.pick("little", "little", "small", "young")
        who = f"{size} {hero.what} {self.pick('named', 'called')} {hero.name}"
        firsts = [
            f"Once upon a time, there was a {who}.",
            f"Once upon a time, there was a {who}.",
            f"Once upon a time, a {who} lived near a {self.pick(WATERS)}.",
            f"There once was a {who}.",
            f"There was a {who}.",
            f"A {who} lived in a {self.home()}.",
            f"{hero.name} was a {size} {hero.what}.",
            f"The {self.pick('little|small|young')} {hero.what} was called {hero.name}.",
            f"In a small house near the {self.pick('park|forest|meadow|village')}, there lived a {who}.",
        ]
        if not timeless:
            firsts.append(f"One day, a {who} woke up early.")
        first = self.rng.choice(firsts)
        self._dated = first.startswith("One day")
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
        """Return the start of the story's day."""
        if self._dated:
            return "That day"
        return self.pick("One day", "One day", "One morning", "One sunny morning", "One afternoon", "One summer day")

    def weather(self) -> list[str]:
        return [self.pick(WEATHERS) + "."] if self.rng.random() < 0.5 else []

    def ending(self, *own: str, days: bool = False) -> list[str]:
        """A last sentence or two; ``own`` are endings that only this plot can have. ``days``: it took more than one."""
        hero = self.hero
        usual = [f"{hero.name} was very happy."]
        if not days:
            usual += [
                f"That night, {hero.name} slept well.",
                f"It was the best day of {hero.poss} life.",
                f"{hero.name} never forgot that day.",
            ]
        last = self.pick(*own, *usual)
        return [last, "The end."] if self.rng.random() < 0.15 else [last]


def described(being: Being) -> str:
    """Introduce a character of a story: "a fox named Tom"."""
    return f"{a(being.what)} named {being.name}"
