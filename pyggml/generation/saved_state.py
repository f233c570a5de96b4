"""Files of saved prefixes: the KV cells of a prompt, and the session that they belong to.

A file has a header, a JSON object, and the engine's bytes. The header has the lengths of both and a digest of the
object, which has a checksum of the engine's bytes; the engine checks them, too. Files appear under their name only when
complete.
"""

from __future__ import annotations

import errno
import json
import os
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from pyggml._core.checks import is_path, shown
from pyggml.errors import InvalidParameterError, SavedStateError, SavedStateNotFoundError
from pyggml.files.atomic_file import PartialFile
from pyggml.files.disk import require_disk_space, target_path

_MAGIC = b"PYGGMLS1"
# The magic number, a digest of the object, its length and that of the engine's bytes.
_HEADER = struct.Struct("<8s32sIQ")
_MAX_OBJECT_BYTES = 2**30


@dataclass(frozen=True)
class SavedState:
    """The contents of a file.

    Attributes:
        prefix: the saved prefix, as :meth:`Engine.save_prefix` returned it; empty: none.
        session: messages and options of the session; None: it holds only a prefix.
        prefix_crc32: checksum of the prefix, as of a file; None: not read from one.
    """

    prefix: bytes
    session: dict[str, Any] | None = None
    prefix_crc32: int | None = None

    def require_intact_prefix(self, path: object) -> None:
        """Tell a damaged file from one that the engine cannot use.

        Raises:
            SavedStateError: the prefix is damaged.
        """
        if self.prefix_crc32 not in (None, zlib.crc32(self.prefix)):
            raise SavedStateError(f"{path} is damaged: save it again")


def write_state(path: str | os.PathLike[str], state: SavedState) -> int:
    """Write a file, whole or not at all, and return its size in bytes.

    Raises:
        InvalidParameterError: the path is not that of a file, or its directory does not exist.
        DiskFullError: the file does not fit.
    """
    target = target_path("path", path)
    text = json.dumps({"session": state.session, "prefix_crc32": zlib.crc32(state.prefix)}, ensure_ascii=False).encode()
    header = _HEADER.pack(_MAGIC, _digest(text), len(text), len(state.prefix)) + text
    size = len(header) + len(state.prefix)
    with require_disk_space(target, size):
        file = PartialFile(target)
        try:
            file.begin(header, len(state.prefix), 1)
            file.write(0, np.frombuffer(state.prefix, np.uint8))
            file.publish()
        finally:
            file.discard()
    return size


def read_state(path: str | os.PathLike[str]) -> SavedState:
    """Read a file of :func:`write_state`.

    Raises:
        SavedStateNotFoundError: there is no such file.
        SavedStateError: it is not such a file, or is damaged.
    """
    if not is_path(path):
        raise InvalidParameterError(f"path must be the path of a saved state, without a NUL, not {shown(path)}")
    try:
        if Path(path).exists() and not Path(path).is_file():
            raise SavedStateError(f"{os.fspath(path)} is not a file, so it holds no saved state")
        with Path(path).open("rb") as file:
            return _read(file, os.fspath(path))
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENAMETOOLONG):
            raise SavedStateNotFoundError(f"there is no saved state {os.fspath(path):.200}") from None
        raise SavedStateError(f"{os.fspath(path)} cannot be read: {error.strerror}") from None


def _read(file: BinaryIO, name: str) -> SavedState:
    header = file.read(_HEADER.size)
    if len(header) < _HEADER.size or not header.startswith(_MAGIC):
        raise SavedStateError(f"{name} is not a saved state of this version of pyggml")
    _, digest, n_text, n_prefix = _HEADER.unpack(header)
    size = os.fstat(file.fileno()).st_size
    if n_text > _MAX_OBJECT_BYTES or size != _HEADER.size + n_text + n_prefix:
        raise SavedStateError(f"{name} is damaged or incomplete: save it again")
    text, prefix = file.read(n_text), file.read(n_prefix)
    if _digest(text) != digest or len(prefix) != n_prefix:
        raise SavedStateError(f"{name} is damaged: save it again")
    try:
        fields: Mapping[str, Any] = json.loads(text)
        return SavedState(prefix, fields["session"], fields["prefix_crc32"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SavedStateError(f"{name} is not a saved state of this version of pyggml ({error})") from None


def _digest(text: bytes) -> bytes:
    return blake2b(text, digest_size=32).digest()
