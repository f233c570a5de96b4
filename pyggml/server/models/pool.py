"""The models of a server: found by name, loaded when they are asked for, kept while they are used."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator

import pyggml
from pyggml.server.http.concurrency_limit import Places
from pyggml.server.http.errors import Failure, RequestError, without_folders, without_paths
from pyggml.server.models.catalogue import DEFAULT, Catalogue, Offer
from pyggml.server.models.loaded_model import Served, served
from pyggml.server.models.loader import Loader, Slot, places
from pyggml.server.models.model_info import Facts, ModelInfo
from pyggml.server.observability.observer import Observer
from pyggml.server.settings.options import Settings

__all__ = ["DEFAULT", "ModelInfo", "Models", "Served"]

# A model that could not be loaded is not tried again before this many seconds have passed.
_BACK_OFF_S = 1.0
# What clients are told to wait when a model could not be loaded in time.
_RETRY_S = 10


class Models:
    """The models of a server, for one event loop at a time."""

    def __init__(self, settings: Settings, observer: Observer) -> None:
        """Loads nothing yet; ``observer`` hears of what is loaded.

        Raises:
            InvalidParameterError: two models have the same name.
        """
        self._settings = settings
        self._catalogue = Catalogue(settings.models)
        self._slots = {offer: _slot(offer, settings) for offer in self._catalogue}
        self._facts = {offer: Facts() for offer in self._catalogue}
        self._loader = Loader(settings, observer, list(self._slots.values()))
        self._loop: asyncio.AbstractEventLoop | None = None
        self._dropping: set[asyncio.Task[None]] = set()
        self._is_closed = False

    @property
    def names(self) -> list[str]:
        """What answers call them, the first model's first."""
        return self._catalogue.names

    @property
    def loaded(self) -> list[Served]:
        """The models that are loaded now, from any thread."""
        return [each for slot in self._slots.values() if (each := slot.served) is not None]

    async def info(self, name: str = DEFAULT) -> ModelInfo:
        """What is known of a model, which need not be loaded.

        Raises:
            RequestError: 404, there is no such model.
        """
        return await self._info(self._catalogue.find(name))

    async def infos(self) -> list[ModelInfo]:
        """What is known of each model, the first model's first."""
        return [await self._info(offer) for offer in self._catalogue]

    def why_not_ready(self) -> str | None:
        """Why a request for the default model would have to wait or be refused; None: it would not.

        Begins to load a model that nobody has asked for yet. One that has made room for others is ready.
        """
        slot = self._slots[self._catalogue.first]
        if slot.is_lost:
            return "the model's engine or one of its hosts is lost: whoever opened the model has to open it again"
        if slot.served is not None:
            stats, limit = slot.served.stats(), slot.options.get("max_queue")
            is_full = stats is not None and limit is not None and stats.n_queued >= limit
            return "the queue is full" if is_full else None
        if self._is_closed:
            return "the server is closed"
        if slot.used and slot.failed is None:
            return None
        try:
            self._loading(slot)
        except RequestError as error:
            return error.failure.message
        return "the model is being loaded"

    async def start(self) -> None:
        """Loads the first model, or all for which there is room, as the settings say.

        Raises:
            ModelNotFoundError: there is no file at the path of a model.
            InferError: the first model cannot be loaded.
        """
        self._is_closed = False
        for offer in self._catalogue:
            _require_file(offer)
        try:
            await self._load_at_start()
        except BaseException:
            await self.aclose()
            raise

    @contextlib.asynccontextmanager
    async def lease(self, name: str) -> AsyncIterator[Served]:
        """The model of that name, loaded if it is not, which stays loaded in the meantime.

        Raises:
            RequestError: 404, there is no such model; 503, it cannot be loaded, or not in time.
            QueueFullError: too many wait for it already.
        """
        slot = self._slots[self._catalogue.find(name)]
        model = await self._used(slot)
        try:
            yield model
        finally:
            self._loader.release(slot)

    def lost(self, model: Served) -> None:
        """Unloads a model whose engine or hosts are lost. The next request loads it again, if the hosts are back.

        One that was open before the server stays as it is, and is not ready: nobody here knows how it was loaded.
        """
        slot = next((each for each in self._slots.values() if each.served is model), None)
        if slot is not None and not slot.is_ours:
            slot.is_lost = True
        if slot is not None and slot.is_ours and not slot.is_leaving:
            slot.is_leaving = True
            task = asyncio.get_running_loop().create_task(self._loader.drop(slot))
            self._dropping.add(task)
            task.add_done_callback(self._dropping.discard)

    async def aclose(self) -> None:
        """Closes all models but those that were open before; running requests end with ClosedError."""
        self._is_closed = True
        slots = list(self._slots.values())
        tasks = [slot.loading for slot in slots if slot.loading is not None and not slot.loading.done()]
        for task in self._dropping:
            task.cancel()
        for slot in slots:
            slot.given_up.set()
            if slot.loading is not None and slot.stage != "load":
                slot.loading.cancel()
        await asyncio.gather(*tasks, *self._dropping, return_exceptions=True)
        for slot in slots:
            if slot.offer.kind != "open":
                await self._loader.unload(slot)

    # --- inside -------------------------------------------------------------------------------------------

    async def _load_at_start(self) -> None:
        first, *others = self._slots.values()
        first.failed = None  # whoever starts the server does not wait
        error = None if first.served else await self._loading(first)
        if error is not None:
            raise error
        for slot in others if self._settings.load_all else []:
            if slot.served is None:
                await self._loading(slot, may_unload=False)

    async def _used(self, slot: Slot) -> Served:
        """The model, with one more request that uses it."""
        request_timeout = self._settings.request_timeout or math.inf
        deadline_s = time.monotonic() + min(self._settings.load_timeout, request_timeout)
        while slot.served is None or slot.is_leaving:
            error = await self._wait(slot, max(0.0, deadline_s - time.monotonic()))
            if error is not None:
                raise _refusal(slot, error) from error
        self._loader.use(slot)
        return slot.served

    async def _wait(self, slot: Slot, timeout_s: float) -> Exception | None:
        """Waits until a model is loaded, which it is for all who wait. Returns why it could not be.

        Raises:
            RequestError: 503, it was not in time, or was broken a moment ago.
            QueueFullError: too many wait already.
            ClosedError: the server ends.
        """
        task = self._loading(slot)
        try:
            with slot.waiting.place():
                await asyncio.wait({task}, timeout=timeout_s)
        finally:
            if not slot.waiting.n_taken and slot.stage in ("turn", "room"):
                task.cancel()  # nobody wants it any more
        if not task.done():
            raise _too_late(slot, self._loader)
        return None if task.cancelled() else task.result()

    def _loading(self, slot: Slot, *, may_unload: bool = True) -> asyncio.Task[Exception | None]:
        """What loads a model, begun unless it is under way."""
        if self._is_closed:
            raise pyggml.ClosedError("the server has been closed")
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop = loop
            self._loader.enter_loop()
        if slot.loading is None or slot.loading.done():
            if slot.failed is not None and time.monotonic() - slot.failed[0] < _BACK_OFF_S:
                raise _refusal(slot, slot.failed[1]) from slot.failed[1]
            slot.loading = loop.create_task(self._loader.bring(slot, may_unload=may_unload))
        return slot.loading

    async def _info(self, offer: Offer) -> ModelInfo:
        slot, facts = self._slots[offer], self._facts[offer]
        path = slot.path or offer.path
        if path is not None and not (slot.served and facts.are_known):
            await asyncio.to_thread(facts.read, path)
        return facts.info(offer, slot.served, slot.options.get("n_ctx"))


