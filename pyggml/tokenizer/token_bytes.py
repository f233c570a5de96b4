"""The bytes that a token adds to a text, derived from the decoder of a ``tokenizer.json``.

Hugging Face's decoders work on whole texts, but a token's text depends on its neighbours only at the start of a text
and where a character is cut in two. With bytes, neither is a problem: a token's bytes are always the same, and an
incremental UTF-8 decoder assembles the characters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from pyggml._core.checks import shown
from pyggml.errors import TokenizerError

Step = Callable[[str | bytes], str | bytes]

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def byte_level_alphabet() -> dict[str, int]:
    """Return the characters that stand for bytes in byte-level vocabularies, as GPT-2 introduced them.

    A byte that prints in Latin-1 is itself; the others, in order, are the characters from U+0100 on.
    """
    shown = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = (byte for byte in range(256) if byte not in shown)
    return {chr(byte): byte for byte in shown} | {chr(256 + n): byte for n, byte in enumerate(hidden)}


_ALPHABET = byte_level_alphabet()


def bytes_of_tokens(decoder: Mapping[str, Any] | None) -> Callable[[str], bytes]:
    """Return a function that converts a token's spelling to its bytes.

    ``decoder`` is that of a ``tokenizer.json``; None: tokens are words separated by spaces.

    Raises:
        TokenizerError: the decoder is unknown or damaged, or gives tokens no bytes of their own.
    """
    try:
        steps = [_word] if decoder is None else _steps(decoder)
    except (AttributeError, KeyError, RecursionError, TypeError) as error:
        raise TokenizerError(f"its decoder is damaged: {shown(error)}") from None

    def convert(token: str) -> bytes:
        value: str | bytes = token
        for step in steps:
            value = step(value)
        return value.encode() if isinstance(value, str) else value

    return convert


def _steps(decoder: Mapping[str, Any]) -> list[Step]:
    kind = decoder.get("type")
    if kind == "Sequence":
        steps: list[Step] = []
        for part in decoder["decoders"]:
            if part.get("type") == "Fuse":
                break  # later steps see the whole text: they strip the space that encoding added
            steps += _steps(part)
        return steps
    if kind == "ByteLevel":
        return [_on_text(_byte_level)]
    if kind == "ByteFallback":
        return [_on_text(_byte_fallback)]
    if kind == "Metaspace":
        return [_replace(decoder.get("replacement", "▁"), " ")]
    if kind == "WordPiece":
        return [_word_piece(decoder.get("prefix", "##"))]
    if kind == "Replace" and "String" in decoder["pattern"]:
        return [_replace(decoder["pattern"]["String"], decoder["content"])]
    if kind == "Fuse":
        return []
    raise TokenizerError(f"its decoder {shown(kind)} cannot be used token by token")


def _on_text(function: Callable[[str], str | bytes]) -> Step:
    """Apply a function to text only: bytes from an earlier step stay unchanged."""
    return lambda value: function(value) if isinstance(value, str) else value


def _byte_level(token: str) -> str | bytes:
    try:
        return bytes(_ALPHABET[character] for character in token)
    except KeyError:
        return token  # an added token, spelled literally


def _byte_fallback(token: str) -> str | bytes:
    match = _BYTE_TOKEN.fullmatch(token)
    return bytes([int(match[1], 16)]) if match else token


def _replace(old: str, new: str) -> Step:
    return _on_text(lambda token: token.replace(old, new))


def _word_piece(prefix: str) -> Step:
    return _on_text(lambda token: token.removeprefix(prefix) if token.startswith(prefix) else f" {token}")


def _word(value: str | bytes) -> str | bytes:
    return f" {value}" if isinstance(value, str) else value
