"""The Ray cluster: connection, and resources of its nodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import ray

import pyggml
from pyggml.ray.actor import WorkerSpec
from pyggml.ray.plan import Node, Plan, plan
from pyggml.system import build_info

# Backends without GPUs of this machine.
_NON_GPU_BACKENDS = {"CPU", "BLAS", "RPC"}


def connect(address: str) -> None:
    """Connect this process to a cluster, unless it is connected already.

    Args:
        address: the cluster's address, "auto" for this machine's cluster, "local" for a new one.

    Raises:
        EngineError: there is no such cluster.
    """
    if ray.is_initialized():
        return
    try:
        ray.init(address, log_to_driver=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason: BaseException = error
        while reason.__cause__ is not None:  # Ray chains the root cause
            reason = reason.__cause__
        raise pyggml.EngineError(f"no Ray cluster can be reached at {address!r}: {reason}") from error


def plan_actors(spec: WorkerSpec, n_actors: int | None, *, n_reserved_cpus: int = 0) -> Plan:
    """Plan the actors of a job on the connected cluster; see :func:`pyggml.ray.plan.plan`.

    ``n_reserved_cpus`` CPUs are left for other tasks, taken from the largest nodes.
    """
    nodes = [*_nodes()]
    for _ in range(n_reserved_cpus):
        nodes.sort(key=lambda node: node.n_cpus)
        nodes[-1] = replace(nodes[-1], n_cpus=nodes[-1].n_cpus - 1)
    return plan(nodes, spec.model, spec.load, n_actors)


def _nodes() -> Iterator[Node]:
    can_use_gpus = not _NON_GPU_BACKENDS.issuperset(build_info().backends)
    for node in ray.nodes():
        if node["Alive"]:
            resources = node["Resources"]
            n_gpus = resources.get("GPU", 0) if can_use_gpus else 0
            yield Node(resources.get("CPU", 0), n_gpus, resources.get("memory", 0))
