"""How checkpoints name and lay out quantised weights: compressed-tensors, FP8, GPTQ and AWQ.

``quantization_config`` names the method. Which modules are quantised is decided by their tensors, because the lists of
modules to skip are patterns in too many dialects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from pyggml.errors import ModelLoadError, UnsupportedArchitectureError
from pyggml.files.config import Config
from pyggml.importer import quantized
from pyggml.importer.quantized import Bytes, Codes, Float8, Interleaved, PackedAlongColumns, PackedAlongRows
from pyggml.quant import GGMLType
from pyggml.weights import Floats, Weight, widen

_FLOATS = {"F32": GGMLType.F32, "F16": GGMLType.F16, "BF16": GGMLType.BF16}

#: Tensors for quantised activations and KV caches, which the engine does its own way.
IGNORED = r".*\.(input_scale|input_zero_point|input_global_scale|output_scale|output_zero_point|k_scale|v_scale)"


class Module(Protocol):
    """The tensors of one linear layer."""

    def has(self, suffix: str) -> bool:
        """Whether it has the tensor ``suffix``, such as "weight"."""

    def dtype(self, suffix: str) -> str:
        """The type of that tensor.

        Raises:
            ModelNotFoundError: there is no such tensor.
        """

    def shape(self, suffix: str) -> tuple[int, ...]:
        """The stored shape of that tensor."""

    def array(self, suffix: str, shape: tuple[int, ...], dtypes: tuple[str, ...]) -> npt.NDArray[Any]:
        """The data of that tensor.

        Raises:
            ModelNotFoundError: there is no such tensor.
            ModelLoadError: it has another shape or type.
        """

    def error(self, what: str) -> ModelLoadError:
        """The error to raise if its tensors are invalid."""


#: Reads a module's quantised weight of the given shape; None if the module is not quantised.
Scheme = Callable[[Module, tuple[int, ...]], Weight | None]


def scheme_of(config: Config) -> Scheme | None:
    """Returns how a model's weights are quantised; None if they are not.

    Raises:
        UnsupportedArchitectureError: pyggml does not support the method.
    """
    section = config.section("quantization_config") or config.section("compression_config")
    if section is None:
        return None
    method = section.get("quant_method")
    make = _METHODS.get(str(method))
    if make is None:
        raise UnsupportedArchitectureError(
            f"{config.path}: the weights are quantised with {method!r:.80}; pyggml imports {', '.join(_METHODS)}"
        )
    return make(section)


# --- compressed-tensors -----------------------------------------------------------------------------------------


def _compressed_tensors(config: Config) -> Scheme:
    sparsity = config.section("sparsity_config")
    if sparsity is not None and sparsity.get("format") not in (None, "dense"):
        raise UnsupportedArchitectureError(
            f"{config.path}: the weights are compressed as {sparsity.get('format')!r:.80}; pyggml imports dense ones"
        )
    bits = _compressed_bits(config)

    def read(module: Module, shape: tuple[int, ...]) -> Weight | None:
        if module.has("weight_packed"):
            return _packed(module, shape, bits)
        if not module.has("weight_scale"):
            return None
        if module.dtype("weight") == "F8_E4M3":
            return _float8(module, shape, "weight_scale")
        return _int8(module, shape)

    return read


def _compressed_bits(config: Config) -> int:
    """Bits of an integer code, which must be the same for all groups of modules."""
    groups = config.section("config_groups") or Config(config.path, {})
    found = set()
    for name in groups.values:
        group = groups.section(name) or Config(config.path, {})
        weights = group.section("weights")
        if weights is not None and weights.get("type") == "int":
            found.add(weights.integer("num_bits"))
    if len(found) > 1 or not found <= {4, 8}:
        raise UnsupportedArchitectureError(
            f"{config.path}: weights have {sorted(found)} bits; pyggml imports 4 or 8, the same everywhere"
        )
    return found.pop() if found else 8


def _int8(module: Module, shape: tuple[int, ...]) -> Weight:
    codes = module.array("weight", shape, ("I8",))
    scales, type = _scales(module, "weight_scale", shape)
    zeros = None
    if module.has("weight_zero_point"):
        n_groups = scales.shape[1]
        raw = module.array("weight_zero_point", _scale_shape(module, "weight_zero_point", shape), ("I8", "I32", "I64"))
        zeros = np.broadcast_to(raw.astype(np.int16).reshape(-1, n_groups), scales.shape)
    return Bytes(codes, scales, zeros, type)


def _packed(module: Module, shape: tuple[int, ...], bits: int) -> Weight:
    n_rows, n_cols = shape
    stated = module.array("weight_shape", (2,), ("I64", "I32"))
    if tuple(stated.tolist()) != shape:
        raise module.error(f"weight_shape is {tuple(stated.tolist())}; by config.json it must be {shape}")
    words = module.array("weight_packed", (n_rows, -(-n_cols * bits // 32)), ("I32",))
    scales, type = _scales(module, "weight_scale", shape)
    n_groups = scales.shape[1]
    zeros = None
    if module.has("weight_zero_point"):  # packed down the columns
        raw = module.array("weight_zero_point", (-(-n_rows * bits // 32), n_groups), ("I32",))
        zeros = np.ascontiguousarray(quantized.unpack(np.ascontiguousarray(raw.T), bits, n_rows).T)
    groups = _group_of_column(module, "weight_g_idx", n_cols, n_groups)
    return PackedAlongColumns(words, n_cols, bits, scales, zeros, groups, type)


# --- 8-bit floats -----------------------------------------------------------------------------------------------


def _fp8(_config: Config) -> Scheme:
    def read(module: Module, shape: tuple[int, ...]) -> Weight | None:
        for suffix in ("weight_scale_inv", "weight_scale"):
            if module.has(suffix):
                return _float8(module, shape, suffix)
        return None

    return read


def _float8(module: Module, shape: tuple[int, ...], suffix: str) -> Weight:
    array = module.array("weight", shape, ("F8_E4M3",))
    scale_shape = module.shape(suffix)
    n_blocks = (1, 1) if len(scale_shape) < 2 else (scale_shape[0], scale_shape[1])
    if any(n < 1 or n > size for n, size in zip(n_blocks, shape, strict=True)):
        raise module.error(f"{suffix} has shape {scale_shape}, which does not divide {shape}")
    raw = module.array(suffix, scale_shape, tuple(_FLOATS))
    return Float8(array, _finite(module, suffix, widen(raw, _FLOATS[module.dtype(suffix)])).reshape(n_blocks))


# --- GPTQ and AWQ -----------------------------------------------------------------------------------------------


def _gptq(config: Config) -> Scheme:
    bits = config.integer("bits")
    if bits not in (4, 8):
        raise UnsupportedArchitectureError(f"{config.path}: GPTQ weights have {bits} bits; pyggml imports 4 and 8")
    layout = config.get("checkpoint_format") or "gptq"
    if layout not in ("gptq", "gptq_v2"):
        raise UnsupportedArchitectureError(
            f"{config.path}: checkpoint_format is {layout!r:.80}; pyggml imports gptq and gptq_v2"
        )
    stored_minus = 1 if layout == "gptq" else 0  # the first layout stores zero points minus 1

    def read(module: Module, shape: tuple[int, ...]) -> Weight | None:
        if not module.has("qweight"):
            return None
        n_rows, n_cols = shape
        scales, type = _transposed_scales(module, shape)
        n_groups = scales.shape[1]
        words = module.array("qweight", (n_cols * bits // 32, n_rows), ("I32",))
        raw = module.array("qzeros", (n_groups, n_rows * bits // 32), ("I32",))
        zeros: Codes = np.ascontiguousarray(quantized.unpack(raw, bits, n_rows).T) + np.int16(stored_minus)
        groups = _group_of_column(module, "g_idx", n_cols, n_groups)
        return PackedAlongRows(words, bits, scales, zeros, groups, type)

    return read


def _awq(config: Config) -> Scheme:
    bits, version = config.integer("bits", 4), str(config.get("version") or "gemm").lower()
    if bits != 4 or version != "gemm":
        raise UnsupportedArchitectureError(
            f"{config.path}: AWQ weights have {bits} bits in the layout {version!r:.80}; pyggml imports only 4 bits in "
            "the layout 'gemm'"
        )

    def read(module: Module, shape: tuple[int, ...]) -> Weight | None:
        if not module.has("qweight"):
            return None
        n_rows, n_cols = shape
        scales, type = _transposed_scales(module, shape)
        words = module.array("qweight", (n_cols, n_rows // 8), ("I32",))
        zeros = None
        if module.has("qzeros"):
            raw = module.array("qzeros", (scales.shape[1], n_rows // 8), ("I32",))
            zeros = np.ascontiguousarray(quantized.unpack_awq(raw).T)
        return Interleaved(words, scales, zeros, type)

    return read


_METHODS: Mapping[str, Callable[[Config], Scheme]] = {
    "compressed-tensors": _compressed_tensors,
    "fp8": _fp8,
    "gptq": _gptq,
    "awq": _awq,
}


# --- scales and groups ------------------------------------------------------------------------------------------


def _scale_shape(module: Module, suffix: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Checks the shape of scales: a single one, one per row, or one per row and group of columns."""
    n_rows, n_cols = shape
    found = module.shape(suffix)
    n_groups = found[1] if len(found) == 2 else 1
    if found not in ((), (1,), (1, 1), (n_rows,), (n_rows, n_groups)) or n_groups < 1 or n_cols % n_groups:
        raise module.error(f"{suffix} has shape {found}, which does not divide {shape}")
    return found


