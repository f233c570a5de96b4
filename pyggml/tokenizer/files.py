"""Finding and reading a tokenizer's files, in the formats of several tools."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyggml._core.checks import shown
from pyggml._native.vocab import TokenType
from pyggml.errors import InvalidParameterError, TokenizerError, TokenizerNotFoundError
from pyggml.files.json_file import MAX_BYTES, parse_object, read_bytes, read_object
from pyggml.files.model_files import GENERATION_CONFIG, TOKENIZERS
from pyggml.tokenizer import sentencepiece
from pyggml.tokenizer.sentencepiece import Piece, SentencePieceModel
from pyggml.tokenizer.tokenizer_json import from_sentencepiece

Json = Mapping[str, Any]

_SAVE = "AutoTokenizer.from_pretrained(...).save_pretrained(...) of the transformers package writes a tokenizer.json"
# Files that directories have instead, and the reasons why they are not enough.
_UNREADABLE = {
    "tekken.json": f"in Mistral's own format, which is not supported: use a version with a tokenizer.json; {_SAVE}",
    "*.tiktoken": f"in tiktoken's format, which does not say how text is split into words: {_SAVE}",
    "vocab.json": f"a list of ids, which does not say how text is split into words: {_SAVE}",
    "merges.txt": f"a list of merges, which does not say how text is split into words: {_SAVE}",
    "vocab.txt": f"a list of WordPiece ids, which does not say how text is normalised: {_SAVE}",
    "tokenizer.model.v*": "a SentencePiece model: rename it to tokenizer.model",
    "spiece.model": "a SentencePiece model: rename it to tokenizer.model",
}

_TIKTOKEN_LINE = re.compile(rb"[A-Za-z0-9+/=]+ \d+\r?\n")


@dataclass(frozen=True)
class TokenizerDirectory:
    """The content of a directory's tokenizer files, as written by transformers 4 or 5; missing files are empty.

    Attributes:
        path: the directory.
        config: the model's ``config.json``.
        tokenizer_file: the file with the vocabulary.
        tokenizer_json: the ``tokenizer.json``; empty if the tokenizer is ``sentencepiece``.
        sentencepiece: the ``tokenizer.model``, read only if there is no ``tokenizer.json``.
        tokenizer_config: settings, in transformers 4 also templates and the kinds of added tokens.
        special_tokens: ``special_tokens_map.json``: the tokens' roles.
        added_tokens: ``added_tokens.json``: ids of added tokens, without their kinds.
        generation: ``generation_config.json``.
    """

    path: Path
    config: Json
    tokenizer_file: Path
    tokenizer_json: Json
    sentencepiece: SentencePieceModel | None
    tokenizer_config: Json
    special_tokens: Json
    added_tokens: Json
    generation: Json


def read_directory(path: Path, config: Json) -> TokenizerDirectory:
    """Read all tokenizer files of a directory."""
    file = find(path)
    content = _content(file)
    settings = read_object(path / "tokenizer_config.json", TokenizerError)
    return TokenizerDirectory(
        path=path,
        config=config,
        tokenizer_file=file,
        tokenizer_json=content if isinstance(content, dict) else {},
        sentencepiece=_with_settings(content, settings) if isinstance(content, SentencePieceModel) else None,
        tokenizer_config=settings,
        special_tokens=read_object(path / "special_tokens_map.json", TokenizerError),
        added_tokens=read_object(path / "added_tokens.json", TokenizerError),
        generation=read_object(path / GENERATION_CONFIG, TokenizerError),
    )


def read(path: str | os.PathLike[str]) -> tuple[Path, dict[str, Any]]:
    """Read a tokenizer: a ``tokenizer.json``, a ``tokenizer.model``, or a directory with one; the former is preferred.

    Returns:
        The file, and its content in the form of a ``tokenizer.json``.

    Raises:
        TokenizerNotFoundError: there is nothing at the path, or no tokenizer in the directory.
        TokenizerError: it cannot be read; the message says why, and what to do.
        InvalidParameterError: ``path`` is not a path.
    """
    file = find(path)
    content = _content(file)
    if isinstance(content, dict):
        return file, content
    try:
        settings = read_object(file.parent / "tokenizer_config.json", TokenizerError)
        return file, from_sentencepiece(_with_settings(_with_added_pieces(content, file.parent), settings))
    except TokenizerError as error:
        raise TokenizerError(f"{file}: {error}") from None


def find(path: str | os.PathLike[str]) -> Path:
    """Return the file that :func:`read` would read; it raises the same errors, except for those in the content."""
    try:
        found = Path(path)
    except TypeError:
        raise InvalidParameterError(f"tokenizer must be a path or a tokenizer, not {type(path).__name__}") from None
    try:
        if found.is_dir():
            return _in_directory(found)
        found.stat()
    except TokenizerError:  # is also one of those below
        raise
    except FileNotFoundError:
        raise TokenizerNotFoundError(f"there is no tokenizer at {found}") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise TokenizerError(f"the tokenizer {path!s} cannot be read: {error}") from None
    return found


def _in_directory(directory: Path) -> Path:
    for name in TOKENIZERS:
        if os.path.lexists(directory / name):  # a broken link is an error, not an absence
            return directory / name
    others = ((file, why) for pattern, why in _UNREADABLE.items() for file in sorted(directory.glob(pattern)))
    hint = next((f"; {file.name} is {why}" for file, why in others), "")
    raise TokenizerNotFoundError(f"there is no {' or '.join(TOKENIZERS)} in {directory}{hint}")


def _content(file: Path) -> dict[str, Any] | SentencePieceModel:
    """Read a file by its content, whatever its name."""
    data = read_bytes(file, TokenizerError) or b""
    if data.lstrip()[:1] in (b"{", b"["):
        return parse_json(data, str(file))
    if _TIKTOKEN_LINE.match(data):
        raise TokenizerError(f"{file} is {_UNREADABLE['*.tiktoken']}")
    try:
        return sentencepiece.parse(data)
    except TokenizerError as error:
        neither = f"{file} is neither a tokenizer.json nor SentencePiece's tokenizer.model"
        raise TokenizerError(f"{neither}: {error}") from None


def parse_json(data: bytes, name: str) -> dict[str, Any]:
    """Parse the content of a ``tokenizer.json``; ``name`` is its name in messages."""
    if len(data) > MAX_BYTES:
        raise TokenizerError(f"{name} has {len(data)} bytes; pyggml reads at most {MAX_BYTES}")
    content = parse_object(data, name, TokenizerError)
    if isinstance(content.get("model"), dict):
        return content
    if "vocab" in content and "config" in content:
        raise TokenizerError(f"{name} is {_UNREADABLE['tekken.json']}")
    if content and all(isinstance(value, int) for value in content.values()):
        raise TokenizerError(f"{name} is {_UNREADABLE['vocab.json']}")
    raise TokenizerError(f'{name} is not a tokenizer.json: it has no "model"')


def _with_settings(model: SentencePieceModel, settings: Json) -> SentencePieceModel:
    return replace(model, prefixes_start_only=settings.get("legacy") is False)


def _with_added_pieces(model: SentencePieceModel, directory: Path) -> SentencePieceModel:
    """Add tokens that only other files have, such as the chat tokens of a fine-tuned model."""
    pieces = list(model.pieces)
    for token_id, piece in sorted(_added_pieces(directory).items()):
        if token_id < len(pieces):
            pieces[token_id] = replace(piece, score=pieces[token_id].score)
        elif token_id == len(pieces):
            pieces.append(piece)
        else:
            raise TokenizerError(
                f"the added token {shown(piece.text)} has the id {token_id}, but no token has the id {len(pieces)}"
            )
    return replace(model, pieces=tuple(pieces))


def _added_pieces(directory: Path) -> dict[int, Piece]:
    """Return the added tokens of tokenizer_config.json or else of its predecessor, added_tokens.json."""
    file = directory / "tokenizer_config.json"
    content = read_object(file, TokenizerError)
    if "added_tokens_decoder" not in content:
        file = directory / "added_tokens.json"
        content = read_object(file, TokenizerError)
    try:
        if file.name == "added_tokens.json":
            return {int(token_id): Piece(text, 0.0, TokenType.USER_DEFINED) for text, token_id in content.items()}
        kinds = {True: TokenType.CONTROL, False: TokenType.USER_DEFINED}
        added = content["added_tokens_decoder"].items()
        return {int(i): Piece(token["content"], 0.0, kinds[bool(token.get("special"))]) for i, token in added}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise TokenizerError(f"{file.name} in its directory is damaged: {error}") from None
