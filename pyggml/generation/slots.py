"""The slots of an engine's KV cache: what is in them, and erasing it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyggml._core import c_calls
from pyggml._core.checks import UINT32_MAX, integer
from pyggml._core.ffi import ffi, lib
from pyggml.generation.request_options import salt_number
from pyggml.types import Slot

if TYPE_CHECKING:
    from pyggml._core.ffi import CData


class SlotMethods:
    """The methods of :class:`pyggml.Engine` for the slots of its KV cache. They do not wait for a forward pass."""

    n_ctx: int
    n_parallel: int
    _handle: CData

    def slots(self) -> list[Slot]:
        """Return the slots of the KV cache, as many as requests can run at once."""
        out = ffi.new("pyg_slot[]", self.n_parallel)
        c_calls.call(lib.pyg_engine_get_slots, self._handle, out, self.n_parallel)
        return [Slot(index, slot.is_running, slot.n_tokens) for index, slot in enumerate(out)]

    def slot_tokens(self, index: int, *, cache_salt: str | None = None) -> list[int]:
        """Return the tokens that an idle slot has cached; [] if there are none for requests with this salt.

        Args:
            index: index of the slot.
            cache_salt: the ``cache_salt`` of the requests that may use them.

        Raises:
            InvalidParameterError: there is no such slot, or a request is running in it.
        """
        tokens, n_out = ffi.new("int32_t[]", self.n_ctx), ffi.new("int32_t *")
        slot, salt = integer("index", index, 0, UINT32_MAX), salt_number(cache_salt)
        c_calls.call(lib.pyg_engine_slot_tokens, self._handle, slot, salt, tokens, self.n_ctx, n_out)
        return list(tokens[0 : min(n_out[0], self.n_ctx)])

    def erase_slot(self, index: int, *, cache_salt: str | None = None) -> int:
        """Evict what an idle slot has cached, before the next request starts, and return its number of tokens.

        Args:
            index: as for :meth:`slot_tokens`.
            cache_salt: as for :meth:`slot_tokens`; a slot of other requests is left alone.

        Raises:
            InvalidParameterError: there is no such slot, or a request is running in it.
        """
        n_out = ffi.new("int32_t *")
        slot, salt = integer("index", index, 0, UINT32_MAX), salt_number(cache_salt)
        c_calls.call(lib.pyg_engine_erase_slot, self._handle, slot, salt, n_out)
        return int(n_out[0])
