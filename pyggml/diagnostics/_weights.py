"""Tensor sizes by type, by component and by layer."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from pyggml.diagnostics._facts import TensorFacts
from pyggml.diagnostics.report import LayerReport, TensorShare

# The number of a layer in a tensor's name, in GGUF files and in checkpoints.
_LAYER = re.compile(r"(?:^|\.)(?:blk|layers|h|blocks|block)\.(\d+)\.")

#: Component -> pattern of tensor names, in GGUF files and in checkpoints; the first match counts.
_PARTS = (
    ("norms", r"norm|ln_|layernorm|\.ln\."),
    ("experts", r"_exps|experts|block_sparse_moe|ffn_gate_inp|_shexp"),
    ("attention", r"attn|attention|rope_|rotary|\.mixer\."),
    ("state space", r"ssm_|time_mix|shortconv"),
    ("feed-forward", r"ffn|mlp|feed_forward|channel_mix"),
    ("embedding", r"token_embd|embed_tokens|word_embeddings|tok_embeddings|wte|position_embd|token_types|\.embed"),
    ("output", r"^output|lm_head|^cls|embed_out|score"),
)


def by_type(tensors: Iterable[TensorFacts]) -> tuple[TensorShare, ...]:
    """Group the tensors by type, the largest share first."""
    return _shares(tensors, lambda tensor: tensor.type)


def by_part(tensors: Iterable[TensorFacts]) -> tuple[TensorShare, ...]:
    """Group the tensors by component, the largest share first."""

    def part(tensor: TensorFacts) -> str:
        return next((part for part, pattern in _PARTS if re.search(pattern, tensor.name)), "other")

    return _shares(tensors, part)


def by_layer(tensors: Iterable[TensorFacts]) -> tuple[LayerReport, ...]:
    """The share of each layer."""
    layers = defaultdict[int, list[TensorFacts]](list)
    for tensor in tensors:
        if match := _LAYER.search(tensor.name):
            layers[int(match[1])].append(tensor)
    shares = {index: by_type(layers[index]) for index in sorted(layers)}
    return tuple(
        LayerReport(index, sum(share.n_bytes for share in parts), {share.name: share.n_bytes for share in parts})
        for index, parts in shares.items()
    )


def main_type(tensors: Sequence[TensorFacts]) -> str:
    """The type of most weights; "" if there are none."""
    return max(by_type(tensors), key=lambda share: share.n_params, default=TensorShare("", 0, 0, 0)).name


def _shares(tensors: Iterable[TensorFacts], key: Callable[[TensorFacts], str]) -> tuple[TensorShare, ...]:
    groups = defaultdict[str, list[TensorFacts]](list)
    for tensor in tensors:
        groups[key(tensor)].append(tensor)
    shares = [
        TensorShare(name, len(group), sum(each.n_params for each in group), sum(each.n_bytes for each in group))
        for name, group in groups.items()
    ]
    return tuple(sorted(shares, key=lambda share: -share.n_bytes))
