"""Copies of the base model's own weights, which PEFT stores with adapters of embeddings: compared, and left out."""

from __future__ import annotations

import numpy as np

from pyggml._core.checks import shown
from pyggml.errors import ArchitectureMismatchError
from pyggml.files.weights import widen
from pyggml.gguf import GGMLType
from pyggml.importer.adapter.base_model import BaseModel
from pyggml.importer.adapter.peft_tensors import PeftTensors
from pyggml.importer.adapter.targets import Target
from pyggml.importer.safetensors import StoredTensor

# Twice the rounding of bfloat16: either may have been stored with 16 bits meanwhile.
_ROUNDING = 2.0**-7
_TINY = 1e-6  # the smallest numbers of float16 are rounded more
_CHUNK = 2**20

_FLOATS = (GGMLType.F32, GGMLType.F16, GGMLType.BF16)

_OTHER_TOKENS = "the adapter was made for a model with other tokens"


def note_on(stored: StoredTensor, target: Target | None, tensors: PeftTensors, base: BaseModel) -> str:
    """Return a note on the copy of a weight that was left out, after comparing it with the base model's.

    Args:
        stored: the copy.
        target: the weight; None: the adapter changes no such weight.
        tensors: the adapter.
        base: the base model.

    Raises:
        ArchitectureMismatchError: the base model has another weight, so it is not the one that was trained.
    """
    if target is None or stored.shape != target.shape:
        where = "" if target is None else f", and that of {base.path} is {target.shape}"
        raise ArchitectureMismatchError(
            f"{stored.path}: tensor {shown(stored.name)} is a base model's weight of shape {stored.shape}{where}: "
            f"{_OTHER_TOKENS}"
        )
    weight = base.weights[target.name]
    is_reordered = target.rule is not None and target.rule.transform is not None
    if is_reordered or weight.type not in _FLOATS:
        return f"{stored.name} was left out, and could not be compared with the base model's own weight"
    array, type = tensors.checkpoint.array(stored.name), GGMLType.BF16 if stored.dtype == "BF16" else GGMLType.F32
    step = max(_CHUNK // weight.n_cols, 1)
    for rows in (slice(start, min(start + step, len(array))) for start in range(0, len(array), step)):
        copy, values = widen(array[rows], type), weight.floats(rows)
        if not (np.abs(copy - values) <= _ROUNDING * np.abs(values) + _TINY).all():
            raise ArchitectureMismatchError(
                f"{stored.path}: tensor {shown(stored.name)} is a base model's weight, and {base.path} has another: "
                f"{_OTHER_TOKENS}, or it was trained as a whole"
            )
    return f"{stored.name} is a copy of the base model's own weight, and was left out"
