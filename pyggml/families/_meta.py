"""Llama and Mistral in Meta's own format: ``params.json``, other tensor names, rows already in the engine's order."""

from collections.abc import Mapping
from typing import Any

from pyggml.families import _parts
from pyggml.families._layout import Layout, Tensor

_BLOCK = "layers.{i}."

_NAMES = {
    "dim": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads",
    "norm_eps": "rms_norm_eps",
    "hidden_dim": "intermediate_size",
    "max_seq_len": "max_position_embeddings",
}
# The smallest context length of models with these rope bases; the files lack it.
_CONTEXTS = {10_000.0: 2048}
_OTHER_CONTEXT = 8192


def _rename_keys(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Rename keys to Hugging Face's, and add those that follow from others."""
    values_by_name = {_NAMES.get(key, key): value for key, value in values.items()}
    if values_by_name.get("vocab_size") == -1:  # the embedding's rows are counted instead
        del values_by_name["vocab_size"]
    multiple, factor = values_by_name.pop("multiple_of", None), values_by_name.pop("ffn_dim_multiplier", None)
    if (
        "intermediate_size" not in values_by_name
        and type(values_by_name.get("hidden_size")) is int
        and type(multiple) is int
    ):
        width = int(8 * values_by_name["hidden_size"] / 3)
        if factor is not None:
            width = int(factor * width)
        values_by_name["intermediate_size"] = -(-width // multiple) * multiple
    values_by_name.setdefault("rope_theta", 10_000.0)
    values_by_name.setdefault("max_position_embeddings", _CONTEXTS.get(values_by_name["rope_theta"], _OTHER_CONTEXT))
    if values_by_name.pop("use_scaled_rope", False):
        values_by_name["rope_scaling"] = {
            "rope_type": "llama3",
            # differs between models; older files lack it
            "factor": values_by_name.pop("rope_scaling_factor", None),
            "low_freq_factor": 1.0,
            "high_freq_factor": values_by_name.pop("rope_high_freq_factor", 4.0),
            "original_max_position_embeddings": 8192,
        }
    return values_by_name


META = Layout(
    "llama",
    model_types=("params.json",),
    name="Llama (as Meta publishes it)",
    tensors=(
        Tensor("token_embd.weight", "tok_embeddings.weight", ("n_vocab", "n_embd")),
        Tensor("output_norm.weight", "norm.weight", ("n_embd",)),
        Tensor("output.weight", "output.weight", ("n_vocab", "n_embd")),
        Tensor("blk.{i}.attn_norm.weight", f"{_BLOCK}attention_norm.weight", ("n_embd",)),
        Tensor("blk.{i}.attn_q.weight", f"{_BLOCK}attention.wq.weight", ("n_q", "n_embd")),
        Tensor("blk.{i}.attn_k.weight", f"{_BLOCK}attention.wk.weight", ("n_kv", "n_embd")),
        Tensor("blk.{i}.attn_v.weight", f"{_BLOCK}attention.wv.weight", ("n_kv", "n_embd")),
        Tensor("blk.{i}.attn_output.weight", f"{_BLOCK}attention.wo.weight", ("n_embd", "n_q")),
        Tensor("blk.{i}.ffn_norm.weight", f"{_BLOCK}ffn_norm.weight", ("n_embd",)),
        Tensor("blk.{i}.ffn_gate.weight", f"{_BLOCK}feed_forward.w1.weight", ("n_ff", "n_embd")),
        Tensor("blk.{i}.ffn_down.weight", f"{_BLOCK}feed_forward.w2.weight", ("n_embd", "n_ff")),
        Tensor("blk.{i}.ffn_up.weight", f"{_BLOCK}feed_forward.w3.weight", ("n_ff", "n_embd")),
    ),
    ignored=(r"rope\.freqs",),
    rope=_parts.LLAMA_ROPE,
    window="limit",
    rename_keys=_rename_keys,
)
