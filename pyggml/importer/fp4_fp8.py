"""Weights quantised to floats of 4 and 8 bits with scales.

MXFP4 is copied into the GGUF type of that name. So is NVFP4, where the engine multiplies with the scale of the whole
tensor, or where that can be made part of the scales of its groups. The others become F16 or BF16.
"""

from __future__ import annotations

import copy

import numpy as np
import numpy.typing as npt

from pyggml.files.weights import Floats, Rows, Weight
from pyggml.importer.integer_weights import ROUNDING, float_type
from pyggml.quant import GGMLType

Bytes = npt.NDArray[np.uint8]


class Float8(Weight):
    """8-bit floats with 4 exponent bits (E4M3), times a scale for each block of rows and columns.

    BF16 holds the products to within 2^-8 of their value, and exactly where scales are powers of 2.
    """

    type = GGMLType.BF16

    def __init__(self, array: npt.NDArray[np.uint8], scales: Floats, block: tuple[int, int]) -> None:
        """Take the bytes, (n_rows, n_cols), the scales, and the rows and columns of a block.

        Scales have the shape (n_row_blocks, n_col_blocks); the last blocks may be partial.
        """
        self._array, self._scales, self._block = array, scales, block
        self.n_rows, self.n_cols = array.shape
        are_powers_of_2 = bool((np.abs(np.frexp(scales)[0]) == 0.5).all())
        self.error = 0.0 if are_powers_of_2 else ROUNDING[self.type]

    def floats(self, rows: Rows) -> Floats:
        """See :class:`Weight`."""
        row_blocks = (np.arange(self.n_rows) // self._block[0])[rows]
        col_blocks = np.arange(self.n_cols) // self._block[1]
        return np.multiply(E4M3[self._array[rows]], self._scales[row_blocks][:, col_blocks], dtype=np.float32)


class Float4(Weight):
    """4-bit floats with 2 exponent bits (E2M1), times a scale for each group of columns."""

    def __init__(self, packed: Bytes, scales: Floats) -> None:
        """Take (n_rows, n_cols / 2) bytes of two codes, the first in the low half, and (n_rows, n_groups) scales."""
        self._packed, self._scales = packed, scales
        self.n_rows, self.n_cols = packed.shape[0], packed.shape[1] * 2
        self.type = float_type(scales, float(_E2M1.max()))
        self.error = ROUNDING[self.type]

    def floats(self, rows: Rows) -> Floats:
        """See :class:`Weight`."""
        scales = self._scales_of(rows)
        codes = _E2M1[self._nibbles(rows)].reshape(*scales.shape, -1)
        return np.multiply(codes, scales[..., None], dtype=np.float32).reshape(-1, self.n_cols)

    def _scales_of(self, rows: Rows) -> Floats:
        return self._scales[rows]

    def _nibbles(self, rows: Rows) -> Bytes:
        packed = self._packed[rows]
        return np.stack([packed & 15, packed >> 4], axis=-1).reshape(-1, self.n_cols)

    def _blocks(self, rows: Rows, scales: Bytes, n_half: int) -> Bytes:
        """The engine's blocks: their scales, then codes, the first ``n_half`` of each group in the low halves."""
        n_scales = scales.shape[-1]
        pairs = self._packed[rows].reshape(-1, scales.shape[1], n_scales, 2, n_half // 2)
        first, second = pairs[..., 0, :], pairs[..., 1, :]
        packed = np.stack([first & 0x0F | second << np.uint8(4), first >> np.uint8(4) | second & 0xF0], axis=-1)
        return np.concatenate([scales, packed.reshape(*scales.shape[:2], -1)], axis=-1).reshape(len(scales), -1)


class MXFloat4(Float4):
    """MXFP4: groups of 32 whose scales are powers of 2.

    Only the exponents are in memory, not the scales as floats: MoE models have gigabytes of them.
    """

    def __init__(self, packed: Bytes, exponents: Bytes) -> None:
        """Take the codes as :class:`Float4`, and the exponents plus 127, (n_rows, n_cols / 32), 252 at most."""
        self._packed, self._exponents = packed, exponents
        self.n_rows, self.n_cols = packed.shape[0], packed.shape[1] * 2
        self.type, self.error = GGMLType.MXFP4, 0.0

    def stored(self, rows: Rows) -> npt.NDArray[np.generic]:
        """See :class:`Weight`."""
        return self._blocks(rows, self._exponents[rows][..., None], 16)

    def _scales_of(self, rows: Rows) -> Floats:
        return np.ldexp(np.ones((), np.float32), self._exponents[rows].astype(np.int32) - 127)


class NVFloat4(Float4):
    """NVFP4: groups of 16 with 8-bit floats (E4M3) as scales, and a scale for the tensor.

    As with MXFP4, the scales are not stored as floats.
    """

    def __init__(self, packed: Bytes, scales: Bytes, *, factor: float = 1.0, divisor: float = 1.0) -> None:
        """Take the codes as :class:`Float4`, and (n_rows, n_cols / 16) scales.

        ``factor`` multiplies the scales in ModelOpt's format; ``divisor`` divides them in that of compressed-tensors.
        """
        self._packed, self._codes = packed, scales
        self._factor, self._divisor = np.float32(factor), np.float32(divisor)
        self.n_rows, self.n_cols = packed.shape[0], packed.shape[1] * 2
        products = self._scales_of(slice(None))
        fits = self.n_cols % 64 == 0 and not (scales & 128).any()  # the engine's scales have no sign
        if fits and np.isin(products, _UE4M3).all():
            self.type, self.error = GGMLType.NVFP4, 0.0
            return
        self.type = float_type(products, float(_E2M1.max()))
        self.error = ROUNDING[self.type]
        if fits:
            self.factored = copy.copy(self)
            self.factored.type, self.factored.error = GGMLType.NVFP4, 0.0
            self.factored.factors = np.array([self._factor / self._divisor], np.float32)

    def stored(self, rows: Rows) -> npt.NDArray[np.generic]:
        """See :class:`Weight`."""
        if self.type != GGMLType.NVFP4:
            return super().stored(rows)
        codes = self._codes[rows]
        if self.factors is None:
            codes = np.searchsorted(_UE4M3, self._scales_of(rows)).astype(np.uint8)
        return self._blocks(rows, codes.reshape(-1, self.n_cols // 64, 4), 8)

    def _scales_of(self, rows: Rows) -> Floats:
        scales: Floats = E4M3[self._codes[rows]] * self._factor / self._divisor
        return scales


def _e4m3_table() -> Floats:
    """Every E4M3 number: https://arxiv.org/abs/2209.05433, section 3."""
    code = np.arange(256)
    exponent, mantissa = code >> 3 & 15, code & 7
    magnitude = np.where(exponent == 0, mantissa / 8 * 2.0**-6, (1 + mantissa / 8) * 2.0 ** (exponent - 7.0))
    magnitude[code & 127 == 127] = np.nan
    return np.where(code & 128, -magnitude, magnitude).astype(np.float32)


#: Byte -> the number that it stands for.
E4M3 = _e4m3_table()
#: The same for codes without a sign, in order.
_UE4M3 = E4M3[:127]
#: Nibble -> number, as the Open Compute Project's specification of MX formats has them.
_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
