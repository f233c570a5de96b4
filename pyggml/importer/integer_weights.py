"""Weights quantised to integers with scales.

Where a GGUF type has the same form (groups of whole blocks that share a scale), the integers are copied unchanged:
8 bits without a zero point become Q8_0, and 4 bits Q4_0. These types store their scale as float16; weights whose scales
do not fit in that become floats.

4 bits with zero points are the same numbers in Q5_0, but become F16 unless Q5_0 is requested. Models with zero points
are made for 16-bit activations, and the engine quantises activations to 8 bits for every quantised weight.
"""

from __future__ import annotations

import copy
from abc import abstractmethod

import numpy as np
import numpy.typing as npt

from pyggml.files.weights import Floats, Rows, Weight
from pyggml.quant import GGMLType

_BLOCK = 32
# Half a unit in the last place of float16: a scale with a larger rounding error does not fit.
_ROUNDING = 2.0**-11
_LARGEST = float(np.finfo(np.float16).max)
#: The largest relative error of numbers stored as these types.
ROUNDING = {GGMLType.F16: 2.0**-11, GGMLType.BF16: 2.0**-8}

Codes = npt.NDArray[np.int16]


class Affine(Weight):
    """Integers with a scale and an optional zero point per row and group of columns: (code - zero) * scale.

    Codes are centred, -8 to 7 for 4 bits, for any offset in the checkpoint.
    """

    def __init__(
        self,
        n_rows: int,
        n_cols: int,
        bits: int,
        scales: Weight,
        zeros: Codes | None,
        group_of_column: npt.NDArray[np.intp] | None = None,
    ) -> None:
        """Describe the matrix.

        Args:
            n_rows: number of rows.
            n_cols: number of columns.
            bits: bits per code, 4 or 8.
            scales: (n_rows, n_groups), finite. As floats they are not kept: there can be gigabytes of them.
            zeros: zero points, the same shape; None if all are 0.
            group_of_column: (n_cols,); None: groups are runs of equal length.
        """
        self.n_rows, self.n_cols = n_rows, n_cols
        self._bits, self._scales = bits, scales
        self._zeros = None if zeros is None or not zeros.any() else zeros
        self._group_of_column = group_of_column
        values = scales.floats(slice(None))
        self._scale_error = _scale_error(values)
        block_type = self._block_type()
        self._set_type(block_type if block_type and self._zeros is None else float_type(values, 2.0**bits))
        if self._zeros is not None and block_type is not None:
            self.compact = copy.copy(self)
            self.compact._set_type(block_type)

    @abstractmethod
    def codes(self, rows: Rows) -> Codes:
        """Some rows of codes, (n, n_cols)."""

    def floats(self, rows: Rows) -> Floats:
        """See :class:`Weight`."""
        return np.multiply(self._without_zeros(rows), self._scales.floats(rows)[:, self._groups()], dtype=np.float32)

    def stored(self, rows: Rows) -> npt.NDArray[np.generic]:
        """See :class:`Weight`."""
        if not self.type.is_quantized:
            return super().stored(rows)
        codes = self._without_zeros(rows).reshape(-1, self.n_cols // _BLOCK, _BLOCK)
        blocks_per_group = self.n_cols // self._scales.n_cols // _BLOCK
        halves = np.ascontiguousarray(np.repeat(self._scales.floats(rows), blocks_per_group, axis=1), "<f2")
        scales = halves[..., None].view(np.uint8)
        if self.type == GGMLType.Q8_0:
            parts = [scales, codes.astype(np.int8).view(np.uint8)]
        elif self.type == GGMLType.Q4_0:
            parts = [scales, _halves((codes + 8).astype(np.uint8))]
        else:  # Q5_0: the fifth bits of a block's codes stand before their nibbles
            unsigned = (codes + 16).astype(np.uint8)
            fifth = np.packbits(unsigned >> np.uint8(4), axis=-1, bitorder="little")
            parts = [scales, fifth, _halves(unsigned & np.uint8(15))]
        return np.concatenate(parts, axis=-1).reshape(len(codes), -1)

    def _without_zeros(self, rows: Rows) -> Codes:
        codes = self.codes(rows)
        if self._zeros is None:
            return codes
        return np.subtract(codes, self._zeros[rows][:, self._groups()], dtype=np.int16)

    def _set_type(self, type: GGMLType) -> None:
        self.type = type
        self.error = self._scale_error if type.is_quantized else ROUNDING[type]

    def _groups(self) -> npt.NDArray[np.intp]:
        if self._group_of_column is not None:
            return self._group_of_column
        return np.repeat(np.arange(self._scales.n_cols), self.n_cols // self._scales.n_cols)

    def _block_type(self) -> GGMLType | None:
        n_per_group = self.n_cols // self._scales.n_cols
        if self._group_of_column is not None or n_per_group % _BLOCK or self._scale_error > _ROUNDING:
            return None
        if self._zeros is None:
            return {4: GGMLType.Q4_0, 8: GGMLType.Q8_0}[self._bits]
        return GGMLType.Q5_0 if self._bits == 4 else None


class ByteCodes(Affine):
    """Codes of 8 bits, each a byte."""

    def __init__(self, array: npt.NDArray[np.int8], scales: Weight, zeros: Codes | None) -> None:
        """Take (n_rows, n_cols) codes."""
        self._array = array
        super().__init__(array.shape[0], array.shape[1], 8, scales, zeros)

    def codes(self, rows: Rows) -> Codes:
        """See :class:`Affine`."""
        return self._array[rows].astype(np.int16)


class PackedAlongColumns(Affine):
    """Codes of a row in 32-bit words, the first in the lowest bits (compressed-tensors)."""

    def __init__(
        self,
        words: npt.NDArray[np.int32],
        n_cols: int,
        bits: int,
        scales: Weight,
        zeros: Codes | None,
        group_of_column: npt.NDArray[np.intp] | None,
    ) -> None:
        """Take (n_rows, n_cols * bits / 32) words."""
        self._words = words
        super().__init__(len(words), n_cols, bits, scales, zeros, group_of_column)

    def codes(self, rows: Rows) -> Codes:
        """See :class:`Affine`."""
        return unpack(self._words[rows], self._bits, self.n_cols)


class PackedAlongRows(Affine):
    """The transposed matrix, with 32 / bits codes of a column in each word (GPTQ)."""

    def __init__(
        self,
        words: npt.NDArray[np.int32],
        bits: int,
        scales: Weight,
        zeros: Codes | None,
        group_of_column: npt.NDArray[np.intp] | None,
    ) -> None:
        """Take (n_cols * bits / 32, n_rows) words."""
        self._words = words
        n_cols = words.shape[0] * 32 // bits
        super().__init__(words.shape[1], n_cols, bits, scales, zeros, group_of_column)

    def codes(self, rows: Rows) -> Codes:
        """See :class:`Affine`."""
        return unpack(np.ascontiguousarray(self._words[:, rows].T), self._bits, self.n_cols)


class Interleaved(Affine):
    """The transposed matrix, with the codes of 8 neighbouring rows in each word, even rows first (AWQ)."""

    def __init__(self, words: npt.NDArray[np.int32], scales: Weight, zeros: Codes | None) -> None:
        """Take (n_cols, n_rows / 8) words."""
        self._words = words
        super().__init__(words.shape[1] * 8, words.shape[0], 4, scales, zeros)

    def codes(self, rows: Rows) -> Codes:
        """See :class:`Affine`."""
        numbers = np.arange(self.n_rows)[rows]
        words = np.ascontiguousarray(self._words[:, numbers // 8].T).view(np.uint32)
        return _centred((words >> _AWQ_SHIFTS[numbers % 8][:, None]) & np.uint32(15), 4)


#: The bit at which the code of the n-th of 8 rows begins in a word of AWQ.
_AWQ_SHIFTS = np.array([0, 16, 4, 20, 8, 24, 12, 28], np.uint32)


def float_type(scales: Floats, largest: float) -> GGMLType:
    """The float type for scaled codes up to a magnitude: F16, which has 3 bits more than BF16, if it has the range."""
    fits = _scale_error(scales) <= _ROUNDING and np.abs(scales).max(initial=0) * largest < _LARGEST
    return GGMLType.F16 if fits else GGMLType.BF16


def unpack(words: npt.NDArray[np.int32], bits: int, n_cols: int) -> Codes:
    """Unpack words to centred codes, (n, n_words) -> (n, n_cols), lowest bits first."""
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    codes = (words.view(np.uint32)[..., None] >> shifts) & np.uint32(2**bits - 1)
    return _centred(codes.reshape(len(words), -1)[:, :n_cols], bits)


def unpack_awq(words: npt.NDArray[np.int32]) -> Codes:
    """Unpack words of AWQ to centred codes, (n, n_words) -> (n, 8 * n_words)."""
    codes = (words.view(np.uint32)[..., None] >> _AWQ_SHIFTS) & np.uint32(15)
    return _centred(codes.reshape(len(words), -1), 4)


def _centred(codes: npt.NDArray[np.uint32], bits: int) -> Codes:
    centred: Codes = codes.astype(np.int16)
    centred -= np.int16(2 ** (bits - 1))
    return centred


def _scale_error(scales: Floats) -> float:
    """The largest relative error of scales as float16."""
    with np.errstate(over="ignore", under="ignore"):
        rounded = scales.astype(np.float16).astype(np.float64)
    exact = scales.astype(np.float64)
    errors = np.abs(rounded - exact) / np.where(exact == 0, 1, np.abs(exact))
    return float(errors.max(initial=0))


def _halves(nibbles: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Pack 4-bit codes: the first half of a block in the low halves of its bytes, the second in the high ones."""
    packed: npt.NDArray[np.uint8] = nibbles[..., : _BLOCK // 2] | nibbles[..., _BLOCK // 2 :] << np.uint8(4)
    return packed
