"""Plans the contents of a GGUF file from a Hugging Face directory, before any tensor data is read."""

from __future__ import annotations

import contextlib
import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyggml.errors import (
    InferError,
    ModelNotFoundError,
    UnsupportedArchitectureError,
)
from pyggml.families import Layout, Sizes, Tensor
from pyggml.files.config import Config
from pyggml.files.json_file import read_object
from pyggml.files.model_files import CONFIG, PARAMS, QUANTIZATION, ModelFiles
from pyggml.files.weights import Plain, Stacked, Weight
from pyggml.importer.hyperparameters import NO_OUTPUT, read_sizes
from pyggml.importer.layouts import layout_of
from pyggml.importer.recommended_sampling import read_sampling
from pyggml.importer.rope import Rope, read_rope
from pyggml.importer.safetensors import Checkpoint
from pyggml.importer.schemes import IGNORED, scheme_of
from pyggml.importer.sliding_window import read_window
from pyggml.importer.tensors import Tensors
from pyggml.importer.transformers_keys import language_model_of
from pyggml.quant import GGMLType

#: pyggml's own metadata key: the context length beyond which the engine's results would differ from the model's.
CONTEXT_LIMIT = "pyggml.context_limit"


@dataclass(frozen=True)
class PlannedTensor:
    """A tensor to write.

    Attributes:
        name: its name in the GGUF file.
        shape: its shape, columns last.
        weight: its data.
        is_float: whether every output type keeps it as F32.
    """

    name: str
    shape: tuple[int, ...]
    weight: Weight
    is_float: bool


@dataclass(frozen=True)
class ImportPlan:
    """What to write, except the vocabulary and the tensors' types.

    Attributes:
        layout: the model's layout.
        config: the language model's configuration.
        sizes: the language model's sizes.
        metadata: all metadata except the vocabulary.
        tensors: the tensors in the order of writing.
        checkpoint: the source of the tensors.
        notes: what users should know about the model in the engine.
        ignored: keys of the configuration that were ignored, because transformers does not know them.
        has_own_code: whether Python code comes with the model, which transformers can run instead of its own.
    """

    layout: Layout
    config: Config
    sizes: Sizes
    metadata: Mapping[str, Any]
    tensors: Sequence[PlannedTensor]
    checkpoint: Checkpoint
    notes: tuple[str, ...] = ()
    ignored: Sequence[str] = ()
    has_own_code: bool = False


_NO_OUTPUT = (
    "the checkpoint ends before the output layer, as those of models for embeddings do: the model embeds texts, but "
    "what it would generate means nothing"
)

#: Called with the kind of problem ("tensor", "leftover" for unused tensors, or "setting") and the error.
Found = Callable[[str, InferError], None]


def read_plan(files: ModelFiles, found: Found | None = None, tensors_of: type[Tensors] = Tensors) -> ImportPlan:
    """Reads a directory and checks that all of it can be converted.

    Args:
        files: the directory.
        found: called with each problem with a tensor or a setting, which is then left out. None: the first problem is
            raised.
        tensors_of: the class that reads the tensors.

    Raises:
        ModelNotFoundError: a file or a tensor is missing.
        ModelLoadError: a file is broken, or two contradict each other.
        UnsupportedArchitectureError: the engine cannot run this model correctly.
    """
    config = read_config(files)
    layout = layout_of(config)
    has_own_code = bool(config.get("auto_map"))
    scheme = scheme_of(config)
    config, reference = language_model_of(config, layout)
    # In a multimodal model, some tools write quantization_config around the language model's section, and some into it.
    tensors = tensors_of(Checkpoint(files), layout.renamed, scheme or scheme_of(config))
    sizes = read_sizes(config, layout, tensors)
    rope = read_rope(config, layout, sizes, reference)
    sampling, sampling_notes = read_sampling(files.path)
    metadata = _metadata(files.path, config, layout, sizes, rope) | sampling
    planned = list(_planned(layout, sizes, tensors, rope, found))
    with _found("setting", found):
        config.require_all_known(reference.keys)
    with _found("leftover", found):
        _require_all_used(tensors, layout)
    source = tensors.checkpoint
    ignored = tuple(config.ignored)
    notes = (*rope.notes, *([_NO_OUTPUT] if NO_OUTPUT in sizes.flags else []), *sampling_notes)
    return ImportPlan(layout, config, sizes, metadata, planned, source, notes, ignored, has_own_code)


def as_stored(plan: ImportPlan) -> ImportPlan:
    """The plan for weights as the checkpoint stores them: with tensors for the factors that their types lack."""
    tensors: list[PlannedTensor] = []
    for tensor in plan.tensors:
        stem, factored = tensor.name.removesuffix(".weight"), tensor.weight.factored
        if factored is None or factored.factors is None or stem.rpartition(".")[2] not in plan.layout.factors:
            tensors.append(tensor)
            continue
        factors = Plain(factored.factors, GGMLType.F32)
        tensors.append(replace(tensor, weight=factored))
        tensors.append(PlannedTensor(f"{stem}.scale", factored.factors.shape, factors, True))
    return replace(plan, tensors=tensors)


@contextlib.contextmanager
def _found(what: str, found: Found | None) -> Iterator[None]:
    try:
        yield
    except InferError as error:
        if found is None:
            raise
        found(what, error)


