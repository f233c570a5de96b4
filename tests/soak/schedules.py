"""Random schedules: whatever is asked at the same time, each request's tokens and logprobs are those it gets alone.

    python tests/soak/schedules.py [--rounds 1000] [--seed 0] [--first 0] [--adapters]

A schedule loads one of MODELS with random options and lets several callers ask at random moments: for streams that
they read or cancel, completions, several of one prompt, rows of logits; in cells that may be too few for all, after
prompts that began alike. Then a model with one sequence, one thread and nothing kept is asked the same, one question
after the other, and every bit is compared. With ``--adapters`` most asks name LoRA adapters, of rows and of whole
steps, and some load one for themselves. Round N of a seed asks the same in each run, though not to the millisecond:
``--first N --rounds 1`` asks it again, and ``--first N`` goes on from there.

Exit status: 0 all was equal, 1 something was not.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # tests/

import argparse
import dataclasses
import os
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from support import device_kinds
from support.checkpoints import lora_files

import pyggml
from pyggml import LLM, Completion
from pyggml.gguf import GGMLType
from pyggml.types import TokenLogprobs

#: Models of device_kinds.WRITERS and their types: a plain one, norms of heads, a window with soft caps, experts, fused
#: projections of floats, sinks; and memories that are states. Of each kind of product one.
MODELS = (
    ("llama", "q4_k_m"),
    ("qwen3", "q8_0"),
    ("window", "q4_0"),
    ("mixtral", "q4_k_m"),
    ("phi3", "f16"),
    ("llama", "bf16"),
    ("mixtral", "bf16"),
    ("gpt-oss", "q8_0"),
    ("mamba", "f32"),
    ("jamba", "f32"),
)
UNCHANGED = ("mamba",)  # has none of the products that adapters change here
STATES = ("mamba", "jamba")  # memories that cannot drop guesses
N_IDS = 256  # those of bytes, which every model here has
LONGEST = 150  # tokens of a prompt
LONG = 400  # enough for checkpoints, where the memory cannot be rewound
ALONE: dict[str, Any] = {"n_parallel": 1, "n_threads": 1, "prefix_cache": False, "speculative": "off"}

Kind = Literal["generate", "stream", "cancel", "batch", "n", "logits", "reset", "save", "swap"]
SAVED: dict[str, Any] = {"max_tokens": 5, "ignore_eos": True, "logprobs": 1}  # after a prefix was restored
KINDS: dict[Kind, float] = {"generate": 4, "stream": 3, "cancel": 2, "batch": 1, "n": 1, "logits": 1, "reset": 0.5}


#: Ranks and types of the adapters of a schedule with adapters. One more changes the embedding, where that is tested.
ADAPTERS = ((3, GGMLType.F16), (8, GGMLType.F32), (13, GGMLType.BF16), (16, GGMLType.F16))
OF_EMBEDDING = "embedding"
SWAPPED: dict[str, Any] = {"max_tokens": 5, "ignore_eos": True, "logprobs": 1}  # with an adapter of its own


@dataclass(frozen=True)
class Ask:
    """One caller's request, and its time."""

    kind: Kind
    arrival_s: float
    prompts: tuple[tuple[int, ...], ...]
    params: dict[str, Any]
    n_read: int = 0  # of a stream that is cancelled: chunks that are read before

    def __str__(self) -> str:
        lengths = ", ".join(str(len(prompt)) for prompt in self.prompts)
        return f"{self.kind} of a prompt of {lengths} tokens, {self.params}"


@dataclass(frozen=True)
class Schedule:
    """A model, how it is loaded, and what is asked of it."""

    model: tuple[str, str]
    options: dict[str, Any]
    asks: tuple[Ask, ...]
    n_guesses: tuple[int | None, ...]  # of each ask in each step; None: as many as pay
    has_adapters: bool = False
    is_drafted: bool = False  # by the same model in another type

    @property
    def guessing_asks(self) -> tuple[Ask, ...]:
        """The asks, with the number of guesses among their parameters."""
        return tuple(
            dataclasses.replace(ask, params=ask.params | {"num_speculative_tokens": n}) if ask.params else ask
            for ask, n in zip(self.asks, self.n_guesses, strict=True)
        )


