"""Finding and reading a tokenizer's files: whatever is at a path becomes the content of a ``tokenizer.json``."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyggml.errors import InvalidParameterError, TokenizerError, TokenizerNotFoundError
from pyggml.tokenizer import _json_file, sentencepiece
from pyggml.tokenizer.sentencepiece import Piece, SentencePieceModel
from pyggml.vocab import TokenType

# In order of preference.
_NAMES = ("tokenizer.json", "tokenizer.model")

_SAVE = "AutoTokenizer.from_pretrained(...).save_pretrained(...) of the transformers package writes a tokenizer.json"
# What directories hold instead, and why it does not do.
_UNREADABLE = {
    "tekken.json": f"Mistral's own format, which is not read: take the model's edition with a tokenizer.json; {_SAVE}",
    "*.tiktoken": f"tiktoken's format, which does not say how text is cut into words: {_SAVE}",
    "vocab.json": f"ids without what says how text is cut into words: {_SAVE}",
    "merges.txt": f"merges without what says how text is cut into words: {_SAVE}",
    "vocab.txt": f"WordPiece ids without what says how text is normalised: {_SAVE}",
}

_TIKTOKEN_LINE = re.compile(rb"[A-Za-z0-9+/=]+ \d+\r?\n")
_MAX_BYTES = 2**30


def read(path: str | os.PathLike[str]) -> tuple[Path, dict[str, Any]]:
    """Reads a tokenizer.

    Args:
        path: a ``tokenizer.json``, a ``tokenizer.model``, or a directory with one; the former is preferred.

    Returns:
        The file that was read, and its content in the terms of ``tokenizer.json``.

    Raises:
        TokenizerNotFoundError: there is nothing at the path, or no tokenizer in the directory.
        TokenizerError: it cannot be read; says why, and what to do.
        InvalidParameterError: not a path.
    """
    file = find(path)
    data = _data(file)
    try:
        if data.lstrip()[:1] in (b"{", b"["):
            return file, _hugging_face(data)
        if _TIKTOKEN_LINE.match(data):
            raise TokenizerError(_UNREADABLE["*.tiktoken"])
        return file, _json_file.from_sentencepiece(_with_added_pieces(_sentencepiece_model(data), file.parent))
    except TokenizerError as error:
        raise TokenizerError(f"{file}: {error}") from None


def find(path: str | os.PathLike[str]) -> Path:
    """The file that :func:`read` would read.

    Raises:
        As :func:`read`, of what a look at names can tell.
    """
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
    for name in _NAMES:
        if (directory / name).is_file():
            return directory / name
    for pattern, why in _UNREADABLE.items():
        for file in sorted(directory.glob(pattern)):
            raise TokenizerError(f"{file}: {why}")
    raise TokenizerNotFoundError(f"there is no {' or '.join(_NAMES)} in {directory}")


def _data(file: Path) -> bytes:
    try:
        if not file.is_file():  # a pipe, say, at which reading would wait
            raise TokenizerError(f"{file} is not a file")
        if file.stat().st_size > _MAX_BYTES:
            raise TokenizerError(f"{file} has {file.stat().st_size} bytes, more than any tokenizer")
        return file.read_bytes()
    except OSError as error:
        raise TokenizerError(f"the tokenizer {file} cannot be read: {error}") from None


def _sentencepiece_model(data: bytes) -> SentencePieceModel:
    try:
        return sentencepiece.parse(data)
    except TokenizerError as error:
        raise TokenizerError(f"neither a tokenizer.json nor SentencePiece's tokenizer.model: {error}") from None


def _hugging_face(data: bytes) -> dict[str, Any]:
    content = _json(data)
    if isinstance(content, dict) and isinstance(content.get("model"), dict):
        return content
    if isinstance(content, dict) and "vocab" in content and "config" in content:
        raise TokenizerError(_UNREADABLE["tekken.json"])
    if isinstance(content, dict) and content and all(isinstance(value, int) for value in content.values()):
        raise TokenizerError(_UNREADABLE["vocab.json"])
    raise TokenizerError('not a tokenizer.json: it has no "model"')


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise TokenizerError(f"not JSON: {error}") from None


def _with_added_pieces(model: SentencePieceModel, directory: Path) -> SentencePieceModel:
    """The model with what fine-tuning added: the tokens of chats, say, stand beside the ``tokenizer.model`` only."""
    pieces = list(model.pieces)
    for token_id, piece in sorted(_added_pieces(directory).items()):
        if token_id < len(pieces):
            pieces[token_id] = replace(piece, score=pieces[token_id].score)
        elif token_id == len(pieces):
            pieces.append(piece)
        else:
            raise TokenizerError(
                f"the token {piece.text!r}, added by a file beside it, has id {token_id}, and nothing has {len(pieces)}"
            )
    return replace(model, pieces=tuple(pieces))


def _added_pieces(directory: Path) -> dict[int, Piece]:
    """Of tokenizer_config.json, and of added_tokens.json, which came before it."""
    return _older_pieces(directory / "added_tokens.json") | _configured_pieces(directory / "tokenizer_config.json")


def _older_pieces(file: Path) -> dict[int, Piece]:
    with _naming(file):
        return {int(token_id): Piece(text, 0.0, TokenType.USER_DEFINED) for text, token_id in _beside(file).items()}


def _configured_pieces(file: Path) -> dict[int, Piece]:
    pieces = {}
    with _naming(file):
        for token_id, token in _beside(file).get("added_tokens_decoder", {}).items():
            kind = TokenType.CONTROL if token.get("special") else TokenType.USER_DEFINED
            pieces[int(token_id)] = Piece(token["content"], 0.0, kind)
    return pieces


@contextmanager
def _naming(file: Path) -> Iterator[None]:
    """What is wrong with a file beside the tokenizer, or is not what it should be, is told with the file's name."""
    try:
        yield
    except (TokenizerError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise TokenizerError(f"{file.name} beside it: {error}") from None


def _beside(file: Path) -> Any:
    """JSON that may be there."""
    return _json(_data(file)) if file.is_file() else {}
