"""The tensors of a linear layer, and helpers shared by all quantisation methods."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from pyggml.errors import ModelLoadError
from pyggml.files.config import Config
from pyggml.files.weights import Floats, Plain, Weight, widen
from pyggml.quant import GGMLType

if TYPE_CHECKING:
    from pyggml.importer.tensors import Tensors

FLOATS = {"F32": GGMLType.F32, "F16": GGMLType.F16, "BF16": GGMLType.BF16}

#: Tensors for quantised activations and KV caches, which the engine quantises in its own way.
IGNORED = (
    r".*\.((input|output|activation|act|prob_output|kv|q|k|v)_scale|(input|output|q|k|v)_zero_point"
    r"|input_global_scale|input_scale_ub)"
)

#: Tensors that reveal a quantisation method -> the method.
METHOD_TENSORS = {
    "qweight": "GPTQ or AWQ",
    "weight_packed": "compressed-tensors",
    "weight_scale_inv": "FP8",
    "weight_scale_2": "NVIDIA's ModelOpt",
    "_blocks": "gpt-oss's MXFP4",
    "weight.absmax": "bitsandbytes",
    "SCB": "bitsandbytes",
    "W_q": "HQQ",
    "scales": "MLX",
    "weight_scale": "compressed-tensors or FP8",
}

#: The purpose of a weight: "linear" is a projection in a block, "output" the one after the last, "other" a router of
#: experts, or not a matrix.
Role = Literal["linear", "output", "embedding", "other"]


class Module:
    """The tensors of one layer, which share a prefix.

    Attributes:
        role: its purpose.
        names: its name in the checkpoint, and its name in the language model alone.
    """

    def __init__(self, tensors: Tensors, prefix: str, role: Role, names: tuple[str, ...]) -> None:
        self._tensors, self._prefix, self.role, self.names = tensors, prefix, role, names

    def has(self, suffix: str) -> bool:
        """Check whether the module has the tensor ``suffix``, such as "weight"."""
        return self._prefix + suffix in self._tensors

    def dtype(self, suffix: str) -> str:
        """Return the type of that tensor."""
        return self._tensors.stored(self._prefix + suffix).dtype

    def shape(self, suffix: str) -> tuple[int, ...]:
        """Return the stored shape of that tensor."""
        return self._tensors.stored(self._prefix + suffix).shape

    def array(self, suffix: str, shape: tuple[int, ...], dtypes: tuple[str, ...]) -> npt.NDArray[Any]:
        """Return the data of that tensor, which must have this shape and one of these types."""
        stored = self._tensors.stored(self._prefix + suffix)
        stored.require_shape(shape)
        if stored.dtype not in dtypes:
            raise ModelLoadError(
                f"{stored.path}: tensor {stored.name!r:.100} is of type {stored.dtype}; {' or '.join(dtypes)} was "
                "expected"
            )
        return self._tensors.checkpoint.array(stored.name)

    def error(self, what: str) -> ModelLoadError:
        """Return the error to raise if its tensors are invalid."""
        return ModelLoadError(f"{self._tensors.checkpoint.files[0].parent}: {self._prefix}{what}")


class Scheme(ABC):
    """A quantisation scheme of a model's weights."""

    @abstractmethod
    def weight(self, module: Module, shape: tuple[int, ...]) -> Weight | None:
        """Read a module's weight; None if it is not quantised."""

    @abstractmethod
    def settings(self, module: Module) -> Hashable:
        """Return the configuration of this module alone.

        Modules with the same settings, and with tensors of the same types and shapes, are read alike.
        """


def not_quantized_error(module: Module, expected: str) -> ModelLoadError:
    """Return the error for a module whose weights are plain numbers, but by the configuration ``expected``."""
    return module.error(
        f"weight holds {module.dtype('weight')} numbers, but by config.json they are {expected}. If the weights are "
        "not quantised, remove quantization_config from a copy of config.json; if they are, download them again"
    )


def scales_of(module: Module, suffix: str, shape: tuple[int, ...], *allowed: tuple[int, ...]) -> Weight:
    """Read scales as a matrix, (n_rows, n_groups), for a weight of ``shape``; ``allowed`` are their own shapes."""
    found = scale_shape(module, suffix, shape, *allowed)
    n_groups = found[1] if len(found) == 2 else 1
    read_finite(module, suffix, found)
    stored = module.array(suffix, found, tuple(FLOATS)).reshape(-1, n_groups)
    return Plain(np.broadcast_to(stored, (shape[0], n_groups)), FLOATS[module.dtype(suffix)])


def scale_shape(module: Module, suffix: str, shape: tuple[int, ...], *allowed: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of scales or zero points; see :func:`scales_of`."""
    found = module.shape(suffix)
    if found not in allowed:
        raise module.error(f"{suffix} has shape {found}; for a weight of shape {shape}, {allowed[0]} was expected")
    return found


def read_finite(module: Module, suffix: str, shape: tuple[int, ...]) -> Floats:
    """Read floats that must be finite."""
    raw = module.array(suffix, shape, tuple(FLOATS))
    floats = widen(raw, FLOATS[module.dtype(suffix)])
    if not np.isfinite(floats).all():
        raise module.error(f"{suffix} holds infinite or NaN scales")
    return floats


def group_of_column(module: Module, suffix: str, n_cols: int, n_groups: int) -> npt.NDArray[np.intp] | None:
    """Return the group of each column; None if groups are consecutive runs of equal length."""
    if not module.has(suffix):
        return None
    groups = module.array(suffix, (n_cols,), ("I32", "I64")).astype(np.intp)
    if groups.size and not (groups.min() >= 0 and groups.max() < n_groups):
        raise module.error(f"{suffix} names groups outside 0 to {n_groups - 1}")
    in_runs = np.repeat(np.arange(n_groups), n_cols // n_groups)
    return None if np.array_equal(groups, in_runs) else groups


def read_exceptions(config: Config, key: str) -> tuple[re.Pattern[str], ...]:
    """Read a list of modules that are not quantised, as parts of names or patterns of prefixes."""
    return tuple(pattern(config, key, rf"(?:{each})|.*{re.escape(each)}") for each in config.strings(key))


def is_exception(module: Module, listed: Sequence[re.Pattern[str]]) -> bool:
    """Check whether a list of :func:`read_exceptions` contains a module."""
    return any(each.match(name) for each in listed for name in module.names)


def pattern(config: Config, key: str, text: str) -> re.Pattern[str]:
    """Compile a regular expression of the configuration."""
    try:
        return re.compile(text)
    except re.error as error:
        raise config.error(key, f"a regular expression ({error})") from None
