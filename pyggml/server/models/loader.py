"""Loads models, one after another, and unloads others to make room."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import pyggml
from pyggml.memory.estimate import estimate
from pyggml.options import MemoryOptions, fields_of
from pyggml.server.http.concurrency_limit import Places
from pyggml.server.models.catalogue import Offer
from pyggml.server.models.loaded_model import Served, load, served
from pyggml.server.models.memory_budget import Held, Room
from pyggml.server.observability.observer import Observer
from pyggml.server.settings.options import Settings

T = TypeVar("T")

#: What happens to a model that is not loaded: nothing, or it is downloaded, waits for its turn, for room, or is loaded.
Stage = Literal["", "download", "turn", "room", "load"]


@dataclass(eq=False)
class Slot:
    """A model that is offered, and who uses it.

    Attributes:
        offer: the model.
        options: options of :func:`pyggml.load`.
        sampling: fields of SamplingParams for requests that do not set them.
        waiting: places for those who wait until it is loaded.
        served: the model, while it is loaded.
        path: where its file is; None: not known yet.
        n_leases: number of requests that use it.
        used: grows with the time of the last use.
        is_leaving: whether it will be unloaded as soon as nobody uses it.
        is_lost: whether its engine or hosts are lost, and it is not ours to load again.
        stage: what happens to it.
        needed: what it will take, while it waits for room.
        loading: brings it.
        given_up: set to stop its download, or its loading.
        failed: when it could last not be loaded, by :func:`time.monotonic`, and why.
    """

    offer: Offer
    options: dict[str, Any]
    sampling: dict[str, Any]
    waiting: Places
    served: Served | None = None
    path: Path | None = None
    n_leases: int = 0
    used: int = 0
    is_leaving: bool = False
    is_lost: bool = False
    stage: Stage = ""
    needed: pyggml.MemoryEstimate | None = None
    loading: asyncio.Task[Exception | None] | None = None
    given_up: threading.Event = field(default_factory=threading.Event)
    failed: tuple[float, Exception] | None = None

    @property
    def is_ours(self) -> bool:
        """Whether it is loaded, and not by others."""
        return self.served is not None and self.served.memory is not None

    @property
    def is_used(self) -> bool:
        """Whether it has to stay loaded: those who wait while it leaves wait until it is back."""
        return self.n_leases > 0 or (self.waiting.n_taken > 0 and not self.is_leaving)


class Loader:
    """Brings models. One is loaded at a time, in the order in which they were asked for; downloads run beside that."""

    def __init__(self, settings: Settings, observer: Observer, slots: Sequence[Slot]) -> None:
        """Loads nothing yet; ``observer`` hears of what is loaded."""
        self._room = Room(settings.max_memory, settings.max_loaded_models)
        self._observer = observer
        self._slots = slots
        self._uses = itertools.count(1)
        self._turn = asyncio.Lock()
        self._freed = asyncio.Event()

    def enter_loop(self) -> None:
        """Begins to work in the running loop; what another one was doing has ended with it."""
        self._turn = asyncio.Lock()
        self._freed = asyncio.Event()
        for slot in self._slots:
            slot.loading, slot.stage, slot.is_leaving = None, "", False

    def use(self, slot: Slot) -> None:
        """Counts a request that uses a model."""
        slot.n_leases += 1
        slot.used = next(self._uses)

    def release(self, slot: Slot) -> None:
        """Takes :meth:`use` back."""
        slot.n_leases -= 1
        slot.used = next(self._uses)
        if not slot.n_leases:
            self._freed.set()

    async def bring(self, slot: Slot, *, may_unload: bool = True) -> Exception | None:
        """Loads a model, for which others may have to be unloaded. Returns why it could not be."""
        try:
            source = await self._downloaded(slot)
            slot.stage = "turn"
            async with self._turn:
                if slot.served is None:
                    slot.stage = "room"
                    memory = await self._make_room(slot, source, may_unload)
                    slot.stage = "load"
                    await self._load(slot, source, memory)
            slot.failed = None
        except Exception as error:
            slot.failed = time.monotonic(), error
            self._observer.model_failed(slot.offer.name, error)
            return error
        finally:
            slot.stage = ""
            slot.needed = None
        return None

    async def unload(self, slot: Slot) -> None:
        """Closes a model; requests that use it end with ClosedError."""
        leaving, slot.served = slot.served, None
        if leaving is not None:
            self._observer.model_unloaded(leaving.name)
            await asyncio.to_thread(leaving.llm.close)

    async def drop(self, slot: Slot) -> None:
        """Unloads a model that no longer works, once the requests that use it have heard so; others wait for it."""
        async with self._turn:
            try:
                while slot.n_leases:
                    self._freed.clear()
                    await self._freed.wait()
                await self.unload(slot)
            finally:
                slot.is_leaving = False

    def held(self) -> Held:
        """What the loaded models take, by name, without those that others loaded."""
        return {each.offer.name: each.served.memory for each in self._slots if each.served and each.served.memory}

    def shortage(self, slot: Slot) -> str:
        """Why a model that waits for room has none, for people."""
        if slot.needed is None:
            return "other models are being loaded first"
        return self._room.shortage(slot.needed, self.held())

    async def _downloaded(self, slot: Slot) -> str | os.PathLike[str] | None:
        """What to load: a path, or None for the model that ships with pyggml."""
        source = slot.offer.spec.source
        assert not isinstance(source, pyggml.LLM), "an open model is never brought"
        slot.given_up = given_up = threading.Event()
        if slot.offer.kind == "hub":
            slot.stage = "download"
            slot.path = await _in_own_thread(pyggml.hub.fetch, str(source), lambda _: not given_up.is_set())
            return slot.path
        return source

    async def _make_room(
        self, slot: Slot, source: str | os.PathLike[str] | None, may_unload: bool
    ) -> pyggml.MemoryEstimate:
        """Unloads what it has to until a model has room. Returns what it will take.

        Raises:
            OutOfMemoryError: it would not have room if it were alone, or has none and others may not be unloaded.
            InferError: as :func:`pyggml.memory.estimate.estimate`.
        """
        while True:
            try:
                slot.needed = needed = await self._planned(slot, source)
            except pyggml.OutOfMemoryError:  # n_ctx is "auto", and not even the smallest context fits
                if not self.held():
                    raise
            else:
                if self._room.has(needed, self.held()):
                    return needed
                self._room.require_possible(slot.offer.name, needed, self.held())
            if not may_unload:
                raise pyggml.OutOfMemoryError(self.shortage(slot))
            await self._free_some()

    async def _free_some(self) -> None:
        """Unloads the model that was not used for the longest time, once nobody uses it, or another that is free first.

        New requests for it wait until the model that needs its room is there, so that they cannot keep it forever.
        """
        loaded = sorted((each for each in self._slots if each.is_ours), key=lambda each: each.used)
        try:
            while (free := next((each for each in loaded if not each.is_used), None)) is None:
                loaded[0].is_leaving = True
                self._freed.clear()
                await self._freed.wait()
            await self.unload(free)
        finally:
            loaded[0].is_leaving = False

    async def _planned(self, slot: Slot, source: str | os.PathLike[str] | None) -> pyggml.MemoryEstimate:
        options = {name: value for name, value in slot.options.items() if name in fields_of(MemoryOptions)}
        return await asyncio.to_thread(estimate, source, **options)

    async def _load(self, slot: Slot, source: str | os.PathLike[str] | None, memory: pyggml.MemoryEstimate) -> None:
        began_s = time.monotonic()
        try:
            llm = await _in_own_thread(load, source, slot.options, slot.given_up)
        except asyncio.CancelledError:  # the thread goes on
            slot.given_up.set()
            raise
        try:
            slot.served = served(slot.offer.name, llm, slot.sampling, places(slot.options), memory)
        except BaseException:
            llm.close()
            raise
        slot.used = next(self._uses)
        self._observer.model_loaded(slot.offer.name, time.monotonic() - began_s)


async def _in_own_thread(function: Callable[..., T], *args: Any) -> T:
    """Calls something that may take hours: of the loop's threads there are only a few, which requests need."""
    thread = ThreadPoolExecutor(1, "pyggml.server.models.loader")
    try:
        return await asyncio.get_running_loop().run_in_executor(thread, function, *args)
    finally:
        thread.shutdown(wait=False)


def places(options: dict[str, Any]) -> int | None:
    """How many requests a model has room for, running and waiting, with these options; None: no limit."""
    max_queue: int | None = options.get("max_queue")
    n_parallel: int = options.get("n_parallel", fields_of(MemoryOptions)["n_parallel"].default)
    return None if max_queue is None else max_queue + n_parallel
