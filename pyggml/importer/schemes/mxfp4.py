"""MXFP4: a part of compressed-tensors, and gpt-oss's form of it."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import numpy.typing as npt

from pyggml.files.config import Config
from pyggml.files.weights import Weight
from pyggml.importer.fp4_fp8 import MXFloat4
from pyggml.importer.schemes.module import Module, Scheme, is_exception, read_exceptions

_BLOCK = 32
#: Plus 127: times the largest 4-bit float, 6, it is still a float32.
_LARGEST_EXPONENT = 252


class Mxfp4(Scheme):
    """Stacks of experts as gpt-oss is published: "<name>_blocks" and "<name>_scales"; all other weights are floats."""

    def __init__(self, config: Config) -> None:
        """Read a ``quantization_config``."""
        self._exceptions = read_exceptions(config, "modules_to_not_convert")

    def settings(self, module: Module) -> Hashable:
        """See :class:`Scheme`."""
        return is_exception(module, self._exceptions)

    def weight(self, module: Module, shape: tuple[int, ...]) -> Weight | None:
        """See :class:`Scheme`."""
        if len(shape) != 3:
            return None
        if not module.has("_blocks"):
            if is_exception(module, self._exceptions):
                return None
            raise module.error(
                " is stored as plain numbers, but by config.json it is MXFP4. If the weights are not quantised, remove "
                "quantization_config from a copy of config.json; if they are, download them again"
            )
        *stack, n_cols = shape
        if n_cols % _BLOCK:
            raise module.error(f"_blocks cannot hold {n_cols} columns in blocks of {_BLOCK}")
        n_blocks = n_cols // _BLOCK
        packed = module.array("_blocks", (*stack, n_blocks, _BLOCK // 2), ("U8",))
        exponents = exponents_of(module, "_scales", (*stack, n_blocks))
        return MXFloat4(packed.reshape(-1, n_cols // 2), exponents.reshape(-1, n_blocks))


def exponents_of(module: Module, suffix: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Read the exponents of scales, as bytes."""
    exponents = module.array(suffix, shape, ("U8", "F8_E8M0"))
    if np.max(exponents, initial=0) > _LARGEST_EXPONENT:
        raise module.error(f"{suffix} holds scales that are NaN or too large for float32")
    return exponents
