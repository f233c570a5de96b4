"""Threads for CPU work, by kind: much work of one kind delays neither the others nor the event loop."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, TypeVar

T = TypeVar("T")

#: bodies: parse and validate request bodies; tokens: tokenize and detokenize for clients; texts: tokenize texts to
#: embed or to rank; prompts: templates, and other preparation of generations; responses: encode them.
Kind = Literal["bodies", "tokens", "texts", "prompts", "responses"]

# One thread for tokens: a long text takes seconds of a core that generation needs, and hundreds of megabytes.
_N_THREADS: dict[Kind, int] = {"bodies": 2, "tokens": 1, "texts": 1, "prompts": 2, "responses": 2}


class CpuThreads:
    """The pools. Threads are started as needed."""

    def __init__(self) -> None:
        self._pools: dict[Kind, ThreadPoolExecutor] = {}

    async def run(self, kind: Kind, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Run a function in a thread of a kind. Cancelling the task gives it up if it has not begun."""
        if kind not in self._pools:
            self._pools[kind] = ThreadPoolExecutor(_N_THREADS[kind], f"pyggml-{kind}")
        work = functools.partial(function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._pools[kind], work)

    def close(self) -> None:
        """End the threads once they are idle. A later call starts new ones."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
        self._pools.clear()
