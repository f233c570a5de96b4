"""The model that a command works with: how it is told from a question, and how it is loaded with a progress bar."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyggml
from pyggml.cli.arguments.options import say_which
from pyggml.cli.show.terminal import progress

if TYPE_CHECKING:
    from pyggml import LLM


# "org/repo", perhaps with a file or a revision; "name:tag", and "llama3.2-1b" or "phi-4", as other tools name models.
_NAMES = re.compile(r"[\w.-]+/[\w.-]+(?:[@:][\w./-]+)?|[a-z][\w.-]*:[\w.-]+|[A-Za-z][A-Za-z-]{2,}\d[\w.-]*")
_ADDRESSES = ("hf:", "hf.co/", "https://huggingface.co/", "https://hf.co/")
_SUFFIXES = (".gguf", ".safetensors")


def looks_like_model(text: str) -> bool:
    """Whether an argument names a model, rather than being a question to one.

    What is there is a model, and so is anything that could only have been meant as one: loading it says what is wrong.
    """
    if not text or text != text.strip() or "\n" in text:
        return False
    if text.startswith(_ADDRESSES) or text.lower().endswith(_SUFFIXES) or os.path.lexists(text):
        return True
    is_path = text.startswith(("/", "./", "../", "~/")) and " " not in text
    return is_path or _NAMES.fullmatch(text) is not None


def loaded(model: str | None, **options: Any) -> LLM:
    """Loads a model.

    Args:
        model: the value of the option ``--model``.
        **options: as :func:`pyggml.load`; None stands for the default.
    """
    what = "" if model is None else f" {Path(model).name}"
    with progress(f"Loading{what}") as show:
        given = {name: value for name, value in options.items() if value is not None}
        return pyggml.load(model, progress=show, **given)


@contextmanager
def opened(model: str | None, **options: Any) -> Iterator[LLM]:
    """Loads a model as :func:`loaded`, and says so if it is the one that ships with pyggml."""
    say_which(model)
    with loaded(model, **options) as llm:
        yield llm
