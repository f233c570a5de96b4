"""Weights quantised with the compressed-tensors library."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from pyggml.errors import ModelLoadError, UnsupportedArchitectureError
from pyggml.files.config import Config
from pyggml.files.weights import Weight
from pyggml.importer import integer_weights
from pyggml.importer.fp4_fp8 import E4M3, MXFloat4, NVFloat4
from pyggml.importer.integer_weights import ByteCodes, Codes, PackedAlongColumns
from pyggml.importer.schemes.config_groups import FORMATS, ConfigGroups, Group
from pyggml.importer.schemes.float8 import float8
from pyggml.importer.schemes.module import (
    FLOATS,
    Module,
    Scheme,
    group_of_column,
    not_quantized_error,
    read_finite,
    scale_shape,
    scales_of,
)
from pyggml.importer.schemes.mxfp4 import exponents_of

Shape = tuple[int, ...]

#: Of the scales of NVFP4: the largest weights divided by it are still float32.
_SMALLEST_DIVISOR = 2.0**-100


class CompressedTensors(Scheme):
    """Modules in groups, each with its own kind of codes."""

    def __init__(self, config: Config) -> None:
        """Read a ``quantization_config``."""
        _require_plain_extras(config)
        self._groups = ConfigGroups(config)

    def settings(self, module: Module) -> Hashable:
        """See :class:`Scheme`."""
        return self._groups.group_of(module)

    def weight(self, module: Module, shape: Shape) -> Weight | None:
        """See :class:`Scheme`."""
        if len(shape) != 2:
            return None
        group, codes = self._groups.group_of(module), _stored_codes(module)
        if group is None:
            if codes is not None:
                raise self._error_unexpected(module, codes)
            return None
        if codes is None:
            if module.role == "other":  # routers have a class of their own in some versions of transformers
                return None
            raise not_quantized_error(module, str(group))
        if group.format is not None and FORMATS[group.format] != codes:
            raise module.error(
                f"{codes} holds the codes, but by config.json {group.name} is stored as {group.format!r}, which keeps "
                f"them in {FORMATS[group.format]}"
            )
        if group.type == "int":
            return _integers(module, shape, group, codes)
        return _floats(module, shape, group)

    def _error_unexpected(self, module: Module, codes: str) -> ModelLoadError:
        reason = "is to be ignored" if self._groups.is_ignored(module) else "belongs to no group of config_groups"
        return module.error(
            f"{codes} is stored as {module.dtype(codes)} codes with scales, but by quantization_config in config.json "
            f"this module {reason} and is not quantised"
        )


def _require_plain_extras(config: Config) -> None:
    """Reject sparsity and transforms, which the library supports in addition to quantisation."""
    sparsity = config.section("sparsity_config")
    if sparsity is not None and sparsity.get("format") not in (None, "dense"):
        raise UnsupportedArchitectureError(
            f"{config.path}: the weights are compressed as {sparsity.get('format')!r:.80}; pyggml imports dense ones"
        )
    if config.get("moe_sparsity_config"):
        raise UnsupportedArchitectureError(
            f"{config.path}: moe_sparsity_config removes experts from some layers; the engine needs all of them"
        )
    transforms = config.section("transform_config") or Config(config.path, {})
    groups = transforms.section("config_groups") or Config(config.path, {})
    for name in groups.values:
        applied = (groups.section(name) or Config(config.path, {})).get("apply")
        for each in applied if isinstance(applied, list) else []:
            location = each.get("location") if isinstance(each, dict) else None
            if not str(location).startswith("weight_"):  # weights are stored transformed
                raise UnsupportedArchitectureError(
                    f"{config.path}: transform_config.{name:.40} rotates the {location!r:.40} of modules while the "
                    "model computes, which the engine does not"
                )


def _stored_codes(module: Module) -> str | None:
    """The tensor that holds the codes; None if there are plain numbers."""
    if module.has("weight_packed"):
        return "weight_packed"
    if module.has("weight_scale") or (module.has("weight") and module.dtype("weight") not in FLOATS):
        return "weight"
    return None


# --- integers -----------------------------------------------------------------------------------------------------


def _integers(module: Module, shape: Shape, group: Group, stored: str) -> Weight:
    if group.group_size is not None and shape[1] % group.group_size:
        raise module.error(f"{shape[1]} columns cannot be divided into groups of {group.group_size}")
    scales = scales_of(module, "weight_scale", shape, *_scale_shapes(shape, group))
    if stored == "weight":
        if module.dtype("weight") != "I8":
            raise not_quantized_error(module, str(group))
        return ByteCodes(module.array("weight", shape, ("I8",)), scales, _zeros(module, shape, group))
    n_rows, n_cols = shape
    stated = module.array("weight_shape", (2,), ("I64", "I32"))
    if tuple(stated.tolist()) != shape:
        raise module.error(f"weight_shape is {tuple(stated.tolist())}; by config.json it must be {shape}")
    words = module.array("weight_packed", (n_rows, -(-n_cols * group.bits // 32)), ("I32",))
    groups = group_of_column(module, "weight_g_idx", n_cols, scales.n_cols)
    return PackedAlongColumns(words, n_cols, group.bits, scales, _zeros(module, shape, group), groups)


def _scale_shapes(shape: Shape, group: Group) -> tuple[Shape, ...]:
    """The shapes that scales may have, first the usual one."""
    n_rows, n_cols = shape
    if group.group_size is not None:
        return ((n_rows, -(-n_cols // group.group_size)),)
    return ((n_rows, 1), (n_rows,)) if group.strategy == "channel" else ((1,), (), (1, 1))


def _zeros(module: Module, shape: Shape, group: Group) -> Codes | None:
    suffix = "weight_zero_point"
    if group.is_symmetric and not module.has(suffix):
        return None
    n_rows, allowed = shape[0], _scale_shapes(shape, group)
    n_groups = allowed[0][-1] if group.strategy != "tensor" else 1
    packed = (-(-n_rows * group.bits // 32), n_groups)
    is_packed = module.has("weight_packed") and module.dtype(suffix) == "I32" and group.strategy != "tensor"
    if is_packed:  # down the columns
        raw = module.array(suffix, packed, ("I32",))
        zeros: Codes = np.ascontiguousarray(integer_weights.unpack(np.ascontiguousarray(raw.T), group.bits, n_rows).T)
    else:
        found = scale_shape(module, suffix, shape, *allowed)
        raw = module.array(suffix, found, ("I8", "I32", "I64"))
        zeros = np.broadcast_to(raw.astype(np.int16).reshape(-1, n_groups), (n_rows, n_groups))
    if group.is_symmetric and zeros.any():
        raise module.error(f"{suffix} holds zero points other than 0, but by config.json there are none: {group}")
    return zeros


# --- floats -------------------------------------------------------------------------------------------------------


def _floats(module: Module, shape: Shape, group: Group) -> Weight:
    if group.is_float4:
        return _float4(module, shape, group)
    if module.dtype("weight") != "F8_E4M3":
        raise not_quantized_error(module, str(group))
    if group.strategy == "tensor":
        return float8(module, shape, "weight_scale", shape, scalar=True)
    n_cols = shape[1] if group.strategy == "channel" else group.group_size
    return float8(module, shape, "weight_scale", group.block or (1, n_cols or shape[1]))


def _float4(module: Module, shape: Shape, group: Group) -> Weight:
    n_rows, n_cols = shape
    size = group.group_size or n_cols
    if n_cols % size:
        raise module.error(f"{n_cols} columns cannot be divided into groups of {size}")
    packed = module.array("weight_packed", (n_rows, n_cols // 2), ("U8",))
    found = (n_rows, n_cols // size)
    if group.strategy == "group":
        return MXFloat4(packed, exponents_of(module, "weight_scale", found))
    scales = module.array("weight_scale", found, ("F8_E4M3",))
    one = scale_shape(module, "weight_global_scale", shape, (1,), ())
    divisor = float(read_finite(module, "weight_global_scale", one).item())
    if abs(divisor) < _SMALLEST_DIVISOR or not np.isfinite(E4M3[scales]).all():
        raise module.error("weight_scale holds NaN, or weight_global_scale is too close to 0")
    return NVFloat4(packed, scales, divisor=divisor)
