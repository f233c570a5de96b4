"""Dense layers: a folder with a configuration and weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pyggml.errors import ModelLoadError, ModelNotFoundError, UnsupportedArchitectureError
from pyggml.files.json_file import read_object
from pyggml.files.model_files import checkpoint_at, explain_missing_weights
from pyggml.files.weights import widen
from pyggml.importer.safetensors import Checkpoint
from pyggml.importer.sentence_transformers.modules import Module
from pyggml.importer.sentence_transformers.settings import Settings
from pyggml.options.embedding_profile import ACTIVATIONS, Activation, DenseLayer
from pyggml.quant import GGMLType

_TYPES = {"F32": GGMLType.F32, "F16": GGMLType.F16, "BF16": GGMLType.BF16}
#: No such layer has more weights.
_MAX_WEIGHTS = 2**26
# Classes of torch.nn whose names are not those of the functions.
_NAMES = {"swish": "silu"}


@dataclass(frozen=True)
class Dense:
    """A dense layer with its weights.

    Attributes:
        weight: float32, (n_out, n_in).
        bias: float32, (n_out,), if it has one.
        file: its configuration.
    """

    layer: DenseLayer
    weight: npt.NDArray[np.float32]
    bias: npt.NDArray[np.float32] | None
    file: Path

    @property
    def arrays(self) -> Mapping[str, npt.NDArray[np.float32]]:
        """Its weights, by their keys in a GGUF file."""
        bias = {} if self.bias is None else {self.layer.bias_key: self.bias}
        return {self.layer.weight_key: self.weight.reshape(-1), **bias}


def read_dense(module: Module, index: int) -> Dense:
    """Read a dense module.

    Args:
        module: the module.
        index: its number among the dense layers.

    Raises:
        ModelNotFoundError: a file or a tensor is missing.
        ModelLoadError: a file is damaged.
        UnsupportedArchitectureError: it cannot be computed.
    """
    file = module.folder / "config.json"
    if not file.is_file():
        raise ModelNotFoundError(f"{file} is missing; {module.file.name} names it")
    settings = Settings(file, read_object(file))
    layer = _layer(settings, index)
    tensors = _tensors(module.folder)
    weight = _tensor(tensors, "linear.weight", (layer.n_out, layer.n_in))
    bias = _tensor(tensors, "linear.bias", (layer.n_out,)) if layer.has_bias else None
    return Dense(layer, weight, bias, file)


def _layer(settings: Settings, index: int) -> DenseLayer:
    n_in, n_out = settings.count("in_features"), settings.count("out_features")
    if n_in is None or n_out is None:
        raise settings.error("in_features" if n_in is None else "out_features", "a positive integer")
    if n_in * n_out > _MAX_WEIGHTS:
        raise settings.error("out_features", f"at most {_MAX_WEIGHTS // n_in} for {n_in} in_features")
    is_residual = settings.flag("use_residual")
    if is_residual and n_in != n_out:
        raise UnsupportedArchitectureError(
            f"{settings.path}: use_residual with {n_in} in_features and {n_out} out_features is not supported"
        )
    return DenseLayer(index, n_in, n_out, settings.flag("bias", True), _activation(settings), is_residual)


def _activation(settings: Settings) -> Activation:
    """The function; without one, tanh as in sentence-transformers."""
    named = settings.text("activation_function")
    if named is None:
        return "tanh"
    name = named.rpartition(".")[2].lower()
    name = _NAMES.get(name, name)
    if name not in ACTIVATIONS or not named.startswith("torch."):
        raise UnsupportedArchitectureError(
            f"{settings.path}: activation_function is {named!r:.80}; pyggml computes torch's {', '.join(ACTIVATIONS)}"
        )
    return name


def _tensors(folder: Path) -> Checkpoint:
    files = checkpoint_at(folder)
    if files.weights == "none":
        names = [file.name for file in folder.iterdir()]
        raise ModelNotFoundError(explain_missing_weights(str(folder), names) or f"{folder} has no model.safetensors")
    return Checkpoint(files)


def _tensor(tensors: Checkpoint, name: str, shape: tuple[int, ...]) -> Any:
    if name not in tensors:
        raise tensors.no_tensor(name)
    stored = tensors[name]
    stored.require_shape(shape)
    if stored.dtype not in _TYPES:
        raise ModelLoadError(f"{stored.path}: tensor {name!r} is of type {stored.dtype}; expected {', '.join(_TYPES)}")
    return np.array(widen(tensors.array(name), _TYPES[stored.dtype]))
