"""Names of architectures, and the layouts of checkpoints that can be imported.

A layout declares the names and shapes of a checkpoint's tensors, what they become in the GGUF file, and the supported
settings in ``config.json``. Anything else in a checkpoint is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pyggml.files.config import Config
from pyggml.mixture import Shape
from pyggml.weights import Weight


@dataclass(frozen=True, kw_only=True)
class Sizes(Shape):
    """The sizes that determine the shapes of a model's tensors, and the switches that decide which tensors exist.

    Attributes, in addition to those of :class:`~pyggml.mixture.Shape`:
        n_vocab: rows of the embedding.
        flags: names of the switches that are on.
    """

    n_vocab: int
    flags: frozenset[str] = frozenset()

    @property
    def n_q(self) -> int:
        """Width of all query heads."""
        return self.n_head * self.head_dim

    @property
    def n_kv(self) -> int:
        """Width of all key heads, and of all value heads."""
        return self.n_head_kv * self.head_dim

    @property
    def n_qkv(self) -> int:
        """Width of queries, keys and values."""
        return self.n_q + 2 * self.n_kv

    @property
    def n_ff2(self) -> int:
        """Width of gate and up projection together."""
        return 2 * self.n_ff


#: Converts a weight to the form that the engine expects, given the model's sizes.
Transform = Callable[[Weight, Sizes], Weight]


@dataclass(frozen=True)
class Tensor:
    """A tensor of the GGUF file and its source in the checkpoint.

    Attributes:
        target: its name in the GGUF file; ``{i}`` stands for the block number.
        source: its name in the checkpoint; ``{e}`` stands for a number, and the tensors of all numbers are stacked.
        shape: the source's shape, columns last, as names of attributes of Sizes.
        transform: applied to the rows.
        when: the switch that must be on for the tensor to exist; with the prefix "no ", the switch that must be off.
            "always" is on.
        each: the attribute of Sizes that ``{e}`` counts up to.
        is_float: whether every output type keeps it as F32.
    """

    target: str
    source: str
    shape: tuple[str, ...]
    transform: Transform | None = None
    when: str | None = None
    each: str | None = None
    is_float: bool = False

    def exists(self, sizes: Sizes) -> bool:
        """Whether a model of these sizes has it."""
        if self.when in (None, "always"):
            return True
        switch = self.when.removeprefix("no ")
        return (switch in sizes.flags) == (switch == self.when)


@dataclass(frozen=True, eq=False)
class Architecture:
    """An architecture, by all its names in files.

    Attributes:
        architecture: ``general.architecture`` of the GGUF files.
        model_types: ``model_type`` of the ``config.json`` files.
        hf_architectures: ``architectures`` in these files, for those without a known ``model_type``.
    """

    architecture: str
    model_types: tuple[str, ...] = ()
    hf_architectures: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False, kw_only=True)
class Layout(Architecture):
    """An architecture that can be imported: how its checkpoints are stored and configured.

    Attributes:
        name: its name in messages.
        tensors: the model's tensors; ``{i}`` in a name stands for every block.
        ignored: patterns of tensors that the model does not compute with, such as saved tables of rotations.
        norm_eps: key of the norms' epsilon.
        norm: kind of norm.
        required: key -> supported values, first the one that a missing key means.
        defaults: key -> default, if transformers has another default for this architecture than usual.
        spell: renames keys to the usual ones.
        switches: key of a boolean that decides which tensors exist -> its default.
        is_head_dim_fixed: whether the engine assumes that head width times heads is the model's width.
        rope: rotations that the engine supports besides the usual ones: with "factors" per frequency, with two sets of
            them ("longrope"), different ones for sliding-window layers ("local").
        window: handling of a sliding window: "none" (there is no such key), "limit" (the engine ignores it, so that the
            context must not exceed it) or "layers" (it is converted).
        text_config: key of the object that describes the language model in a multimodal one.
        prefixes: prefix of tensor names in a multimodal model -> prefix in the language model alone.
        extra: reads further settings of this architecture; returns metadata without the architecture's prefix.
    """

    name: str
    tensors: tuple[Tensor, ...]
    ignored: tuple[str, ...] = ()
    norm_eps: str = "rms_norm_eps"
    norm: Literal["rms", "layer"] = "rms"
    required: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    spell: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    switches: Mapping[str, bool] = field(default_factory=dict)
    is_head_dim_fixed: bool = False
    rope: frozenset[str] = frozenset()
    window: Literal["none", "limit", "layers"] = "none"
    text_config: str | None = None
    prefixes: Mapping[str, str] = field(default_factory=dict)
    extra: Callable[[Config, Sizes], Mapping[str, Any]] | None = None

    def is_ignored(self, name: str) -> bool:
        """Whether the model does not compute with the tensor of this name."""
        return any(re.fullmatch(pattern, name) for pattern in self.ignored)
