"""Parts that several encoders share: layers, classifier heads, and settings that BERT's descendants have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pyggml.families._heads import (
    CLASSIFIER,
    N_LABELS,
    SECOND_TEXT,
    classifies,
    head_metadata,
    n_labels,
    require_one_score,
)
from pyggml.families._layout import Sizes, Tensor
from pyggml.files.config import Config
from pyggml.files.weights import Elementwise, Reordered, Stacked, Weight

#: The switch of models whose token types make a difference: cross-encoders tell a pair's texts apart by them.
SEGMENTS = "tells segments apart"

#: Sizes of these architectures: rows of the embedding in the checkpoint, positions, and token types.
N_TOKENS, N_POSITIONS, N_TYPES = "n_tokens", "n_positions", "n_types"

#: The names that transformers had for the parameters of norms, which published checkpoints of BERT still have.
OLD_NORMS = {".gamma": ".weight", ".beta": ".bias"}

#: Functions that the engine's GELU stands for: it computes the usual approximation.
GELU = ("gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "gelu_python")

#: What an encoder in these settings would not be.
NO_DECODER = {"is_decoder": (False,), "add_cross_attention": (False,)}


def with_bias(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """Return a matrix or a norm, and its bias."""
    target, source = (f"{name.removesuffix('.weight')}.bias" for name in (tensor.target, tensor.source))
    return tensor, Tensor(target, source, tensor.shape[:1], when=tensor.when)


def linear(target: str, source: str, *shape: str, when: str | None = None) -> tuple[Tensor, Tensor]:
    """Return a matrix of every block and its bias, by the parts of the names before ``.weight``."""
    return with_bias(matrix(target, source, *shape, when=when))


def matrix(target: str, source: str, *shape: str, when: str | None = None) -> Tensor:
    """Return a matrix of every block, or a norm's weight."""
    return Tensor(f"blk.{{i}}.{target}.weight", f"{source}.weight", shape, when=when)


def bert_block(layer: str) -> tuple[Tensor, ...]:
    """Return the tensors of a block of BERT: norms after attention and after the feed-forward network, and biases.

    Args:
        layer: the module of the block, without a dot at the end.
    """
    return (
        *linear("attn_q", f"{layer}.attention.self.query", "n_embd", "n_embd"),
        *linear("attn_k", f"{layer}.attention.self.key", "n_embd", "n_embd"),
        *linear("attn_v", f"{layer}.attention.self.value", "n_embd", "n_embd"),
        *linear("attn_output", f"{layer}.attention.output.dense", "n_embd", "n_embd"),
        *linear("attn_output_norm", f"{layer}.attention.output.LayerNorm", "n_embd"),
        *linear("ffn_up", f"{layer}.intermediate.dense", "n_ff", "n_embd"),
        *linear("ffn_down", f"{layer}.output.dense", "n_embd", "n_ff"),
        *linear("layer_output_norm", f"{layer}.output.LayerNorm", "n_embd"),
    )


def embeddings(module: str, *, positions: bool, types: bool) -> tuple[Tensor, ...]:
    """Return the embeddings of tokens, positions and token types, and the norm after their sum.

    Args:
        module: the module that has them, without a dot at the end.
        positions: whether positions are embedded.
        types: whether token types are.
    """
    words, kinds = f"{module}.word_embeddings.weight", f"{module}.token_type_embeddings.weight"
    return (
        Tensor("token_embd.weight", words, (N_TOKENS, "n_embd"), when=f"no {SEGMENTS}"),
        *([_in_two_segments(words, kinds)] if types else []),
        *([_types(kinds)] if types else []),
        *([_positions(f"{module}.position_embeddings.weight")] if positions else []),
        *with_bias(Tensor("token_embd_norm.weight", f"{module}.LayerNorm.weight", ("n_embd",))),
    )


def words_and_types(module: str) -> tuple[Tensor, Tensor]:
    """Return the embeddings of tokens and token types, for models that do not tell a pair's texts apart.

    Args:
        module: the module that has them, without a dot at the end.
    """
    return (
        Tensor("token_embd.weight", f"{module}.word_embeddings.weight", (N_TOKENS, "n_embd")),
        _types(f"{module}.token_type_embeddings.weight"),
    )


def _types(source: str) -> Tensor:
    return Tensor("token_types.weight", source, (N_TYPES, "n_embd"), is_float=True)