def read_config(files: ModelFiles) -> Config:
    """Reads a directory's ``config.json``, or its ``params.json``, whose file name then serves as the model type.

    A ``quantization_config`` that stands in a file of its own is part of the result.

    Raises:
        ModelNotFoundError: the directory has neither.
        ModelLoadError: the file is broken.
    """
    if files.config is None:
        raise ModelNotFoundError(f"{files.path} has no {CONFIG}")
    values = read_object(files.config)
    if files.config.name == PARAMS:
        values["model_type"] = PARAMS
    elsewhere = read_object(files.path / QUANTIZATION).get("quantization")
    if isinstance(elsewhere, dict) and values.get("quantization_config") is None:
        values["quantization_config"] = {"quant_method": "modelopt", **elsewhere}
    return Config(files.config, values)


def _metadata(directory: Path, config: Config, layout: Layout, sizes: Sizes, rope: Rope) -> dict[str, Any]:
    for key, allowed in layout.required.items():
        config.require(key, allowed)
    window = read_window(config, layout, sizes)
    n_ctx = config.integer("max_position_embeddings")
    limits = [limit for limit in (rope.context_limit, window.context_limit) if limit is not None]
    own: dict[str, Any] = {
        "vocab_size": sizes.n_vocab,
        "context_length": min([n_ctx, *limits]),
        "embedding_length": sizes.n_embd,
        "block_count": sizes.n_layer,
        "feed_forward_length": sizes.n_ff,
        "attention.head_count": sizes.n_head,
        "attention.head_count_kv": sizes.n_head_kv,
        "attention.key_length": sizes.head_dim,
        "attention.value_length": sizes.head_dim,
        _EPSILONS[layout.norm]: config.number(layout.norm_eps, 1e-6 if layout.norm == "rms" else 1e-5),
        **rope.metadata,
        **window.metadata,
        **({} if layout.extra is None else layout.extra(config, sizes)),
    }
    if sizes.n_expert:
        own |= {"expert_count": sizes.n_expert, "expert_used_count": config.integer("num_experts_per_tok")}
    return {
        "general.architecture": layout.architecture,
        "general.type": "model",
        "general.name": _name(directory, config),
        "general.quantization_version": 2,
        **{f"{layout.architecture}.{key}": value for key, value in own.items()},
        **({CONTEXT_LIMIT: min(limits)} if limits else {}),
    }


_EPSILONS = {"rms": "attention.layer_norm_rms_epsilon", "layer": "attention.layer_norm_epsilon"}


def _name(directory: Path, config: Config) -> str:
    """The model's name from its configuration, or from its directory."""
    given = config.values.get("_name_or_path")
    if isinstance(given, str) and given.strip("./"):
        return Path(given).name
    return place_name(directory)


def place_name(directory: Path) -> str:
    """A directory's name; in the cache of huggingface_hub that is the repository's, not the commit's."""
    path = directory.resolve()
    if path.parent.name == "snapshots":
        return path.parent.parent.name.split("--")[-1]
    return path.name


def _planned(
    layout: Layout, sizes: Sizes, tensors: Tensors, rope: Rope, found: Found | None
) -> Iterator[PlannedTensor]:
    """The tensors outside the blocks, then those of each block: the order that other converters use."""
    for name, factors in rope.tensors.items():
        yield PlannedTensor(name, factors.shape, Plain(factors, GGMLType.F32), True)
    outside = [tensor for tensor in layout.tensors if "{i}" not in tensor.target]
    inside = [tensor for tensor in layout.tensors if "{i}" in tensor.target]
    for tensor, i in itertools.chain(
        ((tensor, 0) for tensor in outside), ((tensor, i) for i in range(sizes.n_layer) for tensor in inside)
    ):
        if tensor.exists(sizes, i):
            with _found("tensor", found):
                yield _plan_tensor(tensor, sizes, tensors, i)


def _plan_tensor(tensor: Tensor, sizes: Sizes, tensors: Tensors, i: int) -> PlannedTensor:
    shape = tuple(sizes.of(name) if isinstance(name, str) else name for name in tensor.shape)
    source = tensor.source.replace("{i}", str(i))
    if tensor.each is None:
        weight = tensors.weight(source, shape, tensor.role, is_transposed=tensor.is_transposed)
    else:
        n = sizes.of(tensor.each)
        weight = Stacked([tensors.weight(source.replace("{e}", str(e)), shape, tensor.role) for e in range(n)])
    if tensor.transform is not None:
        weight = tensor.transform(weight, sizes)
    shape = _written_shape(tensor, sizes, weight)
    return PlannedTensor(tensor.target.replace("{i}", str(i)), shape, weight, tensor.is_float or len(shape) == 1)


def _written_shape(tensor: Tensor, sizes: Sizes, weight: Weight) -> tuple[int, ...]:
    """The shape in the GGUF file, whose last dimensions are the weight's: a transform may leave out rows or columns."""
    names = [name for name in tensor.shape if isinstance(name, str)]
    stacked = [*([] if tensor.each is None else [tensor.each]), *names[:-2]]
    stacks = tuple(map(sizes.of, stacked))
    n_rows = weight.n_rows // math.prod(stacks)
    return (*stacks, n_rows * weight.n_cols) if len(names) == 1 else (*stacks, n_rows, weight.n_cols)


def _require_all_used(tensors: Tensors, layout: Layout) -> None:
    unknown = [name for name in tensors.unused() if not layout.is_ignored(name) and not re.fullmatch(IGNORED, name)]
    if unknown:
        listed = ", ".join(f"{name!r:.100}" for name in sorted(unknown, key=_natural)[:5])
        raise UnsupportedArchitectureError(
            f"{tensors.checkpoint.files[0].parent} holds {len(unknown)} tensors that {layout.name} models with this "
            f"configuration do not have, such as {listed}"
        )


def _natural(name: str) -> list[Any]:
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]
