"""Sliding windows: translation of ``config.json`` to the engine's metadata, or to a context limit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyggml.errors import UnsupportedArchitectureError
from pyggml.families import Layout, Sizes
from pyggml.files.config import Config


@dataclass(frozen=True)
class Window:
    """A model's sliding window.

    Attributes:
        metadata: keys without the architecture's prefix.
        context_limit: the context length beyond which the engine would ignore the window; None: no limit.
    """

    metadata: Mapping[str, Any]
    context_limit: int | None = None


def read_window(config: Config, layout: Layout, sizes: Sizes) -> Window:
    """Read a model's sliding window."""
    if layout.window == "none":
        types = config.values.get("layer_types")
        if isinstance(types, list) and all(each == "full_attention" for each in types):
            config.get("layer_types")  # mark as known: these layers are the default
        return Window({})
    has_window = _layers_with_window(config, sizes)
    if not any(has_window):
        config.get("sliding_window")
        if layout.window == "needed":
            raise UnsupportedArchitectureError(
                f"{config.path}: no layer has a sliding window (sliding_window, layer_types); the engine only supports "
                f"{layout.name} models in which some have one"
            )
        return Window({})
    width = config.integer("sliding_window")
    if layout.window == "limit":
        return Window({}, width)
    return Window({"attention.sliding_window": width, "attention.sliding_window_pattern": has_window})


def _layers_with_window(config: Config, sizes: Sizes) -> list[bool]:
    types, pattern = config.get("layer_types"), config.get("sliding_window_pattern")
    first = config.get("max_window_layers")
    is_on = config.flag("use_sliding_window", True) and config.values.get("sliding_window") is not None
    if types is not None:
        if not isinstance(types, list) or len(types) != sizes.n_layer:
            raise config.error("layer_types", f"a list of {sizes.n_layer}")
        config.require_each("layer_types", ("full_attention", "sliding_attention"))
        return [is_on and each == "sliding_attention" for each in types]
    if pattern is not None:
        every = config.integer("sliding_window_pattern")
        return [is_on and bool((i + 1) % every) for i in range(sizes.n_layer)]
    return [is_on and (first in (None, 0) or i >= config.integer("max_window_layers")) for i in range(sizes.n_layer)]
