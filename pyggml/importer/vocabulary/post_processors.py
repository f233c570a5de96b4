"""The tokens that a tokenizer adds before and after a text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pyggml.errors import TokenizerError
from pyggml.importer.vocabulary.pre_tokenizers import flattened
from pyggml.tokenizer.files import TokenizerDirectory

# In transformers 4 these classes ignore the file's post-processor: they begin with BOS unless their settings say no.
_BEGIN_WITH_BOS = ("Llama", "CodeLlama", "Gemma")


class BoundaryTokens(NamedTuple):
    """The texts of the tokens before and after a text, or None.

    ``separates`` is True if the second text of a pair follows a further token, after the one that ends the first; None
    if the files do not say.
    """

    before: str | None = None
    after: str | None = None
    separates: bool | None = None


def boundary_tokens(files: TokenizerDirectory, bos: str | None, eos: str | None) -> BoundaryTokens:
    """Return the tokens before and after a text, by the settings or else by the post-processor.

    ``bos`` and ``eos`` are the texts of the tokens with these roles, if the files name them.
    """
    settings = files.tokenizer_config
    found = _post_processor(files)
    if found is None:
        name = str(settings.get("tokenizer_class", "" if files.tokenizer_json else "Llama"))
        begins = name.removesuffix("Fast").removesuffix("Tokenizer") in _BEGIN_WITH_BOS
        found = BoundaryTokens(bos if begins else None)
    return BoundaryTokens(
        _by_setting(settings.get("add_bos_token"), found.before, bos),
        _by_setting(settings.get("add_eos_token"), found.after, eos),
        found.separates,
    )


def _by_setting(setting: object, otherwise: str | None, token: str | None) -> str | None:
    """The token that a setting switches on or off; the post-processor's choice of token takes precedence."""
    if isinstance(setting, bool):
        return (otherwise or token) if setting else None
    return otherwise


def _post_processor(files: TokenizerDirectory) -> BoundaryTokens | None:
    """The tokens that the post-processor adds to a text; None if it adds none."""
    where = f'{files.path / "tokenizer.json"}: "post_processor"'
    for step in flattened(files.tokenizer_json.get("post_processor"), "processors"):
        if step.get("type") == "TemplateProcessing":
            return _template(step, where)
        if step.get("type") in ("BertProcessing", "RobertaProcessing"):
            ends = _first(step.get("cls"), where), _first(step.get("sep"), where)
            return BoundaryTokens(*ends, separates=step.get("type") == "RobertaProcessing")
        if step.get("type") != "ByteLevel":
            raise TokenizerError(f"{where}: the type {step.get('type')!r:.80} is not supported")
    return None


def _template(step: Mapping[str, Any], where: str) -> BoundaryTokens:
    single = step.get("single")
    if not isinstance(single, list):
        raise TokenizerError(f'{where}: a list was expected as "single", not {single!r:.100}')
    before: list[str] = []
    after: list[str] = []
    side = before
    for part in single:
        if isinstance(part, dict) and "Sequence" in part:
            side = after
        elif isinstance(part, dict) and isinstance(part.get("SpecialToken"), dict):
            side.append(str(part["SpecialToken"].get("id")))
        else:
            raise TokenizerError(f"{where}: a token or the text was expected, not {part!r:.100}")
    if len(before) > 1 or len(after) > 1 or side is before:
        raise TokenizerError(
            f"{where} puts {before} before a text and {after} after it; the engine can add one token on each side"
        )
    first, last = (side[0] if side else None for side in (before, after))
    return BoundaryTokens(first, last, _separates(step.get("pair")) if last is not None else None)


def _separates(pair: object) -> bool | None:
    """Check for two tokens between the texts of a pair; None if there is another number, or no pair."""
    parts = pair if isinstance(pair, list) else []
    texts = [i for i, part in enumerate(parts) if isinstance(part, dict) and "Sequence" in part]
    if len(texts) != 2:
        return None
    return {1: False, 2: True}.get(texts[1] - texts[0] - 1)


def _first(pair: object, where: str) -> str:
    if not isinstance(pair, list) or not pair or not isinstance(pair[0], str):
        raise TokenizerError(f"{where}: a token and its id were expected, not {pair!r:.100}")
    return pair[0]
