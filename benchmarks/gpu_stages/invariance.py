"""Batch invariance: greedy requests alone, and in random schedules with others. How many tokens differ?"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from functools import partial
from typing import Any

import pyggml
from pyggml.cli.bench.measure import random_prompts

from . import streams, worker
from .setting import Report, Results, Setting, number, table
from .upstream import environment


def measure(setting: Setting, results: Results) -> None:
    pyggml.find_device(setting.device)
    work = setting.work
    for name, options in streams.engines().items():
        job = {
            "model": str(setting.path),
            "device": setting.device,
            "engine": options,
            "n": work.n_some,
            "n_tokens": min(64, work.n_tokens),
            "schedules": work.schedules,
        }
        results.once(name, partial(_process, job))


def _process(job: dict[str, Any]) -> Any:
    command = [sys.executable, "-m", "gpu_stages.invariance", json.dumps(job)]
    done = subprocess.run(command, env=environment(), stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def report(setting: Setting, results: Results) -> Report:
    rows = []
    for name in streams.engines():
        if found := results.get(name):
            counts = [
                number(found[each]) for each in ("requests", "requests_that_differ", "tokens", "first_differences")
            ]
            share = f"{found['first_differences'] / max(found['tokens_compared'], 1):.4%}"
            rows.append([name, *counts, share, ", ".join(found["not_batch_invariant"]) or "none"])
    head = ["", "requests", "that differ", "tokens", "first differences", "per token until then", "variant operations"]
    return [
        f"{setting.work.n_some} greedy requests, alone and in {setting.work.schedules} random schedules with others:",
        "",
        *table(head, rows),
    ]


# --- in the process --------------------------------------------------------------------------------------------------


def compared(alone: list[list[int]], together: list[list[int]]) -> tuple[int, int]:
    """The number of requests that differ, and the tokens until the first difference of each, itself included."""
    n_different = n_compared = 0
    for one, other in zip(alone, together, strict=True):
        equal = [a == b for a, b in zip(one, other, strict=True)]
        n_different += not all(equal)
        n_compared += len(equal) if all(equal) else equal.index(False) + 1
    return n_different, n_compared


def main() -> None:
    job = json.loads(sys.argv[1])
    n, n_tokens, rng = job["n"], job["n_tokens"], random.Random(1)
    params = {"max_tokens": n_tokens, "temperature": 0, "ignore_eos": True}
    n_ctx = n * max(2 * (64 + n_tokens), worker.MIN_CELLS)
    with pyggml.load(
        job["model"], device=job["device"], n_ctx=n_ctx, n_parallel=n, progress=False, **job["engine"]
    ) as llm:
        vocab = llm.model.vocab

        def some(count: int) -> list[list[int]]:
            return [random_prompts(vocab, 1, rng.randrange(4, 60), rng)[0] for _ in range(count)]

        prompts = some(n)
        alone = []
        for prompt in prompts:
            llm.reset()
            alone.append(llm.generate(prompt, **params).token_ids)
        n_different = n_compared = 0
        for _ in range(job["schedules"]):
            llm.reset()
            mixed = [(i, prompt) for i, prompt in enumerate(prompts)]
            mixed += [(-1, prompt) for prompt in some(rng.randrange(n))]
            rng.shuffle(mixed)
            done = llm.generate_batch([prompt for _, prompt in mixed], **params)
            found = {i: each.token_ids for (i, _), each in zip(mixed, done, strict=True)}
            different, until = compared(alone, [found[i] for i in range(n)])
            n_different += different
            n_compared += until
        variant = llm.stats().not_batch_invariant
    print(json.dumps({
        "requests": n * job["schedules"], "requests_that_differ": n_different,
        "tokens": n * job["schedules"] * n_tokens, "tokens_compared": n_compared,
        "first_differences": n_different, "not_batch_invariant": variant,
    }))  # fmt: skip


if __name__ == "__main__":
    main()
