"""The shared key of a connection."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from pyggml._core.checks import invalid, is_path

#: The environment variable with the key itself.
KEY_VARIABLE = "PYGGML_RPC_KEY"

# An eavesdropper can guess keys offline, so they must be long.
_MIN_BYTES = 16


def default_key_file() -> Path:
    """Return the file in which ``pyggml rpc-serve`` stores its key, and clients of the same user find it."""
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "pyggml" / "rpc-key"


def find_key(file: str | os.PathLike[str] | None = None) -> bytes:
    """Find the key in ``file``, else in PYGGML_RPC_KEY, else in :func:`default_key_file`.

    Args:
        file: the file; None: look in the other places.

    Raises:
        InvalidParameterError: there is no key, it is too short, or ``file`` is not a path.
    """
    if file is None and os.environ.get(KEY_VARIABLE):
        return parse_key(os.fsencode(os.environ[KEY_VARIABLE]), KEY_VARIABLE)
    if file is not None and not is_path(file):
        raise invalid(f"rpc_key must be the path of a key file, not {type(file).__name__}")
    path = default_key_file() if file is None else Path(file)
    try:
        return parse_key(path.read_bytes(), str(path))
    except OSError as error:
        raise invalid(
            f'the key {path} cannot be read ({error.strerror}). Copy the key of "pyggml rpc-serve" from the host, and '
            f'set rpc_key="FILE" or {KEY_VARIABLE}'
        ) from None


def create_key(path: Path) -> bytes:
    """Create a key in a new file that only this user can read. If the file exists, return its key.

    Args:
        path: the file.

    Raises:
        OSError: the file cannot be written.
        InvalidParameterError: the file exists, and its key is too short.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(32) + "\n")
    return parse_key(path.read_bytes(), str(path))


def parse_key(text: bytes, where: str) -> bytes:
    """Strip white space from the key in a file or variable, and check its length."""
    key = text.strip()
    if len(key) < _MIN_BYTES:
        raise invalid(
            f"the key in {where} has {len(key)} bytes; it needs at least {_MIN_BYTES}. To generate one, run "
            "openssl rand -hex 32"
        )
    return key
