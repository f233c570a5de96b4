"""The vocabulary of a Hugging Face directory, read only as far as a report needs.

Building a whole vocabulary takes seconds, mostly for tokens that are plain text. This module checks the files as a
whole, but passes only the tokens with a role to the engine, renumbered.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pyggml._core.checks import shown
from pyggml._native.vocab import TokenType, is_markup
from pyggml.diagnostics._facts import Problems, listed
from pyggml.diagnostics.report import SpecialToken, VocabularyReport
from pyggml.errors import TokenizerError, TokenizerNotFoundError
from pyggml.families import STOP_TOKEN_IDS
from pyggml.importer.vocabulary import Roles, added_tokens, byte_level, find_roles
from pyggml.importer.vocabulary.chat_templates import chat_templates
from pyggml.importer.vocabulary.pre_tokenizers import find_pre_tokenizer
from pyggml.importer.vocabulary.special_tokens import ENGINE_SPECIAL, NoEndError
from pyggml.importer.vocabulary.token_table import Token, TokenTable
from pyggml.tokenizer.files import TokenizerDirectory, read_directory
from pyggml.tokenizer.sentencepiece import Algorithm

_KINDS = {"BPE": "spm", "Unigram": "ugm", "WordLevel": "spm", "WordPiece": "wpm"}


@dataclass(frozen=True)
class DirectoryVocabulary:
    """The vocabulary of a directory, without plain tokens.

    Attributes:
        base: the tokens before others were added.
        n_tokens: including those that only pad the embedding.
        metadata: of a GGUF file that has only the tokens with a role.
        types: text -> type, of these tokens.
        ids: text -> real id, of all tokens.
        roles: the tokens with roles.
    """

    base: _BaseVocabulary
    n_tokens: int
    metadata: Mapping[str, object]
    types: Mapping[str, TokenType]
    ids: Mapping[str, int]
    roles: Roles

    def has_special(self, text: str) -> bool:
        """Check whether a text is a special token."""
        token_id = self.ids.get(text)
        if token_id is None:
            return False
        is_normal = self.types.get(text, TokenType.NORMAL) is TokenType.NORMAL
        return token_id in self.roles.special.ends or not is_markup(text, is_normal)

    @property
    def special_texts(self) -> set[str]:
        """The texts of special tokens."""
        return {text for text, type in self.types.items() if type is not TokenType.NORMAL}

    def with_real_ids(self, report: VocabularyReport) -> VocabularyReport:
        """Convert a report on the engine's renumbered tokens to one on the whole vocabulary."""
        return replace(
            report,
            type=self.base.type,
            pre_tokenizer=self.base.pre_tokenizer,
            n_tokens=self.n_tokens,
            special={part: SpecialToken(self.ids[token.text], token.text) for part, token in report.special.items()},
            stop_tokens={self.ids[text]: text for text in report.stop_tokens.values()},
            add_bos=self.roles.boundary.before is not None,
            add_eos=self.roles.boundary.after is not None,
        )


def inspect_vocabulary(directory: Path, config: Mapping[str, Any], problems: Problems) -> DirectoryVocabulary | None:
    """Read the vocabulary; None, and a problem, if there is none that can be used."""
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
    base = _BaseVocabulary.of(files)
    added = added_tokens.added_tokens(files)
    n_vocab = size if isinstance(size := config.get("vocab_size"), int) else None
    ids = dict(base.ids)
    tokens = TokenTable(_LazyTokens(ids, base.types), ids)
    roles = find_roles(files, added, tokens, n_vocab)
    largest = max(ids.values())
    if n_vocab is not None and largest >= n_vocab:
        problems.error(
            "tokenizer-disagrees",
            f"{files.tokenizer_file.name} has tokens up to the id {largest}, but the model has {n_vocab} tokens: the "
            "tokenizer belongs to another model, or vocab_size in config.json is wrong",
        )
        return None
    if roles.dropped:
        problems.warning(
            "tokenizer-disagrees",
            f"{len(roles.dropped)} added tokens have no row in the embedding of {n_vocab}, and will be left out: "
            f"{listed([token.text for token in roles.dropped])}",
        )
    types = _special_types(tokens, roles)
    metadata = {**_renumbered_metadata(types, tokens, roles), **chat_templates(files)}
    return DirectoryVocabulary(base, n_vocab or largest + 1, metadata, types, ids, roles)


