"""Settings of multi-vector models (ColBERT), as sentence-transformers and PyLate write them."""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyggml.files.json_file import read_object
from pyggml.importer.sentence_transformers.modules import Module
from pyggml.importer.sentence_transformers.settings import Settings

_MODEL_TYPES = ("MultiVectorEncoder", "ColBERT")
#: The length of ColBERT's queries, unless a file states another one.
_QUERY_TOKENS = 32

_UNATTENDED = (
    "it fills up short queries with mask tokens that read the query without being read (query expansion), which the "
    "engine cannot compute: queries have the vectors of their own tokens only"
)


@dataclass(frozen=True)
class MultiVector:
    """The settings of a model that embeds each token.

    Attributes:
        prompts: "query" and "document" -> the text in front of each.
        max_tokens: the most tokens of a document; None: not stated.
        query_tokens: as in the profile.
        expansion_token: as in the profile.
        skipped_tokens: as in the profile.
        normalizes: True if token vectors are normalised without a module for it.
        notes: what is not computed.
    """

    prompts: Mapping[str, str] = field(default_factory=dict)
    max_tokens: int | None = None
    query_tokens: int | None = None
    expansion_token: int | None = None
    skipped_tokens: tuple[int, ...] = ()
    normalizes: bool = False
    notes: tuple[str, ...] = ()


def read_multi_vector(
    directory: Path, modules: Sequence[Module], settings: Settings, transformer: Settings
) -> MultiVector | None:
    """Read the settings of a multi-vector model; None if it is another one.

    Args:
        directory: the model's directory.
        modules: its modules.
        settings: its ``config_sentence_transformers.json``.
        transformer: its ``sentence_bert_config.json``.
    """
    is_pylate = any(module.package == "pylate" for module in modules) or settings.text("model_type") == "ColBERT"
    masks = [module for module in modules if module.kind == "MultiVectorMask"]
    if not is_pylate and not masks and settings.text("model_type") not in _MODEL_TYPES:
        return None
    prefixes = {key: settings.text(f"{key}_prefix") for key in ("query", "document")}
    length, attends = _expansion(settings, transformer, is_pylate)
    ids = _token_ids(directory)
    mask_token = ids(["[MASK]", "<mask>"])
    return MultiVector(
        prompts={key: text for key, text in prefixes.items() if text is not None},
        max_tokens=transformer.count("document_length") or settings.count("document_length"),
        query_tokens=length if attends and mask_token else None,
        expansion_token=mask_token[0] if length and attends and mask_token else None,
        skipped_tokens=tuple(ids(_skipped_words(settings, masks, is_pylate))),
        normalizes=is_pylate,
        notes=(_UNATTENDED,) if length and not attends else (),
    )


def _expansion(settings: Settings, transformer: Settings, is_pylate: bool) -> tuple[int | None, bool]:
    """The length to which queries are filled up, None if they are not, and whether the fillers are attended to."""
    section = transformer.values.get("query_expansion")
    if isinstance(section, dict):
        inner = Settings(transformer.path, section)
        return inner.count("length") or _QUERY_TOKENS, inner.flag("attend")
    if not is_pylate or not settings.flag("do_query_expansion", True):
        return None, False
    return settings.count("query_length") or _QUERY_TOKENS, settings.flag("attend_to_expansion_tokens")


def _skipped_words(settings: Settings, masks: Sequence[Module], is_pylate: bool) -> list[str]:
    for mask in masks:
        file = mask.folder / "config.json"
        return Settings(file, read_object(file)).words("skiplist_words") or []
    words = settings.words("skiplist_words")
    return list(string.punctuation) if words is None and is_pylate else words or []


def _token_ids(directory: Path) -> _TokenIds:
    content = read_object(directory / "tokenizer.json")
    model, added = content.get("model"), content.get("added_tokens")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    ids = dict(vocabulary) if isinstance(vocabulary, dict) else {}
    for token in added if isinstance(added, list) else ():
        if isinstance(token, dict) and isinstance(token.get("content"), str):
            ids[token["content"]] = token.get("id")
    return _TokenIds(ids)


class _TokenIds:
    """Ids of whole tokens by their texts."""

    def __init__(self, ids: Mapping[str, object]) -> None:
        self._ids = ids

    def __call__(self, texts: Iterable[str]) -> list[int]:
        """Return the ids of the texts that are tokens."""
        found = (self._ids.get(text) for text in texts)
        return [each for each in found if type(each) is int and each >= 0]
