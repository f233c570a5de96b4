"""One stream with a long context: the speed of its prompt, and of decoding after it."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from typing import Any

import pyggml
from pyggml.cli.bench.measure import random_prompts

from .setting import Report, Results, Setting, number, ratio, table
from .upstream import Upstream


def measure(setting: Setting, results: Results) -> None:
    upstream = Upstream(setting)
    work = setting.work
    job = {"model": str(setting.path), "device": setting.device, "n_prompt": work.depth, "n_tokens": work.n_tokens}
    results.once("pyggml", lambda: _process(job, upstream.environment))
    results.once("upstream", lambda: _upstream(setting, upstream))


def _process(job: dict[str, Any], env: dict[str, str]) -> Any:
    command = [sys.executable, "-m", "gpu_stages.depth", json.dumps(job)]
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def _upstream(setting: Setting, upstream: Upstream) -> Any:
    work = setting.work
    row = upstream.batched([1], work.depth, work.n_tokens)[0]
    return {"prompt": work.depth / row["t_pp"], "decode": (work.n_tokens - 1) / row["t_tg"]}


def report(setting: Setting, results: Results) -> Report:
    ours, theirs = results.get("pyggml"), results.get("upstream")
    rows = []
    for what, name in (("prompt", f"prompt of {setting.work.depth:,}"), ("decode", "decoding after it")):
        speeds = [side and side[what] for side in (ours, theirs)]
        rows.append([name, *(number(speed, 1) for speed in speeds), ratio(*speeds)])
    return ["One stream, tokens per second:", "", *table(["", "pyggml", "llama-batched-bench", "ratio"], rows)]


def main() -> None:
    job = json.loads(sys.argv[1])
    n_prompt, n_tokens = job["n_prompt"], job["n_tokens"]
    with pyggml.load(
        job["model"], device=job["device"], n_ctx=n_prompt + n_tokens + 8, n_parallel=1, progress=False
    ) as llm:
        warm, prompt = random_prompts(llm.model.vocab, 2, n_prompt, random.Random(1))
        llm.generate(warm[:512], max_tokens=8, ignore_eos=True)
        llm.reset()
        start = time.perf_counter()
        llm.generate(prompt, max_tokens=1, ignore_eos=True)
        prefilled = time.perf_counter()
        done = llm.generate([*prompt, warm[0]], max_tokens=n_tokens, ignore_eos=True)
        end = time.perf_counter()
        assert done.cached_tokens >= n_prompt - 1, done.cached_tokens
    print(json.dumps({"prompt": n_prompt / (prefilled - start), "decode": n_tokens / (end - prefilled)}))


if __name__ == "__main__":
    main()
