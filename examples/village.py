"""A village of fifty characters: in every round all of them speak and walk at once, within a budget of seconds.

python examples/village.py --budget 5 -m model.gguf      type a place to go there, or something to say; Ctrl-D leaves
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sys
import time
import warnings
from dataclasses import dataclass

import pyggml

#: Around the village: a character walks from one place to the next.
PLACES = ("forest", "beach", "garden", "lake", "farm")
ANIMALS = ("bear", "cat", "dog", "fox", "frog", "hedgehog", "horse", "mouse", "owl", "rabbit")
NAMES = """
    Adam Alice Amy Anna Ben Bella Carl Clara Daisy David Ella Emil Emma Eric Eva Felix Finn Frida Greg Hanna Hugo Ida
    Ines Jack James Jane Karl Kate Leo Lily Lucas Lucy Mark Mary Matt Max Mia Molly Nina Noah Oscar Paul Pia Rosa
    Sam Sara Theo Tim Tom Wei
"""
N_HEARD = 6  # characters whose sentences a player hears
BEGINNINGS = ("I have not eaten all day", "I lost my red kite", "Let us play hide and seek", "What happened?")


@dataclass
class Character:
    """An inhabitant, and the last sentence of this character."""

    name: str
    animal: str
    place: str
    said: str

    def __str__(self) -> str:
        return f"{self.name} the {self.animal}"


class Village:
    """Characters who talk to each other, and one model for all of them."""

    def __init__(self, llm: pyggml.LLM, n_characters: int, seed: int) -> None:
        names = NAMES.split()
        if n_characters > len(names):
            raise ValueError(f"the village has {len(names)} inhabitants at most")
        self._llm = llm
        self._random = random.Random(seed)
        self.characters = [Character(name, *map(self._random.choice, (ANIMALS, PLACES, BEGINNINGS))) for name in names]
        del self.characters[n_characters:]

    async def play(self, budget_s: float, here: str, call: str) -> list[Character]:
        """Let everyone speak and walk at once; those who are ``here`` answer to a player's call, if there is one.

        Returns:
            Those who were ready in time.
        """
        turns = {}
        for each in self.characters:
            partner = self._partner(each)
            heard = ("a traveller", call) if call and each.place == here else (str(partner), partner.said)
            turns[asyncio.create_task(self._turn(each, *heard))] = each
        done, late = await asyncio.wait(turns, timeout=budget_s)
        for turn in late:
            turn.cancel()  # and with it, its request; those of the others go on
        await asyncio.gather(*late, return_exceptions=True)
        for turn in done:
            turn.result()  # raises what the turn raised
        return [each for turn, each in turns.items() if turn in done]

    async def _turn(self, me: Character, other: str, heard: str) -> None:
        """Answer, then choose where to go. Nothing of it counts unless there is time for both."""
        comma = "" if heard[-1:] in "!?" else ","
        scene = (
            f"One day, {me} was walking in the {me.place}. Then {other} came by. "
            f'"{heard}{comma}" said {other}. Then {me.name} said, "'
        )
        seed = self._random.randrange(2**31)
        line = await self._llm.agenerate(scene, stop=['"', "."], max_tokens=24, temperature=0.8, min_p=0.05, seed=seed)
        n = PLACES.index(me.place)
        goals = [f" {PLACES[n - 1]}", f" {PLACES[(n + 1) % len(PLACES)]}"]
        path = f'{scene}{line.text}" Then {me.name} went to the'
        goal = await self._llm.agenerate(path, choices=goals, temperature=1, seed=seed)
        me.said, me.place = line.text.strip().rstrip(".,"), goal.text.strip()

    def _partner(self, character: Character) -> Character:
        """Someone at the same place or, if there is no one, from elsewhere."""
        others = [other for other in self.characters if other is not character]
        return self._random.choice([other for other in others if other.place == character.place] or others)


def game(village: Village, llm: pyggml.LLM, budget_s: float) -> None:
    """Rounds until the player leaves."""
    here, call = PLACES[0], ""
    while True:
        start, before = time.monotonic(), llm.stats()
        neighbours = [each for each in village.characters if each.place == here]
        ready = asyncio.run(village.play(budget_s, here, call))
        seconds, after = time.monotonic() - start, llm.stats()
        for each in neighbours[:N_HEARD]:
            print(f'{each}: "{each.said}" (goes to the {each.place})' if each in ready else f"{each} has no time")
        if len(neighbours) > N_HEARD:
            print(f"... and {len(neighbours) - N_HEARD} more")
        n_tokens = after.n_generated_tokens - before.n_generated_tokens
        n_steps = after.n_decode_steps - before.n_decode_steps
        print(f"[{len(ready)} of {len(village.characters)} were ready in time; ", end="")
        print(f"{n_tokens} tokens in {n_steps} forward passes, {seconds:.1f} s]")
        line = input(f"You are here: {here}\n> ").strip()
        here, call = (line, "") if line in PLACES else (here, line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", default=pyggml.SHIPPED_MODEL, help="GGUF file, directory or hf:org/repo")
    parser.add_argument("--characters", type=int, default=50)
    parser.add_argument("--budget", type=float, default=10, help="seconds for a round (default: 10)")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    warnings.filterwarnings("ignore", "n_ctx=.* is longer")  # fifty short texts share these cells
    with (
        contextlib.suppress(EOFError, KeyboardInterrupt),
        pyggml.load(args.model, n_ctx=8192, n_parallel=args.characters) as llm,
    ):
        game(Village(llm, args.characters, args.seed), llm, args.budget)


if __name__ == "__main__":
    try:
        main()
    except (pyggml.InferError, ValueError) as error:
        sys.exit(f"village.py: {error}")
