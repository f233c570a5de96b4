"""``modules.json``: the modules that a text goes through."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from pyggml.errors import ModelLoadError, UnsupportedArchitectureError
from pyggml.files.json_file import read_bytes

MODULES = "modules.json"

Kind = Literal["Transformer", "Pooling", "Dense", "Normalize", "Dropout", "MultiVectorMask", "LogitScore"]

# By the package that a module's class comes from; other packages bring code of their own.
_KINDS: dict[str, tuple[Kind, ...]] = {
    "sentence_transformers": get_args(Kind),
    "pylate": ("Transformer", "Dense"),
}
#: The order that vectors can be computed in: a module of one kind after those of the kinds before it.
_ORDER: tuple[Kind, ...] = ("Transformer", "Pooling", "Dense", "Normalize", "MultiVectorMask", "LogitScore")
_MAX_MODULES = 64


@dataclass(frozen=True)
class Module:
    """A module.

    Attributes:
        kind: its class's name.
        package: the package that the class comes from.
        folder: the folder with its files.
        file: the ``modules.json``, for messages.
    """

    kind: Kind
    package: str
    folder: Path
    file: Path


def read_modules(directory: Path) -> list[Module] | None:
    """Return the modules of a directory in order; None if it has no ``modules.json``.

    Raises:
        ModelLoadError: the file is damaged.
        UnsupportedArchitectureError: a module, or their order, cannot be computed.
    """
    file = directory / MODULES
    data = read_bytes(file)
    if data is None:
        return None
    modules = [_module(each, file) for each in _listed(data, file)]
    _require_order(modules, file)
    return modules


def _listed(data: bytes, file: Path) -> list[Any]:
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ModelLoadError(f"{file} is not valid JSON: {error}") from None
    if not isinstance(content, list) or not 0 < len(content) <= _MAX_MODULES:
        raise ModelLoadError(f"{file}: a list of 1 to {_MAX_MODULES} modules was expected, not {content!r:.100}")
    return content


def _module(entry: object, file: Path) -> Module:
    if not isinstance(entry, dict):
        raise ModelLoadError(f"{file}: an object with a type and a path was expected, not {entry!r:.100}")
    type, path = entry.get("type"), entry.get("path")
    if not isinstance(type, str) or not isinstance(path, str):
        raise ModelLoadError(f"{file}: a module needs a type and a path, which are texts, not {entry!r:.100}")
    if path and (not re.fullmatch(r"\w[\w.-]{0,200}", path, re.ASCII)):
        raise ModelLoadError(f"{file}: the path {path!r:.80} is not a folder in this directory")
    package, name = type.partition(".")[0], type.rpartition(".")[2]
    kind = next((kind for kind in _KINDS.get(package, ()) if kind == name), None)
    if kind is None:
        reason = "is not supported" if package in _KINDS else "is Python code that comes with the model"
        known = ", ".join(_KINDS["sentence_transformers"])
        raise UnsupportedArchitectureError(f"{file}: the module {type!r:.100} {reason}; pyggml knows {known}")
    if kind == "Transformer" and path:
        raise UnsupportedArchitectureError(
            f"{file}: the transformer is in the folder {path!r}, as in old versions of sentence-transformers: load and "
            "save the model with a newer one"
        )
    return Module(kind, package, file.parent / path, file)


def _require_order(modules: list[Module], file: Path) -> None:
    kinds = [module.kind for module in modules if module.kind != "Dropout"]  # which only trains
    ranks = [_ORDER.index(kind) for kind in kinds]
    once = [kind for kind in kinds if kind not in ("Dense", "Normalize")]
    if "LogitScore" in kinds and len(kinds) > 2:
        ranks.append(0)  # it takes what the transformer gives
    if ranks != sorted(ranks) or kinds[:1] != ["Transformer"] or len(set(once)) != len(once):
        raise UnsupportedArchitectureError(
            f"{file}: the modules {', '.join(kinds)[:200]} cannot be computed in this order; pyggml computes a "
            "Transformer, Pooling, Dense layers and Normalize"
        )
