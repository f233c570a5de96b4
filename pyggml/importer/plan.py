"""Plans the contents of a GGUF file from a Hugging Face directory, before any tensor data is read."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyggml.errors import (
    InferError,
    ModelLoadError,
    ModelNotFoundError,
    UnsupportedArchitectureError,
)
from pyggml.families import Layout, Sizes, Tensor
from pyggml.files.config import Config
from pyggml.files.json_file import read_object
from pyggml.files.model_files import CONFIG, PARAMS, ModelFiles
from pyggml.importer.layouts import layout_of
from pyggml.importer.rope import Rope, read_rope
from pyggml.importer.safetensors import Checkpoint
from pyggml.importer.schemes import IGNORED, scheme_of
from pyggml.importer.tensors import Tensors
from pyggml.quant import GGMLType
from pyggml.weights import Plain, Stacked, Weight

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
    """

    layout: Layout
    config: Config
    sizes: Sizes
    metadata: Mapping[str, Any]
    tensors: Sequence[PlannedTensor]
    checkpoint: Checkpoint


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
    scheme = scheme_of(config)  # in a multimodal model, quantization_config stands outside the text section
    config = _of_language_model(config, layout)
    tensors = tensors_of(Checkpoint(files), layout.prefixes, scheme)
    sizes = _read_sizes(config, layout, tensors)
    rope = read_rope(config, layout, sizes)
    metadata = _metadata(files.path, config, layout, sizes, rope)
    planned = list(_planned(layout, sizes, tensors, rope, found))
    with _found("setting", found):
        config.require_all_known()
    with _found("leftover", found):
        _require_all_used(tensors, layout)
    return ImportPlan(layout, config, sizes, metadata, planned, tensors.checkpoint)


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

    Raises:
        ModelNotFoundError: the directory has neither.
        ModelLoadError: the file is broken.
    """
    if files.config is None:
        raise ModelNotFoundError(f"{files.path} has no {CONFIG}")
    values = read_object(files.config)
    return Config(files.config, {**values, "model_type": PARAMS} if files.config.name == PARAMS else values)


def _of_language_model(config: Config, layout: Layout) -> Config:
    if layout.text_config is not None and layout.text_config in config.values:
        section = config.section(layout.text_config)
        if section is None:
            raise config.error(layout.text_config, "an object")
        config = section
    values = config.values if layout.spell is None else layout.spell(config.values)
    given = {key: value for key, value in values.items() if value is not None or key not in layout.defaults}
    return Config(config.path, {**layout.defaults, **given})


def _read_sizes(config: Config, layout: Layout, tensors: Tensors) -> Sizes:
    n_embd, n_head = config.integer("hidden_size"), config.integer("num_attention_heads")
    head_dim = _head_dim(config, layout, n_embd, n_head)
    n_head_kv = config.integer("num_key_value_heads", n_head)
    if n_head % n_head_kv:
        raise ModelLoadError(f"{config.path}: {n_head} attention heads cannot share {n_head_kv} key and value heads")
    flags = {key for key, default in layout.switches.items() if config.flag(key, default)}
    is_written = "tie_word_embeddings" in flags and "lm_head.weight" in tensors
    # As in transformers 5: if both weights are stored and differ, they are not tied, whatever the configuration says.
    if is_written and not tensors.is_same("lm_head.weight", _embedding(layout)):
        flags.remove("tie_word_embeddings")
    return Sizes(
        n_layer=config.integer("num_hidden_layers"),
        n_embd=n_embd,
        n_head=n_head,
        n_head_kv=n_head_kv,
        head_dim=head_dim,
        n_ff=config.integer("intermediate_size"),
        n_vocab=config.integer("vocab_size", tensors.n_rows(_embedding(layout))),
        n_expert=config.integer("num_local_experts") if "num_local_experts" in layout.defaults else 0,
        flags=frozenset(flags),
    )


def _embedding(layout: Layout) -> str:
    return next(tensor.source for tensor in layout.tensors if tensor.target == "token_embd.weight")


def _head_dim(config: Config, layout: Layout, n_embd: int, n_head: int) -> int:
    if config.get("head_dim") is None and n_embd % n_head:
        raise ModelLoadError(f"{config.path}: a width of {n_embd} cannot be divided among {n_head} heads")
    head_dim = config.integer("head_dim", max(n_embd // n_head, 1))
    if head_dim % 2:
        raise ModelLoadError(f"{config.path}: head_dim is {head_dim}; it must be even, because columns rotate in pairs")
    if layout.is_head_dim_fixed and head_dim * n_head != n_embd:
        raise UnsupportedArchitectureError(
            f"{config.path}: {n_head} heads of {head_dim} columns do not add up to the width {n_embd}; the engine "
            f"only supports {layout.name} models in which they do"
        )
    return head_dim


def _metadata(directory: Path, config: Config, layout: Layout, sizes: Sizes, rope: Rope) -> dict[str, Any]:
    for key, allowed in layout.required.items():
        config.require(key, allowed)
    window = _read_window(config, layout, sizes)
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


@dataclass(frozen=True)
class _Window:
    metadata: Mapping[str, Any]
    context_limit: int | None = None


def _read_window(config: Config, layout: Layout, sizes: Sizes) -> _Window:
    if layout.window == "none":
        return _Window({})
    has_window = _layers_with_window(config, sizes)
    if not any(has_window):
        config.get("sliding_window")
        return _Window({})
    width = config.integer("sliding_window")
    if layout.window == "limit":
        return _Window({}, width)
    return _Window({"attention.sliding_window": width, "attention.sliding_window_pattern": has_window})


def _layers_with_window(config: Config, sizes: Sizes) -> list[bool]:
    types, pattern = config.get("layer_types"), config.get("sliding_window_pattern")
    first = config.get("max_window_layers")
    is_on = config.flag("use_sliding_window", True) and config.values.get("sliding_window") is not None
    if types is not None:
        if not isinstance(types, list) or len(types) != sizes.n_layer:
            raise config.error("layer_types", f"a list of {sizes.n_layer}")
        config.require_each("layer_types", ("full_attention", "sliding_attention"))
        return [is_on and each == "sliding_attention" for each in types]
    if pattern is not None:
        every = config.integer("sliding_window_pattern")
        return [is_on and bool((i + 1) % every) for i in range(sizes.n_layer)]
    return [is_on and (first is None or i >= config.integer("max_window_layers")) for i in range(sizes.n_layer)]


def _planned(
    layout: Layout, sizes: Sizes, tensors: Tensors, rope: Rope, found: Found | None
) -> Iterator[PlannedTensor]:
    """The tensors outside the blocks, then those of each block: the order that other converters use."""
    existing = [tensor for tensor in layout.tensors if tensor.exists(sizes)]
    for name, factors in rope.tensors.items():
        yield PlannedTensor(name, factors.shape, Plain(factors, GGMLType.F32), True)
    outside = ((tensor, 0) for tensor in existing if "{i}" not in tensor.target)
    inside = ((tensor, i) for i in range(sizes.n_layer) for tensor in existing if "{i}" in tensor.target)
    for tensor, i in itertools.chain(outside, inside):
        with _found("tensor", found):
            yield _plan_tensor(tensor, sizes, tensors, i)


def _plan_tensor(tensor: Tensor, sizes: Sizes, tensors: Tensors, i: int) -> PlannedTensor:
    shape = tuple(getattr(sizes, name) for name in tensor.shape)
    source = tensor.source.replace("{i}", str(i))
    if tensor.each is None:
        weight = tensors.weight(source, shape)
    else:
        n = getattr(sizes, tensor.each)
        weight = Stacked([tensors.weight(source.replace("{e}", str(e)), shape) for e in range(n)])
        shape = (n, *shape)
    if tensor.transform is not None:
        weight = tensor.transform(weight, sizes)
    return PlannedTensor(tensor.target.replace("{i}", str(i)), shape, weight, tensor.is_float or len(shape) == 1)


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
