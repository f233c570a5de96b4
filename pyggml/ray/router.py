"""Ray Serve's request router with the prefix-aware policy of :mod:`pyggml.ray.routing`."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

from pyggml.ray.routing import PrefixHash, PrefixIndex


class PrefixRouter(RequestRouter):  # type: ignore[misc]  # Ray has no types
    """Prefix-aware request router. The second argument of a call has the request's prefix hashes.

    Each sending process has its own router, which knows only the requests of this process.
    """

    def initialize_state(self, slack: float) -> None:
        """Initialise the state from the deployment's configuration."""
        self._index: PrefixIndex[ReplicaID] = PrefixIndex(slack)
        self._ongoing: defaultdict[ReplicaID, set[str]] = defaultdict(set)

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """Rank the replicas; Serve takes the first that accepts the request."""
        if pending_request is not None:
            pending_request.routing_context.should_backoff = True  # if all are full
        by_id = {replica.replica_id: replica for replica in candidate_replicas}
        loads = {replica: self._load(replica) for replica in by_id}
        return [[by_id[replica]] for replica in self._index.rank(_prefix_hashes(pending_request), loads)]

    def on_request_routed(self, pending_request: PendingRequest, replica_id: ReplicaID, result: Any) -> None:  # noqa: ARG002
        """Record a request's replica."""
        self._ongoing[replica_id].add(pending_request.metadata.internal_request_id)
        self._index.record(_prefix_hashes(pending_request), replica_id)

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:
        """Remove a request from its replica's ongoing requests."""
        self._ongoing[replica_id].discard(internal_request_id)

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """Drop the state of replicas that were removed."""
        super().update_replicas(replicas)
        for removed in self._ongoing.keys() - self.curr_replicas.keys():
            del self._ongoing[removed]

    def _load(self, replica: ReplicaID) -> int:
        """Return a replica's number of requests: its last report, which covers all senders, or this process's own."""
        return max(self.replica_queue_len_cache.get(replica) or 0, len(self._ongoing[replica]))


def _prefix_hashes(request: PendingRequest | None) -> tuple[PrefixHash, ...]:
    return request.args[1] if request is not None and len(request.args) > 1 else ()
