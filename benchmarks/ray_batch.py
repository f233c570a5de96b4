"""A batch job on a Ray cluster of three node processes, one killed in the middle, against plain processes.

    python benchmarks/ray_batch.py --rows 20000

Prints both rates from the same run, and fails unless the output has every row once, in order.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

import pyggml.ray
from pyggml import SamplingParams
from pyggml.batch import BatchProgress

N_NODES = 3
PARAMS: dict[str, Any] = {"max_tokens": 16, "ignore_eos": True}
LOAD: dict[str, Any] = {"n_ctx": 4096, "n_parallel": 16, "n_threads": 1}

_PLAIN = """
import json, sys
from pyggml import SamplingParams, batch
source, out, params, load = json.loads(sys.argv[1])
batch.run(source, out, params=SamplingParams(**params), **load)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--batch-tokens", type=int, default=8192)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lines = [json.dumps({"id": n, "prompt": f"There were {n} cats"}) + "\n" for n in range(given.rows)]
        source = Path(folder) / "in.jsonl"
        source.write_text("".join(lines))
        plain = plain_rate(lines, Path(folder))
        print(f"{N_NODES} plain processes: {plain:.0f} tokens/s, start included")
        for kills in (False, True):
            rate = cluster_rate(source, Path(folder) / f"out-{kills}.jsonl", given.batch_tokens, kills=kills)
            print(f"{N_NODES} nodes{', one killed' if kills else ''}: {rate:.0f} tokens/s, start included")


def plain_rate(lines: list[str], folder: Path) -> float:
    """Tokens per second of as many plain processes, each with its share of the rows."""
    began = time.monotonic()
    running = []
    for part in range(N_NODES):
        source = folder / f"part-{part}.jsonl"
        source.write_text("".join(lines[part::N_NODES]))
        settings = json.dumps([str(source), f"{source}.out", PARAMS, LOAD])
        command = [sys.executable, "-c", _PLAIN, settings]
        running.append(subprocess.Popen(command, stderr=subprocess.DEVNULL))
    codes = [process.wait() for process in running]
    if any(codes):
        raise SystemExit(f"a plain process failed: {codes}")
    return len(lines) * int(PARAMS["max_tokens"]) / (time.monotonic() - began)


def cluster_rate(source: Path, out: Path, batch_tokens: int, *, kills: bool) -> float:
    """Tokens per second of a cluster, which loses a node when half of the rows are there if it is to."""
    small = {"num_cpus": 1, "object_store_memory": 100_000_000, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=small)
    others = [cluster.add_node(num_cpus=1, object_store_memory=100_000_000) for _ in range(N_NODES - 1)]
    ray.init(cluster.address, log_to_driver=False, logging_level="ERROR")
    ray.data.DataContext.get_current().enable_progress_bars = False
    cluster.wait_for_nodes()

    def watch(state: BatchProgress) -> None:
        if kills and others and state.n_done >= state.n_rows // 2:
            cluster.remove_node(others.pop(), allow_graceful=False)
            others.clear()

    try:
        began = time.monotonic()
        report = pyggml.ray.run_batch(
            source, out, params=SamplingParams(**PARAMS), progress=watch, batch_tokens=batch_tokens, **LOAD
        )
        elapsed_s = time.monotonic() - began
        rows = [json.loads(line) for line in out.read_text().splitlines()]
        if [row["id"] for row in rows] != [*range(report.n_rows)] or report.n_failed:
            raise SystemExit("rows are missing, repeated, failed or out of order")
        if kills and others:
            raise SystemExit("no node was killed")
        return report.generated_tokens / elapsed_s
    finally:
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main()
