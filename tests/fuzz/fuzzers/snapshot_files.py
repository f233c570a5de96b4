"""Damaged files of the prefix cache: whatever they are, answers have the bits that they have without them."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from support.checkpoints import chat_models, models

import pyggml
from fuzz import damage

MAX_SECONDS = 60.0
N_FILES = 10
N_TOKENS = 300  # of each file: enough for a checkpoint
N_TURN = 5  # tokens that follow what a file has
LOAD: dict[str, Any] = {"n_ctx": 8 * 512, "n_parallel": 2, "n_threads": 1}
ANSWER: dict[str, Any] = {"max_tokens": 6, "ignore_eos": True}

WRITERS: tuple[Callable[[Path], Path], ...] = (
    models.write_llama,
    lambda path: models.write_gemma2(path, sliding_window=32),
    models.write_mamba,
    lambda path: chat_models.write(path, chat_models.TINY["qwen35"], chat_models.PLAIN),
)


class Prepared(NamedTuple):
    """A model, its files, and what is asked.

    Attributes:
        model: its path.
        files: whole files, one for each prompt.
        prompts: each of which continues a file.
        answers: to them, computed from the beginning.
    """

    model: Path
    files: list[Path]
    prompts: list[list[int]]
    answers: list[list[int]]


def prepare(folder: Path) -> list[Prepared]:
    return [_prepare(write(folder / f"{i}.gguf"), folder / str(i)) for i, write in enumerate(WRITERS)]


def _prepare(model: Path, folder: Path) -> Prepared:
    prompts = []
    with pyggml.load(model, prefix_cache_dir=folder, **LOAD) as llm:
        for seed in range(N_FILES):
            numbers = random.Random(seed)
            prompt = [numbers.randrange(1, 250) for _ in range(N_TOKENS)]
            said = llm.generate(prompt, **ANSWER).token_ids
            prompts.append([*prompt, *said, *(numbers.randrange(1, 250) for _ in range(N_TURN))])
    with pyggml.load(model, prefix_cache=False, **LOAD | {"n_parallel": 1}) as alone:
        answers = [alone.generate(prompt, **ANSWER).token_ids for prompt in prompts]
    files = sorted(folder.glob("*.pygprefix"))
    assert len(files) == N_FILES
    return Prepared(model, files, prompts, answers)


def make(random: np.random.Generator) -> list[Any]:
    """A model, and changes of most of its files."""
    kinds = list(CHANGES)
    changes = [
        [int(number), kinds[int(random.integers(len(kinds)))], int(random.integers(1 << 30))]
        for number in random.permutation(N_FILES)[: N_FILES - 2]
    ]
    return [["model", int(random.integers(1 << 20))], *changes]


def run(prepared: list[Prepared], parts: list[Any], folder: Path) -> str:
    given = dict(part for part in parts if part[0] == "model")
    world = prepared[given.get("model", 0) % len(prepared)]
    for file in world.files:
        shutil.copyfile(file, folder / file.name)
    n_whole = N_FILES
    for number, kind, seed in (part for part in parts if part[0] != "model"):
        file = folder / world.files[number].name
        other = world.files[(number + 1) % N_FILES].read_bytes()
        whole = file.read_bytes()
        changed = CHANGES[kind](whole, other, np.random.default_rng(seed))
        file.write_bytes(changed)
        n_whole -= changed != whole
    no_others: dict[str, Any] = {"prefix_cache_disk_bytes": 1}  # are written
    with pyggml.load(world.model, prefix_cache_dir=folder, **no_others, **LOAD) as llm:
        done = [llm.generate(prompt, **ANSWER) for prompt in world.prompts]
        stats = llm.stats()
    for expected, each in zip(world.answers, done, strict=True):
        assert each.token_ids == expected, f"{each.token_ids} after {each.cached_tokens} cached tokens, not {expected}"
    assert stats.n_disk_hits == n_whole, f"{stats.n_disk_hits} files of {n_whole} whole ones were used"
    return f"{N_FILES - n_whole} damaged files"


def _with_number(content: bytes, random: np.random.Generator) -> bytes:
    """With a size or a count of the head that is another one, or hostile."""
    at = 8 * int(random.integers(9)) if random.random() < 0.7 else 4 * int(random.integers(len(content) // 4))
    number = int(random.choice([0, 1, 2, 0xFF, 1 << 16, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 40, (1 << 63) - 1, (1 << 63)]))
    return content[:at] + number.to_bytes(8, "little") + content[at + 8 :]


#: The content of a file and of another one -> what is there then.
CHANGES: dict[str, Callable[[bytes, bytes, np.random.Generator], bytes]] = {
    "bytes": lambda content, _, random: damage.with_changed_bytes(content, random),
    "head": lambda content, _, random: damage.with_changed_bytes(content[:72], random) + content[72:],
    "tokens": lambda content, _, random: (
        content[:72] + damage.with_changed_bytes(content[72:1400], random) + content[1400:]
    ),
    "span": lambda content, _, random: damage.with_changed_span(content, random),
    "number": lambda content, _, random: _with_number(content, random),
    "cut": lambda content, _, random: content[: int(random.integers(len(content)))],
    "grown": lambda content, _, random: content + random.bytes(int(random.integers(1, 100))),
    "another's": lambda _, other, __: other,
    "head of another": lambda content, other, _: other[:72] + content[72:],
    "zeros": lambda content, _, random: content[: int(random.integers(len(content)))].ljust(len(content), b"\0"),
}
