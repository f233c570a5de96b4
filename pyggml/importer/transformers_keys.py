"""The keys of a configuration that transformers, the reference of every import, computes with or ignores."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyggml.families import Layout
from pyggml.files.config import Config, Keys

#: Written by tools/make_config_keys.py.
DATA = Path(__file__).with_name("config_keys.json")


@dataclass(frozen=True)
class Reference:
    """The keys that transformers reads for a ``model_type``.

    Attributes:
        keys: the keys of the configuration.
        rope: the keys of every description of rotations in it.
        rope_kinds: kind of rotation -> the additional keys.
        aliases: other names of keys.
        text: in a multimodal model, the ``model_type`` of the language model.
        is_text_fixed: True if the configuration cannot change that type.
    """

    keys: Keys
    rope: Keys
    rope_kinds: Mapping[str, Mapping[str, Any]]
    aliases: Mapping[str, str]
    text: str | None = None
    is_text_fixed: bool = True

    @property
    def is_of_text(self) -> bool:
        """True for a language model that transformers implements."""
        return self.text is None and self.keys.is_complete

    def rope_keys(self, kind: str) -> Keys:
        """The keys of a description of rotations of this kind."""
        computes = {**self.rope.computes, **self.rope_kinds.get(kind, {})}
        return Keys(computes, self.rope.inert, is_complete=self.rope.is_complete)


def reference_of(layout: Layout, model_type: object) -> Reference:
    """Return the reference of a model with this ``model_type``; None: the layout's first.

    If transformers does not have the type, its checkpoints came with code of their own, which may read any key.
    """
    data = _data()
    common = frozenset(data["common"])
    name = layout.model_types[0] if model_type is None else layout.model_type(model_type) or model_type
    entry = data["model_types"].get(name) if isinstance(name, str) else None
    if entry is None:
        unknown = Keys({}, common | layout.inert, is_complete=False)
        return Reference(unknown, Keys({}, frozenset(), is_complete=False), {}, {})
    return Reference(
        Keys(entry["computes"], common | frozenset(entry["defines"])),
        Keys(entry.get("rope", {})),
        data["rope"],
        entry["aliases"],
        entry.get("text"),
        entry.get("is_text_fixed", True),
    )


def language_model_of(config: Config, layout: Layout) -> tuple[Config, Reference]:
    """Return the part of a configuration that describes the language model, with the usual keys and all defaults.

    A null is a value to transformers, not a missing key, except where only true and false make sense.
    """
    reference, outer = reference_of(layout, config.get("model_type")), dict[str, Any]()
    if layout.text_config is not None and layout.text_config in config.values:
        section = config.section(layout.text_config)
        if section is None:
            raise config.error(layout.text_config, "an object")
        outer = _outer_settings(config, reference)
        config.require_all_known(reference.keys)
        config = section
    if reference.text is not None:
        given = None if reference.is_text_fixed else config.values.get("model_type")
        inner = reference_of(layout, given)
        reference = inner if inner.is_of_text else reference_of(layout, reference.text)
    defaults = reference.keys.computes.items()
    values = {key: value for key, value in defaults if value is not None and key not in _REQUIRED}
    renamed = {reference.aliases.get(key, key): value for key, value in config.values.items()}
    values |= {key: value for key, value in renamed.items() if value is not None or type(values.get(key)) is not bool}
    spelled = values if layout.rename_keys is None else layout.rename_keys(values)
    return config.with_values({**layout.defaults, **spelled, **outer}), reference


def _outer_settings(config: Config, reference: Reference) -> dict[str, Any]:
    """Return the settings that the outer configuration decides for the language model: tied weights."""
    key = "tie_word_embeddings"
    value = config.get(key) if key in config.values else reference.keys.computes.get(key)
    return {} if value is None else {key: value}


#: Keys without defaults: without them a file is broken, although transformers has defaults for them.
_REQUIRED = frozenset({"hidden_size", "intermediate_size", "num_hidden_layers"})


@functools.cache
def _data() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(DATA.read_text("utf-8"))
    return content