def _scales(module: Module, suffix: str, shape: tuple[int, ...]) -> tuple[Floats, GGMLType]:
    """The scales, (n_rows, n_groups), and the float type that goes with them."""
    found = _scale_shape(module, suffix, shape)
    raw = module.array(suffix, found, tuple(_FLOATS))
    type = _FLOATS[module.dtype(suffix)]
    n_groups = found[1] if len(found) == 2 else 1
    scales = np.broadcast_to(widen(raw, type).reshape(-1, n_groups), (shape[0], n_groups))
    return _finite(module, suffix, scales), _float_type(type)


def _transposed_scales(module: Module, shape: tuple[int, ...]) -> tuple[Floats, GGMLType]:
    n_rows, n_cols = shape
    found = module.shape("scales")
    if len(found) != 2 or found[1] != n_rows or found[0] < 1 or n_cols % found[0]:
        raise module.error(f"scales have shape {found}, which does not divide {shape}")
    type = _FLOATS.get(module.dtype("scales"), GGMLType.F32)
    scales = widen(module.array("scales", found, tuple(_FLOATS)), type)
    return _finite(module, "scales", np.ascontiguousarray(scales.T)), _float_type(type)


def _float_type(type: GGMLType) -> GGMLType:
    return GGMLType.F16 if type == GGMLType.F16 else GGMLType.BF16


def _finite(module: Module, suffix: str, scales: Floats) -> Floats:
    if not np.isfinite(scales).all():
        raise module.error(f"{suffix} holds infinite or NaN scales")
    return scales


def _group_of_column(module: Module, suffix: str, n_cols: int, n_groups: int) -> npt.NDArray[np.intp] | None:
    """The group of each column; None if groups are consecutive runs of equal length."""
    if not module.has(suffix):
        return None
    groups = module.array(suffix, (n_cols,), ("I32", "I64")).astype(np.intp)
    if groups.size and not (groups.min() >= 0 and groups.max() < n_groups):
        raise module.error(f"{suffix} names groups outside 0 to {n_groups - 1}")
    in_runs = np.repeat(np.arange(n_groups), n_cols // n_groups)
    return None if np.array_equal(groups, in_runs) else groups
