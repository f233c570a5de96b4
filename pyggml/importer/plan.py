"""Plan of an import: the contents of a GGUF file, before any tensor data is read."""

from __future__ import annotations

import contextlib
import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyggml.errors import InferError, UnsupportedArchitectureError
from pyggml.families import CLASSIFIER, SCORED_TOKENS, SECOND_TEXT, Layout, Sizes, Tensor
from pyggml.files.config import Config, read_config
from pyggml.files.model_files import ModelFiles
from pyggml.files.weights import Plain, Stacked, Weight
from pyggml.importer.hyperparameters import NO_OUTPUT, UNTIED, Hyperparameters, read_hyperparameters
from pyggml.importer.layouts import layout_of
from pyggml.importer.recommended_sampling import RecommendedSampling, read_sampling
from pyggml.importer.safetensors import Checkpoint
from pyggml.importer.schemes import IGNORED, Scheme, scheme_of
from pyggml.importer.sentence_transformers import (
    ModelFacts,
    SentenceTransformer,
    embedding_of,
    read_sentence_transformer,
)
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
        is_float: True if every output type keeps it as F32.
    """

    name: str
    shape: tuple[int, ...]
    weight: Weight
    is_float: bool


@dataclass(frozen=True)
class ImportPlan:
    """The contents of a GGUF file, except the vocabulary and the tensors' types.

    Attributes:
        config: the language model's configuration.
        metadata: all metadata except the vocabulary.
        tensors: the tensors in the order of writing.
        checkpoint: the source of the tensors.
        notes: differences between the model and the engine's results that users should know.
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


#: Switch of a model -> the note on it.
_NOTES = {
    NO_OUTPUT: "the checkpoint has no output layer, as usual for embedding models: the model embeds texts, but "
    "generates meaningless text",
    UNTIED: "config.json says tie_word_embeddings, but the checkpoint stores an lm_head.weight that differs from the "
    "embedding: the model computes with lm_head.weight, as transformers 5 does",
}

#: Called with the kind of problem ("tensor", "leftover" for unused tensors, or "setting") and the error.
OnProblem = Callable[[str, InferError], None]


def read_plan(files: ModelFiles) -> ImportPlan:
    """Read a directory and check that all of it can be converted.

    Raises:
        ModelNotFoundError: a file or a tensor is missing.
        ModelLoadError: a file is broken, or two contradict each other.
        UnsupportedArchitectureError: the engine cannot run this model correctly.
    """
    config = read_config(files)
    return plan_import(
        config,
        layout_of(config),
        scheme_of(config),
        Checkpoint(files),
        read_sampling(files.path),
        read_sentence_transformer(files.path),
    )


def plan_import(
    config: Config,
    layout: Layout,
    scheme: Scheme | None,
    checkpoint: Checkpoint,
    sampling: RecommendedSampling,
    sentence_transformer: SentenceTransformer,
    on_problem: OnProblem | None = None,
    tensors_of: type[Tensors] = Tensors,
) -> ImportPlan:
    """Plan the import of a directory whose files have been read.

    Args:
        config: the directory's configuration.
        layout: the layout of the checkpoint.
        scheme: the quantization of the weights; None: none, unless the language model's section names one.
        checkpoint: the headers of the weights.
        sampling: the recommended sampling parameters.
        sentence_transformer: the files of sentence-transformers.
        on_problem: called with each problem of a tensor or a setting, which is then left out. None: raise the first.
        tensors_of: the class that reads the tensors.
    """
    has_own_code = bool(config.get("auto_map"))
    if sentence_transformer.scored_tokens:
        config = config.with_values({**config.values, SCORED_TOKENS: list(sentence_transformer.scored_tokens)})
    config, reference = language_model_of(config, layout)
    # In a multimodal model, some tools write quantization_config around the language model's section, and some into it.
    tensors = tensors_of(checkpoint, layout, scheme or scheme_of(config))
    hyperparameters = read_hyperparameters(config, layout, reference, tensors)
    with _reporting_to("setting", on_problem):
        config.require_all_known(reference.keys)
    embedding = embedding_of(sentence_transformer, _facts(config, layout, hyperparameters))
    planned = list(_plan_tensors(layout, hyperparameters, tensors, on_problem))
    planned += [
        PlannedTensor(name, weight.shape, Plain(weight, GGMLType.F32), False)
        for name, weight in embedding.tensors.items()
    ]
    with _reporting_to("leftover", on_problem):
        _require_all_used(tensors, layout)
    sizes = hyperparameters.sizes
    return ImportPlan(
        layout=layout,
        config=config,
        sizes=sizes,
        metadata={
            **_metadata(_name(config), layout, hyperparameters),
            **sampling.metadata,
            **embedding.metadata(layout.architecture),
        },
        tensors=planned,
        checkpoint=checkpoint,
        notes=(
            *hyperparameters.rope.notes,
            *(note for switch, note in _NOTES.items() if switch in sizes.flags),
            *sampling.notes,
            *embedding.notes,
        ),
        ignored=tuple(config.ignored),
        has_own_code=has_own_code,
    )


