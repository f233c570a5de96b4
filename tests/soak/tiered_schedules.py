"""Random schedules with every tier of the prefix cache, and restarts: the bits are those that each request gets alone.

    python tests/soak/tiered_schedules.py [--rounds 1000] [--seed 0] [--first 0]

A schedule is asked as those of schedules.py are, in several lives of one model: each is loaded with other options,
often memory for a few snapshots only, and a directory of the prefix cache that outlives it; sometimes two models share
the directory at the same time, a file is damaged or removed, or a small limit drops the oldest. Later lives continue
what earlier ones were asked, or ask it again. Most models have a memory that cannot be rewound.

Exit status: 0 all was equal, 1 something was not.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # tests/

import argparse
import dataclasses
import random
import warnings
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

from soak import schedules
from soak.schedules import Ask, Tally
from support import device_kinds
from support.checkpoints import chat_models

import pyggml

MODELS = (*chat_models.TINY, "llama", "window", "jamba")
LONGEST = 400  # tokens of a prompt: enough for checkpoints
SALTS = (None, None, None, "a", "b")


@dataclass(frozen=True)
class Life:
    """One or two models at a time, until they are closed.

    Attributes:
        options: of loading them.
        n_models: how many share the directory.
        asks: for each of them.
        damage: a number that chooses a file, and what happens to it before they are loaded; None: nothing.
    """

    options: dict[str, Any]
    n_models: int
    asks: tuple[Ask, ...]
    damage: int | None


@dataclass(frozen=True)
class TieredSchedule:
    """A model, and its lives."""

    model: str
    cache_type: str
    lives: tuple[Life, ...]


def schedule_of(seed: int, number: int, models: Sequence[str] = MODELS) -> TieredSchedule:
    """The same schedule for the same numbers."""
    rng = random.Random(f"tiers {seed} {number}")
    longest = rng.choice((60, 150, LONGEST, LONGEST))
    stems = [schedules._ids(rng, rng.randrange(1, longest)) for _ in range(rng.randrange(1, 4))]
    lives: list[Life] = []
    for _ in range(rng.randrange(2, 4)):
        earlier = [ask for life in lives for ask in life.asks if ask.kind not in ("reset", "logits")]
        asks = tuple(_ask(rng, stems, longest, earlier) for _ in range(rng.randrange(2, 8)))
        lives.append(Life(_options(rng), rng.choice((1, 1, 2)), asks, rng.choice((None, None, rng.randrange(1 << 20)))))
    return TieredSchedule(rng.choice(models), rng.choice(("f16", "f16", "q8_0", "f32")), tuple(lives))


def _options(rng: random.Random) -> dict[str, Any]:
    n_parallel = rng.choice((1, 2, 2, 4, 8))
    options: dict[str, Any] = {
        "n_parallel": n_parallel,
        "n_ctx": rng.choice((512, 512, 1024)),
        "n_batch": max(n_parallel, rng.choice((16, 64, 512, 2048))),
        "n_ubatch": max(n_parallel, rng.choice((16, 64, 512))),
        "n_threads": rng.choice((1, 1, 1, 2)),
        "prefix_cache_bytes": rng.choice((None, None, 30_000, 300_000, 3_000_000)),
    }
    if rng.random() < 0.8:
        options["prefix_cache_dir"] = None  # filled in
        options["prefix_cache_disk_bytes"] = rng.choice((None, None, 1, 200_000, 2_000_000))
    return options


def _ask(rng: random.Random, stems: Sequence[tuple[int, ...]], longest: int, earlier: Sequence[Ask]) -> Ask:
    """An earlier one again, or longer, or with another end; or a new one."""
    ask = schedules._ask(rng, stems, longest)
    if earlier and rng.random() < 0.8:
        known = rng.choice(rng.choice(earlier).prompts)
        n_kept = rng.choice((len(known), len(known), rng.randrange(1, len(known) + 1)))
        prompt = (*known[:n_kept], *schedules._ids(rng, rng.choice((0, 1, 5, 40))))[:longest]
        ask = dataclasses.replace(ask, prompts=(prompt, *ask.prompts[1:]))
    if rng.random() < 0.1:
        return dataclasses.replace(ask, kind="save", params={}, prompts=ask.prompts[:1])
    if ask.kind in ("reset", "logits"):
        return ask
    return dataclasses.replace(ask, params=ask.params | {"cache_salt": rng.choice(SALTS)})


def run(schedule: TieredSchedule, shelf: device_kinds.Shelf, tally: Tally) -> None:
    """Runs a schedule, and compares."""
    path = _model(schedule.model, shelf)
    tally.counts.update(schedules=1)
    with TemporaryDirectory() as folder:
        answers = [_answers(path, schedule, life, Path(folder), tally) for life in schedule.lives]
    alike: dict[str, Any] = {"n_ctx": 1024, "cache_type": schedule.cache_type}
    with pyggml.load(path, **alike, **schedules.ALONE) as alone:
        for asks, told in (each for of_life in answers for each in of_life):
            _compare(alone, asks, told, tally)
    tally.counts.update(lives=len(schedule.lives))


def _model(name: str, shelf: device_kinds.Shelf) -> Path:
    if name not in chat_models.TINY:
        return shelf(name)
    path = shelf.directory / f"chat-{name}.gguf"
    return path if path.exists() else chat_models.write(path, chat_models.TINY[name], chat_models.PLAIN)


def _answers(path: Path, schedule: TieredSchedule, life: Life, folder: Path, tally: Tally) -> list[Any]:
    """The asks of each model of a life, with their answers."""
    options = life.options | {"cache_type": schedule.cache_type}
    if "prefix_cache_dir" in options:
        options["prefix_cache_dir"] = folder
        if life.damage is not None:
            _damage(folder, life.damage)
    with ExitStack() as stack:
        llms = [stack.enter_context(pyggml.load(path, **options)) for _ in range(life.n_models)]
        asks = [life.asks[i :: life.n_models] for i in range(life.n_models)]
        with ThreadPoolExecutor(life.n_models) as callers:
            told = list(callers.map(schedules.together, llms, asks))
        for llm in llms:
            stats = llm.stats()
            tally.counts.update(
                preempted=stats.n_preemptions, reused=stats.n_cached_tokens, snapshots=stats.n_snapshot_hits,
                files=stats.n_disk_hits,
            )  # fmt: skip
    return list(zip(asks, told, strict=True))


def _compare(alone: pyggml.LLM, asks: Sequence[Ask], answers: Sequence[Any], tally: Tally) -> None:
    for ask, told in zip(asks, answers, strict=True):
        tally.counts.update({ask.kind: 1})
        if isinstance(told, Exception):
            tally.faults.append(f"{ask}: {type(told).__name__}: {told}")
            continue
        whole = dataclasses.replace(ask, kind="generate") if ask.kind in ("cancel", "save") else ask
        if ask.kind == "save":
            whole = dataclasses.replace(whole, params=schedules.SAVED)
        for mine, its in zip(told, schedules.answer(alone, whole), strict=True):
            tally.counts["requests"] += 1
            if difference := mine.difference(its):
                tally.faults.append(f"{ask}: {difference}")


def _damage(folder: Path, number: int) -> None:
    files = sorted(folder.glob("*.pygprefix"))
    if not files:
        return
    rng = random.Random(number)
    file = rng.choice(files)
    content = bytearray(file.read_bytes())
    kind = rng.choice(("removed", "cut", "changed"))
    if kind == "removed":
        file.unlink()
    elif kind == "cut":
        file.write_bytes(content[: rng.randrange(len(content))])
    else:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        file.write_bytes(content)


def main() -> int:
    """Runs many, and says which were not equal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first round")
    parser.add_argument("--model", choices=MODELS, nargs="+", default=MODELS, help="only these")
    args = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*is longer than the .* tokens that")
    counts: Counter[str] = Counter()
    n_unequal = 0
    with TemporaryDirectory() as folder:
        shelf = device_kinds.Shelf(Path(folder))
        for number in range(args.first, args.first + args.rounds):
            schedule, tally = schedule_of(args.seed, number, args.model), Tally(counts)
            run(schedule, shelf, tally)
            if tally.faults:
                n_unequal += 1
                print(f"NOT EQUAL: --seed {args.seed} --first {number} --rounds 1: {schedule.model}")
                print("\n".join(f"    {fault}" for fault in tally.faults), flush=True)
            if number % 20 == 19:
                print(f"{number + 1}: {dict(counts)} unequal={n_unequal}", flush=True)
    print(f"{'FAILED' if n_unequal else 'OK'}: {n_unequal} of {args.rounds} schedules, {dict(counts)}")
    return 1 if n_unequal else 0


if __name__ == "__main__":
    sys.exit(main())
