"""The prefix cache on disk: how soon a prompt answers after a restart whose first 1,500 tokens are in a file.

Each round computes a new prompt, closes the model, which writes the file, drops the file from the page cache, loads the
model again, and asks with another end.

    python benchmarks/internal/prefixes_on_disk.py [--rounds 3] [--model tinyllama-1.1b]
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "common"))

import harness
from synthetic_models import model_file

import pyggml
from pyggml.cli.bench.measure import random_prompts

N_PREFIX = 1500
N_TAIL = 16
N_WARM_UP = 64


def compare(name: str, rounds: int) -> list[harness.Claim]:
    """Measure both on one model."""
    ttft: harness.Figures = {"computed": [], "restored": []}
    rng = random.Random(0)
    with tempfile.TemporaryDirectory(dir=Path(__file__).resolve().parents[2] / "build") as folder:
        options: dict[str, Any] = {"n_ctx": 2048, "n_parallel": 4, "prefix_cache_dir": folder}
        for _ in range(rounds):
            with pyggml.load(model_file(name), **options) as llm:
                (prefix,) = random_prompts(llm.model.vocab, 1, N_PREFIX, rng)
                ttft["computed"].append(ask(llm, prefix, rng, 0))
            for file in Path(folder).iterdir():
                drop_from_page_cache(file)
            with pyggml.load(model_file(name), **options) as llm:
                ttft["restored"].append(ask(llm, prefix, rng, N_PREFIX))
                assert llm.stats().n_disk_hits == 1
        n_bytes = max(file.stat().st_size for file in Path(folder).iterdir())
    print(f"{name}: {N_PREFIX} tokens in a file of {n_bytes / 1e6:.1f} MB, and {N_TAIL} others")
    harness.table(ttft, "ms to the first token")
    share = harness.ratio(ttft, "restored", "computed")
    return [harness.at_most(f"{name}: time to first token, restored / computed", share, 0.05, "x")]


def ask(llm: pyggml.LLM, prefix: list[int], rng: random.Random, n_cached: int) -> float:
    """Milliseconds to the first token of a prompt with another end, after a warm-up."""
    warm_up, tail = (random_prompts(llm.model.vocab, 1, n, rng)[0] for n in (N_WARM_UP, N_TAIL))
    llm.generate(warm_up, max_tokens=4, ignore_eos=True)
    done = llm.generate([*prefix, *tail], max_tokens=1, ignore_eos=True)
    assert done.cached_tokens == n_cached, done.cached_tokens
    return 1e3 * done.timings.ttft_s


def drop_from_page_cache(file: Path) -> None:
    descriptor = os.open(file, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


if __name__ == "__main__":
    chosen = harness.options(__doc__, rounds=3, models=["tinyllama-1.1b"])
    sys.exit(harness.verdict([claim for name in chosen.model for claim in compare(name, chosen.rounds)]))
