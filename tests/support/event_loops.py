"""Event loops of both kinds to run tests in, and ways to wait for what the engine's thread does in its own time."""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

import pyggml
from pyggml import Engine, lib

T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, T]], T]

#: The kinds of event loops.
LOOPS = ["asyncio", "uvloop"]

_PATIENCE_S = 100  # on a machine whose cores others want, too
_LOOK_S = 0.002


def is_installed(kind: str) -> bool:
    return kind == "asyncio" or importlib.util.find_spec(kind) is not None


def new_loop(kind: str) -> asyncio.AbstractEventLoop:
    if kind == "asyncio":
        return asyncio.new_event_loop()
    uvloop = pytest.importorskip("uvloop", reason="uvloop is not installed")
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def run_in(kind: str, main: Coroutine[Any, Any, T]) -> T:
    loop = new_loop(kind)
    try:
        return loop.run_until_complete(main)
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + _PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(_LOOK_S)


async def until_async(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + _PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(_LOOK_S)


def is_idle(llm: pyggml.LLM | Engine) -> bool:
    stats = llm.stats()
    return (stats.n_running, stats.n_queued) == (0, 0)


def n_wakers() -> int:
    gc.collect()
    return lib.pyg_live_handles(lib.PYG_HANDLE_WAKER)


def fill(narrow: pyggml.LLM) -> list[pyggml.Stream]:
    """Takes the only sequence and the only place in the queue, for as long as the streams are open."""
    running = narrow.stream("Once upon a time", max_tokens=16_000, ignore_eos=True)
    next(running)
    return [running, narrow.stream("Once upon a time", max_tokens=16_000, ignore_eos=True)]
