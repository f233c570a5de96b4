"""Lookup of a model's layout among those that the families declare."""

from __future__ import annotations

from pyggml.errors import UnsupportedArchitectureError
from pyggml.families import LAYOUTS, REFUSED, Layout
from pyggml.files.config import Config
from pyggml.files.model_files import PARAMS


def layout_of(config: Config) -> Layout:
    """Return a model's layout by its ``model_type``, or by its ``architectures`` if it has no model type."""
    model_type, architectures = config.get("model_type"), config.get("architectures")
    for layout in sorted(LAYOUTS, key=lambda each: not each.told_by):  # the special cases first
        if layout.model_type(model_type) is not None and layout.is_for(config):
            _require_a_language_model(config, layout, architectures)
            return layout
    if model_type is None and isinstance(architectures, list):
        for layout in LAYOUTS:
            if any(map(layout.is_hf_architecture, architectures)):
                return layout
    for architecture in REFUSED:
        if architecture.model_type(model_type) is not None:
            raise UnsupportedArchitectureError(
                f"{config.path}: model_type {model_type!r} cannot be imported: {architecture.refusal}"
            )
    own_code = config.get("auto_map")
    if own_code:
        raise UnsupportedArchitectureError(
            f"{config.path}: model_type {model_type!r:.80} is computed by Python code that comes with the model "
            f"(auto_map: {own_code!r:.200}), which pyggml does not run. Look for a GGUF file of the model instead"
        )
    known = sorted({name for layout in LAYOUTS for name in layout.model_types if name != PARAMS}, key=str.lower)
    raise UnsupportedArchitectureError(
        f"{config.path}: model_type is {model_type!r:.80} and architectures are {architectures!r:.200}; pyggml imports "
        f"{', '.join(known)}. Look for a GGUF file of the model instead"
    )


def _require_a_language_model(config: Config, layout: Layout, architectures: object) -> None:
    """Reject models such as classifiers, whose heads would be dropped. The model type decides among language models."""
    if not isinstance(architectures, list) or not architectures:
        return
    alike = [each for each in LAYOUTS if each.tensors == layout.tensors]
    if not any(each.is_hf_architecture(name) for each in alike for name in architectures):
        raise UnsupportedArchitectureError(
            f"{config.path}: architectures are {architectures!r:.200}; among {layout.name} models, pyggml imports only "
            f"{', '.join(layout.hf_architectures)}"
        )
