"""GGUF headers for memory planning: without the vocabulary, for weights converted to any type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pyggml._native import quantization_mix
from pyggml._native.quantization_mix import FILE_TYPES, TensorToQuantize
from pyggml.files.model_files import ModelFiles
from pyggml.gguf import GGUFReader, GGUFWriter
from pyggml.importer.encoding import choose_types, require_outtype
from pyggml.importer.plan import as_stored, read_plan
from pyggml.quant import GGMLType


@dataclass(frozen=True)
class Tensor:
    """Name, shape (with the row length last) and type of a tensor."""

    name: str
    shape: tuple[int, ...]
    type: GGMLType


@dataclass(frozen=True)
class GGUFHeader:
    """The header of a GGUF file.

    Attributes:
        metadata: the metadata, without the vocabulary.
        tensors: the tensors, in the file's order.
    """

    metadata: Mapping[str, Any]
    tensors: Sequence[Tensor]

    def write(self, target: Path) -> None:
        """Write a file with this header and sparse data, which needs no disk space."""
        with GGUFWriter(target) as writer:
            for key, value in self.metadata.items():
                writer.set(key, value)
            for tensor in self.tensors:
                writer.add_tensor(tensor.name, tensor.shape, tensor.type)
            writer.finish_without_data()


def build_header(files: ModelFiles, outtype: str) -> GGUFHeader:
    """Build the header of a model with its weights converted to a type.

    Raises:
        As :func:`pyggml.convert`, except for tokenizers.
    """
    return _directory_header(files, outtype) if files.format == "huggingface" else _gguf_header(files, outtype)


def _directory_header(files: ModelFiles, outtype: str) -> GGUFHeader:
    plan = as_stored(read_plan(files)) if outtype == "auto" else read_plan(files)
    types, file_type = choose_types(require_outtype(outtype), plan.layout, plan.sizes, plan.tensors)
    metadata = {**plan.metadata, "general.file_type": file_type}
    tensors = [Tensor(tensor.name, tensor.shape, type) for tensor, type in zip(plan.tensors, types, strict=True)]
    return GGUFHeader({key: value for key, value in metadata.items() if not _is_empty(value)}, tensors)


def _gguf_header(files: ModelFiles, outtype: str) -> GGUFHeader:
    metadata: dict[str, Any] = {}
    tensors: list[Tensor] = []
    for part in files.files:
        with GGUFReader(part, header_only=True) as reader:
            pairs = reader.metadata
            metadata |= {key: pairs[key] for key in pairs if not _is_omitted(key, metadata)}
            tensors += [Tensor(info.name, info.shape, info.type) for info in reader.tensors.values()]
    file_type = FILE_TYPES[require_outtype(outtype)]
    metadata = {key: value for key, value in metadata.items() if not _is_empty(value)}
    return GGUFHeader({**metadata, "general.file_type": file_type}, _quantized(files.path, tensors, file_type))


def _is_omitted(key: str, known: Mapping[str, Any]) -> bool:
    return key.startswith(("tokenizer.", "split.")) or key == "general.alignment" or key in known


def _is_empty(value: Any) -> bool:
    return isinstance(value, (list, tuple, np.ndarray)) and len(value) == 0


def _quantized(path: Path, tensors: Sequence[Tensor], file_type: int) -> list[Tensor]:
    """Return the tensors with the types that the engine's quantiser would choose."""
    floats = [
        TensorToQuantize(tensor.name, tensor.shape, GGMLType.F16 if tensor.type.is_quantized else tensor.type)
        for tensor in tensors
    ]
    choices = quantization_mix.types_for_file(path, file_type, floats, has_imatrix=False)
    return [Tensor(tensor.name, tensor.shape, choice.type) for tensor, choice in zip(tensors, choices, strict=True)]
