"""JSON from untrusted files, within limits."""

from __future__ import annotations

import contextlib
import gc
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyggml.errors import InferError, ModelLoadError
from pyggml.files.regular_file import RegularFile

#: The largest file or header that is read: seven times the largest known tokenizer.json.
MAX_BYTES = 256 * 2**20


def read_object(file: Path, failure: type[InferError] = ModelLoadError) -> dict[str, Any]:
    """Read the JSON object in a file; an empty one if there is no such file.

    Raises:
        InferError: of the class ``failure``: the file cannot be read, is too large, or is not a single JSON object in
            UTF-8 without duplicate keys.
    """
    data = read_bytes(file, failure)
    return {} if data is None else parse_object(data, str(file), failure)


def parse_object(data: bytes, name: str, failure: type[InferError] = ModelLoadError) -> dict[str, Any]:
    """Parse ``data`` as a JSON object; ``name`` is for messages, the rest as for :func:`read_object`."""
    try:
        with _gc_disabled():
            content = json.loads(_text(data, name, failure), object_pairs_hook=_object)
    except RecursionError:
        raise failure(f"{name} is not JSON that pyggml reads: it is nested too deeply") from None
    except ValueError as error:
        if isinstance(error, failure):
            raise
        raise failure(f"{name} is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise failure(f"{name} holds {_kind(content)}; an object was expected")
    return content


def read_text(file: Path, failure: type[InferError] = ModelLoadError) -> str | None:
    """Read a file's text, None if there is no such file; errors as for :func:`read_object`."""
    data = read_bytes(file, failure)
    return None if data is None else _text(data, str(file), failure)


def read_bytes(file: Path, failure: type[InferError] = ModelLoadError) -> bytes | None:
    """Read a file's bytes, None if there is no such file; errors as for :func:`read_object`."""
    if not os.path.lexists(file):  # a broken link is an error, not an absence
        return None
    with RegularFile(file, failure) as content:
        if content.size > MAX_BYTES:
            raise failure(f"{file} has {content.size} bytes; pyggml reads at most {MAX_BYTES} from such a file")
        return content.read(0, content.size)


def _text(data: bytes, name: str, failure: type[InferError]) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise failure(f"{name} is not UTF-8: {error}") from None


@contextlib.contextmanager
def _gc_disabled() -> Iterator[None]:
    """Disable the garbage collector, which would scan hundreds of thousands of lists without cycles."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise ValueError(f"duplicate key {twice!r:.80}")
    return content


def _kind(value: object) -> str:
    return {list: "a list", str: "text", type(None): "null", bool: "true or false"}.get(type(value), "a number")
