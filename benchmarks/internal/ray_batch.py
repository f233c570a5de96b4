"""A batch job on a Ray cluster of three node processes, also with one killed in the middle, against plain processes.

    python benchmarks/internal/ray_batch.py --rows 20000 --rounds 3

Each round runs all three, one after the other. Rates count what is generated, from the first answer to the last, and
with the start of processes. Fails unless every output has every row once, in order.
"""

from __future__ import annotations

import argparse
import json
import logging
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import ray
from ray.cluster_utils import Cluster

import pyggml.ray
from pyggml import SamplingParams
from pyggml.batch import BatchProgress

N_NODES = 3
PARAMS: dict[str, Any] = {"max_tokens": 8, "ignore_eos": True}
LOAD: dict[str, Any] = {"n_ctx": 4096, "n_parallel": 16, "n_threads": 1}

_PLAIN = """
import json, sys, time
from pyggml import SamplingParams, batch
source, out, params, load = json.loads(sys.argv[1])
first = []
batch.run(source, out, params=SamplingParams(**params), progress=lambda _: first or first.append(time.time()), **load)
print(first[0], time.time())
"""


class Rate(NamedTuple):
    """Tokens per second."""

    steady: float
    whole: float


class Watch:
    """Sees the progress of a job, and kills a node when half of the rows are there, if it is to."""

    def __init__(self, cluster: Cluster, victim: Any) -> None:
        self.first_s = 0.0
        self._cluster, self.victim = cluster, victim

    def __call__(self, state: BatchProgress) -> None:
        self.first_s = self.first_s or time.time()
        if self.victim is not None and state.n_done >= state.n_rows // 2:
            self._cluster.remove_node(self.victim, allow_graceful=False)
            self.victim = None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    lines = [json.dumps({"id": n, "prompt": f"There were {n} cats"}) + "\n" for n in range(given.rows)]
    names = (f"{N_NODES} plain processes", f"{N_NODES} nodes", f"{N_NODES} nodes, one killed")
    found: dict[str, list[Rate]] = {name: [] for name in names}
    for _ in range(given.rounds):
        for name in names:
            with tempfile.TemporaryDirectory() as folder:
                rate = plain(lines, Path(folder)) if "plain" in name else clustered(lines, Path(folder), name)
            found[name].append(rate)
            print(f"{name}: {rate.steady:.0f} tokens/s, {rate.whole:.0f} with the start", flush=True)
    for name, rates in found.items():
        steady, whole = median(rate.steady for rate in rates), median(rate.whole for rate in rates)
        print(f"median of {name}: {steady:.0f} tokens/s, {whole:.0f} with the start")


def plain(lines: list[str], folder: Path) -> Rate:
    """Run the rows in as many plain processes, each with its share."""
    began_s = time.time()
    running = []
    for part in range(N_NODES):
        source = folder / f"part-{part}.jsonl"
        source.write_text("".join(lines[part::N_NODES]))
        settings = json.dumps([str(source), f"{source}.out", PARAMS, LOAD])
        running.append(subprocess.Popen([sys.executable, "-c", _PLAIN, settings], stdout=subprocess.PIPE, text=True))
    times = [process.communicate()[0].split() for process in running]
    if any(process.returncode for process in running):
        raise SystemExit("a plain process failed")
    return _rate(len(lines), began_s, min(float(first) for first, _ in times), max(float(end) for _, end in times))


def clustered(lines: list[str], folder: Path, name: str) -> Rate:
    """A cluster, which loses a node if its name says so."""
    source, out = folder / "in.jsonl", folder / "out.jsonl"
    source.write_text("".join(lines))
    small = {"num_cpus": 1, "object_store_memory": 100_000_000}
    cluster = Cluster(initialize_head=True, head_node_args={**small, "include_dashboard": False})
    others = [cluster.add_node(**small) for _ in range(N_NODES - 1)]
    ray.init(cluster.address, log_to_driver=False, logging_level=logging.ERROR)
    cluster.wait_for_nodes()
    watch = Watch(cluster, others[0] if "killed" in name else None)
    try:
        began_s = time.time()
        report = pyggml.ray.run_batch(source, out, params=SamplingParams(**PARAMS), progress=watch, **LOAD)
        end_s = time.time()
        rows = [json.loads(line) for line in out.read_text().splitlines()]
        if [row["id"] for row in rows] != [*range(len(lines))] or report.n_failed:
            raise SystemExit("rows are missing, repeated, failed or out of order")
        if watch.victim is not None:
            raise SystemExit("no node was killed")
        return _rate(len(lines), began_s, watch.first_s, end_s)
    finally:
        ray.shutdown()
        cluster.shutdown()


def _rate(n_rows: int, began_s: float, first_s: float, end_s: float) -> Rate:
    n_tokens = n_rows * int(PARAMS["max_tokens"])
    return Rate(n_tokens / (end_s - first_s), n_tokens / (end_s - began_s))


if __name__ == "__main__":
    main()
