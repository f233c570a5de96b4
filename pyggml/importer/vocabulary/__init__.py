"""Translation of the tokenizer of a Hugging Face directory to GGUF metadata.

All readers in this package raise TokenizerError if a file is damaged, or needs what the engine does not support; the
message names the file and the location in it.
"""

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
from pyggml.importer.vocabulary.post_processors import BoundaryTokens, boundary_tokens
from pyggml.importer.vocabulary.special_tokens import SpecialTokens, named_text, special_tokens
from pyggml.importer.vocabulary.token_table import MAX_TOKENS, Token, Tokenization, TokenTable
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
        difference: why the engine would tokenise some texts differently, so that the metadata include the checkpoint's
            own tokenizer, which pyggml encodes with; None: there is no difference.
        has_rstrip_tokens: True if some tokens strip the whitespace after them.
        notes: for the report: dropped tokens, and fillers.
    """

    metadata: Mapping[str, object]
    n_tokens: int
    end_ids: tuple[int, ...]
    difference: str | None
    has_rstrip_tokens: bool
    tokenizer_file: Path
    notes: tuple[str, ...]


def read_vocabulary(directory: Path, config: Mapping[str, Any]) -> Vocabulary:
    """Read a directory's tokenizer as written by transformers 4 or 5.

    Args:
        directory: a directory with a ``tokenizer.json`` or a SentencePiece ``tokenizer.model``, and related files.
        config: the model's ``config.json``, of which ``vocab_size`` (rows of the embedding; each gets a token) and the
            ids of special tokens are used. For a multimodal model, its text section.

    Raises:
        TokenizerNotFoundError: there is no tokenizer. It is also a FileNotFoundError.
        TokenizerError: it is damaged or not supported.
    """
    files = read_directory(directory, config)
    added = added_tokens.added_tokens(files)
    tokenization = _read_tokenization(files, added)
    n_vocab = _vocab_size(config, directory)
    tokenization.tokens.require_dense(str(files.tokenizer_file))
    roles = find_roles(files, added, tokenization.tokens, n_vocab)
    kept = [token for token in added if token.text in tokenization.tokens.ids]
    tokens = _fitted(tokenization.tokens, n_vocab, files)
    differences = [
        *tokenization.differences,
        *added_tokens.differences(kept),
        *_special_tokens.differences(tokenization.tokens),
    ]
    return Vocabulary(
        metadata={
            "tokenizer.ggml.model": tokenization.model,
            "tokenizer.ggml.pre": "default",
            **_columns(tokens, tokenization.has_scores),
            **tokenization.metadata,
            **roles.metadata,
            **chat_templates(files),
            **({TOKENIZER_JSON: embedded.tokenizer_json(files, tokenization.tokens, kept)} if differences else {}),
        },
        n_tokens=len(tokens),
        end_ids=roles.special.ends,
        difference=_shown("; ".join(differences)) or None,
        has_rstrip_tokens=any("rstrip" in token.rules for token in kept),
        tokenizer_file=files.tokenizer_file,
        notes=tuple(_notes(roles.dropped, tokens)),
    )


@dataclass(frozen=True)
class Roles:
    """The tokens with special roles, the tokens around a text, and the added tokens beyond the model's embedding."""

    special: SpecialTokens
    boundary: BoundaryTokens
    dropped: list[AddedToken]

    @property
    def metadata(self) -> dict[str, object]:
        """As keys of a GGUF file."""
        separates = self.boundary.separates
        separator = {} if separates is None else {"tokenizer.ggml.add_sep_token": separates}
        return {
            **self.special.metadata,
            STOP_TOKEN_IDS: ",".join(map(str, self.special.ends)),
            "tokenizer.ggml.add_bos_token": self.boundary.before is not None,
            "tokenizer.ggml.add_eos_token": self.boundary.after is not None,
            **separator,
        }


def find_roles(files: TokenizerDirectory, added: list[AddedToken], tokens: TokenTable, n_vocab: int | None) -> Roles:
    """Add the added tokens to the table, and find the tokens with special roles."""
    dropped = added_tokens.add_to(tokens, added, n_vocab)
    given = _roles_of_model(files)
    boundary = boundary_tokens(files, *(_text(part, given, tokens, files) for part in ("bos", "eos")))
    return Roles(special_tokens(files, tokens, given, _boundary_ids(boundary, tokens, files)), boundary, dropped)


def _read_tokenization(files: TokenizerDirectory, added: list[AddedToken]) -> Tokenization:
    where = str(files.tokenizer_file)
    try:
        if files.sentencepiece is not None:
            return _read_model(files.sentencepiece, added, where)
        return _read_json(files, added, where)
    except TokenizerError as error:
        raise TokenizerError(str(error) if where in str(error) else f"{where}: {error}") from None


def _read_json(files: TokenizerDirectory, added: list[AddedToken], where: str) -> Tokenization:
    tokenizer = files.tokenizer_json
    kind = tokenizer["model"].get("type") or ("BPE" if "merges" in tokenizer["model"] else None)
    if kind == "BPE" and byte_level.is_byte_level(tokenizer):
        return byte_level.read_json(tokenizer, added, where)
    if kind == "BPE" and sentencepiece_bpe.uses_sentencepiece_spaces(tokenizer):
        return sentencepiece_bpe.read_json(tokenizer, added, where)
    if kind == "Unigram":
        return unigram.read_json(tokenizer, where)
    if kind == "WordPiece":
        return word_piece.read_json(tokenizer, added, where)
    if str(kind) in unsupported_models.KINDS:
        special = {*added_tokens.special_texts(files), *(token.text for token in added)}
        return unsupported_models.read_json(tokenizer, special, where)
    raise TokenizerError(f"this kind of tokenizer is not supported: {shown(kind)}")


def _read_model(model: SentencePieceModel, added: list[AddedToken], where: str) -> Tokenization:
    if model.algorithm is Algorithm.BPE and not model.space_is_suffix:
        return sentencepiece_bpe.read_model(model, added, where)
    if model.algorithm is Algorithm.UNIGRAM and not model.space_is_suffix:
        return unigram.read_model(model, where)
    suffix = " with spaces after words" if model.space_is_suffix else ""
    raise TokenizerError(f"this kind of SentencePiece model is not supported: {model.algorithm.name}{suffix}")


def _vocab_size(config: Mapping[str, Any], directory: Path) -> int | None:
    size = config.get("vocab_size")
    if size is not None and (not isinstance(size, int) or isinstance(size, bool) or not 0 < size <= MAX_TOKENS):
        raise TokenizerError(
            f'{directory / "config.json"}: "vocab_size" is {size!r:.80}; it must be an integer from 1 to {MAX_TOKENS}'
        )
    return size


def _roles_of_model(files: TokenizerDirectory) -> dict[str, int]:
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


def _boundary_ids(boundary: BoundaryTokens, tokens: TokenTable, files: TokenizerDirectory) -> dict[str, int]:
    """The tokens before and after a text by the engine's roles: BOS before it, EOS after it."""
    ids: dict[str, int] = {}
    for part, text in (("bos", boundary.before), ("eos", boundary.after)):
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
        yield f"{len(dropped)} added tokens have no row in the model's embedding and were left out: {names}"
    n_fillers = sum(token.type is TokenType.UNUSED for token in tokens)
    if n_fillers:
        yield f"{n_fillers} rows of the model's embedding have no token and were given unused ones"
