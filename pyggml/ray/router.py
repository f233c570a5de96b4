"""Serve's router for replicas with a model, by what is in :mod:`pyggml.ray.routing`."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

from pyggml.ray.routing import Beginnings, Mark


class PrefixRouter(RequestRouter):  # type: ignore[misc]  # Ray has no types
    """Sends requests to the replicas that have computed their beginnings; the second argument of a call has its marks.

    Each process that sends requests has one, which learns from what it sends itself.
    """

    def initialize_state(self, slack: float) -> None:
        """Takes what the deployment's configuration says."""
        self._beginnings: Beginnings[ReplicaID] = Beginnings(slack)
        self._ongoing: defaultdict[ReplicaID, set[str]] = defaultdict(set)

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """The replicas, the best first; Serve takes the first that has room."""
        if pending_request is not None:
            pending_request.routing_context.should_backoff = True  # where all are full
        by_id = {replica.replica_id: replica for replica in candidate_replicas}
        loads = {replica: self._load(replica) for replica in by_id}
        return [[by_id[replica]] for replica in self._beginnings.ranked(_marks(pending_request), loads)]

    def on_request_routed(self, pending_request: PendingRequest, replica_id: ReplicaID, result: Any) -> None:  # noqa: ARG002
        """Remembers who has got a request."""
        self._ongoing[replica_id].add(pending_request.metadata.internal_request_id)
        self._beginnings.note(_marks(pending_request), replica_id)

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:
        """Forgets who had it."""
        self._ongoing[replica_id].discard(internal_request_id)

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """Takes the replicas that there are now."""
        super().update_replicas(replicas)
        for gone in self._ongoing.keys() - self.curr_replicas.keys():
            del self._ongoing[gone]

    def _load(self, replica: ReplicaID) -> int:
        """The requests that a replica has: what it said lately, which counts others' too, or what it has of ours."""
        return max(self.replica_queue_len_cache.get(replica) or 0, len(self._ongoing[replica]))


def _marks(request: PendingRequest | None) -> tuple[Mark, ...]:
    return request.args[1] if request is not None and len(request.args) > 1 else ()
