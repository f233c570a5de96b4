"""A GGUF file in pieces that may be anything: read from a good one, changed, and written without any check."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.checkpoints import handmade_gguf as handmade

from pyggml.gguf import GGMLType
from pyggml.quant import nbytes

ALIGNMENT = 32


@dataclass
class Tensor:
    """A tensor; what its offset is off by, and its bytes."""

    name: bytes
    ne: list[int]
    type: int
    data: bytes
    shift: int = 0


@dataclass
class File:
    """Pairs of key and value, each with the bytes behind its key, and tensors, in the file's order."""

    pairs: list[tuple[bytes, bytes]]
    tensors: list[Tensor]
    bytes_changed: dict[float, int] = field(default_factory=dict)
    cut: float = 1.0

    @property
    def architecture(self) -> str:
        value = next((value for key, value in self.pairs if key == b"general.architecture"), b"")
        return value[12:].decode(errors="replace") or "llama"

    def set(self, key: str, value: bytes) -> None:
        name = key.encode(errors="surrogateescape")
        at = next((i for i, (known, _) in enumerate(self.pairs) if known == name), len(self.pairs))
        self.pairs[at : at + 1] = [(name, value)]

    def content(self) -> bytes:
        infos, blobs, offset = [], [], 0
        for tensor in self.tensors:
            infos.append(
                handmade.tensor(tensor.name, tensor.ne, _signed(tensor.type, 32), (offset + tensor.shift) % 2**64)
            )
            blobs.append(tensor.data + bytes(-len(tensor.data) % ALIGNMENT))
            offset += len(blobs[-1])
        pairs = [handmade.string(key) + value for key, value in self.pairs]
        content = handmade.file(pairs, infos, b"".join(blobs))
        if self.bytes_changed:
            changed = bytearray(content)
            for place, value in self.bytes_changed.items():
                changed[int(place * (len(content) - offset))] = value
            content = bytes(changed)
        return content[: int(len(content) * self.cut)]


def value_bytes(type: int, value: Any) -> bytes:
    """A value of a type, wrapped into its range; texts, numbers and lists of either."""
    if isinstance(value, list):
        elements = b"".join(_element(type, each) for each in value)
        return struct.pack("<iiQ", handmade.ARRAY, type, len(value)) + elements
    return struct.pack("<i", type) + _element(type, value)


def _element(type: int, value: Any) -> bytes:
    if type == handmade.STRING:
        return handmade.string(str(value).encode(errors="surrogateescape"))
    letter = handmade.LETTERS.get(type, "I")
    if letter == "f" and abs(value) > 3e38:
        value = float("inf") if value > 0 else float("-inf")
    elif letter not in "fd":
        n_bits = 8 * struct.calcsize("<" + letter)
        whole = int(value) if abs(value) < float("inf") else 0
        value = _signed(whole, n_bits) if letter.islower() else whole % (1 << n_bits)
    return struct.pack("<" + letter, value)


def _signed(value: int, n_bits: int) -> int:
    half = 1 << (n_bits - 1)
    return (value + half) % (2 * half) - half


def n_bytes(type: int, ne: list[int]) -> int:
    """Return the number of bytes that the engine expects, or a few where it expects nothing sensible."""
    if not 0 < math.prod(ne) < 1 << 22:
        return 64
    try:
        return nbytes(GGMLType(type), ne[::-1])
    except ValueError:
        return 64


def read(path: Path) -> File:
    """Reads a good file, version 3."""
    return _Reader(path.read_bytes()).file()


class _Reader:
    def __init__(self, content: bytes) -> None:
        self._content, self._at = content, 4

    def file(self) -> File:
        _, n_tensors, n_pairs = self._unpack("<IQQ")
        pairs = [(self._string(), self._value()) for _ in range(n_pairs)]
        infos = [self._info() for _ in range(n_tensors)]
        base = -(-self._at // ALIGNMENT) * ALIGNMENT
        tensors = [
            Tensor(name, ne, type, self._content[base + offset : base + offset + n_bytes(type, ne)])
            for name, ne, type, offset in infos
        ]
        return File(pairs, tensors)

    def _info(self) -> tuple[bytes, list[int], int, int]:
        name = self._string()
        (n_dims,) = self._unpack("<I")
        ne = list(self._unpack(f"<{n_dims}Q"))
        type, offset = self._unpack("<IQ")
        return name, ne, type, offset

    def _value(self) -> bytes:
        start = self._at
        (type,) = self._unpack("<i")
        n = 1
        if type == handmade.ARRAY:
            type, n = self._unpack("<iQ")
        if type == handmade.STRING:
            for _ in range(n):
                self._string()
        else:
            self._at += n * struct.calcsize("<" + handmade.LETTERS[type])
        return self._content[start : self._at]

    def _string(self) -> bytes:
        (n,) = self._unpack("<Q")
        self._at += n
        return self._content[self._at - n : self._at]

    def _unpack(self, format: str) -> tuple[Any, ...]:
        values = struct.unpack_from(format, self._content, self._at)
        self._at += struct.calcsize(format)
        return values
