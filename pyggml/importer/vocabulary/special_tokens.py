"""Special tokens (BOS, EOS, end of turn, padding, unknown ...), from all files that name them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyggml._core.checks import shown
from pyggml._native.vocab import TokenType
from pyggml.errors import TokenizerError
from pyggml.files.model_files import GENERATION_CONFIG
from pyggml.importer.vocabulary.added_tokens import text_of
from pyggml.importer.vocabulary.token_table import TokenTable
from pyggml.tokenizer.files import Json, TokenizerDirectory

# Role -> the engine's key, in upstream's spelling.
_KEYS = {
    "bos": "tokenizer.ggml.bos_token_id",
    "eos": "tokenizer.ggml.eos_token_id",
    "eot": "tokenizer.ggml.eot_token_id",
    "eom": "tokenizer.ggml.eom_token_id",
    "unk": "tokenizer.ggml.unknown_token_id",
    "sep": "tokenizer.ggml.seperator_token_id",
    "pad": "tokenizer.ggml.padding_token_id",
    "cls": "tokenizer.ggml.cls_token_id",
    "mask": "tokenizer.ggml.mask_token_id",
}
_NAMED = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")

# No file names the end-of-turn token, so it is found by its text; the most specific comes first.
_TURN_ENDS = (
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<turn|>", "<|end_of_turn|>", "<|eot|>", "<EOT>", "[EOT]",
    "<end_of_utterance>",
)  # fmt: skip
_MESSAGE_ENDS = ("<|eom_id|>",)
# In a vocabulary with the first (gpt-oss), a turn has several messages, of which each ends with the second.
_RETURN, _END = "<|return|>", "<|end|>"

# Tokens that the engine treats as special by their text, despite their type: ends, and fill-in-the-middle markers.
_ENGINE_SPECIAL = """
    <|eot_id|> <|im_end|> <|end|> <|return|> <|call|> <|flush|> <|calls|> <end_of_turn> <|endoftext|>
    </s> <|eom_id|> <EOT> _<EOT> [EOT] [EOS] <|end_of_text|> <end_of_utterance> <eos> <turn|>
    <|tool_response> <｜end▁of▁sentence｜> [e~[ <|ifm|im_end|> <|fim_prefix|> <fim-prefix> <fim_prefix>
    <｜fim▁begin｜> <PRE> ▁<PRE> <|code_prefix|> <|prefix|> <|plamo:fim_prefix|> <|fim_suffix|>
    <fim-suffix> <fim_suffix> <｜fim▁hole｜> <SUF> ▁<SUF> <|code_suffix|> <|suffix|> <|plamo:fim_suffix|>
    <|fim_middle|> <fim-middle> <fim_middle> <｜fim▁end｜> <MID> ▁<MID> <|code_middle|> <|middle|>
    <|plamo:fim_middle|> <|fim_pad|> <fim-pad> <fim_pad> <PAD> [PAD] <|fim_repo|> <|repo_name|>
    <fim-repo> <REPO> <reponame> <|file_sep|> <|plamo:file_separator|>
"""
ENGINE_SPECIAL = frozenset(_ENGINE_SPECIAL.split())
# Tokens that it treats as plain text in the same way, so that users' texts can contain them.
ENGINE_PLAIN = frozenset({"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"})


class NoEndError(TokenizerError):
    """No file names the token that ends a text."""


@dataclass(frozen=True)
class SpecialTokens:
    """Special tokens, role -> id such as ``{"bos": 1}``, and the ids of all tokens that files name as ends."""

    ids: Mapping[str, int]
    ends: tuple[int, ...]

    @property
    def metadata(self) -> dict[str, object]:
        """As keys of the vocabulary."""
        return {key: self.ids[part] for part, key in _KEYS.items() if part in self.ids}


def named_text(files: TokenizerDirectory, part: str) -> str | None:
    """Return the text of the token with a role, from the files that give texts rather than ids."""
    for source in (files.tokenizer_config, files.special_tokens):
        text = text_of(source.get(f"{part}_token"))
        if text:
            return text
    return None


def special_tokens(
    files: TokenizerDirectory, tokens: TokenTable, given: Mapping[str, int], boundary: Mapping[str, int]
) -> SpecialTokens:
    """Find the special tokens; an id by role in ``given`` yields to what files name, and this to ``boundary``.

    ``given`` is from the tokenizer itself; ``boundary`` has the tokens before and after a text.
    """
    by_text = {part: tokens.ids[text] for part in _NAMED if (text := named_text(files, part)) in tokens.ids}
    by_id = {part: listed[0] for part in _NAMED if (listed := _listed(files, part, tokens))}
    _mark_special(tokens, [*by_text.values(), *boundary.values()])
    ids = {**given, **by_id, **by_text, **boundary}
    if "eos" not in ids and "sep" in ids:
        ids["eos"] = ids["sep"]  # BERT's texts end with it
    ends = {*_listed(files, "eos", tokens), *([ids["eos"]] if "eos" in ids else [])}
    turn_ends = [text for text in _TURN_ENDS if text != _END or _RETURN not in tokens.ids]
    for part, texts in (("eot", turn_ends), ("eom", _MESSAGE_ENDS)):
        found = _first_special(tokens, texts)
        if found is not None:
            ids[part] = found
    if "eos" not in ids:
        raise NoEndError(
            f"no file in {files.path} names the token that ends a text: looked for eos_token in "
            "tokenizer_config.json and special_tokens_map.json, and eos_token_id in generation_config.json and "
            "config.json"
        )
    # Without this key, the engine would assume some other model's token.
    ids.setdefault("bos", ids["eos"])
    return SpecialTokens(ids, tuple(sorted(ends)))


def differences(tokens: TokenTable) -> Iterator[str]:
    """Yield the first token that the engine treats differently from the tokenizer, if any."""
    for text, token_id in tokens.ids.items():
        type = tokens.by_id[token_id].type
        if (text in ENGINE_SPECIAL and type is not TokenType.CONTROL) or (
            text in ENGINE_PLAIN and type is not TokenType.USER_DEFINED
        ):
            yield f"the engine always treats {shown(text)} as {'special' if text in ENGINE_SPECIAL else 'text'}"
            return


def _listed(files: TokenizerDirectory, part: str, tokens: TokenTable) -> list[int]:
    """The valid ids for a role in the model's configuration files; -1 and the like are ignored.

    ``generation_config.json`` can be relied on. ``config.json``, and files copied from it, may hold class defaults such
    as 1 and 2, which are plain text in many vocabularies, so only special tokens count there.
    """
    chosen = [i for i in _ids(files.generation, part, files.path / GENERATION_CONFIG) if i in tokens.by_id]
    if chosen and not files.generation.get("_from_model_config"):
        return chosen
    ids = chosen or [i for i in _ids(files.config, part, files.path / "config.json") if i in tokens.by_id]
    return [token_id for token_id in ids if tokens.by_id[token_id].type is not TokenType.NORMAL]


def _ids(source: Json, part: str, file: Path) -> list[int]:
    value: Any = source.get(f"{part}_token_id")
    found = [token_id for token_id in (value if isinstance(value, list) else [value]) if token_id is not None]
    for token_id in found:
        if not isinstance(token_id, int) or isinstance(token_id, bool):
            raise TokenizerError(f'{file}: "{part}_token_id" must be an integer, not {token_id!r:.80}')
    return found


def _mark_special(tokens: TokenTable, ids: Iterable[int]) -> None:
    """Mark tokens with special roles as control tokens, despite their type in the vocabulary."""
    for token_id in ids:
        token = tokens.by_id[token_id]
        if token.type is TokenType.NORMAL:
            tokens.by_id[token_id] = replace(token, type=TokenType.CONTROL)


def _first_special(tokens: TokenTable, texts: Iterable[str]) -> int | None:
    found = (tokens.ids.get(text) for text in texts)
    special = (TokenType.CONTROL, TokenType.USER_DEFINED)
    return next((i for i in found if i is not None and tokens.by_id[i].type in special), None)
