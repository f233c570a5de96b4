"""The hyper-parameters of a model: ``config.json`` as one typed value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyggml.errors import ModelLoadError, UnsupportedArchitectureError
from pyggml.families import Layout, Sizes
from pyggml.files.config import Config
from pyggml.importer.rope import Rope, read_rope
from pyggml.importer.sliding_window import Window, read_window
from pyggml.importer.tensors import Tensors
from pyggml.importer.transformers_keys import Reference

#: The switch of models that have no output layer.
NO_OUTPUT = "no output layer"
#: The switch of models that store an output layer, although their configuration ties it to the embedding.
UNTIED = "output layer of its own"

_EPSILONS = {"rms": "attention.layer_norm_rms_epsilon", "layer": "attention.layer_norm_epsilon"}


@dataclass(frozen=True)
class Hyperparameters:
    """The hyper-parameters of a language model.

    Attributes:
        n_ctx_train: the context length that the configuration states.
        settings: the settings that the other attributes lack, as metadata without the architecture's prefix.
    """

    sizes: Sizes
    n_ctx_train: int
    rope: Rope
    window: Window
    settings: Mapping[str, Any]

    @property
    def context_limit(self) -> int | None:
        """The context length beyond which the engine's results would differ from the model's; None: no limit."""
        return min(filter(None, (self.rope.context_limit, self.window.context_limit)), default=None)

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata of a GGUF file, without the architecture's prefix."""
        sizes, limit = self.sizes, self.context_limit
        return {
            "vocab_size": sizes.n_vocab,
            "context_length": self.n_ctx_train if limit is None else min(self.n_ctx_train, limit),
            "embedding_length": sizes.n_embd,
            "block_count": sizes.n_layer,
            "feed_forward_length": sizes.n_ff,
            "attention.head_count": sizes.n_head,
            "attention.head_count_kv": sizes.n_head_kv,
            "attention.key_length": sizes.head_dim,
            "attention.value_length": sizes.head_dim,
            **self.rope.metadata,
            **self.window.metadata,
            **self.settings,
        }


def read_hyperparameters(config: Config, layout: Layout, reference: Reference, tensors: Tensors) -> Hyperparameters:
    """Read the hyper-parameters from a configuration, and those that the tensors state more reliably from them."""
    sizes = _read_sizes(config, layout, tensors)
    rope = read_rope(config, layout, sizes, reference) if layout.positions == "rotary" else Rope({})
    for key, allowed in layout.required.items():
        config.require(key, allowed)
    window = read_window(config, layout, sizes)
    n_ctx_train = config.integer("max_position_embeddings")
    epsilon = config.number(layout.norm_eps, 1e-6 if layout.norm == "rms" else 1e-5)
    settings = {_EPSILONS[layout.norm]: epsilon, **({} if layout.extra is None else layout.extra(config, sizes))}
    if sizes.n_expert:
        n_expert_used = config.integer("num_experts_per_tok")
        settings |= {"expert_count": sizes.n_expert, "expert_used_count": n_expert_used}
    return Hyperparameters(sizes, n_ctx_train, rope, window, settings)


def _read_sizes(config: Config, layout: Layout, tensors: Tensors) -> Sizes:
    n_embd, n_head = config.integer("hidden_size"), config.integer("num_attention_heads")
    head_dim = _head_dim(config, layout, n_embd, n_head)
    n_head_kv = config.integer("num_key_value_heads", n_head)
    if n_head % n_head_kv:
        raise ModelLoadError(f"{config.path}: {n_head} attention heads cannot share {n_head_kv} key and value heads")
    n_layer = config.integer("num_hidden_layers")
    flags = {key for key, default in layout.switches.items() if config.flag(key, default)}
    flags |= {form for form, name in layout.forms.items() if _is_stored(name, tensors, n_layer)}
    if "tie_word_embeddings" not in flags and _lacks_output(layout, tensors):
        flags |= {"tie_word_embeddings", NO_OUTPUT}  # the engine needs something for an output layer
    is_tied = "tie_word_embeddings" in flags
    if is_tied and _embedding(layout) not in tensors:  # tools that store shared weights once keep one name or the other
        tensors.rename("lm_head.weight", _embedding(layout))
    is_written = is_tied and "lm_head.weight" in tensors
    # As in transformers 5: if both weights are stored and differ, they are not tied, despite the configuration.
    if is_written and not tensors.is_same("lm_head.weight", _embedding(layout)):
        flags.remove("tie_word_embeddings")
        flags.add(UNTIED)
        if not any(tensor.target == "output.weight" for tensor in layout.tensors):
            raise UnsupportedArchitectureError(
                f"{config.path} ties the output layer to the embedding, but lm_head.weight and {_embedding(layout)} "
                f"differ, and the engine has no output layer of its own for {layout.name} models"
            )
    return Sizes(
        n_layer=n_layer,
        n_embd=n_embd,
        n_head=n_head,
        n_head_kv=n_head_kv,
        head_dim=head_dim,
        n_ff=config.integer("intermediate_size"),
        n_vocab=config.integer("vocab_size", tensors.n_rows(_embedding(layout))),
        n_expert=0 if layout.n_expert is None else config.integer(layout.n_expert),
        flags=frozenset(flags),
        blocks={switch: tuple(read(config, n_layer)) for switch, read in layout.blocks.items()},
        own={} if layout.sizes is None else layout.sizes(config),
    )


def _lacks_output(layout: Layout, tensors: Tensors) -> bool:
    """Check whether a checkpoint is an embedding model's, without an output layer.

    Its tensor names have no prefix. A checkpoint with the prefix and without the layer is damaged.
    """
    is_base = _embedding(layout).removeprefix(layout.base) in tensors.checkpoint
    return is_base and "lm_head.weight" not in tensors and "tie_word_embeddings" in layout.switches


def _is_stored(name: str, tensors: Tensors, n_layer: int) -> bool:
    return any(name.replace("{i}", str(i)) in tensors for i in range(n_layer))


def _embedding(layout: Layout) -> str:
    return next(tensor.source for tensor in layout.tensors if tensor.target == "token_embd.weight")


def _head_dim(config: Config, layout: Layout, n_embd: int, n_head: int) -> int:
    if config.get("head_dim") is None and n_embd % n_head:
        raise ModelLoadError(f"{config.path}: a width of {n_embd} cannot be divided among {n_head} heads")
    head_dim = config.integer("head_dim", max(n_embd // n_head, 1))
    if head_dim % 2:
        raise ModelLoadError(f"{config.path}: head_dim is {head_dim}; it must be even, because columns rotate in pairs")
    if layout.is_head_dim_fixed and head_dim * n_head != n_embd:
        raise UnsupportedArchitectureError(
            f"{config.path}: {n_head} heads of {head_dim} columns do not add up to the width {n_embd}; the engine "
            f"only supports {layout.name} models in which they do"
        )
    return head_dim
