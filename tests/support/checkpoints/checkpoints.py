"""Checkpoints as Hugging Face lays them out, good and broken, written from the formats' descriptions alone."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Tensors = Mapping[str, "Array | Stored"]

_NAMES = {"f8": "F64", "f4": "F32", "f2": "F16", "i8": "I64", "i4": "I32", "i2": "I16", "i1": "I8", "u1": "U8"}


class Stored:
    """Bytes under a type that numpy has not: ``Stored("BF16", bits)``."""

    def __init__(self, dtype: str, data: Array) -> None:
        self.dtype = dtype
        self.data = data


def bf16(values: npt.ArrayLike) -> Stored:
    """Values rounded to bfloat16."""
    return Stored("BF16", bf16_bits(values))


def bf16_bits(values: npt.ArrayLike) -> npt.NDArray[np.uint16]:
    """The upper halves of float32 numbers, rounded to nearest, ties to even."""
    bits = np.asarray(values, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def bf16_values(values: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """Values as bfloat16 holds them."""
    return (bf16_bits(values).astype(np.uint32) << 16).view(np.float32)


def widened(stored: Stored) -> npt.NDArray[np.float32]:
    """The values of a bfloat16 tensor."""
    return (np.asarray(stored.data).astype(np.uint32) << 16).view(np.float32)


def drawn(name: str, shape: tuple[int, ...]) -> Array | Stored:
    """Random weights that depend on nothing but name and shape: norms near 1, matrices that keep their input's size.

    Names that end as those of MXFP4 get its bytes: pairs of 4-bit floats, and exponents.
    """
    if name.endswith(("_blocks", "_scales")):
        low, high = (0, 256) if name.endswith("_blocks") else (121, 124)
        return np.random.default_rng(zlib.crc32(name.encode())).integers(low, high, shape, np.uint8)
    noise = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(shape)
    if len(shape) == 1:
        return bf16(0.1 * noise + (0 if name.endswith("bias") else 1))
    return bf16(noise * (1.0 if "embed" in name else 1.5 * shape[-1] ** -0.5))


def header(tensors: Tensors) -> dict[str, dict[str, Any]]:
    """Return the header of a file with these tensors."""
    entries: dict[str, dict[str, Any]] = {}
    offset = 0
    for name, tensor in tensors.items():
        stored = _stored(tensor)
        end = offset + stored.data.nbytes
        entries[name] = {"dtype": stored.dtype, "shape": list(stored.data.shape), "data_offsets": [offset, end]}
        offset = end
    return entries


def data(tensors: Tensors) -> bytes:
    """The bytes after the header."""
    return b"".join(np.ascontiguousarray(_stored(tensor).data).tobytes() for tensor in tensors.values())


def file(entries: object, body: bytes, n_header: int | None = None) -> bytes:
    """A safetensors file; ``n_header`` is the length its header claims to have."""
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return (len(text) if n_header is None else n_header).to_bytes(8, "little") + text + body


def write(path: Path, tensors: Tensors) -> Path:
    """A file of these tensors."""
    path.write_bytes(file({"__metadata__": {"format": "pt"}, **header(tensors)}, data(tensors)))
    return path


def write_shards(directory: Path, tensors: Tensors, n: int) -> None:
    """Write these tensors to ``n`` files with an index."""
    names = list(tensors)
    weight_map: dict[str, str] = {}
    for i in range(n):
        shard = f"model-{i + 1:05}-of-{n:05}.safetensors"
        mine = {name: tensors[name] for name in names[i::n]}
        write(directory / shard, mine)
        weight_map |= dict.fromkeys(mine, shard)
    (directory / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def _stored(tensor: Array | Stored) -> Stored:
    return tensor if isinstance(tensor, Stored) else Stored(_NAMES[tensor.dtype.str[1:]], tensor)