@dataclass(frozen=True)
class Told:
    """The answer to a request: tokens, and logprobs as their bits. If cancelled, perhaps not all."""

    token_ids: tuple[int, ...] = ()
    logprobs: tuple[bytes, ...] = ()
    prompt_logprobs: tuple[bytes, ...] = ()
    rows: tuple[bytes, ...] = ()  # of logits
    is_whole: bool = True

    def difference(self, alone: Told) -> str:
        """Describe the difference from the expected answer; "" if there is none."""
        for name in ("token_ids", "logprobs", "prompt_logprobs", "rows"):
            mine, its = getattr(self, name), getattr(alone, name)
            if mine != (its if self.is_whole else its[: len(mine)]):
                first = next((i for i, (a, b) in enumerate(zip(mine, its, strict=False)) if a != b), len(mine))
                return f"{name}: {len(mine)} and alone {len(its)}, different from number {first} on"
        return ""


@dataclass
class Tally:
    """Counts and faults of a run."""

    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


def schedule_of(
    seed: int, number: int, models: Sequence[tuple[str, str]] = MODELS, *, has_adapters: bool = False
) -> Schedule:
    """The same schedule for the same numbers; with adapters, the same asks, and more."""
    rng = random.Random(f"{seed} {number}")
    n_parallel = rng.choice((1, 2, 3, 4, 8, 8, 16))
    options: dict[str, Any] = {
        "n_parallel": n_parallel,
        "n_ctx": rng.choice((200, 256, 256, 512)),
        "n_batch": max(n_parallel, rng.choice((16, 64, 512, 2048))),
        "n_ubatch": rng.choice((8, 32, 64, 512)),
        "n_threads": rng.choice((1, 1, 1, 1, 1, 2, 2, None)),
        "prefix_cache": rng.random() < 0.8,
        "cache_type": rng.choice(("f16", "f16", "f16", "bf16", "f32", "q8_0")),
    }
    longest = LONGEST
    of_long = random.Random(f"{seed} {number} long")  # the others stay what they were
    if of_long.random() < 0.2:
        longest = LONG
        options |= {"n_ctx": 1024, "prefix_cache_bytes": of_long.choice((None, None, 100_000, 0))}
    stems = [_ids(rng, rng.randrange(1, longest)) for _ in range(rng.randrange(1, 4))]
    asks = tuple(_ask(rng, stems, longest) for _ in range(rng.randrange(3, 14)))
    options, asks = _with_tiers(random.Random(f"{seed} {number} tiers"), options, asks)
    model = rng.choice(models)
    if has_adapters:
        asks = _with_adapters(random.Random(f"{seed} {number} adapters"), asks, _names_of_adapters(model[0]))
    is_drafted = model[0] not in STATES and random.Random(f"{seed} {number} drafts").random() < 0.5
    return Schedule(model, options, asks, _numbers_of_guesses(seed, number, len(asks)), has_adapters, is_drafted)


def _numbers_of_guesses(seed: int, number: int, n_asks: int) -> tuple[int | None, ...]:
    rng = random.Random(f"{seed} {number} guesses")
    most = rng.choice((None, 3, 15))
    return tuple(None if most is None else rng.choice((None, rng.randrange(1, most + 1))) for _ in range(n_asks))


def _with_tiers(
    rng: random.Random, options: dict[str, Any], asks: tuple[Ask, ...]
) -> tuple[dict[str, Any], tuple[Ask, ...]]:
    """Often memory for a few snapshots only, and prompts whose cells are saved and restored."""
    if not options["prefix_cache"]:
        return {name: value for name, value in options.items() if name != "prefix_cache_bytes"}, asks
    if rng.random() < 0.4:
        options = options | {"prefix_cache_bytes": rng.choice((0, 30_000, 300_000, 3_000_000))}
    if rng.random() < 0.4:
        prompts = [ask.prompts for ask in asks]
        saves = (Ask("save", rng.uniform(0, 0.2), rng.choice(prompts), {}) for _ in range(rng.randrange(1, 4)))
        asks = (*asks, *saves)
    return options, asks


def _names_of_adapters(family: str) -> list[str]:
    return [f"a{number}" for number in range(len(ADAPTERS))] + [OF_EMBEDDING] * (family == "llama")


