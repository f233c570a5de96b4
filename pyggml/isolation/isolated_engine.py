"""Proxy of an engine in a separate process."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pyggml._core.c_values import int32_array
from pyggml._core.checks import flag
from pyggml.errors import EngineError, InvalidParameterError
from pyggml.generation.adapters import ScaledAdapters
from pyggml.generation.engine import Engine, bytes_view
from pyggml.generation.pending_request import PendingRequest, TokenIds
from pyggml.isolation import protocol
from pyggml.isolation.isolated_adapters import names_in_process
from pyggml.options.adapter_choice import AdapterChoice
from pyggml.types import EngineStats, Slot

if TYPE_CHECKING:
    from pyggml._core.ffi import CData
    from pyggml.generation.waker import Waker
    from pyggml.isolation.process import EngineProcess
    from pyggml.isolation.supervisor import Isolated

# Size of a saved prefix that is taken from the engine's process: more than any has.
_MAX_SAVED_BYTES = 1 << 40

# Counters of this process; the others are of the engine's process.
_LOCAL_COUNTERS = ("not_batch_invariant", "n_restarts")
_COUNTERS = {field.name: field.type for field in dataclasses.fields(EngineStats) if field.name not in _LOCAL_COUNTERS}


class IsolatedEngine(Engine):
    """Proxy of an engine in a separate process, with these differences from :class:`pyggml.Engine`.

    A request is validated here and queued there, without waiting for a reply. If the process has exited, the next
    request starts another. Prompts for :meth:`logits` and :meth:`save_prefix` do not count towards ``max_queue``.
    """

    def __init__(self, isolated: Isolated, n_parallel: int, stop_token_ids: Iterable[int]) -> None:
        self.model = isolated.model
        self.n_ctx = isolated.n_ctx
        self.n_parallel = n_parallel
        self.n_vocab = isolated.model.vocab.n_tokens
        self.stop_token_ids = self._checked_stop_ids(stop_token_ids)
        self._isolated = isolated
        self._adapters = isolated.adapters

    @property
    def is_starting(self) -> bool:
        """True if the process has to be started first."""
        return self._isolated.last.has_exited()

    def notify_when_queue_has_capacity(self, waker: Waker, tag: int = 0) -> None:
        """See the base class."""
        self._isolated.process().notify_when_queue_has_capacity(waker, tag)

    def logits(
        self, token_ids: TokenIds, *, adapter: AdapterChoice | None = None, waits: bool = False
    ) -> npt.NDArray[np.float32]:
        """See the base class."""
        request = protocol.encode_request("logits", adapter=self._names_of(adapter))
        flag("waits", waits)
        prompt = int32_array("the prompt", token_ids)
        n_bytes = self._n_logit_rows(len(prompt)) * self.n_vocab * 4
        _, data = self._isolated.process().call(request, prompt, n_bytes)
        return decode_matrix(data, len(prompt), self.n_vocab)

    def save_prefix(
        self, token_ids: TokenIds, *, cache_salt: str | None = None, timeout_s: float | None = None
    ) -> bytes:
        """See the base class."""
        prompt = int32_array("the prompt", token_ids)
        request = protocol.encode_request("save_prefix", cache_salt=cache_salt, timeout_s=timeout_s)
        _, data = self._isolated.process().call(request, prompt, _MAX_SAVED_BYTES)
        return bytes(data)

    def restore_prefix(self, data: bytes | bytearray | memoryview, *, cache_salt: str | None = None) -> int:
        """See the base class."""
        view = bytes_view(data)
        numbers = np.zeros(-(-len(view) // 4), np.int32)  # what a request carries
        numbers.view(np.uint8)[: len(view)] = view
        request = protocol.encode_request("restore_prefix", size=len(view), cache_salt=cache_salt)
        fields, _ = self._isolated.process().call(request, numbers)
        return int(fields["n_tokens"])

    def reset(self) -> None:
        """See the base class."""
        self._isolated.process().call(protocol.encode_request("reset"))

    def stats(self) -> EngineStats:
        """Return the counters of the running process; all 0 if there is none."""
        counters = self._read_counters(self._isolated.last)
        values: dict[str, Any] = {
            name: (float if kind == "float" else int)(counters.get(name, 0)) for name, kind in _COUNTERS.items()
        }
        local = {name: getattr(self._isolated, name) for name in _LOCAL_COUNTERS}
        return EngineStats(**values | local | {"n_parallel": self.n_parallel})

    def slots(self) -> list[Slot]:
        """See the base class."""
        fields, _ = self._isolated.process().call(protocol.encode_request("slots"))
        return [Slot(*slot) for slot in fields["slots"]]

    def slot_tokens(
        self, index: int, *, cache_salt: str | None = None, adapter: AdapterChoice | None = None
    ) -> list[int]:
        """See the base class."""
        adapters = self._names_of(adapter)
        request = protocol.encode_request("slot_tokens", index=index, cache_salt=cache_salt, adapter=adapters)
        fields, _ = self._isolated.process().call(request)
        return list(fields["token_ids"])

    def erase_slot(self, index: int, *, cache_salt: str | None = None, adapter: AdapterChoice | None = None) -> int:
        """See the base class."""
        adapters = self._names_of(adapter)
        request = protocol.encode_request("erase_slot", index=index, cache_salt=cache_salt, adapter=adapters)
        fields, _ = self._isolated.process().call(request)
        return int(fields["n_tokens"])

    def close(self) -> None:
        """End the process and all requests, whose readers get ClosedError. Safe to call again."""
        self._isolated.close()
        self._adapters.close()
        self._is_closed = True

    def _names_of(self, adapter: AdapterChoice | None) -> dict[str, float]:
        return names_in_process(self._adapters.of_choice(adapter))

    def _read_counters(self, process: EngineProcess) -> dict[str, Any]:
        if process.has_exited():
            return {}
        try:
            return process.call(protocol.encode_request("stats"))[0]
        except EngineError:
            if not process.is_exiting():
                raise
            return {}

    def _submit(
        self, request: PendingRequest, options: CData, timeout_s: float | None, adapters: ScaledAdapters
    ) -> CData:
        if request.params.logits_processor:
            raise InvalidParameterError(
                "logits_processor does not work with isolate=True: the engine is in another process, and calls of "
                "Python between its tokens would need this one. Load the model without isolate"
            )
        process = self._isolated.process()
        message = protocol.encode_generation(request, timeout_s, names_in_process(dict(adapters)))
        arguments = self.model._handle, self.n_ctx, request.token_ids, options, message
        try:
            return process.submit(*arguments)
        except EngineError:
            if not process.is_exiting():
                raise
        # The process exited before it received the request, so it is safe to submit it again.
        return self._isolated.process().submit(*arguments)


def decode_matrix(data: memoryview, n_rows: int, n_columns: int) -> npt.NDArray[np.float32]:
    """Return the array of a reply: float32, (n_rows, n_columns). It shares the reply's memory.

    Raises:
        EngineError: the array has another size.
    """
    if len(data) != n_rows * n_columns * 4:
        raise EngineError("the engine's process sent an invalid reply (size of the array)")
    return np.frombuffer(data, np.float32).reshape(n_rows, n_columns)
