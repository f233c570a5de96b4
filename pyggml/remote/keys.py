"""The key that the two ends of a connection have in common."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from pyggml._core.checks import invalid, is_path

#: The environment variable that holds the key itself.
VARIABLE = "PYGGML_RPC_KEY"

# Whoever listens in can try keys against what was said, at home and as fast as they like.
_SHORTEST = 16


def default_file() -> Path:
    """Where ``pyggml rpc-serve`` keeps the key that it makes, and where clients of the same user find it."""
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "pyggml" / "rpc-key"


def found_key(file: str | os.PathLike[str] | None = None) -> bytes:
    """The key in a file, else in PYGGML_RPC_KEY, else in the file that this user's server has made.

    Raises:
        InvalidParameterError: there is none, it is too short, or ``file`` is no path.
    """
    if file is None and os.environ.get(VARIABLE):
        return key_of(os.fsencode(os.environ[VARIABLE]), VARIABLE)
    if file is not None and not is_path(file):
        raise invalid(f"rpc_key must be the path of a file with the key, not {type(file).__name__}")
    path = default_file() if file is None else Path(file)
    try:
        return key_of(path.read_bytes(), str(path))
    except OSError as error:
        way_out = f'rpc_key="FILE" or {VARIABLE} names the key that "pyggml rpc-serve" on that host has'
        raise invalid(f"the key {path} cannot be read ({error.strerror}): {way_out}") from None


def made_key(path: Path) -> bytes:
    """Makes a key and writes it to a new file that only this user can read. If the file exists, its key is returned.

    Raises:
        OSError: it cannot be written.
        InvalidParameterError: the file exists, and its key is too short.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return key_of(path.read_bytes(), str(path))
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_hex(32) + "\n")
    return key_of(path.read_bytes(), str(path))


def key_of(text: bytes, where: str) -> bytes:
    """The key that a file or variable holds: everything but the white space around it.

    Raises:
        InvalidParameterError: it is too short.
    """
    key = text.strip()
    if len(key) < _SHORTEST:
        raise invalid(
            f"the key in {where} has {len(key)} bytes, and needs {_SHORTEST} at least: "
            "openssl rand -hex 32 makes a good one"
        )
    return key
