"""Integers packed into 32-bit words by GPTQ, AWQ and AutoRound."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from pyggml.errors import UnsupportedArchitectureError
from pyggml.files.config import Config
from pyggml.files.weights import Transposed, Weight
from pyggml.importer import integer_weights
from pyggml.importer.integer_weights import Codes, Interleaved, PackedAlongRows
from pyggml.importer.schemes.module import (
    FLOATS,
    Module,
    Scheme,
    group_of_column,
    not_quantized_error,
    pattern,
    read_exceptions,
    read_finite,
)


@dataclass(frozen=True)
class Packing:
    """Packing of a module: bits of a code, and columns that share a scale (None: all of a row)."""

    bits: int
    group_size: int | None


#: Names that modules begin with -> their packing, None for plain numbers. The first that matches counts.
Rules = Sequence[tuple[re.Pattern[str], Packing | None]]


class Packed(Scheme):
    """A method that packs the projections of all blocks."""

    def __init__(self, method: str, usual: Packing, rules: Rules) -> None:
        """Take the method's name in messages, the default packing, and the rules for other modules."""
        self._method, self._usual, self._rules = method, usual, rules

    def settings(self, module: Module) -> Hashable:
        """See :class:`Scheme`."""
        return self._packing(module)

    def weight(self, module: Module, shape: tuple[int, ...]) -> Weight | None:
        """See :class:`Scheme`."""
        if len(shape) != 2:
            return None
        packing = self._packing(module)
        if module.has("qweight"):
            if packing is None:
                raise module.error(
                    f"qweight is stored, but by quantization_config in config.json ({self._method}) this module is not "
                    "quantised"
                )
            return self.read(module, shape, packing)
        if packing is not None and module.role == "linear":
            raise not_quantized_error(module, f"{packing.bits}-bit integers ({self._method})")
        return None

    @abstractmethod
    def read(self, module: Module, shape: tuple[int, ...], packing: Packing) -> Weight:
        """Read a packed weight."""

    def _packing(self, module: Module) -> Packing | None:
        for names, packing in self._rules:
            if any(map(names.match, module.names)):
                return packing
        return self._usual


