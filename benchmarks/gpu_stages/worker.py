"""pyggml in a separate process: streams together, in the ways that a list of cases asks for.

    python -m gpu_stages.worker '{"model": PATH, "device": NAME, "load": {...}, "cases": [{...}, ...]}'

``load`` goes to pyggml.load. A case has a "name", the options of its engine ("engine"), the parameters of its requests
("params"), "streams", "n_prompt", "n_tokens" and "rounds"; "is_bare" leaves out what precedes the rounds. Each gets a
line of JSON as soon as it is measured.
"""

from __future__ import annotations

import contextlib
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyggml
from pyggml.cli.bench.measure import random_prompts

from .setting import Setting

#: Cells of a sequence that has its own part of the KV cache: the engine allocates so many at least.
MIN_CELLS = 256
_COUNTERS = (
    "n_decode_steps",
    "n_prompt_tokens",
    "n_generated_tokens",
    "n_sampled_on_device",
    "n_preemptions",
    "prefill_s",
    "decode_s",
    "sample_s",
)


def command(setting: Setting, cases: list[dict[str, Any]], path: Path | None = None, **load: Any) -> list[str]:
    """The command line of a worker."""
    job = {"model": str(path or setting.path), "device": setting.device, "load": load, "cases": cases}
    return [sys.executable, "-m", "gpu_stages.worker", json.dumps(job)]


def measured(
    setting: Setting, cases: list[dict[str, Any]], env: Mapping[str, str], **load: Any
) -> Iterator[tuple[str, Any]]:
    """Name and result of each case, as a process measures them."""
    with subprocess.Popen(command(setting, cases, **load), env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith('{"name"'):
                result = json.loads(line)
                yield result.pop("name"), result
    if process.returncode != 0:
        raise RuntimeError(f"the worker ended with exit status {process.returncode}; its output is in the stage's log")


def case(setting: Setting, name: str, n_streams: int, engine: dict[str, Any] | None = None, **params: Any) -> Any:
    """A case of the size that the setting names. Without other parameters its requests are greedy."""
    work = setting.work
    return {
        "name": name,
        "streams": n_streams,
        "n_prompt": work.n_prompt,
        "n_tokens": work.n_tokens,
        "rounds": setting.rounds if n_streams <= work.n_some else 1,
        "engine": engine or {},
        "params": {"temperature": 0} | params,
    }


def speed(result: Any) -> float | None:
    """Generated tokens per second, prompts included: the median of the rounds."""
    return (
        None if result is None else statistics.median(each["n_tokens"] / each["seconds"] for each in result["rounds"])
    )


# --- in the process --------------------------------------------------------------------------------------------------


class Case:
    """A case with its engine."""

    def __init__(self, llm: pyggml.LLM, asked: Mapping[str, Any]) -> None:
        self._llm = llm
        self._asked = asked
        self._random = random.Random(1)

    def run(self) -> dict[str, Any]:
        if self._asked.get("is_bare"):  # for a profiler
            return {"rounds": [self._round(self._asked["n_tokens"])]}
        self._round(min(8, self._asked["n_tokens"]))
        prefill = self._round(1)
        rounds = [self._round(self._asked["n_tokens"]) for _ in range(self._asked["rounds"])]
        return {"streams": self._asked["streams"], "prefill": prefill, "rounds": rounds}

    def _round(self, n_tokens: int) -> dict[str, Any]:
        """Run all requests together once; each generates its ``n_tokens`` or ends at a stop token before."""
        asked, llm = self._asked, self._llm
        prompts = random_prompts(llm.model.vocab, asked["streams"], asked["n_prompt"], self._random)
        llm.reset()
        before, cpu, start = asdict(llm.stats()), time.process_time(), time.perf_counter()
        done = llm.generate_batch(prompts, max_tokens=n_tokens, **asked["params"])
        seconds, cpu_s = time.perf_counter() - start, time.process_time() - cpu
        after = asdict(llm.stats())
        counted = {name: round(after[name] - before[name], 6) for name in _COUNTERS}
        n_generated = sum(len(each.token_ids) for each in done)
        return {"seconds": seconds, "cpu_s": cpu_s, "n_tokens": n_generated, **counted}


def main() -> None:
    job = json.loads(sys.argv[1])
    options = {"device": job["device"], "n_ctx": 512, "n_parallel": 1, "progress": False, **job["load"]}
    # Closing an engine closes the model that it shares with the others: all stay open to the end.
    with pyggml.load(job["model"], **options) as first, contextlib.ExitStack() as stack:
        for asked in job["cases"]:
            n_ctx = asked["streams"] * max(asked["n_prompt"] + asked["n_tokens"], MIN_CELLS)
            engine = {"n_ctx": n_ctx, "n_parallel": asked["streams"], **asked["engine"]}
            try:
                llm = stack.enter_context(pyggml.LLM(first.model, tokenizer=first.tokenizer, **engine))
                result = Case(llm, asked).run()
            except pyggml.InferError as error:  # of this case: the others are measured all the same
                result = {"error": f"{type(error).__name__}: {error}"}
            print(json.dumps({"name": asked["name"], **result}), flush=True)


if __name__ == "__main__":
    main()
