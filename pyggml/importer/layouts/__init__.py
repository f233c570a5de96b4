"""Every architecture that can be imported. One declaration per kind, no special cases elsewhere.

To add one, add a file with its declaration and name it in :data:`LAYOUTS`.
"""

from __future__ import annotations

from pyggml.errors import UnsupportedArchitectureError
from pyggml.importer.config import Config
from pyggml.importer.layout import Layout
from pyggml.importer.layouts.falcon import FALCON
from pyggml.importer.layouts.gemma import GEMMA2, GEMMA3
from pyggml.importer.layouts.llama import LLAMA, MISTRAL, MIXTRAL
from pyggml.importer.layouts.meta import META
from pyggml.importer.layouts.phi import PHI2, PHI3
from pyggml.importer.layouts.qwen import QWEN2, QWEN3
from pyggml.importer.layouts.stablelm import STABLELM

__all__ = ["LAYOUTS", "layout_of"]

LAYOUTS: tuple[Layout, ...] = (
    LLAMA,
    MISTRAL,
    MIXTRAL,
    QWEN2,
    QWEN3,
    PHI2,
    PHI3,
    GEMMA2,
    GEMMA3,
    FALCON,
    STABLELM,
    META,
)


def layout_of(config: Config) -> Layout:
    """The layout of a model, by its ``model_type``, or else by its ``architectures``.

    Raises:
        UnsupportedArchitectureError: pyggml cannot import this kind of model.
    """
    model_type, architectures = config.get("model_type"), config.get("architectures")
    for layout in LAYOUTS:
        if model_type in layout.model_types:
            _require_a_language_model(config, layout, architectures)
            return layout
    known = sorted({name for layout in LAYOUTS for name in layout.model_types})
    if model_type is None and isinstance(architectures, list):
        for layout in LAYOUTS:
            if any(name in layout.hf_architectures for name in architectures):
                return layout
    raise UnsupportedArchitectureError(
        f"{config.path}: model_type is {model_type!r:.80} and architectures are {architectures!r:.200}; pyggml imports "
        f"{', '.join(known)}. A GGUF file of the model may exist"
    )


def _require_a_language_model(config: Config, layout: Layout, architectures: object) -> None:
    """Refuses classifiers and the like, whose heads would be lost."""
    if (
        isinstance(architectures, list)
        and architectures
        and not set(map(str, architectures)) & set(layout.hf_architectures)
    ):
        raise UnsupportedArchitectureError(
            f"{config.path}: architectures are {architectures!r:.200}; of {layout.name} models pyggml imports "
            f"{', '.join(layout.hf_architectures)}"
        )