def _facts(config: Config, layout: Layout, hyperparameters: Hyperparameters) -> ModelFacts:
    sizes, limit = hyperparameters.sizes, hyperparameters.context_limit
    return ModelFacts(
        n_embd=sizes.n_embd,
        n_ctx=hyperparameters.n_ctx_train if limit is None else min(hyperparameters.n_ctx_train, limit),
        is_encoder=layout.is_encoder,
        is_reranker=CLASSIFIER in sizes.flags,
        computes_dense=layout.computes_dense,
        gives_probabilities=layout.gives_probabilities,
        second_text_ids=sizes.own.get(SECOND_TEXT),
        config=config.values,
    )


def as_stored(plan: ImportPlan) -> ImportPlan:
    """Return the plan for weights as the checkpoint stores them, with tensors for the factors that their types lack."""
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
def _reporting_to(what: str, on_problem: OnProblem | None) -> Iterator[None]:
    try:
        yield
    except InferError as error:
        if on_problem is None:
            raise
        on_problem(what, error)


def _metadata(name: str, layout: Layout, hyperparameters: Hyperparameters) -> dict[str, Any]:
    context_limit = hyperparameters.context_limit
    return {
        "general.architecture": layout.architecture,
        "general.type": "model",
        "general.name": name,
        "general.quantization_version": 2,
        **{_key(layout, name): value for name, value in hyperparameters.metadata.items()},
        **({} if context_limit is None else {CONTEXT_LIMIT: context_limit}),
    }


def _key(layout: Layout, name: str) -> str:
    """The key of a hyper-parameter: the vocabulary's have no prefix of the architecture."""
    return name if name.startswith("tokenizer.") else f"{layout.architecture}.{name}"


def _name(config: Config) -> str:
    """The model's name from its configuration, or from its directory."""
    given = config.values.get("_name_or_path")
    if isinstance(given, str) and given.strip("./"):
        return Path(given).name
    return directory_name(config.path.parent)


def directory_name(directory: Path) -> str:
    """Return a directory's name; in the cache of huggingface_hub, the repository's instead of the commit's."""
    path = directory.resolve()
    if path.parent.name == "snapshots":
        return path.parent.parent.name.split("--")[-1]
    return path.name


def _plan_tensors(
    layout: Layout, hyperparameters: Hyperparameters, tensors: Tensors, on_problem: OnProblem | None
) -> Iterator[PlannedTensor]:
    """The tensors outside the blocks, then those of each block: the order that other converters use."""
    sizes = hyperparameters.sizes
    for name, factors in hyperparameters.rope.tensors.items():
        yield PlannedTensor(name, factors.shape, Plain(factors, GGMLType.F32), True)
    outside = [(tensor, 0) for tensor in layout.tensors if "{i}" not in tensor.target]
    inside = [tensor for tensor in layout.tensors if "{i}" in tensor.target]
    blocks = ((tensor, i) for i in range(sizes.n_layer) for tensor in inside)  # lazy: n_layer may be absurdly large
    for tensor, i in itertools.chain(outside, blocks):
        if tensor.exists(sizes, i):
            with _reporting_to("tensor", on_problem):
                yield _plan_tensor(tensor, sizes, tensors, i)


def _plan_tensor(tensor: Tensor, sizes: Sizes, tensors: Tensors, i: int) -> PlannedTensor:
    shape = tuple(sizes.of(name) if isinstance(name, str) else name for name in tensor.shape)
    source = tensor.source.replace("{i}", str(i))
    if tensor.each is None:
        weight = tensors.weight(source, shape, tensor.role, is_transposed=tensor.is_transposed)
    else:
        n = sizes.of(tensor.each)
        weight = Stacked([tensors.weight(source.replace("{e}", str(e)), shape, tensor.role) for e in range(n)])
    if tensor.join is not None and tensor.second is not None:
        weight = tensor.join(weight, tensors.weight(tensor.second, tuple(map(sizes.of, tensor.second_shape)), "other"))
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
