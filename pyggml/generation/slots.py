"""The slots of an engine's KV cache: what is in them, and erasing it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyggml._core import c_calls
from pyggml._core.checks import UINT32_MAX, integer
from pyggml._core.ffi import ffi, lib
from pyggml.generation.request_options import salt_number, scaled_adapters
from pyggml.options.adapter_choice import AdapterChoice
from pyggml.types import Slot

if TYPE_CHECKING:
    from pyggml._core.ffi import CData
    from pyggml._native.model import Model
    from pyggml.generation.adapters import ScaledAdapters


class SlotMethods:
    """The methods of :class:`pyggml.Engine` for the slots of its KV cache. They do not wait for a forward pass."""

    n_ctx: int
    n_parallel: int
    _handle: CData

    if TYPE_CHECKING:
        model: Model

        def resolve_adapters(self, adapter: AdapterChoice | None) -> ScaledAdapters: ...  # noqa: D102

    def slots(self) -> list[Slot]:
        """Return the slots of the KV cache, as many as requests can run at once."""
        out = ffi.new("pyg_slot[]", self.n_parallel)
        c_calls.call(lib.pyg_engine_get_slots, self._handle, out, self.n_parallel)
        return [Slot(index, slot.is_running, slot.n_tokens) for index, slot in enumerate(out)]

    def slot_tokens(
        self, index: int, *, cache_salt: str | None = None, adapter: AdapterChoice | None = None
    ) -> list[int]:
        """Return the tokens that an idle slot has cached; [] if there are none for requests of this kind.

        Args:
            index: index of the slot.
            cache_salt: the ``cache_salt`` of the requests that may use them.
            adapter: the adapters of these requests, as in SamplingParams: None means the defaults.

        Raises:
            InvalidParameterError: there is no such slot or adapter, or a request is running in the slot.
        """
        tokens, n_out = ffi.new("int32_t[]", self.n_ctx), ffi.new("int32_t *")
        slot, salt = integer("index", index, 0, UINT32_MAX), self._salt(cache_salt, adapter)
        c_calls.call(lib.pyg_engine_slot_tokens, self._handle, slot, salt, tokens, self.n_ctx, n_out)
        return list(tokens[0 : min(n_out[0], self.n_ctx)])

    def erase_slot(self, index: int, *, cache_salt: str | None = None, adapter: AdapterChoice | None = None) -> int:
        """Evict what an idle slot has cached, before the next request starts, and return its number of tokens.

        Args:
            index: as for :meth:`slot_tokens`.
            cache_salt: as for :meth:`slot_tokens`; a slot of other requests is left alone.
            adapter: as for :meth:`slot_tokens`.

        Raises:
            InvalidParameterError: as :meth:`slot_tokens`.
        """
        n_out = ffi.new("int32_t *")
        slot, salt = integer("index", index, 0, UINT32_MAX), self._salt(cache_salt, adapter)
        c_calls.call(lib.pyg_engine_erase_slot, self._handle, slot, salt, n_out)
        return int(n_out[0])

    def _salt(self, cache_salt: str | None, adapter: AdapterChoice | None) -> int:
        """The prefix cache's number of the requests with a salt and adapters."""
        adapters = self.resolve_adapters(adapter)
        array, n_adapters = scaled_adapters(adapters)
        out = ffi.new("uint64_t *")
        c_calls.call(lib.pyg_adapters_salt, self.model._handle, array, n_adapters, salt_number(cache_salt), out)
        return int(out[0])
