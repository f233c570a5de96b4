"""The pooling of a model: ``1_Pooling/config.json``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyggml.errors import ModelNotFoundError
from pyggml.files.json_file import read_object
from pyggml.importer.sentence_transformers.modules import Module
from pyggml.importer.sentence_transformers.settings import Settings
from pyggml.options.embedding_profile import Pooling

# sentence-transformers' names of the kinds, in the order in which it concatenates them -> ours.
_KINDS: Mapping[str, Pooling] = {
    "cls": "cls",
    "max": "max",
    "mean": "mean",
    "mean_sqrt_len_tokens": "mean_sqrt_len",
    "weightedmean": "weighted_mean",
    "lasttoken": "last",
}
# The switches of older versions.
_SWITCHES = {
    f"pooling_mode_{name}": kind
    for name, kind in (
        ("cls_token", "cls"),
        ("max_tokens", "max"),
        ("mean_tokens", "mean"),
        ("mean_sqrt_len_tokens", "mean_sqrt_len_tokens"),
        ("weightedmean_tokens", "weightedmean"),
        ("lasttoken", "lasttoken"),
    )
}


@dataclass(frozen=True)
class Pool:
    """A pooling.

    Attributes:
        kinds: as in the profile.
        include_prompt: as in the profile.
        n_embd: the width of the token vectors; None: not stated.
        file: its file.
    """

    kinds: tuple[Pooling, ...]
    include_prompt: bool
    n_embd: int | None
    file: Path


def read_pooling(module: Module) -> Pool:
    """Read a pooling module.

    Raises:
        ModelNotFoundError: it has no file.
        ModelLoadError: the file is damaged.
    """
    file = module.folder / "config.json"
    if not file.is_file():
        raise ModelNotFoundError(f"{file} is missing; {module.file.name} names it")
    settings = Settings(file, read_object(file))
    n_embd = settings.count("embedding_dimension") or settings.count("word_embedding_dimension")
    return Pool(_kinds(settings), settings.flag("include_prompt", True), n_embd, file)


def _kinds(settings: Settings) -> tuple[Pooling, ...]:
    stated = settings.values.get("pooling_mode")
    if stated is None:
        on = [kind for key, kind in _SWITCHES.items() if settings.flag(key)]
        return tuple(_KINDS[kind] for kind in on) or ("mean",)
    listed = stated if isinstance(stated, list) else [stated]
    if not listed or len(listed) > len(_KINDS) or not all(isinstance(each, str) and each in _KINDS for each in listed):
        raise settings.error("pooling_mode", f"one or several of {', '.join(_KINDS)}")
    return tuple(_KINDS[each] for each in listed)
