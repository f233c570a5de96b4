"""The actors of a job. What one computed when it was lost, with its node or without, others compute again."""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import RayError, RayTaskError

import pyggml
from pyggml.batch import Broken
from pyggml.ray.actor import Actor, Work
from pyggml.ray.plan import Plan

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

logger = logging.getLogger("pyggml")

Json = dict[str, Any]

# Rows that an actor has for each that it computes, so that it never waits for this process.
_AHEAD = 2
# How often the actor of a part may be lost, by chance or by others' fault, until the part is suspected.
_MOST_LOST = 3
# Seconds without an answer or an actor, after which a log line says what the job waits for.
_PATIENCE_S = 30.0


@dataclass
class Part:
    """Rows that are computed together.

    Attributes:
        rows: the rows, each with its index.
        n_lost: how often the actor that computed them was lost.
    """

    rows: list[tuple[int, Any]]
    n_lost: int = 0

    @property
    def is_suspected(self) -> bool:
        """Whether it may be what ends actors, so that it is computed alone, and no other is lost with it."""
        return self.n_lost >= _MOST_LOST

    def again(self) -> Iterator[Part]:
        """What to do once its actor was lost: all of it again, or row by row, or no more."""
        was_alone = self.is_suspected
        self.n_lost += 1
        if not was_alone:
            yield self
        elif len(self.rows) > 1:
            yield from (Part([row], _MOST_LOST) for row in self.rows)
        else:
            problem = Broken("the process that computes it is lost each time")
            yield Part([(index, problem) for index, _ in self.rows])


@dataclass(eq=False)
class _Member:
    """An actor.

    Attributes:
        handle: Ray's handle of it.
        n_parallel: number of rows that it computes together.
        n_rows: number of rows that it has; a part that is to be alone counts as all that it can take.
    """

    handle: Any
    n_parallel: int = 0
    n_rows: int = 0


class Pool:
    """The actors of a job. Used from one thread; closing it ends them."""

    def __init__(self, work: Work, plan: Plan) -> None:
        """Starts the actors, which load their models as soon as nodes have room for them."""
        self._plan = plan
        self._make = ray.remote(Actor).options(
            num_cpus=plan.n_cpus, num_gpus=plan.n_gpus, memory=plan.memory_bytes or None
        )
        self._work = work
        self._members: set[_Member] = set()
        # What is waited for, by the objects in which results will be.
        self._loading: dict[Any, _Member] = {}
        self._computing: dict[Any, tuple[_Member, Part, int]] = {}
        self._again: deque[Part] = deque()
        self._suspected: deque[Part] = deque()
        self._n_lost = 0
        for _ in range(plan.n_actors):
            self._add()

    def answers(self, parts: Iterator[Part]) -> Iterator[tuple[int, Json]]:
        """The answers to all rows, in any order. Parts are asked for as actors take them.

        Raises:
            InferError: no actor can load the model.
            EngineError: actors are lost faster than they answer.
        """
        while self._give(parts) or self._computing or self._again or self._suspected:
            for ref in self._arrived():
                yield from self._received(ref)

    def close(self) -> None:
        """Ends the actors."""
        for member in self._members:
            _kill(member)
        self._members.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    # --- giving and receiving -----------------------------------------------------------------------------

    def _give(self, parts: Iterator[Part]) -> bool:
        """Gives each actor as much as it needs to be busy; says whether parts may be left."""
        for member in self._members:
            while member.n_rows < _AHEAD * member.n_parallel:
                part = self._again.popleft() if self._again else next(parts, None)
                if part is not None:
                    self._send(part, member, len(part.rows))
                elif not self._suspected:
                    return False
                elif member.n_rows:
                    break
                else:
                    self._send(self._suspected.popleft(), member, _AHEAD * member.n_parallel)
        return True

    def _send(self, part: Part, member: _Member, n_rows: int) -> None:
        member.n_rows += n_rows
        self._computing[member.handle.answers.remote(part.rows)] = (member, part, n_rows)

    def _arrived(self) -> list[Any]:
        refs = [*self._computing, *self._loading]
        found, _ = ray.wait(refs, num_returns=1, timeout=_PATIENCE_S, fetch_local=False)
        if found:  # and all that came meanwhile, since each look at thousands takes milliseconds
            return list(ray.wait(refs, num_returns=len(refs), timeout=0, fetch_local=False)[0])
        if len(self._loading) == len(self._members):
            logger.warning(
                "no actor has a model yet: each of %d waits for %d CPUs, %d GPUs and %.1f GB that the cluster lends "
                "to nobody else, or loads it",
                *(self._plan.n_actors, self._plan.n_cpus, self._plan.n_gpus, self._plan.memory_bytes / 1e9),
            )
        return []

    def _received(self, ref: Any) -> Iterator[tuple[int, Json]]:
        if ref in self._loading:
            self._loaded(ref)
            return
        member, part, n_rows = self._computing.pop(ref)
        try:
            answers = ray.get(ref)
        except RayError as error:
            for again in part.again():
                (self._suspected if again.is_suspected else self._again).append(again)
            self._lose(member, error)
            return
        member.n_rows -= n_rows
        self._n_lost = 0
        yield from answers

    def _loaded(self, ref: Any) -> None:
        member = self._loading.pop(ref)
        try:
            member.n_parallel = ray.get(ref)
        except RayTaskError as error:  # it would not load there the next time either
            logger.warning("an actor is given up, because it cannot load the model: %s", _cause(error))
            self._members.discard(member)
            _kill(member)
            if not self._members:
                raise _cause(error) from None
        except RayError as error:
            self._lose(member, error)

    # --- actors -------------------------------------------------------------------------------------------

    def _add(self) -> None:
        member = _Member(self._make.remote(self._work))
        self._members.add(member)
        self._loading[member.handle.open.remote()] = member

    def _lose(self, member: _Member, error: RayError) -> None:
        """Has another actor in place of one that is lost, or whose engine is."""
        if member not in self._members:
            return
        self._members.discard(member)
        _kill(member)
        self._n_lost += 1
        if self._n_lost > _MOST_LOST * (self._plan.n_actors + 1):
            raise pyggml.EngineError(
                f"the cluster could not go on: {self._n_lost} actors were lost and nothing was answered meanwhile; the "
                f"last: {_cause(error)}"
            ) from error
        logger.warning("an actor was lost, and what it was computing is computed again: %s", _cause(error))
        self._add()


def _kill(member: _Member) -> None:
    with contextlib.suppress(RayError):
        ray.kill(member.handle)


def _cause(error: RayError) -> pyggml.InferError:
    """What went wrong, without the traceback that Ray puts into its messages."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, pyggml.InferError):
        return cause
    lines = [line.strip() for line in str(cause or error).splitlines() if line.strip()]
    return pyggml.EngineError(" ... ".join(dict.fromkeys([lines[0], lines[-1]])) if lines else repr(error))
