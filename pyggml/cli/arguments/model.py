"""The model argument of commands: parsing, and loading with a progress bar."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

import pyggml
from pyggml.cli.arguments.options import aliases_of
from pyggml.cli.command import Option
from pyggml.cli.show.terminal import progress
from pyggml.options import LoadOptions, fields_of

if TYPE_CHECKING:
    from pyggml import LLM

_Function = TypeVar("_Function", bound=Callable[..., Any])


def model_option(function: _Function) -> _Function:
    """Add the options for the model, ``--model`` and ``--hf-repo``; the command gets ``model``."""

    @functools.wraps(function)
    def command(*args: Any, model: str | None, hf_repo: str | None, **options: Any) -> Any:
        return function(*args, model=single_model(model, hf_repo and hub_reference(hf_repo)), **options)

    for option in (_HF_REPO_OPTION, _MODEL_OPTION):
        command = option(command)
    return command  # type: ignore[return-value]


def single_model(*models: str | None) -> str | None:
    """Return the model given by one of several options and arguments; None: none is given."""
    given = [model for model in models if model is not None]
    if len(given) > 1:
        raise click.UsageError(f"several models were given, {' and '.join(given)}: choose one")
    return given[0] if given else None


def hub_reference(repository: str) -> str:
    """Return the reference for a value of ``--hf-repo``."""
    return f"hf:{repository.removeprefix('hf:')}"


_MODEL_OPTION = click.option(
    "-m",
    "--model",
    cls=Option,
    other_names=aliases_of(fields_of(LoadOptions)["source"]),
    metavar="MODEL",
    type=click.Path(),  # for shell completion; loading checks that it exists
    help="A .gguf file, a Hugging Face directory, or a reference to the hub: hf:org/repo[@revision][:file]. "
    "Default: the small model that ships with pyggml.",
)
_HF_REPO_OPTION = click.option(
    "-hf", "--hf-repo", metavar="ORG/REPO", help="A model of the hub: -hf org/repo:q4_k_m is -m hf:org/repo:q4_k_m."
)


_ADDRESSES = ("hf:", "hf.co/", "https://huggingface.co/", "https://hf.co/")
_SUFFIXES = (".gguf", ".safetensors")
_PATHS = ("/", "./", "../", "~/")
# "org/repo", optionally with a file or a revision; "name:tag", "llama3.2-1b" or "phi-4", as in other tools.
_NAMES = re.compile(r"[\w.-]+/[\w.-]+(?:[@:][\w./-]+)?|[a-z][\w.-]*:[\w.-]+|[A-Za-z][A-Za-z-]{2,}\d[\w.-]*")


def is_model(text: str) -> bool:
    """Return True if an argument is certainly a model, where any text is allowed: a prompt may start with "and/or"."""
    is_word = not any(map(str.isspace, text))
    return (is_word and _is_address(text)) or (os.sep in text and os.path.exists(text))  # noqa: PTH110 - see below


def looks_like_model(text: str) -> bool:
    """Return True if an argument is more likely a model than a question.

    An existing file is a model, and so is a name that cannot be a question: loading it reports the error.
    """
    if not text or text != text.strip() or "\n" in text:
        return False
    is_path = text.startswith(_PATHS) and " " not in text
    exists = os.path.lexists(text)  # pathlib raises for a long text
    return is_path or exists or _is_address(text) or _NAMES.fullmatch(text) is not None


def _is_address(text: str) -> bool:
    return text.lower().startswith(_ADDRESSES) or text.lower().endswith(_SUFFIXES)


def print_default_model_notice(model: str | None, parameter: str = "--model") -> None:
    """Print a notice on standard error if no model is given and the shipped model is used."""
    if model is None:
        click.echo(
            f"pyggml: no {parameter} given: using the small demonstration model that ships with pyggml", err=True
        )


def print_unused_gpu_notice(*devices: str) -> None:
    """Print a notice on standard error if a device is "auto" and a GPU of this machine is not used."""
    if "auto" in devices and (reason := pyggml.unused_gpu()):
        click.echo(f"pyggml: using the CPU, as with --device cpu: {reason}", err=True)


def load_model(model: str | None, **options: Any) -> LLM:
    """Load a model with a progress bar; options as for :func:`pyggml.load`, with None for the default."""
    what = "" if model is None else f" {Path(model).name}"
    given = {name: value for name, value in options.items() if value is not None}
    with progress(f"Loading{what}") as show:
        llm = pyggml.load(model, progress=show, **given)
    if "rpc" not in given:  # else another host may compute
        print_unused_gpu_notice(given.get("device", "auto"))
    return llm


def open_model(model: str | None, **options: Any) -> LLM:
    """Load a model as :func:`load_model`, with a notice if it is the one that ships with pyggml."""
    print_default_model_notice(model)
    return load_model(model, **options)
