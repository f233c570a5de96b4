"""The SentencePiece model format (``tokenizer.model``): what a vocabulary's file says, without interpreting it.

The file is one protocol-buffers message, ModelProto of SentencePiece's ``sentencepiece_model.proto``. Only the wire
format and the fields that matter for encoding and decoding are read here; everything else is skipped. Every length is
checked against the bytes that are there, so a damaged file is an error and never a large allocation.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from pyggml.errors import TokenizerError
from pyggml.vocab import TokenType

_MAX_BYTES = 256 * 2**20  # the largest known, of a million pieces, has a tenth

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types; groups (3, 4) have not been in use for a decade

# Field numbers of sentencepiece_model.proto.
_MODEL_PIECES, _MODEL_TRAINER, _MODEL_NORMALIZER = 1, 2, 3
_PIECE_TEXT, _PIECE_SCORE, _PIECE_TYPE = 1, 2, 3
_TRAINER_MODEL_TYPE, _TRAINER_SUFFIX, _TRAINER_BYTE_FALLBACK = 3, 24, 35
_TRAINER_UNK_ID, _TRAINER_BOS_ID, _TRAINER_EOS_ID, _TRAINER_PAD_ID = 40, 41, 42, 43
_NORMALIZER_CHARSMAP, _NORMALIZER_PREFIX, _NORMALIZER_EXTRA_SPACES, _NORMALIZER_ESCAPE = 2, 3, 4, 5


class Algorithm(enum.IntEnum):
    """How a model cuts text."""

    UNIGRAM = 1
    BPE = 2
    WORD = 3
    CHAR = 4


@dataclass(frozen=True, slots=True)
class Piece:
    """One entry of the vocabulary; its id is its position.

    Attributes:
        text: as stored, spaces spelled ``▁``.
        score: a log-probability (unigram), or the negative rank of its merge (BPE).
        type: what it is.
    """

    text: str
    score: float
    type: TokenType


@dataclass(frozen=True)
class SentencePieceModel:
    """A vocabulary, and how text is prepared for it.

    Attributes:
        pieces: by id.
        algorithm: how text is cut.
        byte_fallback: what no piece spells becomes the pieces of its UTF-8 bytes, ``<0x00>`` to ``<0xFF>``.
        space_is_suffix: a space belongs to the word before it.
        add_dummy_prefix: a text begins with a space that was not written.
        remove_extra_whitespaces: runs of spaces are one, and a text's ends have none.
        escape_whitespaces: spaces are spelled ``▁`` before the text is cut.
        precompiled_charsmap: the normalisation of characters, in SentencePiece's own compiled form; empty: none.
        unk_id: the piece for what nothing spells; -1: there is none, as for the other ids.
        bos_id: begins a text.
        eos_id: ends a text.
        pad_id: fills up.
    """

    pieces: tuple[Piece, ...]
    algorithm: Algorithm = Algorithm.UNIGRAM
    byte_fallback: bool = False
    space_is_suffix: bool = False
    add_dummy_prefix: bool = True
    remove_extra_whitespaces: bool = True
    escape_whitespaces: bool = True
    precompiled_charsmap: bytes = b""
    unk_id: int = 0
    bos_id: int = 1
    eos_id: int = 2
    pad_id: int = -1


def parse(data: bytes) -> SentencePieceModel:
    """Reads a serialised ModelProto.

    Raises:
        TokenizerError: damaged, too large, without pieces, or of an unknown kind.
    """
    if len(data) > _MAX_BYTES:
        raise TokenizerError(f"a SentencePiece model of {len(data)} bytes; {_MAX_BYTES} are the most that is read")
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
        raise TokenizerError("no SentencePiece model: it has no pieces")
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
    except ValueError as error:  # not UTF-8, or a type that is none
        raise TokenizerError(f"a damaged SentencePiece model: piece {index}: {error}") from None


def _algorithm(number: int) -> Algorithm:
    try:
        return Algorithm(number)
    except ValueError:
        raise TokenizerError(f"a damaged SentencePiece model: it is of kind {number}, which there is not") from None


def _integers(message: bytes) -> dict[int, int]:
    return {number: value for number, value in _fields(message) if isinstance(value, int)}


def _int32(value: int) -> int:
    """A negative number is sent as if it had 64 bits."""
    return value - 2**64 if value >= 2**63 else value


def _message(value: bytes | float) -> bytes:
    if not isinstance(value, bytes):
        raise TokenizerError("no SentencePiece model: a number stands where a message should")
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
            raise TokenizerError(f"no SentencePiece model: wire type {wire_type} at byte {at}")


def _take(data: bytes, at: int, size: int) -> bytes:
    if size > len(data) - at:
        raise TokenizerError(f"a damaged SentencePiece model: {size} bytes announced, {len(data) - at} left")
    return data[at : at + size]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of seven bits a byte, the lowest first, and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        if at == len(data):
            raise TokenizerError("a damaged SentencePiece model: it ends inside a number")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise TokenizerError(f"no SentencePiece model: a number of more than ten bytes ends at byte {at}")
