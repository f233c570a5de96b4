"""The files of sentence-transformers next to a checkpoint, as an embedding profile.

``modules.json`` lists the modules that follow the transformer: pooling, dense layers, normalisation. Settings of the
whole model, such as prompts, are in ``config_sentence_transformers.json``, those of the tokenizer in
``sentence_bert_config.json``. PyLate's files of multi-vector models (ColBERT) are read as well. A module that cannot be
computed is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from pyggml.errors import ModelLoadError, UnsupportedArchitectureError
from pyggml.files.json_file import read_object
from pyggml.importer.sentence_transformers.dense import Dense, read_dense
from pyggml.importer.sentence_transformers.modules import Module, read_modules
from pyggml.importer.sentence_transformers.multi_vector import MultiVector, read_multi_vector
from pyggml.importer.sentence_transformers.pooling import Pool, read_pooling
from pyggml.importer.sentence_transformers.settings import Settings
from pyggml.options.embedding_profile import ACTIVATIONS, SIMILARITIES, Activation, EmbeddingProfile, Similarity

SETTINGS = "config_sentence_transformers.json"
# The names that the settings of the tokenizer have had, as sentence-transformers looks for them.
_KINDS = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
TRANSFORMER_SETTINGS = tuple(f"sentence_{kind}_config.json" for kind in _KINDS)
TOKENIZER_SETTINGS = "tokenizer_config.json"

# Longer limits are transformers' way to say that there is none.
_NO_LIMIT = 2**30


@dataclass(frozen=True)
class SentenceTransformer:
    """The files of sentence-transformers of a directory, checked as far as they can be without the model.

    Attributes:
        has_modules: True if the directory has a ``modules.json``.
        settings: ``config_sentence_transformers.json``.
        transformer: ``sentence_bert_config.json``, or the file that stands for it.
        tokenizer: ``tokenizer_config.json``; read only for embedding models and rerankers.
        pool: the pooling; None: no module for it.
        dense: the dense layers, with weights.
        normalize: True if a module normalises; None: there are no modules.
        multi_vector: the settings of a multi-vector model; None: it is none.
        scored_tokens: ids of the tokens whose logits after a pair score it: the first's less the second's; empty: none.
    """

    path: Path
    has_modules: bool
    settings: Settings
    transformer: Settings
    pool: Pool | None = None
    dense: tuple[Dense, ...] = ()
    normalize: bool | None = None
    multi_vector: MultiVector | None = None
    scored_tokens: tuple[int, ...] = ()


@dataclass(frozen=True)
class Embedding:
    """Settings of a directory's files for embedding, for the GGUF file.

    Attributes:
        profile: the profile.
        arrays: the weights of its dense layers, by key.
        tensors: dense layers that the engine computes, by name: float32, (n_out, n_in).
        settings: metadata on them, without the architecture's prefix.
        notes: differences that users should know.
    """

    profile: EmbeddingProfile
    arrays: Mapping[str, npt.NDArray[np.float32]] = field(default_factory=dict)
    tensors: Mapping[str, npt.NDArray[np.float32]] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def metadata(self, architecture: str) -> dict[str, Any]:
        """Return the keys of a GGUF file of this architecture."""
        engine = {f"{architecture}.{key}": value for key, value in self.settings.items()}
        return {**engine, **self.profile.metadata(architecture), **self.arrays}


@dataclass(frozen=True)
class ModelFacts:
    """Facts about a model that its profile depends on.

    Attributes:
        n_embd: width of its token vectors.
        n_ctx: its context length.
        is_encoder: True if it only embeds.
        is_reranker: True if it scores pairs.
        computes_dense: True if the engine computes two dense layers after the pooling.
        gives_probabilities: True if the engine's scores of a reranker are probabilities.
        second_text_ids: as in the profile.
        config: its ``config.json``.
    """

    n_embd: int
    n_ctx: int
    is_encoder: bool
    is_reranker: bool
    computes_dense: bool
    gives_probabilities: bool
    second_text_ids: int | None
    config: Mapping[str, Any]


def read_sentence_transformer(directory: Path) -> SentenceTransformer:
    """Read the files of a directory.

    Raises:
        ModelLoadError: a file is damaged, or contradicts itself.
        UnsupportedArchitectureError: a module cannot be computed.
        ModelNotFoundError: a module's file is missing.
    """
    settings = _settings(directory / SETTINGS)
    modules = read_modules(directory)
    found = next((name for name in TRANSFORMER_SETTINGS if (directory / name).is_file()), TRANSFORMER_SETTINGS[0])
    transformer = _settings(directory / found)
    if modules is None:
        return SentenceTransformer(directory, has_modules=False, settings=settings, transformer=transformer)
    multi_vector = read_multi_vector(directory, modules, settings, transformer)
    pool = next((read_pooling(module) for module in modules if module.kind == "Pooling"), None)
    if pool is not None and multi_vector is not None:
        raise UnsupportedArchitectureError(f"{modules[0].file}: a multi-vector model with pooling is not supported")
    dense = tuple(
        read_dense(module, index) for index, module in enumerate(each for each in modules if each.kind == "Dense")
    )
    normalize = any(module.kind == "Normalize" for module in modules) or (
        multi_vector is not None and multi_vector.normalizes
    )
    scored = next((_scored_tokens(module) for module in modules if module.kind == "LogitScore"), ())
    return SentenceTransformer(directory, True, settings, transformer, pool, dense, normalize, multi_vector, scored)


def _scored_tokens(module: Module) -> tuple[int, ...]:
    """Read the ids of a module that scores a pair by the logits of two tokens, such as "yes" and "no"."""
    settings = _settings(module.folder / "config.json")
    ids = [settings.values.get(key) for key in ("true_token_id", "false_token_id")]
    if not all(type(each) is int and 0 <= each < 2**31 for each in ids):
        raise UnsupportedArchitectureError(
            f"{settings.path}: true_token_id and false_token_id are {ids!r:.80}; pyggml computes the difference of two"
        )
    return tuple(each for each in ids if each is not None)


def _settings(path: Path) -> Settings:
    return Settings(path, read_object(path))


def embedding_of(files: SentenceTransformer, facts: ModelFacts) -> Embedding:
    """Return the profile of a model, and what it needs in the GGUF file.

    Raises:
        ModelLoadError: the files contradict the model.
    """
    if not (files.has_modules or facts.is_encoder or facts.is_reranker):
        return Embedding(EmbeddingProfile())  # a model that generates
    if files.scored_tokens and not facts.is_reranker:
        raise UnsupportedArchitectureError(
            f"{files.path}: the module LogitScore is not supported for {facts.config.get('model_type')!r:.80} models"
        )
    _require_widths(files, facts)
    prompts = files.settings.texts("prompts")
    default_prompt = files.settings.text("default_prompt_name")
    if default_prompt is not None and default_prompt not in prompts:
        raise files.settings.error("default_prompt_name", "the name of one of the prompts")
    multi = files.multi_vector
    similarity, notes = _similarity(files.settings)
    profile = EmbeddingProfile(
        pooling=() if files.pool is None or facts.is_reranker else files.pool.kinds,
        is_multi_vector=multi is not None,
        normalize=None if facts.is_reranker else files.normalize,
        max_tokens=_max_tokens(files, facts),
        lowercase=files.transformer.flag("do_lower_case"),
        prompts={**({} if multi is None else multi.prompts), **prompts},
        default_prompt=default_prompt,
        include_prompt=files.pool is None or files.pool.include_prompt,
        similarity="maxsim" if multi is not None else similarity,
        dimensions=_dimensions(files, facts),
        score_activation=_score_activation(files, facts) if facts.is_reranker else None,
        second_text_ids=facts.second_text_ids,
        query_tokens=None if multi is None else multi.query_tokens,
        expansion_token=None if multi is None else multi.expansion_token,
        skipped_tokens=() if multi is None else multi.skipped_tokens,
    )
    notes = (*notes, *(() if multi is None else multi.notes))
    return _with_dense(Embedding(profile, notes=notes), files, facts)


def _with_dense(embedding: Embedding, files: SentenceTransformer, facts: ModelFacts) -> Embedding:
    """Add the dense layers: to the engine's graph where it has a place for them, else to the profile."""
    dense = files.dense
    if not dense:
        return embedding
    is_plain = all(each.layer.activation == "identity" and not each.layer.has_bias for each in dense)
    is_linear = set(embedding.profile.pooling) <= {"mean", "cls", "last"} and len(embedding.profile.pooling) == 1
    if facts.computes_dense and is_plain and is_linear and len(dense) == 2 and dense[1].layer.n_out == facts.n_embd:
        names = ("dense_2", "dense_3")
        widths = {
            f"{name}_feat_{side}": getattr(each.layer, f"n_{side}")
            for name, each in zip(names, dense, strict=True)
            for side in ("in", "out")
        }
        tensors = {f"{name}.weight": each.weight for name, each in zip(names, dense, strict=True)}
        return Embedding(embedding.profile, tensors=tensors, settings=widths, notes=embedding.notes)
    arrays = {key: array for each in dense for key, array in each.arrays.items()}
    profile = replace(embedding.profile, dense=tuple(each.layer for each in dense))
    return Embedding(profile, arrays=arrays, notes=embedding.notes)


