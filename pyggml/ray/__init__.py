"""Distributed batch jobs and servers, on Ray Data and Ray Serve. Needs the extra ``ray``."""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyggml.ray.data import map_batches
    from pyggml.ray.embedding import embed_batches
    from pyggml.ray.hosts import Hosts
    from pyggml.ray.job import run_batch
    from pyggml.ray.serve import ServedModel, deployment

__all__ = ["Hosts", "ServedModel", "deployment", "embed_batches", "map_batches", "run_batch"]

# Name -> its module in this package.
_MODULES = {
    "map_batches": "data",
    "embed_batches": "embedding",
    "run_batch": "job",
    "Hosts": "hosts",
    "ServedModel": "serve",
    "deployment": "serve",
}


if not TYPE_CHECKING:  # else type checkers accept every name

    def __getattr__(name: str) -> object:
        """Import a module that needs Ray on first use."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if importlib.util.find_spec("ray") is None:
            from pyggml import MissingPackageError

            raise MissingPackageError(f'pyggml.ray.{name} needs Ray, which is not installed: pip install "pyggml[ray]"')
        return getattr(importlib.import_module(f"pyggml.ray.{_MODULES[name]}"), name)
