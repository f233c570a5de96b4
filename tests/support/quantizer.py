"""Upstream's own quantiser, through the raw binding, and files for it to work on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pyggml import ffi, lib
from pyggml._native.imatrix import Importance, ImportanceMatrix
from pyggml._native.quantization_mix import FILE_TYPES
from pyggml.gguf import GGMLType, GGUFReader, GGUFWriter
from support.checkpoints import family_models, models

N_EMBD = 256  # a row of one block of every type
N_ROWS = 2  # the rules do not look at how many there are


def upstream(src: Path, dst: Path, ftype: str, imatrix: ImportanceMatrix | None = None, **settings: Any) -> bool:
    """Quantises by ``llama_model_quantize``; False when it refuses."""
    params = ffi.new("llama_model_quantize_params *", lib.llama_model_quantize_default_params())
    params.ftype, params.nthread = FILE_TYPES[ftype], 1
    for name, value in settings.items():
        setattr(params, name, value)
    borrowed = []
    if imatrix is not None:
        rows = ffi.new("struct llama_model_imatrix_data[]", len(imatrix.entries) + 1)
        for row, (name, entry) in zip(rows, imatrix.entries.items(), strict=False):
            owned_name, data = ffi.new("char[]", name.encode()), ffi.from_buffer("float[]", entry.weights)
            row.name, row.data, row.size = owned_name, data, len(data)
            borrowed += [owned_name, data]
        params.imatrix = rows
    return lib.llama_model_quantize(str(src).encode(), str(dst).encode(), params) == 0


def write_rows(path: Path, layout: str, *, n_layer: int = 8, **facts: object) -> Path:
    """A model of one of the layouts, as wide as blocks want it, but with a few rows of each matrix only.

    Args:
        path: the file to write.
        layout: of family_models.
        n_layer: blocks.
        facts: hyper-parameters in place of the usual ones, with ``__`` for dots.
    """
    architecture = "llama" if layout == "mixtral" else layout
    size = family_models.Size(n_layer=n_layer, n_embd=N_EMBD, n_ff=N_EMBD)
    vocabulary = family_models.small_vocabulary("<end>")
    whole = family_models.write(path, architecture, vocabulary, layout=layout, size=size)
    metadata = models.metadata_of(whole) | {f"{architecture}.{k.replace('__', '.')}": v for k, v in facts.items()}
    with GGUFReader(whole) as reader:
        weights = {name: np.array(reader.dequantized(name)) for name in reader.tensors}
    return models.write(path, metadata, {name: _few_rows(data) for name, data in weights.items()})


def _few_rows(data: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return np.ascontiguousarray(data[..., :N_ROWS, :]) if data.ndim > 1 else data


def random_imatrix(path: Path, *, without: str = "no tensor") -> ImportanceMatrix:
    """Importances for all matrices of a file but those with ``without`` in their names, one set for each expert."""
    generator = np.random.default_rng(0)
    entries = {}
    with GGUFReader(path) as reader:
        for name, info in reader.tensors.items():
            if len(info.shape) < 2 or without in name:
                continue
            n_experts = info.shape[0] if len(info.shape) == 3 else 1
            sums = generator.chisquare(1, (n_experts, info.shape[-1])).astype(np.float32)
            entries[name] = Importance(sums * 100, np.full(n_experts, 100, np.int64))
    return ImportanceMatrix(entries, ("a text",), 512, 3)


def types_of(path: Path) -> dict[str, GGMLType]:
    """Return the type of each tensor of a file."""
    with GGUFReader(path) as reader:
        return {name: info.type for name, info in reader.tensors.items()}


def write_split(path: Path, prefix: Path, n: int) -> Path:
    """The model of a file in ``n`` files; returns the first."""
    with GGUFReader(path) as reader:
        names = list(reader.tensors)
        for number in range(n):
            part = Path(f"{prefix}-{number + 1:05}-of-{n:05}.gguf")
            with GGUFWriter(part) as writer:
                _declare_split(writer, reader, number, n, len(names))
                for name in names[number::n]:
                    writer.add_tensor(name, reader.tensors[name].shape, reader.tensors[name].type)
                for name in names[number::n]:
                    writer.write_tensor(name, reader.tensor(name))
    return Path(f"{prefix}-00001-of-{n:05}.gguf")


def _declare_split(writer: GGUFWriter, reader: GGUFReader, number: int, n: int, n_tensors: int) -> None:
    split: Mapping[str, object] = {
        "split.no": np.uint16(number),
        "split.count": np.uint16(n),
        "split.tensors.count": np.int32(n_tensors),
    }
    for key, value in {**(reader.metadata if number == 0 else {}), **split}.items():
        writer.set(key, value)