def _require_widths(files: SentenceTransformer, facts: ModelFacts) -> None:
    """Check that each module takes what the one before it gives."""
    if files.pool is not None and files.pool.n_embd not in (None, facts.n_embd):
        raise ModelLoadError(
            f"{files.pool.file}: it pools vectors of {files.pool.n_embd} columns; the model's have {facts.n_embd}"
        )
    width = facts.n_embd * (1 if files.pool is None else len(files.pool.kinds))
    for each in files.dense:
        if each.layer.n_in != width:
            raise ModelLoadError(f"{each.file}: in_features is {each.layer.n_in}; vectors of {width} columns come in")
        width = each.layer.n_out


def _max_tokens(files: SentenceTransformer, facts: ModelFacts) -> int | None:
    stated = files.transformer.count("max_seq_length")
    if stated is None and files.multi_vector is not None:
        stated = files.multi_vector.max_tokens
    if stated is None:
        limit = _settings(files.path / TOKENIZER_SETTINGS).values.get("model_max_length")
        stated = limit if type(limit) is int and 0 < limit < _NO_LIMIT else None
    if stated is None and files.has_modules:
        stated = facts.n_ctx
    return None if stated is None else min(stated, facts.n_ctx)


def _similarity(settings: Settings) -> tuple[Similarity | None, tuple[str, ...]]:
    name = settings.text("similarity_fn_name")
    if name is None:
        return None, ()
    if name.lower() not in SIMILARITIES:
        return None, (f"{settings.path.name}: similarity_fn_name {name!r:.80} was ignored: it is not a known one",)
    return cast("Similarity", name.lower()), ()


