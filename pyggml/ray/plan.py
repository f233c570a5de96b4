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
# Fewer models, each with weights of its own, are better than many, as long as this part of the CPUs has work.
_ENOUGH = 0.9
# What Python, Ray and Arrow take in a process besides the model.
_PROCESS_BYTES = 200 * 2**20
_ESTIMATED = ("n_ctx", "n_parallel", "n_batch", "n_ubatch", "cache_type")


@dataclass(frozen=True)
class Node:
    """What a node lends to Ray.

    Attributes:
        n_cpus: logical CPUs.
        n_gpus: GPUs that pyggml can use.
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
        n_cpus: CPUs of each; without a GPU, the number of its compute threads.
        n_gpus: GPUs of each.
        memory_bytes: main memory of each, without the weights that all processes of a node share; 0: not known.
    """

    n_actors: int
    n_cpus: int
    n_gpus: int
    memory_bytes: int


@dataclass(frozen=True)
class _Need:
    """What a model takes.

    Attributes:
        shared_bytes: weights as they are in the file, whose pages all processes of a node share.
        own_bytes: what each process has for itself: caches, scratch memory, and weights that are laid out anew.
    """

    shared_bytes: int
    own_bytes: int

    def n_fitting(self, node: Node, n_cpus: int) -> int:
        """How many models with so many threads a node holds."""
        return max(0, int(min(node.n_cpus // n_cpus, (node.memory_bytes - self.shared_bytes) // self.own_bytes)))


def plan(nodes: Iterable[Node], model: Any, load: Mapping[str, Any], n_actors: int | None = None) -> Plan:
    """Plans as many actors as fit: one for each GPU, or where there is none, one for up to eight CPUs.

    Args:
        nodes: the nodes.
        model: as for :func:`pyggml.load`, on this machine.
        load: options of :func:`pyggml.load`.
        n_actors: so many, instead of as many as fit.

    Raises:
        OutOfMemoryError: no node has room for the model.
        InvalidParameterError: the cluster has no CPUs to give.
        InferError: the model cannot be estimated.
    """
    nodes = [node for node in nodes if node.n_cpus >= 1]
    if not nodes:
        raise pyggml.InvalidParameterError("no node of the Ray cluster has a CPU to give: add a node")
    n_gpus = int(sum(node.n_gpus for node in nodes if node.n_gpus >= 1))
    if n_gpus and load.get("device") != "cpu":
        # Its GPUs are not this machine's, so what they have room for is found out where they are.
        return Plan(n_actors or n_gpus, 1, 1, 0)
    need = _need(model, load)
    n_cpus = int(load.get("n_threads") or _n_cpus(nodes, need))
    n_fitting = _n_fitting(nodes, need, n_cpus)
    if not n_fitting:
        raise _no_room(nodes, need, n_cpus)
    return Plan(n_actors or n_fitting, n_cpus, 0, need.own_bytes)


def _need(model: Any, load: Mapping[str, Any]) -> _Need:
    options = {name: value for name, value in load.items() if name in _ESTIMATED}
    memory = estimate(model, **{**options, "device": "cpu"}).devices[0]
    shared_bytes = memory.weights_bytes - memory.repacked_bytes
    return _Need(shared_bytes, memory.total_bytes - shared_bytes + _PROCESS_BYTES)


def _n_fitting(nodes: Iterable[Node], need: _Need, n_cpus: int) -> int:
    return sum(need.n_fitting(node, n_cpus) for node in nodes)


def _n_cpus(nodes: Iterable[Node], need: _Need) -> int:
    """Threads of each model: the most with which hardly fewer CPUs have work than could."""
    used = {n_cpus: n_cpus * _n_fitting(nodes, need, n_cpus) for n_cpus in range(1, _MOST_CPUS + 1)}
    return max(n_cpus for n_cpus, n_used in used.items() if n_used >= _ENOUGH * max(used.values()))


def _no_room(nodes: Iterable[Node], need: _Need, n_cpus: int) -> pyggml.OutOfMemoryError:
    needed = need.shared_bytes + need.own_bytes
    most = int(max(node.memory_bytes for node in nodes))
    return pyggml.OutOfMemoryError(
        f"no node has room for the model: it takes {counted(n_cpus, 'CPU')} and {bytes_text(needed)}, and the largest "
        f"node lends {bytes_text(most)} to Ray: use a smaller n_ctx, n_parallel or n_threads",
        needed,
        most,
    )
