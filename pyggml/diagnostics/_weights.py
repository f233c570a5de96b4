"""Where the bytes are: tensors by type, by what they do, and by layer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from pyggml.diagnostics._facts import StoredTensor
from pyggml.diagnostics.report import LayerReport, TensorShare

# The number of a layer in a tensor's name, in GGUF files and in checkpoints.
_LAYER = re.compile(r"(?:^|\.)(?:blk|layers|h|blocks|block)\.(\d+)\.")

#: What tensors do, by what their names hold, in GGUF files and in checkpoints; the first that fits.
_PARTS = (
    ("norms", r"norm|ln_|layernorm|\.ln\."),
    ("experts", r"_exps|experts|block_sparse_moe|ffn_gate_inp|_shexp"),
    ("attention", r"attn|attention|rope_|rotary|\.mixer\."),
    ("state space", r"ssm_|time_mix|shortconv"),
    ("feed-forward", r"ffn|mlp|feed_forward|channel_mix"),
    ("embedding", r"token_embd|embed_tokens|word_embeddings|tok_embeddings|wte|position_embd|token_types|\.embed"),
    ("output", r"^output|lm_head|^cls|embed_out|score"),
)


def by_type(tensors: Iterable[StoredTensor]) -> tuple[TensorShare, ...]:
    """The tensors by type, the largest share first."""
    return _shares(tensors, lambda tensor: tensor.type)


def by_part(tensors: Iterable[StoredTensor]) -> tuple[TensorShare, ...]:
    """The tensors by what they do, the largest share first."""
    return _shares(tensors, lambda tensor: _part(tensor.name))


def by_layer(tensors: Iterable[StoredTensor]) -> tuple[LayerReport, ...]:
    """The share of each layer."""
    layers: dict[int, list[StoredTensor]] = {}
    for tensor in tensors:
        match = _LAYER.search(tensor.name)
        if match is not None:
            layers.setdefault(int(match[1]), []).append(tensor)
    return tuple(_layer(index, layers[index]) for index in sorted(layers))


def main_type(tensors: Sequence[StoredTensor]) -> str:
    """The type of most weights; "" if there are none."""
    return max(by_type(tensors), key=lambda share: share.n_params, default=TensorShare("", 0, 0, 0)).name


def _layer(index: int, tensors: Sequence[StoredTensor]) -> LayerReport:
    shares = by_type(tensors)
    return LayerReport(index, sum(share.n_bytes for share in shares), {share.name: share.n_bytes for share in shares})


def _part(name: str) -> str:
    return next((part for part, pattern in _PARTS if re.search(pattern, name)), "other")


def _shares(tensors: Iterable[StoredTensor], key: Callable[[StoredTensor], str]) -> tuple[TensorShare, ...]:
    groups: dict[str, list[StoredTensor]] = {}
    for tensor in tensors:
        groups.setdefault(key(tensor), []).append(tensor)
    shares = [
        TensorShare(name, len(group), sum(each.n_params for each in group), sum(each.n_bytes for each in group))
        for name, group in groups.items()
    ]
    return tuple(sorted(shares, key=lambda share: -share.n_bytes))
