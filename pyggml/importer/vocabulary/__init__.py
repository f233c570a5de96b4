"""Translates the tokenizer of a Hugging Face directory to GGUF metadata."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pyggml._core.checks import shown
from pyggml._native.model import TOKENIZER_JSON
from pyggml._native.vocab import TokenType
from pyggml.errors import TokenizerError
from pyggml.families import STOP_TOKEN_IDS
from pyggml.importer.vocabulary import (
    added_tokens,
    byte_level,
    embedded,
    sentencepiece_bpe,
    unigram,
    unsupported_models,
    word_piece,
)
from pyggml.importer.vocabulary import special_tokens as _special_tokens
from pyggml.importer.vocabulary.added_tokens import AddedToken
from pyggml.importer.vocabulary.chat_templates import chat_templates
from pyggml.importer.vocabulary.post_processors import Surroundings, surroundings
from pyggml.importer.vocabulary.special_tokens import SpecialTokens, named_text, special_tokens
from pyggml.importer.vocabulary.token_table import MAX_TOKENS, Token, TokenTable
from pyggml.importer.vocabulary.tokenization import Cut
from pyggml.tokenizer.files import TokenizerDirectory, read_directory
from pyggml.tokenizer.sentencepiece import Algorithm, SentencePieceModel


@dataclass(frozen=True)
class Vocabulary:
    """A model's vocabulary, ready to be written.

    Attributes:
        metadata: all ``tokenizer.*`` keys of a GGUF file and the tokens that end a text, with values as
            :meth:`pyggml.gguf.GGUFWriter.set` takes them.
        n_tokens: number of tokens, including those that only pad the embedding.
        end_ids: the tokens that the directory's files name as ends of a text, ascending.
        difference: why the engine would cut some texts differently, so that the metadata have the checkpoint's own
            tokenizer too, which encodes; None: it cuts every text the same.
        swallows_blanks: whether there are tokens that swallow the blanks behind them.
        tokenizer_file: the file that the tokenizer was read from.
        notes: for the report: tokens that were dropped or made up.
    """

    metadata: Mapping[str, object]
    n_tokens: int
    end_ids: tuple[int, ...]
    difference: str | None
    swallows_blanks: bool
    tokenizer_file: Path
    notes: tuple[str, ...]


def read_vocabulary(directory: Path, config: Mapping[str, Any]) -> Vocabulary:
    """Reads a directory's tokenizer as written by transformers 4 or 5.

    Args:
        directory: a directory with a ``tokenizer.json`` or a SentencePiece ``tokenizer.model``, and related files.
        config: the model's ``config.json``, of which ``vocab_size`` (rows of the embedding; each gets a token) and the
            ids of special tokens are used. For a multimodal model, its text section.

    Raises:
        TokenizerNotFoundError: there is no tokenizer. It is also a FileNotFoundError.
        TokenizerError: it is damaged, or needs what the engine does not support; names the file and the place in it.
    """
    files = read_directory(directory, config)
    added = added_tokens.added_tokens(files)
    cut = _cut(files, added)
    n_vocab = _vocab_size(config, directory)
    cut.tokens.require_whole(str(files.tokenizer_file))
    roles = find_roles(files, added, cut.tokens, n_vocab)
    kept = [token for token in added if token.text in cut.tokens.ids]
    tokens = _fitted(cut.tokens, n_vocab, files)
    differences = [
        *cut.differences,
        *added_tokens.differences(kept),
        *_special_tokens.differences(cut.tokens),
    ]
    return Vocabulary(
        metadata={
            "tokenizer.ggml.model": cut.model,
            "tokenizer.ggml.pre": "default",
            **_columns(tokens, cut.has_scores),
            **cut.metadata,
            **roles.metadata,
            **chat_templates(files),
            **({TOKENIZER_JSON: embedded.tokenizer_json(files, cut.tokens, kept)} if differences else {}),
        },
        n_tokens=len(tokens),
        end_ids=roles.special.ends,
        difference=_shown("; ".join(differences)) or None,
        swallows_blanks=any("rstrip" in token.rules for token in kept),
        tokenizer_file=files.tokenizer_file,
        notes=tuple(_notes(roles.dropped, tokens)),
    )


@dataclass(frozen=True)
class Roles:
    """Which tokens have special roles.

    Attributes:
        special: their ids.
        around: the tokens put around a text.
        dropped: added tokens beyond the model's embedding.
    """

    special: SpecialTokens
    around: Surroundings
    dropped: list[AddedToken]

    @property
    def metadata(self) -> dict[str, object]:
        """As keys of a GGUF file."""
        return {
            **self.special.metadata,
            STOP_TOKEN_IDS: ",".join(map(str, self.special.ends)),
            "tokenizer.ggml.add_bos_token": self.around.before is not None,
            "tokenizer.ggml.add_eos_token": self.around.after is not None,
        }


def find_roles(files: TokenizerDirectory, added: list[AddedToken], tokens: TokenTable, n_vocab: int | None) -> Roles:
    """Adds the added tokens to the table and finds the tokens with special roles.

    Raises:
        TokenizerError: a file is damaged, or no file says which token ends a text.
    """
    dropped = added_tokens.add_to(tokens, added, n_vocab)
    given = _given_by_model(files)
    around = surroundings(files, *(_text(part, given, tokens, files) for part in ("bos", "eos")))
    return Roles(special_tokens(files, tokens, given, _around_ids(around, tokens, files)), around, dropped)


def _cut(files: TokenizerDirectory, added: list[AddedToken]) -> Cut:
    where = str(files.tokenizer_file)
    try:
        if files.sentencepiece is not None:
            return _cut_of_model(files.sentencepiece, added, where)
        return _cut_of_json(files, added, where)
    except TokenizerError as error:
        raise TokenizerError(str(error) if where in str(error) else f"{where}: {error}") from None


def _cut_of_json(files: TokenizerDirectory, added: list[AddedToken], where: str) -> Cut:
    tokenizer = files.tokenizer_json
    kind = tokenizer["model"].get("type") or ("BPE" if "merges" in tokenizer["model"] else None)
    if kind == "BPE" and byte_level.is_byte_level(tokenizer):
        return byte_level.cut(tokenizer, added, where)
    if kind == "BPE" and sentencepiece_bpe.uses_sentencepiece_spaces(tokenizer):
        return sentencepiece_bpe.cut(tokenizer, added, where)
    if kind == "Unigram":
        return unigram.cut(tokenizer, where)
    if kind == "WordPiece":
        return word_piece.cut(tokenizer, added, where)
    if str(kind) in unsupported_models.KINDS:
        special = {*added_tokens.special_texts(files), *(token.text for token in added)}
        return unsupported_models.cut(tokenizer, special, where)
    raise TokenizerError(f"this kind of tokenizer is not supported: {shown(kind)}")


def _cut_of_model(model: SentencePieceModel, added: list[AddedToken], where: str) -> Cut:
    if model.algorithm is Algorithm.BPE and not model.space_is_suffix:
        return sentencepiece_bpe.cut_model(model, added, where)
    if model.algorithm is Algorithm.UNIGRAM and not model.space_is_suffix:
        return unigram.cut_model(model, where)
    suffix = " with spaces after words" if model.space_is_suffix else ""
    raise TokenizerError(f"this kind of SentencePiece model is not supported: {model.algorithm.name}{suffix}")


def _vocab_size(config: Mapping[str, Any], directory: Path) -> int | None:
    size = config.get("vocab_size")
    if size is not None and (not isinstance(size, int) or isinstance(size, bool) or not 0 < size <= MAX_TOKENS):
        raise TokenizerError(
            f'{directory / "config.json"}: "vocab_size" is {size!r:.80}; it must be an integer from 1 to {MAX_TOKENS}'
        )
    return size


def _given_by_model(files: TokenizerDirectory) -> dict[str, int]:
    """The roles that a ``tokenizer.model`` itself assigns."""
    model = files.sentencepiece
    if model is None:
        return {}
    ids = {"unk": model.unk_id, "bos": model.bos_id, "eos": model.eos_id, "pad": model.pad_id}
    return {part: token_id for part, token_id in ids.items() if 0 <= token_id < len(model.pieces)}


def _text(part: str, given: Mapping[str, int], tokens: TokenTable, files: TokenizerDirectory) -> str | None:
    """The text of the token with a role, if a file names it."""
    named = named_text(files, part)
    return tokens.by_id[given[part]].text if named is None and part in given else named


def _around_ids(around: Surroundings, tokens: TokenTable, files: TokenizerDirectory) -> dict[str, int]:
    """The tokens around a text by the engine's roles: BOS before it, EOS after it."""
    ids: dict[str, int] = {}
    for part, text in (("bos", around.before), ("eos", around.after)):
        if text is not None and text not in tokens.ids:
            raise TokenizerError(
                f"{files.tokenizer_file}: the post-processor adds {text!r:.80}, which is not in the vocabulary"
            )
        if text is not None:
            ids[part] = tokens.ids[text]
    return ids