class Gptq(Packed):
    """The transposed matrix, with codes of a column in each word."""

    def __init__(self, method: str, usual: Packing, rules: Rules, *, minus: int) -> None:
        """As :class:`Packed`; ``minus`` is the offset that the layout subtracts from stored zero points."""
        super().__init__(method, usual, rules)
        self._minus = minus

    def read(self, module: Module, shape: tuple[int, ...], packing: Packing) -> Weight:
        """See :class:`Packed`."""
        n_rows, n_cols = shape
        bits, scales = packing.bits, _scales(module, shape, packing)
        n_groups = scales.n_cols
        words = module.array("qweight", (n_cols * bits // 32, n_rows), ("I32",))
        raw = module.array("qzeros", (n_groups, n_rows * bits // 32), ("I32",))
        zeros: Codes = np.ascontiguousarray(integer_weights.unpack(raw, bits, n_rows).T) + np.int16(self._minus)
        groups = group_of_column(module, "g_idx", n_cols, n_groups)
        return PackedAlongRows(words, bits, scales, zeros, groups)


class Awq(Packed):
    """The transposed matrix, with codes of neighbouring rows in each word."""

    def read(self, module: Module, shape: tuple[int, ...], packing: Packing) -> Weight:
        """See :class:`Packed`."""
        n_rows, n_cols = shape
        scales = _scales(module, shape, packing)
        words = module.array("qweight", (n_cols, n_rows // 8), ("I32",))
        raw = module.array("qzeros", (scales.n_cols, n_rows // 8), ("I32",))
        return Interleaved(words, scales, np.ascontiguousarray(integer_weights.unpack_awq(raw).T))


def gptq(config: Config) -> Scheme:
    """Read the configuration of GPTQ."""
    layout = config.get("checkpoint_format") or "gptq"
    if layout not in ("gptq", "gptq_v2"):
        raise UnsupportedArchitectureError(
            f"{config.path}: checkpoint_format is {layout!r:.80}; pyggml imports gptq and gptq_v2"
        )
    usual = _packing(config, "GPTQ", (4, 8))
    rules = (*_dynamic_rules(config, usual), *_block_rules(config))
    return Gptq("gptq", usual, rules, minus=1 if layout == "gptq" else 0)


def awq(config: Config) -> Scheme:
    """Read the configuration of AWQ; errors as for :func:`gptq`."""
    version = str(config.get("version") or config.get("format") or "gemm").lower()
    bits = config.integer("bits", 4)
    if bits != 4 or version != "gemm":
        raise UnsupportedArchitectureError(
            f"{config.path}: AWQ weights have {bits} bits in the layout {version!r:.80}; pyggml imports only 4 bits in "
            "the layout 'gemm'"
        )
    return Awq("awq", _packing(config, "AWQ", (4,)), [(each, None) for each in read_exceptions(config, _UNPACKED)])


def auto_round(config: Config) -> Scheme:
    """Read the configuration of AutoRound; errors as for :func:`gptq`."""
    form = str(config.get("packing_format"))
    usual = _packing(config, "AutoRound", (4, 8))
    rules = _extra_rules(config, usual)
    if form in ("auto_round:auto_gptq", "auto_gptq"):
        return Gptq("auto-round", usual, rules, minus=1)
    if form in ("auto_round:auto_awq", "auto_round:awq", "auto_awq") and usual.bits == 4:
        return Awq("auto-round", usual, rules)
    raise UnsupportedArchitectureError(
        f"{config.path}: packing_format of AutoRound is {form!r:.80} with {usual.bits} bits; pyggml imports "
        "auto_round:auto_gptq, and auto_round:auto_awq with 4 bits. Look for the model as GPTQ, or as a GGUF file"
    )


_UNPACKED = "modules_to_not_convert"


def _packing(config: Config, title: str, supported: Iterable[int], usual: Packing | None = None) -> Packing:
    bits = config.integer("bits", usual.bits if usual else None)
    if bits not in supported:
        listed = " and ".join(map(str, supported))
        raise UnsupportedArchitectureError(f"{config.path}: {title} weights have {bits} bits; pyggml imports {listed}")
    given = config.get("group_size")
    if given is None:
        return Packing(bits, usual.group_size if usual else 128)
    return Packing(bits, None if given == -1 else config.integer("group_size"))


def _dynamic_rules(config: Config, usual: Packing) -> Rules:
    """GPTQModel's settings for some modules: patterns after "-:" for plain numbers, or else after "+:" or nothing."""
    section = config.section("dynamic") or Config(config.path, {})
    rules: list[tuple[re.Pattern[str], Packing | None]] = []
    for key in section.values:
        names = pattern(section, key, re.sub(r"^[-+]:", "", key))
        settings = section.section(key) or Config(config.path, {})
        rules.append((names, None if key.startswith("-:") else _packing(settings, "GPTQ", (4, 8), usual)))
    return rules


def _block_rules(config: Config) -> Rules:
    """The rule for modules that are not in the list of those to quantise, if there is one."""
    lists = config.get("modules_in_block_to_quantize")
    if not lists:
        return ()
    flat = [each for part in lists for each in (part if isinstance(part, list) else [part])]
    others = rf"(?!.*\.(?:{'|'.join(re.escape(str(each)) for each in flat)})$)"
    return ((re.compile(others), None),)


def _extra_rules(config: Config, usual: Packing) -> Rules:
    """AutoRound's settings for some modules: plain numbers have 16 bits or more."""
    section = config.section("extra_config") or Config(config.path, {})
    rules: list[tuple[re.Pattern[str], Packing | None]] = []
    for name in section.values:
        settings = section.section(name) or Config(config.path, {})
        is_plain = settings.integer("bits", usual.bits) >= 16
        names = re.compile(re.escape(name) + "$")
        rules.append((names, None if is_plain else _packing(settings, "AutoRound", (4, 8), usual)))
    return rules


def _scales(module: Module, shape: tuple[int, ...], packing: Packing) -> Weight:
    n_rows, n_cols = shape
    n_groups = -(-n_cols // (packing.group_size or n_cols))
    found = module.shape("scales")
    if found != (n_groups, n_rows) or n_cols % n_groups:
        raise module.error(
            f"scales have shape {found}; by config.json there are {packing.bits}-bit codes in groups of "
            f"{packing.group_size or n_cols}, so for a weight of shape {shape} it must be {(n_groups, n_rows)}"
        )
    read_finite(module, "scales", found)
    return Transposed(module.array("scales", found, tuple(FLOATS))[None], FLOATS[module.dtype("scales")])
