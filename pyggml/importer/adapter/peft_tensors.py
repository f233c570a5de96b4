"""The tensors of a PEFT adapter: pairs of matrices by module; anything else is refused by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pyggml._core.checks import shown
from pyggml.errors import ModelLoadError, UnsupportedArchitectureError
from pyggml.files.model_files import ModelFiles
from pyggml.importer.safetensors import Checkpoint, StoredTensor

_PREFIX = "base_model.model."
_HALF = re.compile(
    r"(?P<module>.+)\.lora_(?P<embedding>embedding_)?(?P<half>[AB])(?:\.(?!weight$|bias$)[^.]+)?(?:\.weight)?",
    re.DOTALL,
)
_FROZEN = ".base_layer.weight"

_MERGE = "Merge the adapter with peft's merge_and_unload(), and convert the whole model"

#: Parts of the names of other tensors -> what they are.
_OTHERS = {
    "lora_magnitude_vector": "scales the rows of a changed weight (DoRA)",
    ".lora_B.": "is a bias of the adapter's own (lora_bias)",
    "modules_to_save": "belongs to a module that was trained as a whole (modules_to_save)",
    "token_adapter": "replaces the embeddings of some tokens (trainable_token_indices)",
    ".bias": "is a trained bias",
    "norm": "is a trained norm",
    "embed": "is an embedding that was trained as a whole, such as for new tokens",
    "lm_head": "is an output layer that was trained as a whole, such as for new tokens",
}

_TYPES = ("F32", "F16", "BF16", "F64")


@dataclass(frozen=True)
class PeftPair:
    """The matrices of one module.

    Attributes:
        module: its name in the base model, with ``base_layer`` in it for a further parameter of the same module.
        kind: "linear", or "embedding", whose rows are looked up.
        a: (rank, n_in), or (n_experts * rank, n_in) for a parameter of experts; (rank, n_vocab) for an embedding.
        b: (n_out, rank), or (n_out, rank * n_experts).
    """

    module: str
    kind: Literal["linear", "embedding"]
    a: StoredTensor
    b: StoredTensor


@dataclass(frozen=True)
class PeftTensors:
    """The tensors of an adapter.

    Attributes:
        checkpoint: the file.
        pairs: the pairs of matrices.
        frozen: name of a module -> a copy of the base model's own weight of it, which PEFT stores with embeddings.
    """

    checkpoint: Checkpoint
    pairs: tuple[PeftPair, ...]
    frozen: Mapping[str, StoredTensor]


def read_tensors(path: Path) -> PeftTensors:
    """Read the header of an adapter's weights.

    Args:
        path: the safetensors file.

    Raises:
        ModelLoadError: the file is broken, a matrix has no counterpart, or has a shape or type that cannot be.
        UnsupportedArchitectureError: a tensor is more than a low-rank change.
    """
    checkpoint = Checkpoint(ModelFiles(path.parent, "huggingface", "safetensors", (path,)))
    halves: dict[tuple[str, str], dict[str, StoredTensor]] = {}
    frozen: dict[str, StoredTensor] = {}
    for name, tensor in checkpoint.items():
        short = name.removeprefix(_PREFIX)
        match = _HALF.fullmatch(short)
        if match is None:
            if not short.endswith(_FROZEN):
                raise _refusal(path, name)
            frozen[short.removesuffix(_FROZEN)] = tensor
            continue
        key = (match["module"], "embedding" if match["embedding"] else "linear")
        if match["half"] in halves.setdefault(key, {}):
            raise ModelLoadError(f"{path} has two lora_{match['half']} for the module {shown(match['module'])}")
        halves[key][match["half"]] = tensor
    if not halves:
        raise ModelLoadError(f"{path} has no lora_A and lora_B: the adapter changes nothing")
    pairs = tuple(_pair(path, module, kind, found) for (module, kind), found in halves.items())
    return PeftTensors(checkpoint, pairs, frozen)


def _refusal(path: Path, name: str) -> Exception:
    for part, kind in _OTHERS.items():
        if part in name:
            return UnsupportedArchitectureError(
                f"{path}: tensor {shown(name)} {kind}, which a GGUF adapter cannot carry. {_MERGE}"
            )
    return UnsupportedArchitectureError(
        f"{path}: tensor {shown(name)} is neither a lora_A nor a lora_B: pyggml does not know what it does to a model"
    )


def _pair(path: Path, module: str, kind: str, found: Mapping[str, StoredTensor]) -> PeftPair:
    if len(found) < 2:
        there, missing = ("lora_A", "lora_B") if "A" in found else ("lora_B", "lora_A")
        raise ModelLoadError(f"{path}: the module {shown(module)} has a {there}, but no {missing}")
    a, b = found["A"], found["B"]
    for tensor in (a, b):
        if tensor.dtype not in _TYPES:
            raise ModelLoadError(
                f"{path}: tensor {shown(tensor.name)} is of type {tensor.dtype}; adapters are {', '.join(_TYPES)}"
            )
    if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[0] != b.shape[1]:
        raise ModelLoadError(
            f"{path}: the matrices of {shown(module)} do not fit each other: lora_A is {a.shape}, lora_B {b.shape}"
        )
    if 0 in (*a.shape, *b.shape):
        raise ModelLoadError(
            f"{path}: the matrices of {shown(module)} are empty, {a.shape} and {b.shape}: its rank is 0"
        )
    return PeftPair(module, "embedding" if kind == "embedding" else "linear", a, b)
