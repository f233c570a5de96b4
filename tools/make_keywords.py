"""Write `pyggml/_keywords.pyi`: the types of keyword arguments that set fields of an options class.

Run it after a change to a field of `LoadOptions`, `EstimateOptions` or `SamplingParams`:

    python tools/make_keywords.py

Only type checkers and editors read that file. A test compares the result with the file in the repository.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, get_args, get_origin

import pyggml
import pyggml.chat.request
from pyggml._core.fields import parameters_of
from pyggml.options import EstimateOptions, LoadOptions
from pyggml.options.sampling import SamplingParams

PAGE = Path(pyggml.__file__).parent / "_keywords.pyi"
HEAD = """\
# Keyword arguments that set fields of an options class. Written by tools/make_keywords.py.

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

from pyggml._native.model import Model
from pyggml.chat.request import ChatTemplate
from pyggml.options import All, Auto, QueueFull, RopeScaling, SplitMode
from pyggml.progress import ProgressOption
from pyggml.sampling import Grammar
from pyggml.source import Source
"""
#: Name -> the class whose fields become keywords, and the fields that do not.
KEYWORDS: dict[str, tuple[type, set[str]]] = {
    "LoadKeywords": (LoadOptions, {"source", "tokenizer", "device"}),
    "EstimateKeywords": (EstimateOptions, {"source"}),
    "SamplingOverrides": (SamplingParams, set()),
}


def page() -> str:
    """The whole text of the file."""
    return "\n".join(
        [HEAD, *(_typed_dict(name, cls, without) for name, (cls, without) in KEYWORDS.items()), _chat_keywords()]
    )


def _chat_keywords() -> str:
    """The parameters of the chat methods that are keywords only, without those that set fields of SamplingParams."""
    parameters = inspect.signature(pyggml.chat.request.chat_request).parameters.values()
    lines = [f"    {each.name}: {each.annotation}\n" for each in parameters if each.kind is each.KEYWORD_ONLY]
    return f"class ChatKeywords(SamplingOverrides, total=False):\n{''.join(lines)}"


def _typed_dict(name: str, cls: type, without: set[str]) -> str:
    types = {field: type for each in reversed(cls.__mro__[:-1]) for field, type in _declared(each)}
    lines = [f"    {field}: {types[field]}\n" for field in parameters_of(cls) if field not in without]
    return f"class {name}(TypedDict, total=False):\n{''.join(lines)}"


def _declared(cls: type) -> Iterator[tuple[str, str]]:
    """The fields of a class and their types, as written in its source."""
    (body,) = ast.parse(inspect.getsource(cls)).body
    assert isinstance(body, ast.ClassDef)
    for line in body.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            yield line.target.id, _plain(line.annotation, vars(sys.modules[cls.__module__]))


def _plain(annotation: ast.expr, names: dict[str, object]) -> str:
    """The bare type of an annotation that is, or is an alias of, `Annotated`, or that is an `InitVar`."""
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "InitVar":
        return ast.unparse(annotation.slice)
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Annotated":
        assert isinstance(annotation.slice, ast.Tuple)
        annotation = annotation.slice.elts[0]
    text = str(annotation.value) if isinstance(annotation, ast.Constant) else ast.unparse(annotation)
    alias = names.get(text)
    return inspect.formatannotation(get_args(alias)[0]) if get_origin(alias) is Annotated else text


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")
    print(f"{PAGE}: {', '.join(KEYWORDS)}")


if __name__ == "__main__":
    main()
