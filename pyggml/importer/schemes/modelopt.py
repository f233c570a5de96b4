"""Weights quantised with NVIDIA's ModelOpt: 8-bit floats, and NVFP4 with its own tensor names."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from pyggml.errors import UnsupportedArchitectureError
from pyggml.files.config import Config
from pyggml.files.weights import Weight
from pyggml.importer.fp4_fp8 import E4M3, NVFloat4
from pyggml.importer.schemes.float8 import float8
from pyggml.importer.schemes.module import Module, Scheme, read_finite, scale_shape

_GROUP = 16
#: Of the scale of a tensor: the largest weights times it are still float32.
_LARGEST_FACTOR = 2.0**100

_SUPPORTED = ("FP8", "FP8_PER_CHANNEL_PER_TOKEN", "NVFP4", "MIXED_PRECISION")


class ModelOpt(Scheme):
    """Modules of 8-bit floats, of NVFP4 and of plain numbers; their tensors show which is which."""

    def __init__(self, config: Config) -> None:
        """Read a ``quantization_config``."""
        algorithm = config.get("quant_algo")
        if algorithm not in _SUPPORTED:
            raise UnsupportedArchitectureError(
                f"{config.path}: quant_algo is {algorithm!r:.80}; of ModelOpt's, pyggml imports {', '.join(_SUPPORTED)}"
                ". Download the model that it was made from, or a GGUF file of it"
            )

    def settings(self, module: Module) -> Hashable:  # noqa: ARG002
        """See :class:`Scheme`."""
        return None

    def weight(self, module: Module, shape: tuple[int, ...]) -> Weight | None:
        """See :class:`Scheme`."""
        if len(shape) != 2 or not module.has("weight_scale"):
            return None
        if module.has("weight_scale_2"):
            return _nvfp4(module, shape)
        n_rows, n_cols = shape
        if module.shape("weight_scale") in ((n_rows,), (n_rows, 1)):
            return float8(module, shape, "weight_scale", (1, n_cols))
        return float8(module, shape, "weight_scale", shape, scalar=True)


def _nvfp4(module: Module, shape: tuple[int, ...]) -> Weight:
    n_rows, n_cols = shape
    if n_cols % _GROUP:
        raise module.error(f"{n_cols} columns cannot be divided into groups of {_GROUP}")
    packed = module.array("weight", (n_rows, n_cols // 2), ("U8",))
    scales = module.array("weight_scale", (n_rows, n_cols // _GROUP), ("F8_E4M3",))
    factor = read_finite(module, "weight_scale_2", scale_shape(module, "weight_scale_2", shape, (), (1,))).item()
    if abs(factor) > _LARGEST_FACTOR or not np.isfinite(E4M3[scales]).all():
        raise module.error("weight_scale holds NaN, or weight_scale_2 is too large")
    return NVFloat4(packed, scales, factor=factor)