@dataclass(frozen=True)
class _BaseVocabulary:
    """The tokens that a tokenizer has before others are added to it."""

    type: str
    pre_tokenizer: str
    ids: Mapping[str, int]
    types: Mapping[int, TokenType]

    @classmethod
    def of(cls, files: TokenizerDirectory) -> _BaseVocabulary:
        if files.sentencepiece is not None:
            pieces = files.sentencepiece.pieces
            types = {i: piece.type for i, piece in enumerate(pieces) if piece.type is not TokenType.NORMAL}
            kind = "ugm" if files.sentencepiece.algorithm is Algorithm.UNIGRAM else "spm"
            return cls(kind, "", _numbered([piece.text for piece in pieces], files), types)
        tokenizer = files.tokenizer_json
        model = tokenizer["model"]
        ids = _checked(_entries(model.get("vocab"), files), files)
        _require_merges(model, ids, files)
        unknown = model.get("unk_id", ids.get(model.get("unk_token") or "", -1))
        types = {unknown: TokenType.UNKNOWN} if isinstance(unknown, int) else {}
        if byte_level.is_byte_level(tokenizer):
            return cls("bpe", find_pre_tokenizer(tokenizer)[0], ids, types)
        kind = str(model.get("type") or ("BPE" if "merges" in model else None))
        if kind not in _KINDS:
            raise TokenizerError(
                f"{files.tokenizer_file}: a tokenizer of this kind cannot be read: {shown(model.get('type'))}"
            )
        return cls(_KINDS[kind], "", ids, types)


class _LazyTokens(dict[int, Token]):
    """Tokens by id; unchanged ones are created on demand."""

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


def _entries(vocab: object, files: TokenizerDirectory) -> dict[str, int]:
    if isinstance(vocab, dict):
        return vocab
    if not isinstance(vocab, list) or not all(isinstance(entry, list) and len(entry) == 2 for entry in vocab):
        raise TokenizerError(f'{files.tokenizer_file}: "model"["vocab"] is neither an object nor a list of pairs')
    return _numbered([text for text, _ in vocab], files)


def _numbered(texts: list[str], files: TokenizerDirectory) -> dict[str, int]:
    ids = {text: i for i, text in enumerate(texts)}
    if len(ids) < len(texts):
        raise TokenizerError(f"{files.tokenizer_file}: {len(texts) - len(ids)} tokens appear twice")
    return ids


def _checked(ids: Mapping[str, int], files: TokenizerDirectory) -> Mapping[str, int]:
    """The ids, after checking that each is there once and none is left out."""
    if not ids:
        raise TokenizerError(f"{files.tokenizer_file}: the vocabulary has no tokens")
    if set(map(type, ids.values())) != {int} or set(ids.values()) != set(range(len(ids))):
        raise TokenizerError(
            f"{files.tokenizer_file}: the ids of its {len(ids)} tokens are not 0, 1, 2 ... without a gap"
        )
    return ids


def _require_merges(model: Mapping[str, Any], ids: Mapping[str, int], files: TokenizerDirectory) -> None:
    """Check in one step that all merges consist of tokens, since there are hundreds of thousands."""
    merges = model.get("merges") or []
    try:
        spelled = set(map(type, merges)) == {str}
        halves = set(" ".join(merges).split(" ") if spelled else itertools.chain.from_iterable(merges))
    except TypeError:
        raise TokenizerError(f"{files.tokenizer_file}: these are not merges: {merges!r:.100}") from None
    unknown = halves - ids.keys() if merges else set()
    if unknown:
        raise TokenizerError(f"{files.tokenizer_file}: merges of unknown tokens: {listed(sorted(map(str, unknown)))}")


def _special_types(tokens: TokenTable, roles: Roles) -> dict[str, TokenType]:
    """The tokens that may be special to the engine or to a family, and their types."""
    changed = {token.text for token in tokens.by_id.values()}
    named = {tokens.by_id[token_id].text for token_id in (*roles.special.ids.values(), *roles.special.ends)}
    texts = sorted(changed | named | (ENGINE_SPECIAL & tokens.ids.keys()), key=tokens.ids.__getitem__)
    return {text: tokens.by_id[tokens.ids[text]].type for text in texts}


def _renumbered_metadata(types: Mapping[str, TokenType], tokens: TokenTable, roles: Roles) -> dict[str, object]:
    """The metadata of these tokens, renumbered."""
    number = {tokens.ids[text]: i for i, text in enumerate(types)}
    return {
        **{
            key: number[value] if key.endswith("_token_id") and isinstance(value, int) else value
            for key, value in roles.metadata.items()
        },
        STOP_TOKEN_IDS: ",".join(str(number[token_id]) for token_id in roles.special.ends),
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": list(types),
        "tokenizer.ggml.token_type": np.array(list(map(int, types.values())), np.int32),
        "tokenizer.ggml.merges": ["a b"],
    }
