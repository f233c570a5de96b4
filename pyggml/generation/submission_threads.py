"""Threads that submit slow requests for event loops: short prompts, long ones, and those whose grammar may be new.

Each kind has threads of its own: grammars that take long to compile, up to a second each, delay neither long prompts
nor requests whose grammar is known, and long prompts delay no short ones. This module imports asyncio, so it is
imported only when needed.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, TypeVar

from pyggml.errors import ClosedError
from pyggml.generation.pending_request import PendingRequest

T = TypeVar("T")
Kind = Literal["short", "long", "grammar"]

# Grammars leave half of the CPUs to the model.
_N_THREADS: dict[Kind, int] = {"short": 4, "long": 2, "grammar": min(4, max(2, (os.cpu_count() or 1) // 2))}
# Characters or token ids from which on a prompt is long: some ten milliseconds.
_LONG = 16_000
# As many as the engine keeps of a model.
_MAX_KNOWN = 64


class SubmissionThreads:
    """The threads of one engine, which start as needed."""

    def __init__(self) -> None:
        # Without locks, which a forked child might find held. The child does not have the threads, either.
        self._pools: dict[tuple[int, Kind], ThreadPoolExecutor] = {}
        self._known: set[int] = set()  # hashes of grammars

    async def run(self, request: PendingRequest, submit: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Call ``submit`` with the request and other arguments. Cancelling the task gives it up if it has not begun.

        Raises:
            ClosedError: the interpreter is shutting down.
            InferError: as ``submit``.
        """
        grammar = _grammar_hash(request)
        kind: Kind = "long" if request.size > _LONG else "short"
        if grammar is not None and grammar not in self._known:
            kind = "grammar"
        work = functools.partial(contextvars.copy_context().run, functools.partial(submit, request, *args, **kwargs))
        try:
            submitting = self._pool(kind).submit(work)
        except RuntimeError:
            raise ClosedError("the interpreter is shutting down") from None
        result = await asyncio.wrap_future(submitting)
        if grammar is not None:
            if len(self._known) >= _MAX_KNOWN:
                self._known = set()
            self._known.add(grammar)
        return result

    def _pool(self, kind: Kind) -> ThreadPoolExecutor:
        key = os.getpid(), kind
        pool = self._pools.get(key)
        return pool or self._pools.setdefault(key, ThreadPoolExecutor(_N_THREADS[kind], f"pyggml-{kind}"))


def _grammar_hash(request: PendingRequest) -> int | None:
    """Return a hash of what a request's grammar is made from; None: it has none."""
    sources = request.grammar_sources
    if not sources:
        return None
    try:
        return hash(tuple(each if isinstance(each, str) else json.dumps(each, default=str) for each in sources))
    except (RecursionError, TypeError, ValueError):  # the submission says what is wrong with it
        return id(request)
