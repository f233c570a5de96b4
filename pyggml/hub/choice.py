"""Which files of a repository make the model that a reference means."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pyggml.errors import ModelLoadError, ModelNotFoundError
from pyggml.hub.reference import Reference

# What an import reads besides the weights.
_TOLD = frozenset(
    {
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer.model",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "chat_template.jinja",
        "chat_template.json",
    }
)
_TOLD_BY_META = frozenset({"params.json"})
_TEMPLATES = re.compile(r"additional_chat_templates/[^/]+\.jinja")

_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_CONSOLIDATED = "consolidated.safetensors"
_MAX_INDEX_BYTES = 32 * 2**20

_PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.IGNORECASE)
# GGUF files beside models that are none: what sees or hears for them, and statistics of their weights.
_NO_MODELS = ("mmproj", "imatrix")
_PICKLES = (".bin", ".pth", ".pt", ".h5", ".msgpack")
_MAX_LISTED = 20


class Files(Protocol):
    """The files of a repository at one revision, wherever they are."""

    @property
    def names(self) -> Collection[str]:
        """Paths of all of them."""

    def fetch(self, name: str) -> Path:
        """One of them on this machine."""


@dataclass(frozen=True)
class Choice:
    """What is to be there.

    Attributes:
        names: of the files.
        main: the one to load; None: the directory they are in.
    """

    names: tuple[str, ...]
    main: str | None


def choose(reference: Reference, files: Files) -> Choice:
    """The files that ``reference`` means.

    Raises:
        ModelNotFoundError: there is no such file, or a part of it is missing.
        ModelLoadError: there is no model, or more than one.
    """
    if reference.file is not None:
        return _complete(reference, _named(reference, reference.file, files.names))
    weights = _weights(reference, files)
    if weights:
        names = [name for name in files.names if name in _TOLD or _TEMPLATES.fullmatch(name)]
        if weights == [_CONSOLIDATED]:
            names += [name for name in files.names if name in _TOLD_BY_META]
        return Choice((*sorted(names), *weights), None)
    return _complete(reference, _only(reference, files.names))


def _weights(reference: Reference, files: Files) -> list[str]:
    """The safetensors of a checkpoint, chosen as the import of a directory does; none: it is no checkpoint."""
    if _SINGLE in files.names:
        return [_SINGLE]
    if _INDEX in files.names:
        shards = _shards(reference, files.fetch(_INDEX))
        missing = [shard for shard in shards if shard not in files.names]
        if missing:
            raise ModelNotFoundError(f"{reference} has no {missing[0]}, which its {_INDEX} names")
        return [_INDEX, *shards]
    return [_CONSOLIDATED] if _CONSOLIDATED in files.names else []


def _shards(reference: Reference, index: Path) -> list[str]:
    where = f"{_INDEX} of {reference}"
    if index.stat().st_size > _MAX_INDEX_BYTES:
        raise ModelLoadError(f"{where} has {index.stat().st_size} bytes, more than any such file")
    try:
        shards = sorted(set(json.loads(index.read_bytes())["weight_map"].values()))
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise ModelLoadError(f"{where} has no usable weight_map: {type(error).__name__}: {error}") from None
    for shard in shards:
        if not isinstance(shard, str):
            raise ModelLoadError(f"{where} names {shard!r:.80} as a file")
    return shards


def _models(names: Collection[str]) -> dict[str, list[str]]:
    """The GGUF files, those of a split set as one: name without what tells the parts apart -> files in their order."""
    models: dict[str, list[str]] = {}
    for name in sorted(name for name in names if name.lower().endswith(".gguf")):
        part = _PART.fullmatch(name)
        title = f"{part['stem']}-of-{part['count']}.gguf" if part else name
        models.setdefault(title, []).append(name)
    return models


def _only(reference: Reference, names: Collection[str]) -> list[str]:
    models = [files for files in _models(names).values() if not _is_companion(files[0])]
    if not models:
        raise ModelLoadError(_no_model(reference, names))
    if len(models) > 1:
        raise ModelLoadError(_several(reference, models))
    return models[0]


def _named(reference: Reference, file: str, names: Collection[str]) -> list[str]:
    models = _models(names)
    for model in models.values():
        if file in model:
            return model
    if file in names:
        raise ModelLoadError(f"{reference} is no GGUF file; {reference.repository} is the whole repository")
    found = [model for model in models.values() if not _is_companion(model[0]) and _has_type(model[0], file)]
    if len(found) > 1:
        raise ModelLoadError(_several(reference, found))
    if not found:
        others = [model for model in models.values() if not _is_companion(model[0])]
        listed = f"it has {_listed(others)}" if others else "it has no GGUF files"
        raise ModelNotFoundError(f"{reference.repository} has no {file!r}, neither a file nor a type of one: {listed}")
    return found[0]


def _has_type(name: str, quantisation: str) -> bool:
    """Whether a file's name says so, as in ``model-Q4_K_M.gguf`` or ``q4_k_m/model-00001-of-00002.gguf``."""
    return re.search(rf"(?:^|[-._/]){re.escape(quantisation)}(?=[-./]|$)", name, re.IGNORECASE) is not None


def _is_companion(name: str) -> bool:
    return any(word in name.rpartition("/")[2].lower() for word in _NO_MODELS)


def _complete(reference: Reference, model: list[str]) -> Choice:
    part = _PART.fullmatch(model[0])
    if part:
        expected = [f"{part['stem']}-{i + 1:05}-of-{part['count']}.gguf" for i in range(int(part["count"]))]
        missing = [name for name in expected if name not in model]
        if missing:
            raise ModelNotFoundError(f"{reference.repository} has no {missing[0]}, a part of {model[0]}")
    return Choice(tuple(model), model[0])


def _several(reference: Reference, models: list[list[str]]) -> str:
    example = f"{reference.repository}:{models[0][0]}"
    return f"{reference} could be any of {len(models)} models; name one, such as {example!r}: {_listed(models)}"


def _listed(models: list[list[str]]) -> str:
    rest = len(models) - _MAX_LISTED
    return ", ".join(model[0] for model in models[:_MAX_LISTED]) + (f" and {rest} more" if rest > 0 else "")


def _no_model(reference: Reference, names: Collection[str]) -> str:
    pickles = sorted(name for name in names if name.endswith(_PICKLES))
    if pickles:
        return (
            f"{reference} holds its weights as {pickles[0]}, a format that can run code or that needs a framework, and "
            "that pyggml does not open; save them as safetensors"
        )
    return f"{reference} holds no model: neither {_SINGLE} nor {_INDEX} nor a GGUF file"
