"""8-bit floats with scales: the method "fp8", and a part of compressed-tensors."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from pyggml.files.config import Config
from pyggml.files.weights import Floats, Weight
from pyggml.importer.fp4_fp8 import Float8
from pyggml.importer.schemes.module import (
    FLOATS,
    Module,
    Scheme,
    is_exception,
    not_quantized_error,
    read_exceptions,
    read_finite,
    scale_shape,
)

#: Types of scales that consist of an exponent (E8M0).
_EXPONENTS = ("U8", "F8_E8M0")


class Fp8(Scheme):
    """Weights as transformers' fine-grained FP8, the older AutoFP8 and FBGEMM store them."""

    def __init__(self, config: Config) -> None:
        """Read a ``quantization_config``."""
        block = config.get("weight_block_size")
        if block is not None and not (
            isinstance(block, list) and len(block) == 2 and all(type(n) is int and n > 0 for n in block)
        ):
            raise config.error("weight_block_size", "two positive sizes")
        self._block: tuple[int, int] | None = None if block is None else (block[0], block[1])
        self._exceptions = read_exceptions(config, "modules_to_not_convert") + read_exceptions(config, "ignored_layers")

    def settings(self, module: Module) -> Hashable:
        """See :class:`Scheme`."""
        return is_exception(module, self._exceptions)

    def weight(self, module: Module, shape: tuple[int, ...]) -> Weight | None:
        """See :class:`Scheme`."""
        if module.has("_scale_inv"):
            raise module.error(
                "_scale_inv is stored: experts stacked as 8-bit floats, which pyggml cannot read. Download a model "
                "that stores them separately, or the original model"
            )
        if len(shape) != 2:
            return None
        suffix = next((each for each in ("weight_scale_inv", "weight_scale") if module.has(each)), None)
        is_stored = suffix is not None or (module.has("weight") and module.dtype("weight") not in FLOATS)
        if is_stored:
            return self._read(module, shape, suffix or "weight_scale_inv")
        if module.role == "linear" and not is_exception(module, self._exceptions):
            raise not_quantized_error(module, "8-bit floats with scales (fp8)")
        return None

    def _read(self, module: Module, shape: tuple[int, ...], suffix: str) -> Weight:
        found = module.shape(suffix)
        if len(found) < 2 or found == (1, 1):
            return float8(module, shape, suffix, shape, scalar=True)
        if suffix == "weight_scale" and found[1] == 1:
            return float8(module, shape, suffix, (1, shape[1]))
        return float8(module, shape, suffix, self._block or (128, 128))


def float8(
    module: Module, shape: tuple[int, ...], suffix: str, block: tuple[int, ...], *, scalar: bool = False
) -> Weight:
    """Read a weight of 8-bit floats; each ``block`` of rows and columns shares one of the scales, ``suffix``.

    With ``scalar``, the only scale may be stored with fewer dimensions.
    """
    n_blocks = (-(-shape[0] // block[0]), -(-shape[1] // block[1]))
    shorter = ((), (1,)) if scalar else ((n_blocks[0],),) if n_blocks[1] == 1 else ()
    found = scale_shape(module, suffix, shape, n_blocks, *shorter)
    array = module.array("weight", shape, ("F8_E4M3",))
    return Float8(array, _scales(module, suffix, found).reshape(n_blocks), (block[0], block[1]))


def _scales(module: Module, suffix: str, shape: tuple[int, ...]) -> Floats:
    if module.dtype(suffix) not in _EXPONENTS:
        return read_finite(module, suffix, shape)
    exponents = module.array(suffix, shape, _EXPONENTS)
    if (exponents == 255).any():
        raise module.error(f"{suffix} holds NaN scales")
    return np.ldexp(np.ones((), np.float32), exponents.astype(np.int32) - 127)
