"""The actor pool of a job: dispatches batches of rows, replaces lost actors and retries their batches."""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

import pyggml
from pyggml.batch import InvalidRow
from pyggml.ray.actor import Actor, WorkerSpec
from pyggml.ray.plan import Plan

logger = logging.getLogger("pyggml")

Json = dict[str, Any]

# Rows queued at an actor per parallel sequence, so that it never waits for this process.
_QUEUE_FACTOR = 2
# Crashes of a batch's actor, perhaps caused by other batches, before the batch is isolated.
_MAX_CRASHES = 3
# Seconds without an event before a log line reports what the job waits for.
_STALL_S = 30.0


@dataclass
class RowBatch:
    """Rows with their indices that are sent to an actor together, and how often their actor has crashed."""

    rows: list[tuple[int, Any]]
    n_crashes: int = 0

    @property
    def is_isolated(self) -> bool:
        """True if the batch may be what crashes actors, so that it must run alone on an actor."""
        return self.n_crashes >= _MAX_CRASHES

    def retries(self) -> Iterator[RowBatch]:
        """Return the batches to run after a crash: itself, its rows one by one, or an error for its single row."""
        was_isolated = self.is_isolated
        self.n_crashes += 1
        if not was_isolated:
            yield self
        elif len(self.rows) > 1:
            yield from (RowBatch([row], _MAX_CRASHES) for row in self.rows)
        else:
            yield RowBatch([(self.rows[0][0], InvalidRow("the actor crashes each time it computes this row"))])


@dataclass(eq=False)
class _ActorState:
    """An actor and its queue."""

    handle: Any
    n_parallel: int = 0  # parallel sequences; 0: still loading
    n_rows: int = 0  # queued at it; an isolated batch counts as a full queue


class ActorPool(contextlib.AbstractContextManager["ActorPool"]):
    """The actors of a job. A context manager, used from one thread, which kills them at the end."""

    def __init__(self, spec: WorkerSpec, plan: Plan) -> None:
        """Start the actors, which load their models once Ray has placed them on nodes."""
        self._plan = plan
        self._actor_class = ray.remote(Actor).options(
            num_cpus=plan.n_cpus, num_gpus=plan.n_gpus, memory=plan.memory_bytes or None
        )
        self._spec = spec
        self._actors: set[_ActorState] = set()
        # Pending calls, by the object references of their results.
        self._loading: dict[Any, _ActorState] = {}
        self._computing: dict[Any, tuple[_ActorState, RowBatch, int]] = {}
        self._retry_queue: deque[RowBatch] = deque()
        self._isolated_queue: deque[RowBatch] = deque()
        self._n_lost = 0  # since the last answer
        for _ in range(plan.n_actors):
            self._start_actor()

    def process(self, batches: Iterator[RowBatch]) -> Iterator[tuple[int, Json]]:
        """Compute the answers to all rows, in any order. Takes the next batch only when an actor needs it.

        Raises:
            InferError: no actor can load the model.
            EngineError: actors keep crashing without an answer in between.
        """
        while self._dispatch(batches) or self._computing or self._retry_queue or self._isolated_queue:
            for ref in self._wait():
                yield from self._collect(ref)

    def __exit__(self, *_: object) -> None:
        for actor in self._actors:
            _kill(actor)
        self._actors.clear()

    def _dispatch(self, batches: Iterator[RowBatch]) -> bool:
        """Fill the queues of all actors; return False if no batch is left to dispatch."""
        for actor in self._actors:
            while actor.n_rows < _QUEUE_FACTOR * actor.n_parallel:
                batch = self._retry_queue.popleft() if self._retry_queue else next(batches, None)
                if batch is not None:
                    self._submit(batch, actor, len(batch.rows))
                elif not self._isolated_queue:
                    return False
                elif actor.n_rows:
                    break
                else:
                    self._submit(self._isolated_queue.popleft(), actor, _QUEUE_FACTOR * actor.n_parallel)
        return True

    def _submit(self, batch: RowBatch, actor: _ActorState, n_rows: int) -> None:
        actor.n_rows += n_rows
        self._computing[actor.handle.process.remote(batch.rows)] = (actor, batch, n_rows)

    def _wait(self) -> list[Any]:
        """Wait for a result, and return the references of all that are ready."""
        refs = [*self._computing, *self._loading]
        found, _ = ray.wait(refs, num_returns=1, timeout=_STALL_S, fetch_local=False)
        if found:  # fetch all that are ready: a wait on thousands of references takes milliseconds
            return list(ray.wait(refs, num_returns=len(refs), timeout=0, fetch_local=False)[0])
        if len(self._loading) == len(self._actors):
            logger.warning(
                "no actor is ready yet: each of %d loads its model, or waits until the cluster has %d CPUs, %d GPUs "
                "and %.1f GB free",
                *(self._plan.n_actors, self._plan.n_cpus, self._plan.n_gpus, self._plan.memory_bytes / 1e9),
            )
        return []

    def _collect(self, ref: Any) -> Iterator[tuple[int, Json]]:
        if ref in self._loading:
            self._finish_loading(ref)
            return
        actor, batch, n_rows = self._computing.pop(ref)
        try:
            answers = ray.get(ref)
        except RayError as error:
            for retry in batch.retries():
                (self._isolated_queue if retry.is_isolated else self._retry_queue).append(retry)
            self._replace(actor, error)
            return
        actor.n_rows -= n_rows
        self._n_lost = 0
        yield from answers

    def _finish_loading(self, ref: Any) -> None:
        actor = self._loading.pop(ref)
        try:
            actor.n_parallel = ray.get(ref)
        except RayTaskError as error:  # a retry on that node would fail again
            logger.warning("an actor was removed because it cannot load the model: %s", _cause(error))
            self._actors.discard(actor)
            _kill(actor)
            if not self._actors:
                raise _cause(error) from None
        except RayError as error:
            self._replace(actor, error)

    def _start_actor(self) -> None:
        actor = _ActorState(self._actor_class.remote(self._spec))
        self._actors.add(actor)
        self._loading[actor.handle.open.remote()] = actor

    def _replace(self, actor: _ActorState, error: RayError) -> None:
        """Replace an actor that was lost, or whose engine failed."""
        if actor not in self._actors:
            return
        self._actors.discard(actor)
        _kill(actor)
        self._n_lost += 1
        if self._n_lost > _MAX_CRASHES * (self._plan.n_actors + 1):
            raise pyggml.EngineError(
                f"the job stopped: {self._n_lost} actors were lost without an answer in between. The last error: "
                f"{_cause(error)}"
            ) from error
        logger.warning("an actor was lost, and its rows are computed again: %s", _cause(error))
        self._start_actor()


def _kill(actor: _ActorState) -> None:
    with contextlib.suppress(RayError):
        ray.kill(actor.handle)


def _cause(error: RayError) -> pyggml.InferError:
    """Return the cause of an error, without the traceback that Ray adds to its messages."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, pyggml.InferError):
        return cause
    lines = [line.strip() for line in str(cause or error).splitlines() if line.strip()]
    return pyggml.EngineError(" ... ".join(dict.fromkeys([lines[0], lines[-1]])) if lines else repr(error))
