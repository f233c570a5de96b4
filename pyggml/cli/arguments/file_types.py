"""Weight types as arguments, and options of commands that write model files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from pyggml.options.file_types import FILE_TYPES, suggestion

#: Last paragraph of the help of commands that take a type.
TYPES_EPILOG = f"Types: {', '.join(FILE_TYPES)}."

imatrix_option = click.option(
    "--imatrix", type=click.Path(), metavar="FILE", help="Importance matrix written by `pyggml imatrix`."
)


_Function = TypeVar("_Function", bound=Callable[..., Any])


def type_override_options(function: _Function) -> _Function:
    """Add ``--tensor-type`` and ``--keep``; the command gets ``tensor_types``, a dict, and ``keep``."""
    keep = click.option(
        "--keep",
        multiple=True,
        metavar="PATTERN",
        help="Keep the type of tensors whose names match the pattern. May be repeated.",
    )
    tensor_types = click.option(
        "--tensor-type",
        "tensor_types",
        multiple=True,
        metavar="PATTERN=TYPE",
        callback=lambda _ctx, _param, given: dict(map(_pattern_and_type, given)),
        help="Type of the tensors whose names match the pattern, such as q6_k. May be repeated.",
    )
    return tensor_types(keep(function))


def _pattern_and_type(given: str) -> tuple[str, str]:
    pattern, equals, type = given.rpartition("=")
    if not (pattern and equals and type):
        raise click.BadParameter(f"{given!r} is not PATTERN=TYPE, such as attn_v=q6_k", param_hint="'--tensor-type'")
    return pattern, type


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
