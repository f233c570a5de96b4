"""Planning of actors: their number and size, from the CPUs, memory and GPUs of a cluster's nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyggml
from pyggml.memory.estimate import estimate
from pyggml.units import bytes_text, counted

# Beyond this, two models have more throughput than one with twice the threads.
_MAX_CPUS = 8
# Prefer few large actors to many small ones, as long as they use this fraction of the best CPU utilisation.
_MIN_UTILISATION = 0.9
# Memory of Python, Ray and Arrow in each process, without the model.
_PROCESS_BYTES = 200 * 2**20
_ESTIMATE_OPTIONS = ("n_ctx", "n_parallel", "n_batch", "n_ubatch", "cache_type")


@dataclass(frozen=True)
class Node:
    """The resources that a node offers to Ray. ``n_gpus`` counts those that pyggml can use."""

    n_cpus: float
    n_gpus: float
    memory_bytes: float


@dataclass(frozen=True)
class Plan:
    """The actors of a job, all of one size.

    Attributes:
        n_cpus: CPUs of each; without a GPU, the number of its compute threads.
        memory_bytes: main memory of each, without the weights that processes of a node share; 0: unknown.
    """

    n_actors: int
    n_cpus: int
    n_gpus: int
    memory_bytes: int


@dataclass(frozen=True)
class _ModelMemory:
    """The memory of a model."""

    shared_bytes: int  # memory-mapped weights, whose pages all processes of a node share
    private_bytes: int  # of each process: KV cache, compute buffers and repacked weights

    def n_fitting(self, nodes: Iterable[Node], n_cpus: int) -> int:
        """Return the number of actors with ``n_cpus`` CPUs that fit on the nodes."""
        return sum(
            max(0, int(min(node.n_cpus // n_cpus, (node.memory_bytes - self.shared_bytes) // self.private_bytes)))
            for node in nodes
        )


def plan(nodes: Iterable[Node], model: Any, load: Mapping[str, Any], n_actors: int | None = None) -> Plan:
    """Plan as many actors as fit: one per GPU or, without GPUs, one per up to eight CPUs.

    Args:
        nodes: the nodes.
        model: as for :func:`pyggml.load`, on this machine.
        load: options of :func:`pyggml.load`.
        n_actors: number of actors, instead of as many as fit.

    Raises:
        OutOfMemoryError: the model fits on no node.
        InvalidParameterError: no node has a CPU.
        InferError: the model's memory cannot be estimated.
    """
    nodes = [node for node in nodes if node.n_cpus >= 1]
    if not nodes:
        raise pyggml.InvalidParameterError("no node of the Ray cluster has a CPU for actors: add a node")
    n_gpus = int(sum(node.n_gpus for node in nodes if node.n_gpus >= 1))
    if n_gpus and load.get("device") != "cpu":
        # GPUs of other hosts: only the actors there can check their memory.
        return Plan(n_actors or n_gpus, 1, 1, 0)
    options = {name: value for name, value in load.items() if name in _ESTIMATE_OPTIONS}
    needs = estimate(model, **{**options, "device": "cpu"}).devices[0]
    shared_bytes = needs.weights_bytes - needs.repacked_bytes
    memory = _ModelMemory(shared_bytes, needs.total_bytes - shared_bytes + _PROCESS_BYTES)
    n_cpus = int(load.get("n_threads") or _n_cpus(nodes, memory))
    n_fitting = memory.n_fitting(nodes, n_cpus)
    if not n_fitting:
        needed = memory.shared_bytes + memory.private_bytes
        largest = int(max(node.memory_bytes for node in nodes))
        raise pyggml.OutOfMemoryError(
            f"the model fits on no node: it needs {counted(n_cpus, 'CPU')} and {bytes_text(needed)}; the largest node "
            f"offers {bytes_text(largest)} to Ray. Use a smaller n_ctx, n_parallel or n_threads.",
            needed,
            largest,
        )
    return Plan(n_actors or n_fitting, n_cpus, 0, memory.private_bytes)


def _n_cpus(nodes: Iterable[Node], memory: _ModelMemory) -> int:
    """Return the CPUs of each actor: the largest number with nearly the best CPU utilisation."""
    used = {n_cpus: n_cpus * memory.n_fitting(nodes, n_cpus) for n_cpus in range(1, _MAX_CPUS + 1)}
    return max(n_cpus for n_cpus, n_used in used.items() if n_used >= _MIN_UTILISATION * max(used.values()))
