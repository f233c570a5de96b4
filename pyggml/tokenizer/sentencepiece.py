"""A parser of the SentencePiece model format (``tokenizer.model``).

The file is one protocol-buffers message, ModelProto of SentencePiece's ``sentencepiece_model.proto``. Only the fields
that matter for encoding and decoding are read; all others are skipped. Every length is checked against the remaining
bytes, so that a damaged file causes an error and never a large allocation.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from pyggml._native.vocab import TokenType
from pyggml.errors import TokenizerError

_MAX_BYTES = 256 * 2**20  # ten times the largest known model, which has a million pieces

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types; groups (3, 4) are long obsolete

# Field numbers of sentencepiece_model.proto.
_MODEL_PIECES, _MODEL_TRAINER, _MODEL_NORMALIZER = 1, 2, 3
_PIECE_TEXT, _PIECE_SCORE, _PIECE_TYPE = 1, 2, 3
_TRAINER_MODEL_TYPE, _TRAINER_SUFFIX, _TRAINER_BYTE_FALLBACK = 3, 24, 35
_TRAINER_UNK_ID, _TRAINER_BOS_ID, _TRAINER_EOS_ID, _TRAINER_PAD_ID = 40, 41, 42, 43
_NORMALIZER_CHARSMAP, _NORMALIZER_PREFIX, _NORMALIZER_EXTRA_SPACES, _NORMALIZER_ESCAPE = 2, 3, 4, 5


class Algorithm(enum.IntEnum):
    """A tokenization algorithm."""

    UNIGRAM = 1
    BPE = 2
    WORD = 3
    CHAR = 4


@dataclass(frozen=True, slots=True)
class Piece:
    """An entry of the vocabulary; its id is its position.

    Attributes:
        text: its stored text, with spaces spelled ``▁``.
        score: its log-probability (unigram), or the negative rank of its merge (BPE).
        type: its type.
    """

    text: str
    score: float
    type: TokenType


@dataclass(frozen=True)
class SentencePieceModel:
    """A vocabulary, and the normalisation of text for it.

    Attributes:
        pieces: the pieces in the order of their ids.
        algorithm: the tokenization algorithm.
        byte_fallback: True if characters without a piece become pieces of their UTF-8 bytes, ``<0x00>`` to ``<0xFF>``.
        space_is_suffix: whether a space belongs to the word before it.
        add_dummy_prefix: whether a space is prepended to each text.
        prefixes_start_only: whether that happens at the beginning of a text only, not after special tokens: no part of
            the format, but of transformers' settings (``"legacy": false``).
        remove_extra_whitespaces: whether runs of spaces are merged, and spaces at a text's ends removed.
        escape_whitespaces: whether spaces become ``▁`` before the text is cut.
        precompiled_charsmap: the normalisation of characters, in SentencePiece's own compiled form; empty: none.
        unk_id: the piece for unknown characters; -1: there is none, as for the other ids.
        bos_id: the piece that begins a text.
        eos_id: the piece that ends a text.
        pad_id: the padding piece.
    """

    pieces: tuple[Piece, ...]
    algorithm: Algorithm = Algorithm.UNIGRAM
    byte_fallback: bool = False
    space_is_suffix: bool = False
    add_dummy_prefix: bool = True
    prefixes_start_only: bool = False
    remove_extra_whitespaces: bool = True
    escape_whitespaces: bool = True
    precompiled_charsmap: bytes = b""
    unk_id: int = 0
    bos_id: int = 1
    eos_id: int = 2
    pad_id: int = -1


def parse(data: bytes) -> SentencePieceModel:
    """Parse a serialised ModelProto; TokenizerError if it is damaged, too large, empty, or of an unknown kind."""
    if len(data) > _MAX_BYTES:
        raise TokenizerError(f"a SentencePiece model of {len(data)} bytes; pyggml reads at most {_MAX_BYTES}")
    pieces: list[Piece] = []
    trainer: dict[int, int] = {}
    normalizer: dict[int, int] = {}
    charsmap = b""
    for number, value in _fields(data):
        if number == _MODEL_PIECES:
            pieces.append(_piece(_message(value), len(pieces)))
        elif number == _MODEL_TRAINER:
            trainer |= _integers(_message(value))
        elif number == _MODEL_NORMALIZER:
            message = _message(value)
            normalizer |= _integers(message)
            charsmap = next((v for n, v in _fields(message) if n == _NORMALIZER_CHARSMAP and isinstance(v, bytes)), b"")
    if not pieces:
        raise TokenizerError("not a SentencePiece model: it has no pieces")
    return SentencePieceModel(
        pieces=tuple(pieces),
        algorithm=_algorithm(trainer.get(_TRAINER_MODEL_TYPE, Algorithm.UNIGRAM)),
        byte_fallback=bool(trainer.get(_TRAINER_BYTE_FALLBACK, False)),
        space_is_suffix=bool(trainer.get(_TRAINER_SUFFIX, False)),
        add_dummy_prefix=bool(normalizer.get(_NORMALIZER_PREFIX, True)),
        remove_extra_whitespaces=bool(normalizer.get(_NORMALIZER_EXTRA_SPACES, True)),
        escape_whitespaces=bool(normalizer.get(_NORMALIZER_ESCAPE, True)),
        precompiled_charsmap=charsmap,
        unk_id=_int32(trainer.get(_TRAINER_UNK_ID, 0)),
        bos_id=_int32(trainer.get(_TRAINER_BOS_ID, 1)),
        eos_id=_int32(trainer.get(_TRAINER_EOS_ID, 2)),
        pad_id=_int32(trainer.get(_TRAINER_PAD_ID, -1)),
    )


def _piece(message: bytes, index: int) -> Piece:
    text, score, kind = b"", 0.0, int(TokenType.NORMAL)
    for number, value in _fields(message):
        if number == _PIECE_TEXT and isinstance(value, bytes):
            text = value
        elif number == _PIECE_SCORE and isinstance(value, float):
            score = value
        elif number == _PIECE_TYPE and isinstance(value, int):
            kind = value
    try:
        return Piece(text.decode(), score, TokenType(kind))
    except ValueError as error:  # not UTF-8, or an unknown type
        raise TokenizerError(f"a damaged SentencePiece model: piece {index}: {error}") from None


def _algorithm(number: int) -> Algorithm:
    try:
        return Algorithm(number)
    except ValueError:
        raise TokenizerError(f"a damaged SentencePiece model: its algorithm is {number}, which is unknown") from None


def _integers(message: bytes) -> dict[int, int]:
    return {number: value for number, value in _fields(message) if isinstance(value, int)}


def _int32(value: int) -> int:
    """Convert a varint: negative numbers are encoded as 64 bits."""
    return value - 2**64 if value >= 2**63 else value


def _message(value: bytes | float) -> bytes:
    if not isinstance(value, bytes):
        raise TokenizerError("not a SentencePiece model: a number stands where a message should")
    return value


def _fields(data: bytes) -> Iterator[tuple[int, bytes | int | float]]:
    """Field numbers and values of a message: varints as int, 32-bit numbers as float, all else as bytes."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        wire_type = tag & 7
        if not tag >> 3:
            raise TokenizerError("not a SentencePiece model: fields are numbered from 1")
        if wire_type == _VARINT:
            value, at = _varint(data, at)
            yield tag >> 3, value
        elif wire_type == _FIXED32:
            yield tag >> 3, struct.unpack("<f", _take(data, at, 4))[0]
            at += 4
        elif wire_type == _BYTES:
            size, at = _varint(data, at)
            yield tag >> 3, _take(data, at, size)
            at += size
        elif wire_type == _FIXED64:
            yield tag >> 3, _take(data, at, 8)
            at += 8
        else:
            raise TokenizerError(f"not a SentencePiece model: wire type {wire_type} at byte {at}")


def _take(data: bytes, at: int, size: int) -> bytes:
    if size > len(data) - at:
        raise TokenizerError(f"a damaged SentencePiece model: {size} bytes expected, {len(data) - at} left")
    return data[at : at + size]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number, stored as seven bits per byte, lowest first, and the offset of its end."""
    value = 0
    for shift in range(0, 70, 7):
        if at == len(data):
            raise TokenizerError("a damaged SentencePiece model: it ends inside a number")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise TokenizerError(f"not a SentencePiece model: a number of more than ten bytes ends at byte {at}")
