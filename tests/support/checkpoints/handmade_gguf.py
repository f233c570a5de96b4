"""GGUF files put together byte by byte, from the format's description alone: good ones and broken ones.

Layout (docs/gguf.md of the ggml project): magic, version, number of tensors, number of pairs; pairs of key,
type and value; tensor infos of name, dimensions innermost first, type and offset; padding; data. All
little-endian.
"""

from __future__ import annotations

import struct

UINT8, INT8, UINT16, INT16, UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY, UINT64, INT64, FLOAT64 = range(13)

#: struct's letter for each type of number.
LETTERS = {
    UINT8: "B",
    INT8: "b",
    UINT16: "H",
    INT16: "h",
    UINT32: "I",
    INT32: "i",
    FLOAT32: "f",
    BOOL: "b",
    UINT64: "Q",
    INT64: "q",
    FLOAT64: "d",
}


def string(text: bytes, n_bytes: int | None = None) -> bytes:
    """A string; ``n_bytes`` is the length it claims to have."""
    return struct.pack("<Q", len(text) if n_bytes is None else n_bytes) + text


def pair(key: bytes, type: int, value: bytes) -> bytes:
    return string(key) + struct.pack("<i", type) + value


def number(key: bytes, type: int, value: float) -> bytes:
    return pair(key, type, struct.pack("<" + LETTERS[type], value))


def array(key: bytes, type: int, elements: bytes, n: int) -> bytes:
    return pair(key, ARRAY, struct.pack("<iQ", type, n) + elements)


def tensor(name: bytes, ne: list[int], type: int = 0, offset: int = 0, *, n_dims: int | None = None) -> bytes:
    """A tensor info; ``n_dims`` is the number of dimensions it claims to have."""
    dims = struct.pack(f"<I{len(ne)}q", len(ne) if n_dims is None else n_dims, *ne)
    return string(name) + dims + struct.pack("<iQ", type, offset)


def file(
    pairs: list[bytes] | None = None,
    tensors: list[bytes] | None = None,
    data: bytes = b"",
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    n_pairs: int | None = None,
    n_tensors: int | None = None,
    alignment: int = 32,
) -> bytes:
    """A whole file; ``n_pairs`` and ``n_tensors`` are the counts it claims to have."""
    pairs, tensors = pairs or [], tensors or []
    head = magic + struct.pack(
        "<Iqq",
        version,
        len(tensors) if n_tensors is None else n_tensors,
        len(pairs) if n_pairs is None else n_pairs,
    )
    meta = head + b"".join(pairs) + b"".join(tensors)
    return meta + bytes(-len(meta) % alignment) + data
