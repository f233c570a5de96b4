"""Changed importance matrices, of both formats: read and used, or refused by an InferError."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from support.checkpoints import models

import pyggml
from fuzz import damage, gguf_changes, gguf_file
from fuzz.refusal import refused
from pyggml.errors import InferError

MAX_SECONDS = 30.0


class Prepared(NamedTuple):
    """Objects that all cases use."""

    model: Path
    matrix: gguf_file.File
    older: bytes


def prepare(folder: Path) -> Prepared:
    model = models.write_llama(folder / "tiny.gguf")
    matrix = pyggml.compute_imatrix(model, list(range(1, 200)), n_ctx=64)
    matrix.save(folder / "matrix.gguf")
    return Prepared(model, gguf_file.read(folder / "matrix.gguf"), _older(matrix))


def _older(matrix: pyggml.ImportanceMatrix) -> bytes:
    """The same in upstream's older format."""
    entries = b"".join(
        struct.pack(f"<i{len(name)}sii", len(name), name.encode(), 3, each.sums.size)
        + (each.sums.reshape(-1) / 64).astype("<f4").tobytes()
        for name, each in matrix.entries.items()
    )
    return struct.pack("<i", len(matrix.entries)) + entries + struct.pack("<ii4s", 3, 4, b"text")


def make(random: np.random.Generator) -> list[Any]:
    """Of which format, and what becomes of it."""
    n_changes = int(random.choice([1, 2, 3]))
    if random.random() < 0.5:
        return [["gguf", 0], *(["change", gguf_changes.make(random)] for _ in range(n_changes))]
    kinds = [str(random.choice(["bytes", "span", "number"])) for _ in range(n_changes)]
    return [["older", 0], *([kind, int(random.integers(1 << 30))] for kind in kinds)]


def run(prepared: Prepared, parts: list[Any], folder: Path) -> str:
    path = folder / "changed.imatrix"
    path.write_bytes(_gguf(prepared, parts) if ["gguf", 0] in parts else _changed(prepared.older, parts))
    try:
        matrix = pyggml.ImportanceMatrix.load(path)
        for name in matrix.entries:
            matrix.weights(name)
        repr(matrix)
        pyggml.ImportanceMatrix.merged([matrix, matrix]).save(folder / "merged.gguf")
        pyggml.quantize(prepared.model, folder / "out.gguf", "q4_0", imatrix=matrix, n_threads=1)
    except InferError as error:
        return refused(error)
    return "used"


def _gguf(prepared: Prepared, parts: list[Any]) -> bytes:
    tensors = [gguf_file.Tensor(each.name, each.ne, each.type, each.data) for each in prepared.matrix.tensors]
    file = gguf_file.File(list(prepared.matrix.pairs), tensors)
    for change in [what for kind, what in parts if kind == "change"]:
        gguf_changes.apply(file, change)
    return file.content()


def _changed(content: bytes, parts: list[Any]) -> bytes:
    for kind, number in parts:
        random = np.random.default_rng(number)
        if kind == "bytes":
            content = damage.with_changed_bytes(content, random)
        elif kind == "span":
            content = damage.with_changed_span(content, random)
        elif kind == "number" and len(content) > 4:
            at = int(random.integers(len(content) - 4))
            value = int(random.choice([0, 1, -1, 2**31 - 1, -(2**31), 1 << 20]))
            content = content[:at] + struct.pack("<i", value) + content[at + 4 :]
    return content
