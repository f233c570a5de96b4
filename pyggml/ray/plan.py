"""How many models the nodes of a cluster hold, and how large each is: from their cores, memory and GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyggml
from pyggml.memory.estimate import estimate
from pyggml.units import bytes_text, counted

# More threads make one request faster, and many requests no faster than two models beside each other.
_MOST_CPUS = 8
# What Python, Ray and Arrow take in a process besides the model.
_PROCESS_BYTES = 200 * 2**20


@dataclass(frozen=True)
class Node:
    """What a node lends to Ray.

    Attributes:
        n_cpus: logical CPUs.
        n_gpus: GPUs.
        memory_bytes: main memory.
    """

    n_cpus: float
    n_gpus: float
    memory_bytes: float


@dataclass(frozen=True)
class Plan:
    """The actors of a job, all of one size.

    Attributes:
        n_actors: number of actors, each with a model.
        n_cpus: CPUs of each, which is the number of its compute threads.
        n_gpus: GPUs of each.
        memory_bytes: main memory of each, without the weights, which all processes of a node share.
    """

    n_actors: int
    n_cpus: int
    n_gpus: int
    memory_bytes: int


def plan(nodes: Iterable[Node], model: Any, load: Mapping[str, Any]) -> Plan:
    """Plans as many actors as fit: one for each GPU, or one for every few CPUs where there is none.

    Raises:
        OutOfMemoryError: no node has room for the model.
        InvalidParameterError: the cluster has no CPUs to give.
    """
    nodes = [node for node in nodes if node.n_cpus >= 1]
    if not nodes:
        raise pyggml.InvalidParameterError("no node of the Ray cluster has a CPU to give: add a node")
    if with_gpus := [node for node in nodes if node.n_gpus >= 1 and load.get("device") != "cpu"]:
        # Its GPUs are not this machine's, so what they have room for is found out where they are.
        return Plan(int(sum(node.n_gpus for node in with_gpus)), 1, 1, 0)
    options = {name: value for name, value in load.items() if name in _ESTIMATED}
    needed = estimate(model, **{**options, "device": "cpu"})
    own = needed.total_bytes - needed.weights_bytes + _PROCESS_BYTES
    n_cpus = int(load.get("n_threads") or min(_MOST_CPUS, *(node.n_cpus for node in nodes)))
    fitting = [min(node.n_cpus // n_cpus, (node.memory_bytes - needed.weights_bytes) // own) for node in nodes]
    n_actors = int(sum(max(n, 0) for n in fitting))
    if not n_actors:
        most = int(max(node.memory_bytes for node in nodes))
        raise pyggml.OutOfMemoryError(
            f"no node has room for the model: it takes {counted(n_cpus, 'CPU')} and {bytes_text(needed.total_bytes)}, "
            f"and the largest node lends {bytes_text(most)} to Ray: use a smaller n_ctx, n_parallel or n_threads",
            needed.total_bytes,
            most,
        )
    return Plan(n_actors, n_cpus, 0, own)


_ESTIMATED = ("n_ctx", "n_parallel", "n_batch", "n_ubatch", "cache_type")
