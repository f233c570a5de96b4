"""What a tokenizer puts around a text: tokens at its beginning and its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyggml.errors import TokenizerError
from pyggml.importer.vocabulary.pre_tokenizers import flattened
from pyggml.tokenizer.files import TokenizerDirectory

# In transformers 4 these classes ignore the file's post-processor: they begin with BOS unless their settings say no.
_BEGIN_WITH_BOS = ("Llama", "CodeLlama", "Gemma")


@dataclass(frozen=True)
class Surroundings:
    """The texts of tokens around a text.

    Attributes:
        before: it, or None.
        after: it, or None.
    """

    before: str | None = None
    after: str | None = None


def surroundings(files: TokenizerDirectory, bos: str | None, eos: str | None) -> Surroundings:
    """What goes around a text: what the settings say plainly, else what the post-processor does.

    Args:
        files: of the tokenizer.
        bos: the text of the token that begins texts, where files name it.
        eos: the one that ends them.

    Raises:
        TokenizerError: more tokens than the engine can put there, or the file is damaged.
    """
    settings = files.tokenizer_config
    found = _post_processor(files)
    if found is None:
        name = str(settings.get("tokenizer_class", "" if files.tokenizer_json else "Llama"))
        begins = name.removesuffix("Fast").removesuffix("Tokenizer") in _BEGIN_WITH_BOS
        found = Surroundings(bos if begins else None)
    return Surroundings(
        _by_setting(settings.get("add_bos_token"), found.before, bos),
        _by_setting(settings.get("add_eos_token"), found.after, eos),
    )


def _by_setting(setting: object, otherwise: str | None, token: str | None) -> str | None:
    """What a setting asks for; where it says yes, the post-processor may still know better which token."""
    if isinstance(setting, bool):
        return (otherwise or token) if setting else None
    return otherwise


def _post_processor(files: TokenizerDirectory) -> Surroundings | None:
    """What it puts around a text; None: there is none that puts anything anywhere."""
    where = f'{files.path / "tokenizer.json"}: "post_processor"'
    for step in flattened(files.tokenizer_json.get("post_processor"), "processors"):
        if step.get("type") == "TemplateProcessing":
            return _template(step, where)
        if step.get("type") in ("BertProcessing", "RobertaProcessing"):
            return Surroundings(_first(step.get("cls"), where), _first(step.get("sep"), where))
        if step.get("type") != "ByteLevel":
            raise TokenizerError(f"{where}: {step.get('type')!r:.80} is none that is known here")
    return None


def _template(step: Mapping[str, Any], where: str) -> Surroundings:
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
        raise TokenizerError(f"{where} puts {before} before a text and {after} behind it; the engine has one for each")
    return Surroundings(*(side[0] if side else None for side in (before, after)))


def _first(pair: object, where: str) -> str:
    if not isinstance(pair, list) or not pair or not isinstance(pair[0], str):
        raise TokenizerError(f"{where}: a token and its id were expected, not {pair!r:.100}")
    return pair[0]