def _fitted(tokens: TokenTable, n_vocab: int | None, files: TokenizerDirectory) -> list[Token]:
    largest = max(tokens.by_id)
    if n_vocab is not None and largest >= n_vocab:
        raise TokenizerError(
            f"{files.tokenizer_file}: {tokens.by_id[largest].text!r:.80} has the id {largest}, but the model has only "
            f"{n_vocab} tokens ({files.path / 'config.json'})"
        )
    return tokens.fitted(largest + 1 if n_vocab is None else n_vocab)


def _columns(tokens: list[Token], has_scores: bool) -> dict[str, object]:
    columns: dict[str, object] = {
        "tokenizer.ggml.tokens": [token.text for token in tokens],
        "tokenizer.ggml.token_type": np.array([token.type for token in tokens], np.int32),
    }
    if has_scores:
        columns["tokenizer.ggml.scores"] = np.array([token.score for token in tokens], np.float32)
    return columns


def _shown(text: str) -> str:
    """The text with unprintable characters escaped, since names from files may contain anything."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text[:1000])


def _notes(dropped: list[AddedToken], tokens: list[Token]) -> Iterable[str]:
    if dropped:
        names = ", ".join(repr(token.text) for token in dropped[:3])
        yield f"{len(dropped)} added tokens have no place in the model's embedding and were left out: {names}"
    n_fillers = sum(token.type is TokenType.UNUSED for token in tokens)
    if n_fillers:
        yield f"{n_fillers} rows of the model's embedding have no token and were given unused ones"
