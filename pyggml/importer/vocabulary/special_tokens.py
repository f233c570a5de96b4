"""Which tokens begin and end texts and turns, fill up, or stand for the unknown, by all the files that name them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyggml.errors import TokenizerError
from pyggml.importer.vocabulary.added_tokens import text_of
from pyggml.importer.vocabulary.token_table import TokenTable
from pyggml.tokenizer.files import Json, TokenizerDirectory
from pyggml.vocab import TokenType

# Part -> the engine's key, whose spelling is upstream's.
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

# No file names the end of a turn; the most telling first.
_TURN_ENDS = (
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<turn|>",
    "<|end_of_turn|>",
    "<|eot|>",
    "<EOT>",
    "[EOT]",
    "<end_of_utterance>",
)
_MESSAGE_ENDS = ("<|eom_id|>",)

# What the engine takes for special by its text alone, whatever the file says: ends, and parts of code to be filled in.
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
# And what it takes for plain, though a part of users' text then.
ENGINE_PLAIN = frozenset({"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"})


class NoEndError(TokenizerError):
    """No file says which token ends a text."""


@dataclass(frozen=True)
class SpecialTokens:
    """Ids by part, and what ends a generation.

    Attributes:
        ids: such as ``{"bos": 1}``.
        ends: all ids that files name as ends, ascending.
    """

    ids: Mapping[str, int]
    ends: tuple[int, ...]

    @property
    def metadata(self) -> dict[str, object]:
        """As keys of the vocabulary."""
        return {key: self.ids[part] for part, key in _KEYS.items() if part in self.ids}


def named_text(files: TokenizerDirectory, part: str) -> str | None:
    """The text of the token that has a part, by the files that name it with its text."""
    for source in (files.tokenizer_config, files.special_tokens):
        text = text_of(source.get(f"{part}_token"))
        if text:
            return text
    return None


def special_tokens(
    files: TokenizerDirectory, tokens: TokenTable, given: Mapping[str, int], around: Mapping[str, int]
) -> SpecialTokens:
    """Finds them.

    Args:
        files: of the directory.
        tokens: the vocabulary.
        given: parts that the tokenizer itself gives, for where nothing else does.
        around: parts of what goes around a text, which nothing else can change.

    Raises:
        TokenizerError: a file names what is no id, or no token ends a text.
    """
    by_text = {part: tokens.ids[text] for part in _NAMED if (text := named_text(files, part)) in tokens.ids}
    by_id = {part: listed[0] for part in _NAMED if (listed := _listed(files, part, tokens))}
    _mark_special(tokens, [*by_text.values(), *around.values()])
    ids = {**given, **by_id, **by_text, **around}
    if "eos" not in ids and "sep" in ids:
        ids["eos"] = ids["sep"]  # BERT's texts end with it
    ends = {*_listed(files, "eos", tokens), *([ids["eos"]] if "eos" in ids else [])}
    for part, texts in (("eot", _TURN_ENDS), ("eom", _MESSAGE_ENDS)):
        found = _first_special(tokens, texts)
        if found is not None:
            ids[part] = found
    if "eos" not in ids:
        raise NoEndError(
            f"no file in {files.path} says which token ends a text: looked for eos_token in tokenizer_config.json and "
            "special_tokens_map.json, and eos_token_id in generation_config.json and config.json"
        )
    # The engine takes some other model's token for one that is not named.
    ids.setdefault("bos", ids["eos"])
    return SpecialTokens(ids, tuple(sorted(ends)))


def differences(tokens: TokenTable) -> Iterator[str]:
    """Tokens that the engine takes for something else."""
    for text, token_id in tokens.ids.items():
        type = tokens.by_id[token_id].type
        if (text in ENGINE_SPECIAL and type is not TokenType.CONTROL) or (
            text in ENGINE_PLAIN and type is not TokenType.USER_DEFINED
        ):
            yield f"the engine takes {text!r} for {'special' if text in ENGINE_SPECIAL else 'text'}, always"
            return


def _listed(files: TokenizerDirectory, part: str, tokens: TokenTable) -> list[int]:
    """The ids that files about the model name, of tokens that there are: -1 names nothing.

    What ``generation_config.json`` says was meant. A ``config.json``, and what was copied from it, may hold ids that
    nobody chose, such as 1 and 2, which are pieces of plain text in many vocabularies: of these only special tokens
    count.
    """
    chosen = [i for i in _ids(files.generation, part, files.path / "generation_config.json") if i in tokens.by_id]
    if chosen and not files.generation.get("_from_model_config"):
        return chosen
    ids = chosen or [i for i in _ids(files.config, part, files.path / "config.json") if i in tokens.by_id]
    return [token_id for token_id in ids if tokens.by_id[token_id].type is not TokenType.NORMAL]


def _ids(source: Json, part: str, file: Path) -> list[int]:
    value: Any = source.get(f"{part}_token_id")
    found = [token_id for token_id in (value if isinstance(value, list) else [value]) if token_id is not None]
    for token_id in found:
        if not isinstance(token_id, int) or isinstance(token_id, bool):
            raise TokenizerError(f'{file}: "{part}_token_id" is no id: {token_id!r:.80}')
    return found


def _mark_special(tokens: TokenTable, ids: Iterable[int]) -> None:
    """What has a part to play is never text, whatever the vocabulary says."""
    for token_id in ids:
        token = tokens.by_id[token_id]
        if token.type is TokenType.NORMAL:
            tokens.by_id[token_id] = replace(token, type=TokenType.CONTROL)


def _first_special(tokens: TokenTable, texts: Iterable[str]) -> int | None:
    found = (tokens.ids.get(text) for text in texts)
    special = (TokenType.CONTROL, TokenType.USER_DEFINED)
    return next((i for i in found if i is not None and tokens.by_id[i].type in special), None)
