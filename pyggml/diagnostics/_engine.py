"""What the engine makes of a model's metadata, asked without loading it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyggml import errors
from pyggml._ffi import ffi, lib
from pyggml.model import Model

if TYPE_CHECKING:
    from pyggml._ffi import CData


@dataclass(frozen=True)
class Finding:
    """A tensor that is missing or has another shape than the sizes of the model make it.

    Attributes:
        name: of the tensor.
        expected: its shape, rows last.
        found: the one it has; None: it is missing.
    """

    name: str
    expected: tuple[int, ...]
    found: tuple[int, ...] | None


@dataclass(frozen=True)
class Survey:
    """The engine's account.

    Attributes:
        model: with its vocabulary and without weights; None when that cannot be read. Whoever asked closes it.
        failed: the step that it does not get over: "architecture", "sizes", "vocabulary", "tensors"; "" for none.
        words: what it says there.
        sizes: of the model as it reads them: numbers, or one for each layer; empty when it did not come that far.
        findings: what is wrong with tensors.
        unknown: tensors that such models do not have.
    """

    model: Model | None
    failed: str
    words: str
    sizes: Mapping[str, Any] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    unknown: tuple[str, ...] = ()


def survey(ggufs: Sequence[CData], path: Path) -> Survey:
    """Asks the engine.

    Args:
        ggufs: each a ``pyg_gguf *``: the files of a model in their order.
        path: of the first, or of any file that is there.
    """
    about = ffi.new("char **")
    try:
        handle = errors.create(
            "pyg_model", lib.pyg_model_free, lib.pyg_model_survey, ggufs, len(ggufs), os.fsencode(path), about
        )
        told = json.loads(ffi.string(about[0]).decode("utf-8", "replace"))
    finally:
        lib.pyg_string_free(about[0])
    return Survey(
        model=None if handle == ffi.NULL else Model.of_handle(path, handle),
        failed=told["failed"],
        words=told["words"],
        sizes=told["sizes"],
        findings=tuple(map(_finding, told["findings"])),
        unknown=tuple(told["unknown"]),
    )


def _finding(told: Mapping[str, Any]) -> Finding:
    return Finding(told["name"], _shape(told["expected"]), _shape(told["found"]) or None)


def _shape(ne: Sequence[int]) -> tuple[int, ...]:
    sizes = list(ne)
    while len(sizes) > 1 and sizes[-1] == 1:
        sizes.pop()
    return tuple(reversed(sizes))
