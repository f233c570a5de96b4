"""Finds a model's layout among those that the families declare."""

from __future__ import annotations

from pyggml.errors import UnsupportedArchitectureError
from pyggml.families import LAYOUTS, Layout
from pyggml.files.config import Config


def layout_of(config: Config) -> Layout:
    """Returns a model's layout by its ``model_type``, or by its ``architectures`` if it has no model type.

    Raises:
        UnsupportedArchitectureError: pyggml cannot import this kind of model.
    """
    model_type, architectures = config.get("model_type"), config.get("architectures")
    for layout in LAYOUTS:
        if model_type in layout.model_types:
            _require_a_language_model(config, layout, architectures)
            return layout
    if model_type is None and isinstance(architectures, list):
        for layout in LAYOUTS:
            if any(name in layout.hf_architectures for name in architectures):
                return layout
    known = sorted({name for layout in LAYOUTS for name in layout.model_types})
    raise UnsupportedArchitectureError(
        f"{config.path}: model_type is {model_type!r:.80} and architectures are {architectures!r:.200}; pyggml imports "
        f"{', '.join(known)}. Look for a GGUF file of the model instead"
    )


def _require_a_language_model(config: Config, layout: Layout, architectures: object) -> None:
    """Refuses classifiers and the like, whose heads would be dropped."""
    if (
        isinstance(architectures, list)
        and architectures
        and not set(map(str, architectures)) & set(layout.hf_architectures)
    ):
        raise UnsupportedArchitectureError(
            f"{config.path}: architectures are {architectures!r:.200}; among {layout.name} models, pyggml imports only "
            f"{', '.join(layout.hf_architectures)}"
        )
