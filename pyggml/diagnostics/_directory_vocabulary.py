"""The vocabulary of a Hugging Face directory, read only as far as a report goes.

Making a whole vocabulary takes seconds, most of them for tokens that are plain text. Here the files are read, counted
and checked as a whole, and the engine is shown those tokens only that have a part to play, under numbers of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pyggml.diagnostics._evidence import Problems, listed
from pyggml.diagnostics.report import SpecialToken, VocabularyReport
from pyggml.errors import TokenizerError, TokenizerNotFoundError
from pyggml.families import STOP_TOKEN_IDS
from pyggml.importer import _added_tokens, _byte_level, _sentencepiece_bpe
from pyggml.importer._chat_templates import chat_templates
from pyggml.importer._pre_tokenizers import word_cut
from pyggml.importer._special_tokens import ENGINE_SPECIAL, NoEndError
from pyggml.importer._token_table import Token, TokenTable
from pyggml.importer._tokenizer_directory import TokenizerDirectory, read_directory
from pyggml.importer.vocabulary import Roles, find_roles
from pyggml.tokenizer.sentencepiece import Algorithm
from pyggml.tokenizer.sentencepiece import PieceType as TokenType

_NAMED_IDS = "_token_id"
_KINDS = {"Unigram": "ugm", "WordPiece": "wpm"}


@dataclass(frozen=True)
class DirectoryVocabulary:
    """What is known of it.

    Attributes:
        type: as the engine calls it.
        pre_tokenizer: see :class:`VocabularyReport`.
        n_tokens: with those that fill up the embedding.
        metadata: of a GGUF file with the tokens only that have a part to play.
        special_texts: the texts of these.
        ids: text -> real id, of all tokens.
        roles: what parts there are.
    """

    type: str
    pre_tokenizer: str
    n_tokens: int
    metadata: Mapping[str, object]
    special_texts: frozenset[str]
    ids: Mapping[str, int]
    roles: Roles

    def sparse_tokens(self) -> tuple[list[str], list[int]]:
        """Texts and types by real id, of tokens without a part "" and NORMAL, as families are told by."""
        texts, types = [""] * self.n_tokens, [int(TokenType.NORMAL)] * self.n_tokens
        for text in self.special_texts:
            texts[self.ids[text]], types[self.ids[text]] = text, int(TokenType.CONTROL)
        return texts, types

    def with_real_ids(self, report: VocabularyReport) -> VocabularyReport:
        """The report on the tokens that the engine was shown, as one on the whole vocabulary."""
        return replace(
            report,
            type=self.type,
            pre_tokenizer=self.pre_tokenizer,
            n_tokens=self.n_tokens,
            special={part: SpecialToken(self.ids[token.text], token.text) for part, token in report.special.items()},
            stop_tokens={self.ids[text]: text for text in report.stop_tokens.values()},
            add_bos=self.roles.around.before is not None,
            add_eos=self.roles.around.after is not None,
        )


def read_vocabulary(directory: Path, config: Mapping[str, Any], problems: Problems) -> DirectoryVocabulary | None:
    """Reads the vocabulary; None where there is none that could be used, which is told as a problem."""
    try:
        return _read(directory, config, problems)
    except TokenizerNotFoundError as error:
        problems.error("no-tokenizer", str(error))
    except NoEndError as error:
        problems.error("no-stop-token", str(error))
    except TokenizerError as error:
        problems.error("broken-vocabulary", str(error))
    return None


def _read(directory: Path, config: Mapping[str, Any], problems: Problems) -> DirectoryVocabulary | None:
    files = read_directory(directory, config)
    texts = _Texts.of(files)
    added = _added_tokens.added_tokens(files)
    size = config.get("vocab_size")
    n_vocab = size if isinstance(size, int) else None
    ids = dict(texts.ids)
    tokens = TokenTable(_LazyTokens(ids, texts.types), ids)
    roles = find_roles(files, added, tokens, n_vocab)
    largest = max(ids.values())
    if n_vocab is not None and largest >= n_vocab:
        problems.error(
            "tokenizer-disagrees",
            f"{files.tokenizer_file.name} has tokens up to the id {largest}, and the model {n_vocab}: the tokenizer is "
            "another model's, or vocab_size in config.json is wrong",
        )
        return None
    if roles.dropped:
        problems.warning(
            "tokenizer-disagrees",
            f"{len(roles.dropped)} added tokens have no row in the embedding of {n_vocab}, and will be left out: "
            f"{listed([token.text for token in roles.dropped])}",
        )
    special = _with_parts(tokens, roles)
    return DirectoryVocabulary(
        type=texts.type,
        pre_tokenizer=texts.pre_tokenizer,
        n_tokens=n_vocab or largest + 1,
        metadata={**_shown(special, tokens, roles), **chat_templates(files)},
        special_texts=frozenset(special),
        ids=ids,
        roles=roles,
    )


@dataclass(frozen=True)
class _Texts:
    """The tokens that a tokenizer has before others are added to it."""

    type: str
    pre_tokenizer: str
    ids: Mapping[str, int]
    types: Mapping[int, TokenType]

    @classmethod
    def of(cls, files: TokenizerDirectory) -> _Texts:
        if files.sentencepiece is not None:
            pieces = files.sentencepiece.pieces
            types = {i: piece.type for i, piece in enumerate(pieces) if piece.type is not TokenType.NORMAL}
            kind = "ugm" if files.sentencepiece.algorithm is Algorithm.UNIGRAM else "spm"
            return cls(kind, "", _checked([(piece.text, i) for i, piece in enumerate(pieces)], files), types)
        tokenizer = files.tokenizer_json
        model = tokenizer["model"]
        ids = _checked(list(_entries(model.get("vocab"), files)), files)
        _require_merges(model, ids, files)
        unknown = model.get("unk_id", ids.get(model.get("unk_token") or "", -1))
        types = {unknown: TokenType.UNKNOWN} if isinstance(unknown, int) else {}
        if _byte_level.is_byte_level(tokenizer):
            return cls("bpe", word_cut(tokenizer).name, ids, types)
        other = _KINDS.get(str(model.get("type")))
        if other is None and not _sentencepiece_bpe.uses_sentencepiece_spaces(tokenizer):
            raise TokenizerError(
                f"{files.tokenizer_file}: a tokenizer of this kind cannot be read: {model.get('type')!r}"
            )
        return cls(other or "spm", "", ids, types)


class _LazyTokens(dict[int, Token]):
    """Tokens by id: those that were changed, and the others made when they are asked for."""

    def __init__(self, ids: Mapping[str, int], types: Mapping[int, TokenType]) -> None:
        super().__init__()
        self._texts = {token_id: text for text, token_id in ids.items()}
        self._types = types

    def __missing__(self, token_id: int) -> Token:
        return Token(self._texts[token_id], self._types.get(token_id, TokenType.NORMAL))

    def __contains__(self, token_id: object) -> bool:
        return token_id in self._texts or super().__contains__(token_id)

    def get(self, token_id: int, default: Any = None) -> Any:
        try:
            return self[token_id]
        except KeyError:
            return default


def _entries(vocab: object, files: TokenizerDirectory) -> Iterator[tuple[str, int]]:
    if isinstance(vocab, dict):
        yield from vocab.items()
    elif isinstance(vocab, list) and all(isinstance(entry, list) and len(entry) == 2 for entry in vocab):
        yield from ((text, i) for i, (text, _) in enumerate(vocab))
    else:
        raise TokenizerError(f'{files.tokenizer_file}: "model"["vocab"] is neither an object nor a list of pairs')


def _checked(entries: list[tuple[str, int]], files: TokenizerDirectory) -> dict[str, int]:
    """Texts with their ids, of which each is there once, and none is left out."""
    ids = dict(entries)
    if not ids:
        raise TokenizerError(f"{files.tokenizer_file}: a vocabulary without tokens")
    if len(ids) < len(entries):
        raise TokenizerError(f"{files.tokenizer_file}: {len(entries) - len(ids)} tokens are there twice")
    if not all(type(i) is int for i in ids.values()) or set(ids.values()) != set(range(len(ids))):
        raise TokenizerError(
            f"{files.tokenizer_file}: the ids of its {len(ids)} tokens do not run from 0 without a hole"
        )
    return ids


def _require_merges(model: Mapping[str, Any], ids: Mapping[str, int], files: TokenizerDirectory) -> None:
    merges = model.get("merges")
    if not isinstance(merges, list):
        return
    halves = {half for merge in merges for half in (merge.split(" ") if isinstance(merge, str) else merge)}
    unknown = halves - ids.keys()
    if unknown:
        raise TokenizerError(f"{files.tokenizer_file}: merges of what is no token: {listed(sorted(unknown))}")


def _with_parts(tokens: TokenTable, roles: Roles) -> list[str]:
    """The texts of tokens that the engine or a family may take for more than text."""
    changed = {token.text for token in tokens.by_id.values()}
    named = {tokens.by_id[token_id].text for token_id in (*roles.special.ids.values(), *roles.special.ends)}
    return sorted(changed | named | (ENGINE_SPECIAL & tokens.ids.keys()), key=tokens.ids.__getitem__)


def _shown(special: list[str], tokens: TokenTable, roles: Roles) -> dict[str, object]:
    """The metadata for these tokens, which are numbered anew."""
    number = {tokens.ids[text]: i for i, text in enumerate(special)}
    metadata = {
        key: number[value] if key.endswith(_NAMED_IDS) and isinstance(value, int) else value
        for key, value in roles.metadata.items()
    }
    types = [int(tokens.by_id[tokens.ids[text]].type) for text in special]
    return {
        **metadata,
        STOP_TOKEN_IDS: ",".join(str(number[token_id]) for token_id in roles.special.ends),
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": special,
        "tokenizer.ggml.token_type": np.array(types, np.int32),
        "tokenizer.ggml.merges": ["a b"],
    }