def _slot(offer: Offer, settings: Settings) -> Slot:
    options, sampling = settings.load_options(offer.spec), settings.sampling_options(offer.spec)
    slot = Slot(offer, options, sampling, Places(places(options)))
    if isinstance(offer.spec.source, pyggml.LLM):
        slot.served = served(offer.name, offer.spec.source, sampling, places(options))
    return slot


def _require_file(offer: Offer) -> None:
    """Refuses the path of a local model at which there is nothing; the message says what was probably meant."""
    if offer.kind == "local" and offer.path is not None and not offer.path.exists():
        pyggml.inspect(offer.path)


def _refusal(slot: Slot, error: Exception) -> Exception:
    """What those hear who wanted a model that cannot be loaded: the library's own reason, without paths."""
    if isinstance(error, pyggml.ModelNotFoundError) and slot.offer.kind == "local":
        reason, code = "its file is not there", "model_not_loaded"  # the library's message names the neighbours
    elif isinstance(error, pyggml.InferError):
        known = [path for path in (slot.path, slot.offer.path, slot.options.get("tokenizer")) if path is not None]
        reason = without_paths(without_folders(str(error), *known))
        code = "out_of_memory" if isinstance(error, pyggml.OutOfMemoryError) else "model_not_loaded"
    else:
        return error  # our own mistake
    message = f"the model {slot.offer.name!r} cannot be loaded: {reason}"
    return RequestError(Failure(503, "unavailable", message, code, retry_after_s=_RETRY_S))


def _too_late(slot: Slot, loader: Loader) -> RequestError:
    reason = loader.shortage(slot) if slot.stage in ("turn", "room") else "it is still being loaded"
    message = f"the model {slot.offer.name!r} was not ready in time: {reason}; try again later"
    return RequestError(Failure(503, "unavailable", message, "model_not_loaded", retry_after_s=_RETRY_S))
