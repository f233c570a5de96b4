"""The cluster: how to reach it, and what its nodes lend."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import ray

import pyggml
from pyggml.ray.actor import Work
from pyggml.ray.plan import Node, Plan, plan
from pyggml.system import build_info

# Backends that compute on no GPU.
_NO_GPUS = {"CPU", "BLAS", "RPC"}


def connect(address: str) -> None:
    """Connects this process to a cluster, unless it is connected already.

    Args:
        address: the cluster's address, "auto" for that of this machine, "local" for a new one.

    Raises:
        EngineError: there is no such cluster.
    """
    if ray.is_initialized():
        return
    try:
        ray.init(address, log_to_driver=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason: BaseException = error
        while reason.__cause__ is not None:  # Ray tells the reason last
            reason = reason.__cause__
        raise pyggml.EngineError(f"no Ray cluster can be reached at {address!r}: {reason}") from error


def planned(work: Work, n_actors: int | None, *, n_spared: int = 0) -> Plan:
    """The actors for a job on the cluster that this process is connected to.

    Args:
        work: what they are to do.
        n_actors: so many, instead of as many as fit.
        n_spared: CPUs that are left for other work, of the nodes that have most.

    Raises:
        InferError: as :func:`pyggml.ray.plan.plan`.
    """
    nodes = [*_nodes()]
    for _ in range(n_spared):
        nodes.sort(key=lambda node: node.n_cpus)
        nodes[-1] = replace(nodes[-1], n_cpus=nodes[-1].n_cpus - 1)
    return plan(nodes, work.model, work.load, n_actors)


def _nodes() -> Iterator[Node]:
    can_use_gpus = not _NO_GPUS.issuperset(build_info().backends)
    for node in ray.nodes():
        if node["Alive"]:
            lent = node["Resources"]
            yield Node(lent.get("CPU", 0), lent.get("GPU", 0) if can_use_gpus else 0, lent.get("memory", 0))
