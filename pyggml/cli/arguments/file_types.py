"""Weight types as arguments, and options of commands that write model files."""

from __future__ import annotations

from typing import Any

import click

from pyggml.options.file_types import FILE_TYPES, suggestion

#: Last paragraph of the help of commands that take a type.
TYPES_EPILOG = f"Types: {', '.join(FILE_TYPES)}."

imatrix_option = click.option(
    "--imatrix", type=click.Path(), metavar="FILE", help="Importance matrix written by `pyggml imatrix`."
)


class FileType(click.Choice[str]):
    """A type, in upper or lower case, with suggestions for unknown names."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__(names, case_sensitive=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the engine's name of the type."""
        hint = "" if value.lower() in self.choices else suggestion(value)
        if hint:
            self.fail(f"{value!r} is not a type: {hint}", param, ctx)
        return super().convert(value, param, ctx)
