"""A batch of tokens in the engine's terms."""

from __future__ import annotations

from typing import Literal, SupportsIndex

import numpy as np
import numpy.typing as npt

from pyggml._core.c_values import int32_array, mask_array, pointer
from pyggml._core.checks import INT32_MAX, integer, shown
from pyggml._core.ffi import ffi
from pyggml.errors import InvalidParameterError

Output = Literal["last", "all", "none"]


class Batch:
    """A ``pyg_batch *`` and its data; see :meth:`pyggml.Context.decode` for the arguments.

    Attributes:
        native: the ``pyg_batch *``, valid as long as this object lives.
    """

    def __init__(
        self,
        token_ids: npt.ArrayLike,
        pos: npt.ArrayLike | None,
        seq_id: SupportsIndex | npt.ArrayLike,
        output: Output | npt.ArrayLike,
    ) -> None:
        """Convert the arguments and check their types and lengths; the engine checks the values.

        Raises:
            InvalidParameterError: values are not integers, or their number differs from the number of tokens.
        """
        ids = int32_array("token_ids", token_ids)
        n = len(ids)
        self.native = ffi.new("pyg_batch *")
        self._token_ids = pointer("int32_t[]", ids)
        self._seq_ids = pointer("int32_t[]", _seq_ids(seq_id, n))
        self._output = pointer("int8_t[]", _output_mask(output, n))
        self._pos = ffi.NULL if pos is None else pointer("int32_t[]", _of_length("pos", int32_array("pos", pos), n))
        self.native.n_tokens = n
        self.native.token_ids = self._token_ids
        self.native.seq_ids = self._seq_ids
        self.native.output = self._output
        self.native.pos = self._pos


def seq_number(seq_id: SupportsIndex) -> int:
    """Return a sequence id as an int; the engine checks whether the context has it.

    Raises:
        InvalidParameterError: it is not a non-negative integer.
    """
    return integer("seq_id", seq_id, 0, INT32_MAX)


def _of_length(name: str, array: npt.NDArray[np.int32], n: int) -> npt.NDArray[np.int32]:
    if len(array) != n:
        raise InvalidParameterError(f"{name} has {len(array)} entries, but the batch has {n} tokens")
    return array


def _seq_ids(seq_id: SupportsIndex | npt.ArrayLike, n: int) -> npt.NDArray[np.int32]:
    if isinstance(seq_id, SupportsIndex) and not isinstance(seq_id, np.ndarray):
        return np.full(n, seq_number(seq_id), np.int32)
    return _of_length("seq_id", int32_array("seq_id", seq_id), n)


def _output_mask(output: Output | npt.ArrayLike, n: int) -> npt.NDArray[np.int8]:
    if not isinstance(output, str):
        return mask_array("output", output, n)
    if output not in ("last", "all", "none"):
        raise InvalidParameterError(f"output must be 'last', 'all', 'none' or a mask, not {shown(output)}")
    mask = np.full(n, output == "all", np.int8)
    if output == "last":
        mask[-1:] = 1
    return mask
