"""Scaling limit of batch jobs on Ray: the costs of the driver process, and the clusters that saturate it.

    python benchmarks/internal/scale_simulation.py --measure         # the costs, on a local cluster, and the tables
    python benchmarks/internal/scale_simulation.py --costs 90 900 1  # the tables, from costs that are known

Nodes take parts, compute them at their rate and die once a day each; one process gives the parts out and writes down
what comes back, one after the other, as ``pyggml.ray.run_batch`` does.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import tempfile
import time
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import NamedTuple

N_NODES = (1, 3, 10, 30, 100, 300, 1000)
SIMULATED_S = 1800.0
# A node dies once a day (a bad cloud), is replaced so much later, and has loaded its model after so much more.
DAY_S = 24 * 3600.0
REPLACED_S, LOADED_S = 300.0, 30.0
# Parts that a node has at a time, one of them being computed, and tokens of each (pyggml.ray.job.BATCH_TOKENS).
PARTS_HELD, PART_TOKENS = 2, 8192


class Costs(NamedTuple):
    """Seconds of the process that keeps the journal: for each row, for each part, and to see which parts are there.

    It looks at all parts that are out when it has nothing else to do, and takes all that have come.
    """

    row_s: float
    part_s: float
    look_s: float  # for each part that is out

    def __str__(self) -> str:
        return f"{self.row_s * 1e6:.0f} us a row, {self.part_s * 1e6:.0f} us a part, {self.look_s * 1e6:.2f} us a look"


class Job(NamedTuple):
    """Simulated nodes of a cluster.

    Attributes:
        name: shown.
        node_rate: tokens that a node generates per second.
        row_tokens: tokens that a row generates.
    """

    name: str
    node_rate: float
    row_tokens: int


JOBS = (
    Job("1.1B on 2 cores (220 tokens/s, measured), answers of 200 tokens", 220, 200),
    Job("135M on 2 cores (990 tokens/s, measured), answers of 200 tokens", 990, 200),
    Job("a node with 5,000 tokens/s (assumed), answers of 200 tokens", 5000, 200),
    Job("a node with 5,000 tokens/s (assumed), answers of 8 tokens", 5000, 8),
)


@dataclass
class Cluster:
    """A cluster at work on a job that never ends, in simulated time."""

    job: Job
    costs: Costs
    n_nodes: int
    mtbf_s: float
    random: random.Random = field(default_factory=lambda: random.Random(1))
    n_rows: int = 0
    n_lost: int = 0
    busy_s: float = 0.0

    def run(self) -> None:
        """Count the rows that are written down, and those that dying nodes take with them."""
        part_rows = max(1, PART_TOKENS // (self.job.row_tokens + 16))
        part_s = part_rows * self.job.row_tokens / self.job.node_rate
        served_s = self.costs.part_s + part_rows * self.costs.row_s
        held = [0] * self.n_nodes  # parts that a node has
        lives = [0] * self.n_nodes  # what was sent to a node's earlier life is lost
        free_s = 0.0  # when the process that gives out is free again
        order = count()
        events: list[tuple[float, int, str, int, int]] = []

        def at(when_s: float, what: str, node: int) -> None:
            heapq.heappush(events, (when_s, next(order), what, node, lives[node]))

        for node in range(self.n_nodes):
            at(0.0, "up", node)
        while events and events[0][0] <= SIMULATED_S:
            now_s, _, what, node, life = heapq.heappop(events)
            if life != lives[node]:
                continue
            if what == "up":
                at(now_s + self.random.expovariate(1 / self.mtbf_s), "dies", node)
                for _ in range(PARTS_HELD):
                    free_s = max(free_s, now_s) + self.costs.part_s
                    at(free_s, "arrives", node)
            elif what == "arrives":
                held[node] += 1
                if held[node] == 1:
                    at(now_s + part_s * self.random.uniform(0.8, 1.2), "done", node)
            elif what == "done":
                held[node] -= 1
                if held[node]:
                    at(now_s + part_s * self.random.uniform(0.8, 1.2), "done", node)
                looks_s = self.costs.look_s * PARTS_HELD * self.n_nodes if free_s <= now_s else 0.0
                free_s = max(free_s, now_s) + looks_s + served_s
                self.busy_s += looks_s + served_s
                self.n_rows += part_rows if free_s <= SIMULATED_S else 0
                at(free_s, "arrives", node)
            else:
                self.n_lost += held[node] * part_rows
                lives[node], held[node] = lives[node] + 1, 0
                at(now_s + REPLACED_S + LOADED_S, "up", node)


def measured() -> Costs:
    """The costs, from jobs of the shipped model with small and with large parts: what this process computed itself."""
    import ray

    import pyggml
    import pyggml.ray

    n_rows = 3000
    ray.init("local", num_cpus=2, object_store_memory=100_000_000, include_dashboard=False, log_to_driver=False)
    spent_s = {}
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "in.jsonl"
        source.write_text(
            "".join(json.dumps({"id": n, "prompt": f"There were {n} cats"}) + "\n" for n in range(n_rows))
        )
        for part_rows in (5, 300):
            began_s = time.process_time()
            pyggml.ray.run_batch(
                source,
                Path(folder) / f"{part_rows}.jsonl",
                params=pyggml.SamplingParams(max_tokens=1),
                batch_tokens=part_rows * 12,  # 11 for each row, by the length of its text
                n_actors=1,
                n_threads=1,
                n_ctx=4096,
            )
            spent_s[part_rows] = (time.process_time() - began_s) / n_rows
    few, many = sorted(spent_s)
    part_s = (spent_s[few] - spent_s[many]) / (1 / few - 1 / many)
    return Costs(spent_s[many] - part_s / many, part_s, _look_s())


def _look_s() -> float:
    """Measure the cost per batch of polling many batches, as ``pyggml.ray.pool`` does, twice."""
    import ray

    n_refs, n_looks = 2000, 20
    never = ray.remote(num_cpus=1000)(lambda: None)
    refs = [never.remote() for _ in range(n_refs)]
    there = ray.put(0)
    began_s = time.perf_counter()
    for _ in range(n_looks):
        ray.wait([*refs, there], num_returns=1, fetch_local=False)
        ray.wait([*refs, there], num_returns=n_refs + 1, timeout=0, fetch_local=False)
    return (time.perf_counter() - began_s) / n_looks / n_refs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--costs", type=float, nargs=3, metavar="US", help="microseconds a row, a part, and a look")
    given = parser.parse_args()
    if not given.measure and given.costs is None:
        parser.error("say --measure or --costs")
    costs = measured() if given.measure else Costs(*(microseconds / 1e6 for microseconds in given.costs))
    print(f"the process with the journal: {costs}")
    for job in JOBS:
        print(f"\n{job.name}\n\n| nodes | tokens/s | of the nodes' capacity | journal busy | rows recomputed |")
        print("| ---: | ---: | ---: | ---: | ---: |")
        for n_nodes in N_NODES:
            cluster = Cluster(job, costs, n_nodes, DAY_S)
            cluster.run()
            rate = cluster.n_rows * job.row_tokens / SIMULATED_S
            share, busy = rate / (n_nodes * job.node_rate), min(1.0, cluster.busy_s / SIMULATED_S)
            again = cluster.n_lost / max(1, cluster.n_rows)
            print(f"| {n_nodes:,} | {rate:,.0f} | {share:.0%} | {busy:.1%} | {again:.3%} |")


if __name__ == "__main__":
    main()
