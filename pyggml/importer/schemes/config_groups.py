"""Quantised modules of a compressed-tensors checkpoint: ``config_groups`` and ``ignore``.

A module belongs to the group of the most specific target that matches it, as in the compressed-tensors library: its
name comes before patterns of names, and these before its class. Of several patterns, the first in alphabetical order
counts.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from pyggml.errors import UnsupportedArchitectureError
from pyggml.files.config import Config
from pyggml.importer.schemes.module import Module, pattern

_PATTERN = "re:"

#: Formats -> the tensor in which they keep a weight's codes.
FORMATS = {
    "int-quantized": "weight",
    "float-quantized": "weight",
    "naive-quantized": "weight",
    "mxfp8-quantized": "weight",
    "pack-quantized": "weight_packed",
    "nvfp4-pack-quantized": "weight_packed",
    "mxfp4-pack-quantized": "weight_packed",
}
#: The format of a whole model whose groups have formats of their own.
_MIXED = "mixed-precision"
#: Plain numbers. The library rounds them whenever it computes if there are groups all the same.
_DENSE = "dense"

_SUPPORTED = {
    *(("int", bits, strategy) for bits in (4, 8) for strategy in ("tensor", "channel", "group")),
    *(("float", 8, strategy) for strategy in ("tensor", "channel", "group", "block")),
    *(("float", 4, strategy) for strategy in ("tensor_group", "group")),
}
#: Strategies of 4-bit floats -> the group size of the format: NVFP4 and MXFP4.
_FLOAT4 = {"tensor_group": 16, "group": 32}


@dataclass(frozen=True)
class Group:
    """The quantisation of a group of modules.

    Attributes:
        name: its key in ``config_groups``.
        format: one of :data:`FORMATS`; None: the tensors show it.
        type: "int" or "float".
        bits: bits of a code.
        strategy: what shares a scale: "tensor", "channel" (a row), "group" (of columns), "tensor_group" (the same, with
            a further scale for the tensor) or "block" (of rows and columns).
        group_size: columns of a group.
        block: rows and columns of a block.
        is_symmetric: True if there are no zero points.
    """

    name: str
    format: str | None
    type: str
    bits: int
    strategy: str
    group_size: int | None
    block: tuple[int, int] | None
    is_symmetric: bool

    @property
    def is_float4(self) -> bool:
        """True if its codes are 4-bit floats."""
        return (self.type, self.bits) == ("float", 4)

    def __str__(self) -> str:
        shared = f" in groups of {self.group_size}" if self.group_size else ""
        return f"{self.bits}-bit {'integers' if self.type == 'int' else 'floats'}{shared} ({self.name})"


class ConfigGroups:
    """Lookup of a module's group."""

    def __init__(self, config: Config) -> None:
        """Read a ``quantization_config``."""
        self._ignored = _Targets(dict.fromkeys(config.strings("ignore")), config)
        groups: dict[str, Group | None] = {}
        sections = config.section("config_groups") or Config(config.path, {})
        for name in sections.values:
            section = sections.section(name) or Config(config.path, {})
            groups |= dict.fromkeys(section.strings("targets"), _group(section, name))
        self._groups, self._targets = groups, _Targets(groups, config)
        _require_format(config, is_quantized=any(groups.values()))

    def group_of(self, module: Module) -> Group | None:
        """Return the group that a module belongs to; None if it is not quantised."""
        target = None if self.is_ignored(module) else self._targets.matching(module)
        return None if target is None else self._groups[target]

    def is_ignored(self, module: Module) -> bool:
        """Check whether ``ignore`` lists a module."""
        return self._ignored.matching(module) is not None


class _Targets:
    """Targets of a group: names of modules, classes, and patterns of names."""

    def __init__(self, texts: Collection[str], config: Config) -> None:
        self._texts = texts
        patterns = sorted(text for text in texts if text.startswith(_PATTERN))
        self._patterns = {text: pattern(config, "config_groups", text.removeprefix(_PATTERN)) for text in patterns}

    def matching(self, module: Module) -> str | None:
        """Return the most specific target of a module: its name, the first pattern, or its class."""
        for name in module.names:
            if name in self._texts:
                return name
        for text, names in self._patterns.items():
            if any(map(names.match, module.names)):
                return text
        kind = "Embedding" if module.role == "embedding" else "Linear"
        return kind if kind in self._texts else None


def _require_format(config: Config, *, is_quantized: bool) -> None:
    format = config.get("format")
    if format is not None and format not in (*FORMATS, _MIXED) and (is_quantized or format != _DENSE):
        raise UnsupportedArchitectureError(
            f"{config.path}: the weights are stored as {format!r:.80}; of the formats of compressed-tensors, pyggml "
            f"imports {', '.join((*FORMATS, _MIXED))}"
        )


def _group(section: Config, name: str) -> Group | None:
    """Read a group; None if its weights are not quantised."""
    weights = section.section("weights")
    if weights is None:
        return None
    format = section.get("format")
    if format is not None and format not in tuple(FORMATS):
        raise UnsupportedArchitectureError(
            f"{section.path}: the weights of {name} are stored as {format!r:.80}; pyggml imports {', '.join(FORMATS)}"
        )
    type, bits = str(weights.get("type") or "int").lower(), weights.integer("num_bits", 8)
    size = weights.get("group_size")
    group_size = None if size in (None, -1) else weights.integer("group_size")
    strategy = str(weights.get("strategy") or ("group" if group_size else "tensor" if size is None else "channel"))
    group = Group(
        name=name,
        format=format,
        type=type,
        bits=bits,
        strategy=strategy.lower(),
        group_size=group_size,
        block=_block(weights) if strategy.lower() == "block" else None,
        is_symmetric=weights.flag("symmetric", True),
    )
    if (type, bits, group.strategy) not in _SUPPORTED or (group.is_float4 and group_size != _FLOAT4[group.strategy]):
        raise UnsupportedArchitectureError(
            f"{section.path}: the weights of {name} are {group.bits}-bit {type!r:.40} codes with a scale for each "
            f"{group.strategy!r:.40}{f' of {group_size}' if group_size else ''}; pyggml imports 4- and 8-bit integers "
            "(tensor, channel, group), 8-bit floats (tensor, channel, block, group), NVFP4 (tensor_group of 16) and "
            "MXFP4 (group of 32)"
        )
    return group


def _block(weights: Config) -> tuple[int, int]:
    value = weights.get("block_structure")
    sizes = value.split("x") if isinstance(value, str) else value
    try:
        n_rows, n_cols = (int(size) for size in sizes)
    except (TypeError, ValueError):
        raise weights.error("block_structure", "two sizes") from None
    if min(n_rows, n_cols) < 1:
        raise weights.error("block_structure", "two positive sizes")
    return n_rows, n_cols
