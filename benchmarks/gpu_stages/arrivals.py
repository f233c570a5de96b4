"""Time to the first token of a request that comes while all other streams decode, and what it costs these."""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import threading
import time
from itertools import pairwise
from typing import Any

import pyggml
from pyggml.cli.bench.measure import random_prompts

from .setting import Report, Results, Setting, number, table
from .upstream import environment


def measure(setting: Setting, results: Results) -> None:
    pyggml.find_device(setting.device)
    work = setting.work
    job = {
        "model": str(setting.path),
        "device": setting.device,
        "n_streams": work.n_some,
        "n_prompt": work.n_prompt,
        "first_token": [16, work.first_token],
        "arrivals": work.arrivals,
    }
    results.once("pyggml", lambda: _process(job))


def _process(job: dict[str, Any]) -> Any:
    command = [sys.executable, "-m", "gpu_stages.arrivals", json.dumps(job)]
    done = subprocess.run(command, env=environment(), stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def report(setting: Setting, results: Results) -> Report:
    found = results.get("pyggml")
    if not found:
        return []
    rows = []
    for length, seconds in found["first_token_s"].items():
        alone = found["alone_s"][length]
        rows.append([length, *(number(1e3 * each, 1) for each in (alone, statistics.median(seconds), max(seconds)))])
    n = setting.work.n_some - 1
    gaps = ", ".join(f"{name} {1e3 * seconds:.1f} ms" for name, seconds in found["gaps_s"].items())
    return [
        f"Milliseconds to the first token of a request, by the length of its prompt; {n} streams decode:",
        "",
        *table(["tokens", "alone", "median", "longest"], rows),
        f"Between two chunks of one of the {n} streams in the meantime: {gaps}.",
        "",
    ]


# --- in the process --------------------------------------------------------------------------------------------------


def first_token(llm: pyggml.LLM, prompt: list[int]) -> float:
    start = time.perf_counter()
    with llm.stream(prompt, max_tokens=4, temperature=0, ignore_eos=True) as stream:
        next(iter(stream))
        return time.perf_counter() - start


def quantiles(times: list[float]) -> dict[str, float]:
    gaps = sorted(b - a for a, b in pairwise(times))
    return {"median": gaps[len(gaps) // 2], "p99": gaps[int(0.99 * len(gaps))], "longest": gaps[-1]}


def main() -> None:
    job = json.loads(sys.argv[1])
    n_streams, rng = job["n_streams"], random.Random(1)
    lengths, n = job["first_token"], job["arrivals"]
    with pyggml.load(
        job["model"], device=job["device"], n_ctx=n_streams * 4096, n_parallel=n_streams, prefix_cache=False,
        progress=False,
    ) as llm:  # fmt: skip
        asked = {length: random_prompts(llm.model.vocab, n + 2, length, rng) for length in lengths}
        for prompts in asked.values():
            first_token(llm, prompts.pop())
        alone = {length: first_token(llm, prompts.pop()) for length, prompts in asked.items()}
        is_over, running = threading.Event(), threading.Barrier(n_streams)
        times: list[list[float]] = [[] for _ in range(n_streams - 1)]

        def stream(index: int, prompt: list[int]) -> None:
            with llm.stream(prompt, max_tokens=3500, temperature=0, ignore_eos=True) as chunks:
                for number, _ in enumerate(chunks):
                    if number == 1:
                        running.wait()
                    times[index].append(time.perf_counter())
                    if is_over.is_set():
                        return

        prompts = random_prompts(llm.model.vocab, n_streams - 1, job["n_prompt"], rng)
        threads = [threading.Thread(target=stream, args=each) for each in enumerate(prompts)]
        for thread in threads:
            thread.start()
        running.wait()
        begin = time.perf_counter()
        first: dict[int, list[float]] = {length: [] for length in lengths}
        for number in range(n):
            for length in lengths:
                time.sleep(rng.uniform(0.02, 0.06))
                first[length].append(first_token(llm, asked[length][number]))
        is_over.set()
        for thread in threads:
            thread.join()
    gaps = quantiles([each for each in times[0] if each >= begin])
    print(json.dumps({"alone_s": alone, "first_token_s": first, "gaps_s": gaps}))


if __name__ == "__main__":
    main()
