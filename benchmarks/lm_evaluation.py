"""lm-evaluation-harness: ``--model pyggml`` against its ``hf``, on the same float checkpoint in the same process.

    python benchmarks/lm_evaluation.py [--rounds 3] [--model smollm2 demo] [--limit N] [--cpu-time]

Needs an interpreter with ``lm-eval[hf]``, PyTorch and pyggml. The checkpoint is a published model, or the demonstration
model, in F32; the tasks are those of the tests. Only the time within the models counts. ``hf`` runs with the fastest of
the batch sizes, found for each task in the warm-up. The results of both are compared in each round.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent / "common"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

import harness
import numpy as np
import real_models
import torch
from lm_eval.api.registry import get_model
from support import lm_eval_tasks
from support.checkpoints import demo_checkpoint

from pyggml.integrations.lm_eval import PyggmlLM
from pyggml.source import SHIPPED_MODEL

#: Name -> task, options of the evaluation, and how many times as fast pyggml should be.
TASKS: dict[str, tuple[str, dict[str, Any], float]] = {
    "choices": ("pyggml_choice", {}, 2.0),
    "choices, 5 shots": ("pyggml_choice", {"num_fewshot": 5}, 2.0),
    "rolling": ("pyggml_rolling", {}, 1.0),
    "generation": ("pyggml_generate", {}, 2.0),
}
MAX_LENGTH = 1024
_METHODS = ("loglikelihood", "loglikelihood_rolling", "generate_until")


class Side:
    """One of the models, with a clock."""

    def __init__(self, model: Any, clock: Callable[[], float]) -> None:
        self.model, self.clock, self.seconds = model, clock, 0.0
        for name in _METHODS:
            setattr(model, name, self._timed(getattr(model, name)))

    def evaluate(self, name: str, folder: Path, limit: int | None) -> tuple[float, Any]:
        """Return the seconds of a task, and its single results."""
        task, options, _ = TASKS[name]
        self.seconds = 0.0
        found = lm_eval_tasks.evaluate(self.model, folder, tasks=[task], limit=limit, **options)
        return self.seconds, found[task]["samples"]

    def _timed(self, method: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            start = self.clock()
            try:
                return method(*args, **kwargs)
            finally:
                self.seconds += self.clock() - start

        return call


def compare(name: str, chosen: argparse.Namespace, folder: Path) -> list[harness.Claim]:
    """Measure one checkpoint."""
    source = SHIPPED_MODEL if name == "demo" else real_models.fetch(name)
    checkpoint = demo_checkpoint.write(folder / name, source)
    n_threads = 1 if chosen.cpu_time else harness.n_cpus()
    clock = time.process_time if chosen.cpu_time else time.perf_counter
    torch.set_num_threads(n_threads)
    ours = Side(PyggmlLM(checkpoint, n_ctx=2048, n_threads=n_threads, max_length=MAX_LENGTH), clock)
    hf = get_model("hf")(pretrained=str(checkpoint), dtype="float32", device="cpu", batch_size=8, max_length=MAX_LENGTH)
    theirs = Side(hf, clock)
    claims = []
    for task in chosen.tasks:
        trials = {}
        for size in chosen.batch_sizes:
            hf.batch_size_per_gpu = size
            trials[size] = theirs.evaluate(task, folder / "tasks", chosen.limit)[0]
        hf.batch_size_per_gpu = min(trials, key=lambda size: trials[size])
        print(
            f"{name}, {task}: hf by batch size " + ", ".join(f"{n}: {s:.3g} s" for n, s in trials.items()), flush=True
        )
        results: dict[str, Any] = {}

        def seconds(side: Side, key: str) -> Any:
            def run(_n: int) -> float:
                taken, results[key] = side.evaluate(task, folder / "tasks", chosen.limit)  # noqa: B023
                return taken

            return run

        figures = harness.interleaved(
            {"pyggml": seconds(ours, "ours"), "hf": seconds(theirs, "theirs")}, chosen.rounds, "s"
        )
        print(f"  {difference(results['ours'], results['theirs'])}")
        harness.table(figures, "s")
        faster = harness.ratio(figures, "hf", "pyggml")
        claims.append(harness.at_least(f"{name}, {task}: hf / pyggml", faster, TASKS[task][2], "x"))
    return claims


def difference(ours: Any, theirs: Any) -> str:
    """Say how far two lists of results are apart."""
    a, b = list(_leaves(ours)), list(_leaves(theirs))
    if isinstance(a[0], str):
        return f"{sum(x == y for x, y in zip(a, b, strict=True))} of {len(a)} texts are equal"
    numbers = np.array(a, float), np.array(b, float)
    apart = float(np.abs(numbers[0] - numbers[1]).max())
    return f"results differ by {apart:.2g} at most, of {float(np.abs(numbers[1]).max()):.4g}"


def _leaves(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        for each in value:
            yield from _leaves(each)
    else:
        yield value


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="default 3")
    parser.add_argument("--model", nargs="+", default=["smollm2", "demo"], help="default smollm2 demo")
    parser.add_argument("--batch-sizes", nargs="+", type=int, default=[1, 8, 32], help="default 1 8 32")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS), help="default all")
    parser.add_argument("--cpu-time", action="store_true", help="CPU time of one thread, for a busy machine")
    parser.add_argument("--limit", type=int, help="only so many questions of each task")
    chosen = parser.parse_args()
    print(f"{harness.n_cpus()} CPUs, load average {os.getloadavg()[0]:.2f} before the start", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        claims = [claim for name in chosen.model for claim in compare(name, chosen, Path(folder))]
    return harness.verdict(claims)


if __name__ == "__main__":
    sys.exit(main())
