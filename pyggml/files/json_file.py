"""Reading the small files of a Hugging Face directory: bounded, and checked before anything is believed."""

from __future__ import annotations

import contextlib
import gc
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyggml.errors import TokenizerError

_MAX_BYTES = 256 * 2**20  # the largest known tokenizer.json has a seventh


def read_object(file: Path) -> dict[str, Any]:
    """The JSON object in a file that may be missing; empty when it is.

    Raises:
        TokenizerError: too large, not UTF-8, not JSON, nested too deep, not an object, or with a key twice.
    """
    text = read_text(file)
    if text is None:
        return {}
    try:
        with _uncollected():
            content = json.loads(text, object_pairs_hook=_object)
    except RecursionError:
        raise TokenizerError(f"{file}: objects in objects without end") from None
    except ValueError as error:
        raise TokenizerError(f"{file} is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise TokenizerError(f"{file}: an object was expected, not {content!r:.100}")
    return content


def read_text(file: Path) -> str | None:
    """The text of a file; None when there is no such file.

    Raises:
        TokenizerError: it cannot be read, is too large or is not UTF-8.
    """
    data = read_bytes(file)
    try:
        return None if data is None else data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TokenizerError(f"{file} is not UTF-8: {error}") from None


def read_bytes(file: Path) -> bytes | None:
    """What a file holds; None when there is no such file.

    Raises:
        TokenizerError: it cannot be read or is too large.
    """
    try:
        if not file.exists() and not file.is_symlink():
            return None
        if not file.is_file():
            raise TokenizerError(f"{file} is not a file")
        if file.stat().st_size > _MAX_BYTES:
            raise TokenizerError(f"{file} has {file.stat().st_size} bytes; {_MAX_BYTES} are the most that is read")
        return file.read_bytes()
    except (OSError, RuntimeError) as error:  # RuntimeError: links that go round in a circle, before Python 3.13
        raise TokenizerError(f"{file} cannot be read: {error}") from None


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Keeps Python from looking for cycles among hundreds of thousands of lists that have none."""
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
        raise ValueError(f"the key {twice!r:.80} is there twice")
    return content
