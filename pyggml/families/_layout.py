"""What an architecture is called, and how the checkpoints of one that can be imported are laid out.

A layout says what the tensors of a checkpoint are called, what shapes they have and what becomes of them in the GGUF
file, and what its ``config.json`` may say. What it does not say is refused when it is met.
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
    """What the shapes of a model's tensors follow from, and the switches that decide which tensors there are.

    Attributes, beside those of :class:`~pyggml.mixture.Shape`:
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


#: Makes of a weight what the engine expects, given the sizes of the model.
Transform = Callable[[Weight, Sizes], Weight]


@dataclass(frozen=True)
class Tensor:
    """A tensor of the GGUF file and what it is made of.

    Attributes:
        target: its name; ``{i}`` stands for the number of the block.
        source: name in the checkpoint. ``{e}`` stands for a number: the tensors of all of them are stacked.
        shape: of the source, rows last, as names of attributes of Sizes.
        transform: applied to the rows.
        when: the switch that says whether the tensor exists, and is unknown otherwise; after "no " it is the other way
            round. "always" is on.
        each: what ``{e}`` counts, as the name of an attribute of Sizes.
        is_float: kept as F32 by every output type.
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
    """How models are built, by every name that files have for it.

    Attributes:
        architecture: ``general.architecture`` of the GGUF files.
        model_types: ``model_type`` of the ``config.json`` files.
        hf_architectures: ``architectures`` of the same, for those without a known ``model_type``.
    """

    architecture: str
    model_types: tuple[str, ...] = ()
    hf_architectures: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False, kw_only=True)
class Layout(Architecture):
    """An architecture that can be imported: how its models are stored, and what of their configuration is carried.

    Attributes:
        name: for messages.
        tensors: those of the model; ``{i}`` in a name makes one for each block.
        ignored: patterns of tensors that the model does not compute with, such as saved tables of rotations.
        norm_eps: key of the epsilon of the norms.
        norm: their kind.
        required: keys that must have one of these values, the first being what a missing key means.
        defaults: values that a missing key means, where transformers has others than the most usual ones.
        spell: rewrites the keys that this architecture calls otherwise.
        switches: key of a truth value that switches tensors -> what a missing key means.
        is_head_dim_fixed: the engine takes the width of a head for that of the model divided by its heads.
        rope: what rotations the engine has for it beside the usual ones: with "factors" per frequency, with two sets of
            them ("longrope"), others for the layers with a window ("local").
        window: what becomes of a sliding window: "none" (there is no such key), "limit" (the engine ignores it, so
            that the context must not exceed it) or "layers" (it is carried).
        text_config: key of the object that describes the language model inside of a larger one.
        prefixes: beginnings of tensors' names there -> those of a language model alone.
        extra: more of the configuration, for what is this architecture's alone: metadata without its prefix.
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
        """Whether a tensor of this name is of no use to the model."""
        return any(re.fullmatch(pattern, name) for pattern in self.ignored)
