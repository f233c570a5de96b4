"""Loads the model that a command works with, and shows a progress bar."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyggml
from pyggml.cli.arguments.options import say_which
from pyggml.cli.show.terminal import progress

if TYPE_CHECKING:
    from pyggml import LLM


@contextmanager
def opened(model: str | None, **options: Any) -> Iterator[LLM]:
    """Loads a model, and says so if it is the one that ships with pyggml.

    Args:
        model: the value of the option ``--model``.
        **options: as :func:`pyggml.load`; None stands for the default.
    """
    say_which(model)
    what = "" if model is None else f" {Path(model).name}"
    with progress(f"Loading{what}") as show:
        given = {name: value for name, value in options.items() if value is not None}
        llm = pyggml.load(model, progress=show, **given)
    with llm:
        yield llm
