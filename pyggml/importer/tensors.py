"""The tensors of a checkpoint under the names that layouts know, as weights; and which of them nobody asked for."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pyggml.errors import ModelLoadError, ModelNotFoundError
from pyggml.importer.safetensors import Checkpoint
from pyggml.importer.weights import Plain, Weight
from pyggml.quant import GGMLType

_TYPES = {"F32": GGMLType.F32, "F16": GGMLType.F16, "BF16": GGMLType.BF16}


class Tensors:
    """Weights by name. What is asked for is remembered, so that what is left over can be named."""

    def __init__(self, checkpoint: Checkpoint, prefixes: Mapping[str, str]) -> None:
        """Takes a checkpoint and what its names begin with -> what they are to begin with."""
        self.checkpoint = checkpoint
        self._stored_names = {_renamed(name, prefixes): name for name in checkpoint}
        self._used: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._stored_names

    def weight(self, name: str, shape: tuple[int, ...]) -> Weight:
        """A weight of the expected shape.

        Raises:
            ModelNotFoundError: the checkpoint has no such tensor.
            ModelLoadError: it has another shape, or no floats.
        """
        stored_name = self._stored_names.get(name)
        if stored_name is None:
            raise ModelNotFoundError(f"{self._where()} has no tensor {name!r}")
        self._used.add(name)
        stored = self.checkpoint[stored_name]
        if stored.shape != shape:
            raise ModelLoadError(
                f"{stored.path}: tensor {stored_name!r} has shape {stored.shape}; config.json makes that {shape}"
            )
        type = _TYPES.get(stored.dtype)
        if type is None:
            raise ModelLoadError(
                f"{stored.path}: tensor {stored_name!r} is of type {stored.dtype}, and config.json does not say how it "
                f"is quantised; {', '.join(_TYPES)} were expected"
            )
        return Plain(self.checkpoint.array(stored_name), type)

    def is_same(self, name: str, other: str) -> bool:
        """Whether two tensors hold the same bytes; marks the first as used if they do."""
        first, second = (self._stored_names.get(each) for each in (name, other))
        if first is None or second is None:
            return False
        arrays = self.checkpoint.array(first), self.checkpoint.array(second)
        same = arrays[0].dtype == arrays[1].dtype and np.array_equal(_bits(arrays[0]), _bits(arrays[1]))
        if same:
            self._used.add(name)
        return same

    def unused(self) -> list[str]:
        """Names of the tensors that nobody asked for."""
        return [name for name in self._stored_names if name not in self._used]

    def _where(self) -> str:
        files = self.checkpoint.files
        return str(files[0]) if len(files) == 1 else f"none of the {len(files)} files of {files[0].parent}"


def _bits(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return array.reshape(-1).view(np.uint8)  # NaN equals itself, and memory is saved


def _renamed(name: str, prefixes: Mapping[str, str]) -> str:
    for old, new in prefixes.items():
        if name.startswith(old):
            return new + name[len(old) :]
    return name
