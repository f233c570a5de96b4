"""Text that commands read, which is UTF-8 or refused."""

from __future__ import annotations

from pathlib import Path

import click


def decoded(where: str, data: bytes) -> str:
    """The text.

    Args:
        where: what messages call the place that it comes from.
        data: its bytes.

    Raises:
        click.ClickException: it is not UTF-8.
    """
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise _refusal(where, error) from None


def text_of(path: str | Path) -> str:
    r"""The text of a file; lines end with ``\n``, wherever it was written.

    Raises:
        click.ClickException: it is not UTF-8.
        OSError: it cannot be read.
    """
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise _refusal(str(path), error) from None


def _refusal(where: str, error: UnicodeDecodeError) -> click.ClickException:
    return click.ClickException(f"{where} is not UTF-8 text: {error.reason} at byte {error.start}")
