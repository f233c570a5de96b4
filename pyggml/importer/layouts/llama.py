"""Llama and what is built like it: TinyLlama, SmolLM2, Yi, DeepSeek's distilled Llamas; Mistral and Mixtral."""

from dataclasses import replace

from pyggml.importer.layout import Layout, Tensor
from pyggml.importer.layouts import _parts

_SHARED = (_parts.EMBEDDING, _parts.OUTPUT, *_parts.NORMS)

LLAMA = Layout(
    name="Llama",
    architecture="llama",
    model_types=("llama", "Yi"),
    hf_architectures=("LlamaForCausalLM", "LLaMAForCausalLM", "YiForCausalLM"),
    tensors=(
        *_SHARED,
        *_parts.attention(
            queries=_parts.paired_queries,
            keys=_parts.paired_keys,
            qkv_bias="attention_bias",
            out_bias="attention_bias",
        ),
        *_parts.gated_feed_forward("mlp_bias"),
    ),
    ignored=_parts.SAVED_TABLES,
    required={"hidden_act": ("silu",)},
    switches={"tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False},
    rope=frozenset({"factors", "longrope"}),
)

MISTRAL = replace(
    LLAMA,
    name="Mistral",
    model_types=("mistral",),
    hf_architectures=("MistralForCausalLM",),
    defaults={"sliding_window": 4096},
    window="limit",
)

MIXTRAL = replace(
    MISTRAL,
    name="Mixtral",
    model_types=("mixtral",),
    hf_architectures=("MixtralForCausalLM",),
    defaults={"rope_theta": 1e6, "num_local_experts": 8, "num_experts_per_tok": 2},
    tensors=(
        *_SHARED,
        *_parts.attention(queries=_parts.paired_queries, keys=_parts.paired_keys, qkv_bias=None, out_bias=None),
        Tensor(
            "blk.{i}.ffn_gate_inp.weight",
            "model.layers.{i}.block_sparse_moe.gate.weight",
            ("n_expert", "n_embd"),
            is_float=True,
        ),
        *(
            Tensor(
                f"blk.{{i}}.ffn_{target}_exps.weight",
                f"model.layers.{{i}}.block_sparse_moe.experts.{{e}}.{source}.weight",
                shape,
                each="n_expert",
            )
            for target, source, shape in (
                ("gate", "w1", ("n_ff", "n_embd")),
                ("down", "w2", ("n_embd", "n_ff")),
                ("up", "w3", ("n_ff", "n_embd")),
            )
        ),
    ),
    switches={"tie_word_embeddings": False},
)
