"""The model that a command works with: how it is named on the command line, and loaded with a progress bar."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

import pyggml
from pyggml.cli.arguments.options import other_names_of
from pyggml.cli.command import Option
from pyggml.cli.show.terminal import progress
from pyggml.options import LoadOptions, fields_of

if TYPE_CHECKING:
    from pyggml import LLM

_Function = TypeVar("_Function", bound=Callable[..., Any])

# --- options ------------------------------------------------------------------------------------------------------


def model_option(function: _Function) -> _Function:
    """Adds the options for the model, ``--model`` and ``--hf-repo``; the command gets ``model``."""

    @functools.wraps(function)
    def command(*args: Any, model: str | None, hf_repo: str | None, **options: Any) -> Any:
        return function(*args, model=one_model(model, of_the_hub(hf_repo)), **options)

    for option in (_HF_REPO_OPTION, _MODEL_OPTION):
        command = option(command)
    return command  # type: ignore[return-value]


def one_model(*models: str | None) -> str | None:
    """The model that one of several options and arguments names; None: none does.

    Raises:
        click.UsageError: several do.
    """
    given = [model for model in models if model is not None]
    if len(given) > 1:
        raise click.UsageError(f"several models were given, {' and '.join(given)}: choose one")
    return given[0] if given else None


def of_the_hub(repository: str | None) -> str | None:
    """The reference that the value of ``--hf-repo`` stands for."""
    return None if repository is None else f"hf:{repository.removeprefix('hf:')}"


_MODEL_OPTION = click.option(
    "-m",
    "--model",
    cls=Option,
    other_names=other_names_of(fields_of(LoadOptions)["source"]),
    metavar="MODEL",
    type=click.Path(),  # only so that shells complete file names; loading checks that it exists
    help="A .gguf file, a Hugging Face directory, or a reference to the hub: hf:org/repo[@revision][:file]. "
    "Default: the small model that ships with pyggml.",
)
_HF_REPO_OPTION = click.option(
    "-hf", "--hf-repo", metavar="ORG/REPO", help="A model of the hub: -hf org/repo:q4_k_m is -m hf:org/repo:q4_k_m."
)


# --- a model, or a text? ------------------------------------------------------------------------------------------

_ADDRESSES = ("hf:", "hf.co/", "https://huggingface.co/", "https://hf.co/")
_SUFFIXES = (".gguf", ".safetensors")
_PATHS = ("/", "./", "../", "~/")
# "org/repo", perhaps with a file or a revision; "name:tag", and "llama3.2-1b" or "phi-4", as other tools name models.
_NAMES = re.compile(r"[\w.-]+/[\w.-]+(?:[@:][\w./-]+)?|[a-z][\w.-]*:[\w.-]+|[A-Za-z][A-Za-z-]{2,}\d[\w.-]*")


def is_model(text: str) -> bool:
    """Whether an argument can be nothing but a model, also where any text may stand: "and/or" can begin a story."""
    is_word = not any(map(str.isspace, text))
    return (is_word and _is_address(text)) or (os.sep in text and os.path.exists(text))  # noqa: PTH110 - see below


def looks_like_model(text: str) -> bool:
    """Whether an argument names a model, where the other thing that may stand is a question.

    What is there is a model, and so is anything that could only have been meant as one: loading it says what is wrong.
    """
    if not text or text != text.strip() or "\n" in text:
        return False
    is_path = text.startswith(_PATHS) and " " not in text
    is_there = os.path.lexists(text)  # of a text, pathlib would say that it is too long
    return is_path or is_there or _is_address(text) or _NAMES.fullmatch(text) is not None


def _is_address(text: str) -> bool:
    return text.lower().startswith(_ADDRESSES) or text.lower().endswith(_SUFFIXES)


# --- loading ------------------------------------------------------------------------------------------------------


def say_which(model: str | None, parameter: str = "--model") -> None:
    """Says on standard error that the shipped model is used, if that parameter names none."""
    if model is None:
        click.echo(
            f"pyggml: no {parameter} given: this is the small demonstration model that ships with pyggml", err=True
        )


def say_unused_gpu(*devices: str) -> None:
    """Says on standard error that the CPU computes though there is a GPU, if one of ``--device`` is auto."""
    if "auto" in devices and (reason := pyggml.unused_gpu()):
        click.echo(f"pyggml: the CPU computes, as it does with --device cpu: {reason}", err=True)


def loaded(model: str | None, **options: Any) -> LLM:
    """Loads a model.

    Args:
        model: the value of the option ``--model``.
        **options: as :func:`pyggml.load`; None stands for the default.
    """
    what = "" if model is None else f" {Path(model).name}"
    given = {name: value for name, value in options.items() if value is not None}
    with progress(f"Loading{what}") as show:
        llm = pyggml.load(model, progress=show, **given)
    if "rpc" not in given:  # else another host may compute
        say_unused_gpu(given.get("device", "auto"))
    return llm


@contextmanager
def opened(model: str | None, **options: Any) -> Iterator[LLM]:
    """Loads a model as :func:`loaded`, and says so if it is the one that ships with pyggml."""
    say_which(model)
    with loaded(model, **options) as llm:
        yield llm
