"""Old import paths of public modules that have moved.

``import pyggml.sampler`` gives the module that is now ``pyggml._native.sampler``: the same object, under both names.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

_NEW_NAMES = {
    "pyggml.backend": "pyggml._native.backend",
    "pyggml.child": "pyggml.child_process",
    "pyggml.context": "pyggml._native.context",
    "pyggml.determinism": "pyggml._native.batch_invariance",
    "pyggml.embedding": "pyggml.generation.embedding.embedder",
    "pyggml.file_types": "pyggml.options.file_types",
    "pyggml.gpus.absence": "pyggml.gpus.diagnosis",
    "pyggml.imatrix": "pyggml._native.imatrix",
    "pyggml.mapped_file": "pyggml._core.mapped_file",
    "pyggml.mixture": "pyggml._native.quantization_mix",
    "pyggml.model": "pyggml._native.model",
    "pyggml.passes": "pyggml.generation.embedding.encoder",
    "pyggml.placement": "pyggml._native.placement",
    "pyggml.recommended": "pyggml.options.recommended",
    "pyggml.sampler": "pyggml._native.sampler",
    "pyggml.starting": "pyggml.engine_factory",
    "pyggml.survey": "pyggml._native.metadata_check",
    "pyggml.vocab": "pyggml._native.vocab",
    "pyggml.weights": "pyggml.files.weights",
}


# Neither class derives from those of importlib.abc, whose import takes longer than all the rest of this package.
class _Alias:
    """Loader of a moved module under its old name."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Import the module under its new name."""
        module = importlib.import_module(_NEW_NAMES[spec.name])
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the module's own spec, which the import system replaced by the alias's."""
        module.__spec__ = self._spec


class _Finder:
    @staticmethod
    def find_spec(
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG004
        target: ModuleType | None = None,  # noqa: ARG004
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, _Alias()) if fullname in _NEW_NAMES else None  # type: ignore[arg-type]


def install() -> None:
    """Let the import system find moved modules under their old names."""
    sys.meta_path.append(_Finder)