def _dimensions(files: SentenceTransformer, facts: ModelFacts) -> tuple[int, ...]:
    """The widths of a Matryoshka model, which some authors state in one of these files."""
    n_out = files.dense[-1].layer.n_out if files.dense else facts.n_embd * len(files.pool.kinds if files.pool else "1")
    for values in (files.settings.values, facts.config):
        for key in ("matryoshka_dimensions", "matryoshka_dims"):
            stated = values.get(key)
            if isinstance(stated, list) and stated and all(type(each) is int and each > 0 for each in stated):
                return tuple(sorted({each for each in stated if each <= n_out}))
    return ()


def _score_activation(files: SentenceTransformer, facts: ModelFacts) -> Activation:
    """The function on the scores of a cross-encoder; without one in the files, as in sentence-transformers: sigmoid."""
    section = facts.config.get("sentence_transformers")
    named = section.get("activation_fn") if isinstance(section, dict) else None
    named = (
        named or facts.config.get("sbert_ce_default_activation_function") or files.settings.values.get("activation_fn")
    )
    if facts.gives_probabilities:
        return "identity"
    if named is None:
        return "sigmoid"
    name = str(named).rpartition(".")[2].lower()
    if name not in ACTIVATIONS or not str(named).startswith("torch."):
        raise UnsupportedArchitectureError(f"{files.path}: the function on the scores, {named!r:.80}, is not supported")
    return name


__all__ = [
    "SETTINGS",
    "TRANSFORMER_SETTINGS",
    "Embedding",
    "ModelFacts",
    "SentenceTransformer",
    "embedding_of",
    "read_sentence_transformer",
]