def _with_adapters(rng: random.Random, asks: tuple[Ask, ...], names: Sequence[str]) -> tuple[Ask, ...]:
    """Adapters of most asks, and perhaps asks that load one and close it."""
    chosen = []
    for ask in asks:
        adapter: Any = rng.choice((*names, *names, {}, {rng.choice(names): rng.choice((0.5, -1.0)), "a0": 0.25}))
        takes_adapters = ask.kind not in ("save", "reset") and rng.random() < 0.8
        chosen.append(dataclasses.replace(ask, params=ask.params | {"adapter": adapter}) if takes_adapters else ask)
    if rng.random() < 0.4:
        prompts = rng.choice(asks).prompts
        for number in range(rng.choice((1, 3))):
            chosen.append(Ask("swap", rng.uniform(0, 0.2), prompts, {"adapter": f"own{number}"}, number))
    return tuple(chosen)


def load_adapters(llm: LLM, schedule: Schedule, shelf: device_kinds.Shelf, folder: Path) -> None:
    """Load those that asks name."""
    if not schedule.has_adapters:
        return
    family, base = schedule.model[0], shelf(schedule.model[0])
    for number, (rank, type) in enumerate(ADAPTERS):
        file = folder / f"{family}-{number}.gguf"
        if not file.exists():
            lora_files.write_adapter(file, base, seed=number, rank=rank, type=type)
        llm.load_adapter(file, f"a{number}")
    if OF_EMBEDDING in _names_of_adapters(family):
        file = folder / f"{family}-embedding.gguf"
        if not file.exists():
            lora_files.write_embedding_adapter(file, base, seed=9)
        llm.load_adapter(file, OF_EMBEDDING)


def _ids(rng: random.Random, n: int) -> tuple[int, ...]:
    return tuple(rng.randrange(N_IDS) for _ in range(n))


def _prompt(rng: random.Random, stems: Sequence[tuple[int, ...]], longest: int) -> tuple[int, ...]:
    """Often it begins as another one does."""
    stem = rng.choice(stems)
    kept = stem[: rng.choice((0, len(stem), len(stem), rng.randrange(len(stem) + 1)))]
    return (*kept, *_ids(rng, rng.randrange(1, longest - len(kept) + 2)))[:longest]


def _ask(rng: random.Random, stems: Sequence[tuple[int, ...]], longest: int) -> Ask:
    kind = rng.choices(list(KINDS), list(KINDS.values()))[0]
    params: dict[str, Any] = {"max_tokens": rng.choice((1, 5, 20, 40, 60)), "ignore_eos": True}
    if rng.random() < 0.7:
        params["logprobs"] = rng.choice((1, 5))
    if rng.random() < 0.1:
        params["prompt_logprobs"] = 2
    if rng.random() < 0.3 or kind == "n":
        params |= {"temperature": 1.0, "seed": rng.randrange(1000)}
    prompts = tuple(_prompt(rng, stems, longest) for _ in range(rng.randrange(2, 7) if kind == "batch" else 1))
    arrival_s = rng.choice((0.0, 0.0, rng.uniform(0, 0.03), rng.uniform(0, 0.15)))
    return Ask(kind, arrival_s, prompts, params, n_read=rng.randrange(0, 12))


def answer(llm: LLM, ask: Ask) -> list[Told]:
    """Return the model's answers, one for each prompt."""
    prompt = list(ask.prompts[0])
    if ask.kind == "reset":
        llm.reset()
        return []
    if ask.kind == "save":
        saved = llm._engine.save_prefix(prompt)
        llm.reset()
        llm._engine.restore_prefix(saved)
        return [_told(llm.generate(prompt, **SAVED))]
    if ask.kind == "swap":
        source, name = llm.adapters[f"a{ask.n_read % len(ADAPTERS)}"].path, ask.params["adapter"]
        with llm.load_adapter(source, name, scale=0.5):
            return [_told(llm.generate(prompt, **SWAPPED, adapter=name))]
    if ask.kind == "logits":
        rows = llm.logits(prompt, adapter=ask.params.get("adapter"))
        return [Told(rows=tuple(row.tobytes() for row in rows))]
    if ask.kind == "n":
        return [_told(each) for each in llm.generate_n(prompt, 3, **ask.params)]
    if ask.kind == "batch":
        return [_told(each) for each in llm.generate_batch(map(list, ask.prompts), **ask.params)]
    if ask.kind == "generate":
        return [_told(llm.generate(prompt, **ask.params))]
    with llm.stream(prompt, **ask.params) as stream:
        for n_read, _ in enumerate(stream):
            if ask.kind == "cancel" and n_read >= ask.n_read:
                stream.cancel()
    told = _told(stream.completion)
    return [dataclasses.replace(told, is_whole=stream.completion.finish_reason != "cancelled")]


