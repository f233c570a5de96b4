"""Names of architectures, and the layouts of checkpoints that can be imported.

A layout declares the names and shapes of a checkpoint's tensors, what they become in the GGUF file, and the supported
settings in ``config.json``. Anything else in a checkpoint is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pyggml._core.cached_property import cached_property
from pyggml._native.quantization_mix import Shape
from pyggml.files.config import Config
from pyggml.files.weights import Weight

#: Tables of rotations and masks that older versions of transformers saved with the weights.
SAVED_TABLES = (r"(.*\.)?rotary_emb\.(inv_freq|cos_cached|sin_cached)", r"(.*\.)?(attn|attention)\.(masked_bias|bias)")


@dataclass(frozen=True, kw_only=True)
class Sizes(Shape):
    """The sizes that determine the shapes of a model's tensors, and the switches that decide which tensors exist.

    Its other attributes are those of :class:`~pyggml._native.quantization_mix.Shape`.

    Attributes:
        n_vocab: rows of the embedding.
        flags: names of the switches that are on.
        blocks: switch that is on in some blocks -> whether it is on, block by block.
        own: sizes that only this architecture has, by name.
    """

    n_vocab: int
    flags: frozenset[str] = frozenset()
    blocks: Mapping[str, Sequence[bool]] = field(default_factory=dict)
    own: Mapping[str, int] = field(default_factory=dict)

    def of(self, name: str) -> int:
        """Return a size by name: the architecture's own, or an attribute; "2*n_ff" is twice the size "n_ff".

        Args:
            name: the size's name.
        """
        factor, _, name = name.rpartition("*")
        size: int = self.own[name] if name in self.own else getattr(self, name)
        return size * int(factor or 1)

    def is_on(self, switch: str, block: int) -> bool:
        """Check whether a switch is on or, with the prefix "no ", off.

        Args:
            switch: the switch's name, perhaps with the prefix "no ".
            block: the block's number, for switches that are on in some blocks.
        """
        name = switch.removeprefix("no ")
        is_on = self.blocks[name][block] if name in self.blocks else name in self.flags or name == "always"
        return is_on == (name == switch)

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


#: Computes one weight from two.
Join = Callable[[Weight, Weight], Weight]
#: Converts a weight to the form that the engine expects, given the model's sizes.
Transform = Callable[[Weight, Sizes], Weight]


@dataclass(frozen=True)
class Tensor:
    """A tensor of the GGUF file and its source in the checkpoint.

    Attributes:
        target: its name in the GGUF file; ``{i}`` stands for the block number.
        source: its name in the checkpoint; ``{e}`` stands for a number, and the tensors of all numbers are stacked.
        shape: the source's shape, columns last, as names of sizes (see :meth:`Sizes.of`); a 1 is left out in the GGUF
            file.
        transform: applied to the rows, which it may also leave out.
        when: the switches that must be on for the tensor to exist, joined by " and "; one with the prefix "no " must
            be off. "always" is on.
        each: the size that ``{e}`` counts up to.
        is_float: True if every output type keeps it as F32.
        is_transposed: True if the checkpoint stores it with rows and columns exchanged; ``shape`` is that of its
            matrices after exchanging them back.
        second: a further tensor of the checkpoint, from which and the first one ``join`` computes the weight.
        second_shape: its shape.
        join: see ``second``.
    """

    target: str
    source: str
    shape: tuple[str | Literal[1], ...]
    transform: Transform | None = None
    when: str | None = None
    each: str | None = None
    is_float: bool = False
    is_transposed: bool = False
    second: str | None = None
    second_shape: tuple[str, ...] = ()
    join: Join | None = None

    @property
    def role(self) -> Literal["linear", "output", "embedding", "other"]:
        """Its purpose: a projection, the one after the last block, an embedding, or something else."""
        if "embed" in self.source:
            return "embedding"
        if self.target in ("output.weight", "cls.output.weight"):
            return "output"
        return "linear" if len(self.shape) == 2 and 1 not in self.shape and not self.is_float else "other"

    def exists(self, sizes: Sizes, block: int = 0) -> bool:
        """Check whether a model of these sizes has the tensor, in this block if it belongs to one.

        Args:
            sizes: the model's sizes and switches.
            block: the block's number.
        """
        return self.when is None or all(sizes.is_on(switch, block) for switch in self.when.split(" and "))


@dataclass(frozen=True, eq=False)
class Architecture:
    """An architecture, by all its names in files.

    Attributes:
        architecture: ``general.architecture`` of the GGUF files.
        model_types: ``model_type`` of the ``config.json`` files.
        hf_architectures: ``architectures`` in these files, for those without a known ``model_type``.
        refusal: the reason that prevents an import, such as a difference between the engine and transformers; "": none.
    """

    architecture: str
    model_types: tuple[str, ...] = ()
    hf_architectures: tuple[str, ...] = ()
    refusal: str = ""

    def model_type(self, name: object) -> str | None:
        """Return its model type of this name, ignoring case and punctuation; None if it has none.

        Args:
            name: the ``model_type`` of a ``config.json``.
        """
        return next((each for each in self.model_types if _normal(each) == _normal(name)), None)

    def is_hf_architecture(self, name: object) -> bool:
        """Check whether one of a ``config.json``'s ``architectures`` names it.

        Args:
            name: an entry of ``architectures``.
        """
        return _normal(name) in map(_normal, self.hf_architectures)


def _normal(name: object) -> str:
    """A name without case and punctuation, for comparing; "" for anything but a string."""
    return re.sub("[-_. ]", "", name).lower() if isinstance(name, str) else ""


@dataclass(frozen=True, eq=False, kw_only=True)
class Layout(Architecture):
    """An architecture that can be imported: how its checkpoints are stored and configured.

    Attributes:
        name: its name in messages.
        tensors: the model's tensors; ``{i}`` in a name stands for every block.
        ignored: patterns of tensors that the model does not compute with.
        told_by: key -> value of the configurations that this layout is for, among those of its model types.
        is_encoder: True for models that embed texts, with attention in both directions, and do not generate.
        positions: how a token's position enters: by rotations of queries and keys, by a learned embedding, or by a
            bias of the scores with its distance ("alibi").
        computes_dense: True if the engine's graph has two dense layers after the pooling.
        gives_probabilities: True if the engine's graph ends a reranker's scores with a softmax.
        suffixes: ends of tensor names in some checkpoints -> those that ``tensors`` have.
        norm_eps: key of the norms' epsilon.
        norm: kind of norm.
        required: key -> supported values, first the default.
        defaults: key -> default, for keys without one in transformers' configuration class.
        rename_keys: renames keys to the usual ones.
        switches: key of a boolean that decides which tensors exist -> its default.
        blocks: switch that is on in some blocks -> reads in which, given the number of blocks.
        forms: switch -> name of a tensor that checkpoints hold if it is on, in any block: the same weights can be
            stored in several forms.
        n_expert: key of the number of experts; None: the model is dense.
        sizes: reads sizes that only this architecture has.
        is_head_dim_fixed: True if the engine assumes that head width times heads is the model's width.
        rope: further rotations that the engine supports: with "factors" per frequency, with two sets of
            them ("longrope"), different ones for sliding-window layers ("local"), or the same ones, but unscaled
            ("unscaled"), queries that grow with their position ("temperature"); and yarn with bounds that the engine
            rounds although the model does not ("rounded").
        score_factor: ratio of the model's attention scores to the engine's default ones; None: they are the same.
        factors: tensors of a block whose products the engine multiplies with a tensor of the same name that ends in
            ".scale", as NVFP4 needs it.
        window: handling of a sliding window: "none" (there is no such key), "limit" (the engine ignores it, so that the
            context must not exceed it), "layers" (it is converted) or "needed" (the same, and the engine supports no
            model without a layer that has one).
        inert: keys without effect in checkpoints with custom code, whose model types transformers lacks. Any other key
            must be known.
        text_config: key of the object that describes the language model in a multimodal one.
        prefixes: prefix of tensor names in a multimodal model -> prefix in the language model alone.
        base: prefix that tensor names lack in a checkpoint without the output layer, such as an embedding model's.
        extra: reads further settings of this architecture; returns metadata without the architecture's prefix, which
            keys of the vocabulary ("tokenizer.") do not have.
    """

    name: str
    tensors: tuple[Tensor, ...]
    ignored: tuple[str, ...] = SAVED_TABLES
    told_by: Mapping[str, Any] = field(default_factory=dict)
    is_encoder: bool = False
    positions: Literal["rotary", "learned", "alibi"] = "rotary"
    computes_dense: bool = False
    gives_probabilities: bool = False
    suffixes: Mapping[str, str] = field(default_factory=dict)
    norm_eps: str = "rms_norm_eps"
    norm: Literal["rms", "layer"] = "rms"
    required: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    rename_keys: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    switches: Mapping[str, bool] = field(default_factory=dict)
    blocks: Mapping[str, Callable[[Config, int], Sequence[bool]]] = field(default_factory=dict)
    forms: Mapping[str, str] = field(default_factory=dict)
    n_expert: str | None = None
    sizes: Callable[[Config], Mapping[str, int]] | None = None
    is_head_dim_fixed: bool = False
    rope: frozenset[str] = frozenset()
    score_factor: Callable[[Config, Sizes], float] | None = None
    factors: frozenset[str] = frozenset()
    window: Literal["none", "limit", "layers", "needed"] = "none"
    inert: frozenset[str] = frozenset()
    text_config: str | None = None
    prefixes: Mapping[str, str] = field(default_factory=dict)
    base: str = "model."
    extra: Callable[[Config, Sizes], Mapping[str, Any]] | None = None

    @cached_property
    def renamed(self) -> Mapping[str, str]:
        """Prefixes of tensor names in checkpoints -> those that ``tensors`` have."""
        names = (
            tensor.source.removeprefix(self.base) for tensor in self.tensors if tensor.source.startswith(self.base)
        )
        modules = dict.fromkeys(f"{name.partition('.')[0]}." for name in names)
        return {**self.prefixes, **{module: self.base + module for module in modules}}

    def is_for(self, config: Config) -> bool:
        """Check a configuration of one of its model types for the settings in ``told_by``.

        Args:
            config: the configuration, as the file has it.
        """
        return all(config.values.get(key) == value for key, value in self.told_by.items())

    def is_ignored(self, name: str) -> bool:
        """Check whether the model computes without the tensor of this name.

        Args:
            name: the tensor's name in the checkpoint.
        """
        return any(re.fullmatch(pattern, name) for pattern in self.ignored)