def _positions(source: str) -> Tensor:
    return Tensor("position_embd.weight", source, (N_POSITIONS, "n_embd"), _last_positions, is_float=True)


def _last_positions(weight: Weight, sizes: Sizes) -> Weight:
    """Leave out the rows before the first position of a text, which RoBERTa has for padding."""
    first = sizes.of("first_position")
    return Reordered(weight, np.arange(first, weight.n_rows)) if first else weight


def _in_two_segments(words: str, kinds: str) -> Tensor:
    """The embedding of tokens of the first text of a pair, then of the same tokens in the second.

    The engine adds the first token type to every token. Where a pair's texts differ by their types, the second text has
    tokens of its own, to which the difference is added.
    """
    return Tensor(
        "token_embd.weight",
        words,
        (N_TOKENS, "n_embd"),
        when=SEGMENTS,
        second=kinds,
        second_shape=(N_TYPES, "n_embd"),
        join=_with_second_type,
    )


def _with_second_type(tokens: Weight, types: Weight) -> Weight:
    first, second = types.floats(slice(0, 2))
    return Stacked([tokens, Elementwise(tokens, lambda values: values + (second - first))])


def sizes(config: Config) -> Mapping[str, int]:
    """Read the sizes that BERT and its descendants have."""
    first = config.get("first_position") or 0
    return {
        N_TOKENS: config.integer(N_TOKENS),
        N_POSITIONS: config.integer("max_position_embeddings") + first,
        N_TYPES: config.integer("type_vocab_size", 1),
        N_LABELS: n_labels(config),
        "first_position": first,
        **({SECOND_TEXT: config.integer(N_TOKENS)} if config.values.get(SEGMENTS) else {}),
    }


def metadata(config: Config, sizes: Sizes) -> Mapping[str, Any]:
    """Return the settings of every encoder: attention in both directions, and a classifier head if it has one.

    Raises:
        UnsupportedArchitectureError: the head has more than one score, so it classifies instead of scoring pairs.
    """
    config.get(N_TOKENS)  # which not every layout needs
    found: dict[str, Any] = {"attention.causal": False}
    if N_TYPES in sizes.own:
        found["tokenizer.ggml.token_type_count"] = sizes.of(N_TYPES)
    if CLASSIFIER in sizes.flags:
        require_one_score(config, sizes)
        found |= head_metadata("LABEL_0")
    return found


def renaming(
    rename: Callable[[dict[str, Any]], None] | None = None, *, segments: bool = False
) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    """Return a function that derives the switches and sizes of an encoder from its configuration.

    Args:
        rename: renames keys to the usual ones, in place, before.
        segments: True if the model embeds token types.
    """

    def derived(values: Mapping[str, Any]) -> Mapping[str, Any]:
        found = dict(values)
        if rename is not None:
            rename(found)
        has_head = classifies(found)
        n_types, n_vocab = found.get("type_vocab_size"), found.get("vocab_size")
        found[CLASSIFIER] = has_head
        found[SEGMENTS] = segments and has_head and type(n_types) is int and n_types > 1
        found[N_TOKENS] = n_vocab
        if found[SEGMENTS] and type(n_vocab) is int:
            found["vocab_size"] = 2 * n_vocab
        return found

    return derived


def with_positions_from(offset_key: str) -> Callable[[dict[str, Any]], None]:
    """Return a function that leaves the positions before a text out of the context: RoBERTa's begin after padding.

    Args:
        offset_key: the key of the last position that no token of a text has.
    """

    def rename(values: dict[str, Any]) -> None:
        last, n = values.get(offset_key), values.get("max_position_embeddings")
        values["first_position"] = last + 1 if type(last) is int and last >= 0 else 0
        if type(n) is int:
            values["max_position_embeddings"] = n - values["first_position"]

    return rename


def head(dense: str, scores: str) -> tuple[Tensor, ...]:
    """Return a cross-encoder's head: a layer with tanh on the first token's vector, then the scores."""
    return (
        *with_bias(Tensor("cls.weight", f"{dense}.weight", ("n_embd", "n_embd"), when=CLASSIFIER)),
        *with_bias(Tensor("cls.output.weight", f"{scores}.weight", (N_LABELS, "n_embd"), when=CLASSIFIER)),
    )


#: The switches that :func:`renaming` derives.
SWITCHES = {CLASSIFIER: False, SEGMENTS: False}
