"""A checkpoint's tensors as weights, under the names that layouts use, with a record of unused tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pyggml.errors import ModelLoadError
from pyggml.families import Layout
from pyggml.files.weights import Plain, Transposed, Weight
from pyggml.importer.safetensors import Checkpoint, StoredTensor
from pyggml.importer.schemes import METHOD_TENSORS, Module, Role, Scheme
from pyggml.quant import GGMLType

# No model is this wide; a larger tensor named "bias" is something else.
_MAX_BIAS_BYTES = 2**24
_CHUNK = 2**20

_TYPES = {"F32": GGMLType.F32, "F16": GGMLType.F16, "BF16": GGMLType.BF16}


class Tensors:
    """Weights by name, with a record of those that were read."""

    def __init__(self, checkpoint: Checkpoint, layout: Layout, scheme: Scheme | None) -> None:
        """Take a checkpoint, the layout whose names its tensors get, and the quantisation scheme."""
        self.checkpoint = checkpoint
        self._scheme = scheme
        self._stored_names: dict[str, str] = {}
        for name in checkpoint:
            renamed = layout_name(name, layout)
            # A second tensor of the same name stays unused, and is reported.
            self._stored_names[name if renamed in self._stored_names else renamed] = name
        self._stored_modules = {
            name.rpartition(".")[0]: stored.rpartition(".")[0] for name, stored in self._stored_names.items()
        }
        self._used: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._stored_names

    def rename(self, name: str, new: str) -> None:
        """Rename a tensor, if it is stored."""
        if name in self._stored_names:
            stored = self._stored_names[new] = self._stored_names.pop(name)
            self._stored_modules[new.rpartition(".")[0]] = stored.rpartition(".")[0]

    def weight(
        self, name: str, shape: tuple[int, ...], role: Role = "linear", *, is_transposed: bool = False
    ) -> Weight:
        """Return a weight of the expected shape, under the name that layouts use.

        With ``is_transposed``, a float tensor is stored with rows and columns exchanged; quantised ones never are.

        Raises:
            ModelNotFoundError: the checkpoint has no such tensor.
            ModelLoadError: it has another shape, is neither float nor quantised by a known method, or contradicts the
                configuration.
        """
        if self._scheme is not None and len(shape) >= 2:
            weight = self._scheme.weight(self.module(name, role), shape)
            if weight is not None:
                return weight
        self._require_float(name)
        stored = self.stored(name)
        stored.require_shape((*shape[:-2], *reversed(shape[-2:])) if is_transposed else shape)
        type = _TYPES[stored.dtype]
        array = self.checkpoint.array(stored.name)
        if is_transposed:
            return Transposed(array, type)
        return Plain(array.reshape(-1, shape[-1]) if len(shape) > 2 else array, type, (stored.path, stored.offset))

    def _require_float(self, name: str) -> None:
        """Reject a weight in the form of a method that the configuration does not name."""
        if name in self and self.stored(name).dtype in _TYPES:
            return
        module = self.module(name, "linear")
        suffix = next((suffix for suffix in METHOD_TENSORS if module.has(suffix)), None)
        if suffix is not None:
            raise module.error(
                f"{suffix} is stored, as in {METHOD_TENSORS[suffix]}, but by config.json this module is not "
                "quantised in this way. Download both again from one source, or use the original model"
            )
        if name in self:
            stored = self.stored(name)
            raise ModelLoadError(
                f"{stored.path}: tensor {stored.name!r:.100} is of type {stored.dtype}, but config.json does not name "
                f"a quantisation method; unquantised types are {', '.join(_TYPES)}"
            )

    def module(self, name: str, role: Role) -> Module:
        """Return the tensors of the layer to which a weight belongs."""
        prefix = name.removesuffix("weight")
        ours = prefix.removesuffix(".")
        return Module(self, prefix, role, (self._stored_modules.get(ours, ours), ours))

    def stored(self, name: str) -> StoredTensor:
        """Return a tensor's location in its file, and mark it as used."""
        stored_name = self._stored_names.get(name)
        if stored_name is None:
            raise self.checkpoint.no_tensor(name)
        self._used.add(name)
        return self.checkpoint[stored_name]

    def n_rows(self, name: str) -> int:
        """Return a tensor's number of rows."""
        return (*self.stored(name).shape, 0)[0]

    def is_same(self, name: str, other: str) -> bool:
        """Compare the bytes of two tensors; if they are the same, mark the first as used."""
        first, second = (self._stored_names.get(each) for each in (name, other))
        if first is None or second is None:
            return False
        arrays = self.checkpoint.array(first), self.checkpoint.array(second)
        same = arrays[0].dtype == arrays[1].dtype and _have_same_bits(*arrays)
        if same:
            self._used.add(name)
        return same

    def unused(self) -> list[str]:
        """Return the names of unused tensors, except biases that are all zero, which some tools write."""
        left = [name for name in self._stored_names if name not in self._used]
        return [name for name in left if not (name.endswith(".bias") and self._is_zero(name))]

    def _is_zero(self, name: str) -> bool:
        stored = self._stored_names[name]
        return self.checkpoint[stored].nbytes <= _MAX_BIAS_BYTES and not _bits(self.checkpoint.array(stored)).any()


def _have_same_bits(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> bool:
    """Compare in chunks, so that large arrays need no extra memory; stops at the first difference."""
    first, second = _bits(one), _bits(other)
    if first.size != second.size:
        return False
    starts = range(0, first.size, _CHUNK)
    return all(np.array_equal(first[start : start + _CHUNK], second[start : start + _CHUNK]) for start in starts)


def _bits(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return array.reshape(-1).view(np.uint8)  # as bytes, NaN equals itself, and nothing is copied


def layout_name(name: str, layout: Layout) -> str:
    """Return a tensor's name in a checkpoint as the layout has it."""
    for old, new in layout.suffixes.items():
        if name.endswith(old):
            name = name[: -len(old)] + new
    for old, new in layout.renamed.items():
        if name.startswith(old):
            return new + name[len(old) :]
    return name