def _told(completion: Completion) -> Told:
    return Told(
        tuple(completion.token_ids),
        tuple(map(_bits, completion.logprobs or ())),
        tuple(_bits(one) for one in completion.prompt_logprobs or () if one is not None),
    )


def _bits(one: TokenLogprobs) -> bytes:
    """The logprobs of a token and those in its place."""
    numbers = [one.logprob, *(number for other in one.top for number in (other.token_id, other.logprob))]
    return np.array(numbers, np.float64).tobytes()


def together(llm: LLM, asks: Sequence[Ask]) -> list[list[Told] | Exception]:
    """All asks, each by a thread of its own, in its order of arrival."""
    answers: list[list[Told] | Exception] = [[] for _ in asks]
    start = time.monotonic()

    def caller(i: int) -> None:
        time.sleep(max(0.0, asks[i].arrival_s - (time.monotonic() - start)))
        try:
            answers[i] = answer(llm, asks[i])
        except Exception as error:
            answers[i] = error

    threads = [threading.Thread(target=caller, args=(i,)) for i in range(len(asks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def run(schedule: Schedule, shelf: device_kinds.Shelf, tally: Tally) -> None:
    """Runs a schedule, and compares."""
    path = shelf(*schedule.model)
    # Upstream's kernels depend on the batch, so no draft model may guess: test_batch_invariance turns ours off.
    is_drafted = schedule.is_drafted and os.environ.get("PYGGML_KERNELS") != "off"
    draft = shelf(schedule.model[0]) if is_drafted else None
    with pyggml.load(path, draft=draft, **schedule.options) as llm:
        load_adapters(llm, schedule, shelf, path.parent)
        answers = together(llm, schedule.guessing_asks)
        stats = llm.stats()
    tally.counts.update(
        preempted=stats.n_preemptions, reused=stats.n_cached_tokens, steps=stats.n_decode_steps, schedules=1
    )
    tally.counts.update(snapshots=stats.n_snapshot_hits)
    tally.counts.update(guessed=stats.n_drafted_lookup, right=stats.n_accepted_lookup)
    tally.counts.update(drafted=stats.n_drafted_model, right_drafts=stats.n_accepted_model)
    alike = {name: schedule.options[name] for name in ("n_ctx", "cache_type")}
    with pyggml.load(path, **alike, **ALONE) as alone:
        load_adapters(alone, schedule, shelf, path.parent)
        for ask, told in zip(schedule.asks, answers, strict=True):
            whole = dataclasses.replace(ask, kind="generate") if ask.kind == "cancel" else ask
            if ask.kind == "save":
                whole = dataclasses.replace(ask, kind="generate", params=SAVED)
            tally.counts.update({ask.kind: 1})
            if isinstance(told, Exception):
                tally.faults.append(f"{ask}: {type(told).__name__}: {told}")
                continue
            expected = answer(alone, whole)
            for mine, its in zip(told, expected, strict=True):
                tally.counts["requests"] += 1
                if difference := mine.difference(its):
                    tally.faults.append(f"{ask}: {difference}")


def main() -> int:
    """Runs many, and says which were not equal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first round")
    parser.add_argument("--adapters", action="store_true", help="with LoRA adapters")
    parser.add_argument("--model", choices=[name for name, _ in MODELS], help="only this one")
    args = parser.parse_args()
    models = [each for each in MODELS if args.model in (None, each[0]) and not (args.adapters and each[0] in UNCHANGED)]
    total, n_unequal = Tally(), 0
    with tempfile.TemporaryDirectory() as folder:
        shelf = device_kinds.Shelf(Path(folder))
        for number in range(args.first, args.first + args.rounds):
            schedule = schedule_of(args.seed, number, models, has_adapters=args.adapters)
            tally = Tally(total.counts)
            run(schedule, shelf, tally)
            if tally.faults:
                n_unequal += 1
                again = f"--seed {args.seed} --first {number} --rounds 1{' --adapters' * args.adapters}"
                print(f"NOT EQUAL: {again}: {schedule.model} {schedule.options}")
                print("\n".join(f"    {fault}" for fault in tally.faults), flush=True)
            if number % 50 == 49:
                print(f"{number + 1}: {dict(total.counts)} unequal={n_unequal}", flush=True)
    print(f"{'FAILED' if n_unequal else 'OK'}: {n_unequal} of {args.rounds} schedules, {dict(total.counts)}")
    return 1 if n_unequal else 0


if __name__ == "__main__":
    sys.exit(main())
