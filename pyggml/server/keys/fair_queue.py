"""Weighted fair queueing of one model's requests between accounts.

The account that has had the fewest tokens for its share goes next, whatever the number of its requests. A request in
progress counts with the mean of its account, and is corrected at its end. An account that was idle starts level with
the others. As a running request is not interrupted, a slot stays free for each account that was active a moment ago and
now runs nothing: otherwise a flood of another account would make each of its requests wait for the end of a long one.
Requests that have been granted are in the engine's queue, first come, first served, so they are no more than the slots;
if no other account is active, twice as many, since the engine lets short prompts overtake long ones.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field

from pyggml.server.keys.accounts import Account

# Seconds for which a slot stays free for an account after its last request.
_RETURN_S = 10.0


@dataclass(eq=False)
class _Flow:
    """The requests of one account."""

    account: Account
    served: float = 0.0  # tokens per share
    n_taken: int = 0
    ended_s: float = -1e9
    waiting: deque[Turn] = field(default_factory=deque)

    @property
    def is_active(self) -> bool:
        return self.n_taken > 0 or bool(self.waiting)


class Turn:
    """A request's place in the queue, and then its slots, until :meth:`end`.

    Attributes:
        n: number of slots.
        granted: done once it has the slots.
    """

    def __init__(self, queue: FairQueue, flow: _Flow, n: int) -> None:
        """Wait for ``n`` slots."""
        self.n = n
        self.granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue = queue
        self._flow = flow
        self._estimate = 0.0
        self._has_slots = self._has_ended = False

    def grant(self) -> None:
        """Take the slots."""
        self._has_slots = True
        self._estimate = self._flow.account.expected_tokens
        self._flow.n_taken += self.n
        self._flow.served += self._estimate / self._flow.account.limits.share
        if not self.granted.done():
            self.granted.set_result(None)

    def end(self, n_tokens: int) -> None:
        """Free the slots of a request that took ``n_tokens``, or give up waiting. Safe to call again."""
        if self._has_ended:
            return
        self._has_ended = True
        if self._has_slots:
            self._flow.n_taken -= self.n
            self._flow.served += (n_tokens - self._estimate) / self._flow.account.limits.share
            self._flow.ended_s = time.monotonic()
            # Then no slot stays free for the account any more, which no other event may notice.
            asyncio.get_running_loop().call_later(_RETURN_S, self._queue.grant)
        else:
            self._flow.waiting.remove(self)
        self._queue.grant()


class FairQueue:
    """Queue for the slots of a model. For one event loop."""

    def __init__(self, n_slots: int) -> None:
        """Grant about ``n_slots`` slots at the same time."""
        self._n_slots = n_slots
        self._flows: dict[Account, _Flow] = {}
        self._virtual_time = 0.0  # tokens per share of the flow that was granted last, before that

    def n_waiting(self, account: Account) -> int:
        """Return the number of an account's requests that wait for their turns."""
        return len(self._flows[account].waiting) if account in self._flows else 0

    def enqueue(self, account: Account, n: int = 1) -> Turn:
        """Queue a request for ``n`` slots, or for all if there are fewer. Await ``granted``, and end it in any case."""
        flow = self._flows.setdefault(account, _Flow(account))
        if not flow.is_active:
            flow.served = max(flow.served, self._virtual_time)
        turn = Turn(self, flow, min(n, self._n_slots))
        flow.waiting.append(turn)
        self.grant()
        return turn

    def grant(self) -> None:
        """Grant as many turns as there are slots for."""
        while (flow := self._next()) is not None:
            self._virtual_time = max(self._virtual_time, flow.served)
            flow.waiting.popleft().grant()

    def _next(self) -> _Flow | None:
        n_taken = sum(flow.n_taken for flow in self._flows.values())
        waiting = sorted((each for each in self._flows.values() if each.waiting), key=lambda each: each.served)
        if waiting and waiting[0].n_taken == 0:
            return waiting[0]  # it need not wait for others, only for its turn in the engine
        for flow in waiting:
            n = n_taken + flow.waiting[0].n
            if n <= self._limit(flow):
                return flow
            if n > self._n_slots:
                return None  # the others do not overtake it until there are enough slots
        return None

    def _limit(self, flow: _Flow) -> int:
        """Return the number of slots that may be taken together with a flow's next turn."""
        since = time.monotonic() - _RETURN_S
        others = [each for each in self._flows.values() if each is not flow]
        returning = sum(not each.is_active and each.ended_s > since for each in others)
        if not returning and not any(each.is_active for each in others):
            return 2 * self._n_slots
        return self._n_slots - min(returning, self._n_slots // 2)
