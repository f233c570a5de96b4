"""Cases of compare_with_transformers.py: tiny models of every architecture, as transformers configures them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

N_POSITIONS, N_GREEDY = 200, 64
N_CTX = 512
N_VOCAB = 320

BASE = {
    "vocab_size": N_VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": N_CTX,
    "tie_word_embeddings": False,
    "bos_token_id": 256,
    "eos_token_id": 256,
    "pad_token_id": 256,
}


@dataclass(frozen=True)
class Case:
    """A checkpoint to make: the model is ``<kind>ForCausalLM`` and its configuration ``<kind>Config``.

    ``around`` is the configuration of a larger model that contains the language model; the model is then
    ``<kind>ForConditionalGeneration``. With ``is_stacked``, experts are saved as transformers has them in memory; with
    ``is_mxfp4``, as gpt-oss was published.
    """

    name: str
    kind: str
    config: dict[str, Any] = field(default_factory=dict)
    config_kind: str = ""
    n_positions: int = N_POSITIONS
    n_greedy: int = N_GREEDY
    n_ctx: int = N_CTX
    around: dict[str, Any] | None = None
    is_stacked: bool = False
    is_mxfp4: bool = False


def rope(kind: str, **parameters: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_theta": 10_000.0, "rope_type": kind, **parameters}}


def rope_by_layer(kind: str, **parameters: Any) -> dict[str, Any]:
    """Rotations that are scaled, but not in the sliding-window layers."""
    whole, local = rope(kind, **parameters)["rope_parameters"], rope("default")["rope_parameters"]
    return {"rope_parameters": {"full_attention": whole, "sliding_attention": local}}


LLAMA3 = rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)
LONG = {"short_factor": [1.0 + i / 8 for i in range(8)], "long_factor": [1.0 + i for i in range(8)]}
PARTLY = {"short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5], "long_factor": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]}
GEMMA = {"head_dim": 16, "query_pre_attn_scalar": 16, "tie_word_embeddings": True, "sliding_window": 32}

GRANITE = {
    "embedding_multiplier": 12.0,
    "residual_multiplier": 0.22,
    "attention_multiplier": 0.0625,
    "logits_scaling": 8.0,
}
GLM = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}}

MINISTRAL3 = {
    "head_dim": 32,
    **rope(
        "yarn",
        factor=16.0,
        beta_fast=32.0,
        beta_slow=1.0,
        mscale=1.0,
        mscale_all_dim=1.0,
        llama_4_scaling_beta=0.1,
        original_max_position_embeddings=32,
    ),
}

SEEING = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
}

EXPERTS = {"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 48}
SHARED = {**EXPERTS, "shared_expert_intermediate_size": 80}

GPT_OSS = {
    "head_dim": 16,
    "num_local_experts": 5,
    "num_experts_per_tok": 2,
    "sliding_window": 40,
    # The engine truncates, whatever this says; see docs/reference/hugging-face-checkpoints.md.
    **rope("yarn", factor=8.0, original_max_position_embeddings=64, truncate=True),
}

# Ropes of Scout: neither slow nor fast, nothing in between.
LLAMA4 = {
    **rope("llama3", factor=16.0, low_freq_factor=1.0, high_freq_factor=1.0, original_max_position_embeddings=64),
    "num_hidden_layers": 5,
    "head_dim": 16,
    "num_local_experts": 4,
    "num_experts_per_tok": 1,
    "intermediate_size": 48,
    "intermediate_size_mlp": 80,
}

LLAMA4_SEEING = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
    "vision_output_dim": 16,
    "projector_input_dim": 16,
    "projector_output_dim": 16,
}

NEXT = {
    **SHARED,
    "num_hidden_layers": 5,
    "head_dim": 32,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
}

MIXTURES = (
    Case("qwen3-next", "Qwen3Next", NEXT),
    Case(
        "qwen3-next, tied, other layers",
        "Qwen3Next",
        {
            **NEXT,
            "tie_word_embeddings": True,
            "linear_num_value_heads": 2,
            "linear_conv_kernel_dim": 3,
            "layer_types": [
                "full_attention",
                "linear_attention",
                "linear_attention",
                "full_attention",
                "linear_attention",
            ],
        },
        is_stacked=True,
    ),
    Case("mixtral, stacked", "Mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}, is_stacked=True),
    Case("qwen2 moe", "Qwen2Moe", SHARED),
    Case("qwen2 moe, tied, no biases", "Qwen2Moe", {**SHARED, "tie_word_embeddings": True, "qkv_bias": False}),
    Case("qwen2 moe, stacked", "Qwen2Moe", SHARED, is_stacked=True),
    Case("qwen3 moe", "Qwen3Moe", {**EXPERTS, "head_dim": 32, "norm_topk_prob": True}),
    Case("qwen3 moe, tied", "Qwen3Moe", {**EXPERTS, "norm_topk_prob": True, "tie_word_embeddings": True}),
    Case("qwen3 moe, stacked", "Qwen3Moe", {**EXPERTS, "norm_topk_prob": True}, is_stacked=True),
    Case("llama 4", "Llama4", LLAMA4, config_kind="Llama4Text"),
    Case(
        "llama 4, tied, dense between",
        "Llama4",
        {**LLAMA4, "tie_word_embeddings": True, "interleave_moe_layer_step": 2, "num_experts_per_tok": 2},
        config_kind="Llama4Text",
    ),
    Case(
        "llama 4, maverick",
        "Llama4",
        {
            **LLAMA4,
            "num_local_experts": 128,
            "use_qk_norm": False,
            "head_dim": 32,
            "interleave_moe_layer_step": 2,
            "intermediate_size": 16,
        },
        config_kind="Llama4Text",
    ),
    Case("llama 4, beyond a chunk", "Llama4", LLAMA4, "Llama4Text", n_positions=8250, n_ctx=8448),
    Case("llama 4 that sees", "Llama4", LLAMA4, around={"vision_config": LLAMA4_SEEING}),
    Case("gpt-oss", "GptOss", GPT_OSS),
    Case("gpt-oss, mxfp4", "GptOss", GPT_OSS, is_mxfp4=True),
    Case("gpt-oss, tied, wide heads", "GptOss", {**GPT_OSS, "tie_word_embeddings": True, "head_dim": 32}),
)
#: The engine has constants for most sizes. With random weights, this architecture makes much of small differences: the
#: engine divides by n - 1 in the deviation of sparse activations, where transformers divides by n. Norms that hardly
#: stretch what is small keep them small, but not the effect of any part.
GEMMA3N = {
    "hidden_size": 32,
    "intermediate_size": 2048,
    "num_hidden_layers": 25,
    "num_kv_shared_layers": 5,
    "head_dim": 16,
    "vocab_size_per_layer_input": 300,
    "sliding_window": 32,
    "rms_norm_eps": 4.0,
    "tie_word_embeddings": True,
}
PIXTRAL = {**SEEING, "model_type": "pixtral", "head_dim": 8, "patch_size": 14}

CASES = (
    Case("llama", "Llama"),
    Case("llama, tied (TinyLlama, SmolLM2)", "Llama", {"tie_word_embeddings": True, "num_key_value_heads": 4}),
    Case("llama, wide heads", "Llama", {"head_dim": 32}),
    Case("llama, biases", "Llama", {"attention_bias": True, "mlp_bias": True}),
    Case("llama, llama3 rope", "Llama", LLAMA3),
    Case("llama, linear rope", "Llama", rope("linear", factor=4.0)),
    Case("llama, dynamic rope", "Llama", rope("dynamic", factor=4.0)),
    Case("llama, yarn rope", "Llama", rope("yarn", factor=4.0, original_max_position_embeddings=128)),
    Case(
        "llama, other yarn rope",
        "Llama",
        rope(
            "yarn",
            factor=8.0,
            beta_fast=16.0,
            beta_slow=2.0,
            attention_factor=1.3,
            truncate=False,
            original_max_position_embeddings=64,
        ),
    ),
    Case("llama, longrope", "Llama", rope("longrope", factor=4.0, original_max_position_embeddings=128, **LONG)),
    Case("llama, yi shape", "Llama", {"num_key_value_heads": 1, **rope("default", rope_theta=5e6)}),
    Case("mistral", "Mistral", {"head_dim": 24, "sliding_window": None}),
    Case("mistral, window", "Mistral", {"sliding_window": 264}, n_ctx=264),
    Case("mixtral", "Mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    Case("qwen2", "Qwen2"),
    Case("qwen2, tied", "Qwen2", {"tie_word_embeddings": True}),
    Case("qwen2, yarn rope", "Qwen2", rope("yarn", factor=4.0, original_max_position_embeddings=128)),
    Case("qwen3", "Qwen3", {"head_dim": 32}),
    Case("qwen3, tied", "Qwen3", {"tie_word_embeddings": True, "head_dim": 16}),
    Case(
        "phi-2", "Phi", {"num_key_value_heads": 4, "rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}
    ),
    Case("phi-3", "Phi3", {"num_key_value_heads": 4}),
    Case("phi-4", "Phi3", {**rope("default", rope_theta=250_000.0)}),
    Case(
        "phi-3, longrope, long",
        "Phi3",
        {**rope("longrope", original_max_position_embeddings=64, **LONG), "original_max_position_embeddings": 64},
    ),
    Case(
        "phi-3, longrope, short",
        "Phi3",
        {
            **rope("longrope", original_max_position_embeddings=512, **LONG),
            "original_max_position_embeddings": 512,
            "max_position_embeddings": 2048,
        },
    ),
    Case(
        "phi-4-mini",
        "Phi3",
        {
            **rope("longrope", original_max_position_embeddings=64, partial_rotary_factor=0.75, **PARTLY),
            "original_max_position_embeddings": 64,
            "tie_word_embeddings": True,
        },
    ),
    Case("gemma 2", "Gemma2", {**GEMMA, "num_hidden_layers": 4}),
    Case("gemma 2, other scale (2b jpn)", "Gemma2", {**GEMMA, "query_pre_attn_scalar": 14}),
    Case("gemma 3", "Gemma3", {**GEMMA, "num_hidden_layers": 7}, config_kind="Gemma3Text"),
    Case("gemma 3, other scale", "Gemma3", {**GEMMA, "query_pre_attn_scalar": 24}, config_kind="Gemma3Text"),
    Case(
        "gemma 3, linear rope",
        "Gemma3",
        {
            **GEMMA,
            "num_hidden_layers": 7,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            },
        },
        config_kind="Gemma3Text",
    ),
    Case("falcon 7b", "Falcon", {"multi_query": True}),
    Case("falcon 40b", "Falcon", {"new_decoder_architecture": True, "num_kv_heads": 2}),
    Case(
        "falcon 11b",
        "Falcon",
        {
            "new_decoder_architecture": True,
            "num_kv_heads": 2,
            "num_ln_in_parallel_attn": 1,
            "tie_word_embeddings": True,
        },
    ),
    Case("falcon, a key head each", "Falcon", {"multi_query": False}),
    Case("stablelm", "StableLm", {"use_qkv_bias": True}),
    Case("stablelm, parallel", "StableLm", {"use_parallel_residual": True, "qk_layernorm": True}),
    Case("stablelm, tied", "StableLm", {"tie_word_embeddings": True}),
    Case("gemma 3 that sees", "Gemma3", {**GEMMA, "num_hidden_layers": 7}, around={"vision_config": SEEING}),
    Case("llama, llama3 rope, tied (3.2)", "Llama", {**LLAMA3, "tie_word_embeddings": True, "head_dim": 32}),
    Case("mistral, wide heads", "Mistral", {"head_dim": 32, "sliding_window": None, **rope("default", rope_theta=1e6)}),
    Case("mixtral, top 1", "Mixtral", {"num_local_experts": 3, "num_experts_per_tok": 1, "sliding_window": None}),
    Case(
        "qwen2, window in some layers",
        "Qwen2",
        {"use_sliding_window": True, "sliding_window": 264, "max_window_layers": 1},
        n_ctx=264,
    ),
    Case(
        "qwen3, yarn rope", "Qwen3", {"head_dim": 16, **rope("yarn", factor=4.0, original_max_position_embeddings=64)}
    ),
    Case(
        "phi-1.5",
        "Phi",
        {
            "num_key_value_heads": 4,
            "rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5},
            "qk_layernorm": False,
        },
    ),
    Case("phi-3, window", "Phi3", {"num_key_value_heads": 4, "sliding_window": 264}, n_ctx=264),
    Case("gemma 2, other scores", "Gemma2", {**GEMMA, "attn_logit_softcapping": 20.0, "final_logit_softcapping": 10.0}),
    Case("gemma 3, dense window", "Gemma3", {**GEMMA, "sliding_window": 16, "num_hidden_layers": 6}, "Gemma3Text"),
    Case("stablelm, a key head each", "StableLm", {"num_key_value_heads": 4, "use_qkv_bias": False}),
    Case(
        "stablelm, half rotated",
        "StableLm",
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}},
    ),
    Case("gemma 1", "Gemma", {"head_dim": 32, "num_key_value_heads": 1, "tie_word_embeddings": True}),
    Case("granite", "Granite", GRANITE),
    Case(
        "granite, tied, biases",
        "Granite",
        {**GRANITE, **LLAMA3, "tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True},
    ),
    Case("olmo 2", "Olmo2"),
    Case(
        "olmo 2, tied, yarn rope",
        "Olmo2",
        {"tie_word_embeddings": True, **rope("yarn", factor=4.0, original_max_position_embeddings=128)},
    ),
    Case("olmo 3", "Olmo3", {"num_hidden_layers": 5, "sliding_window": 32, **rope_by_layer("default")}),
    Case(
        "olmo 3, yarn rope",
        "Olmo3",
        {
            "num_hidden_layers": 4,
            "sliding_window": 32,
            **rope_by_layer("yarn", factor=8.0, original_max_position_embeddings=64, attention_factor=1.3),
        },
    ),
    Case("glm 4 (2024)", "Glm", {**GLM, "head_dim": 16}),
    Case("glm 4 (2024), no biases", "Glm", {**GLM, "head_dim": 16, "attention_bias": False}),
    Case("glm 4 (2025)", "Glm4", {**GLM, "head_dim": 32}),
    Case("glm 4 (2025), tied", "Glm4", {**GLM, "head_dim": 16, "attention_bias": False, "tie_word_embeddings": True}),
    Case("command-r", "Cohere", {"logit_scale": 0.25, "tie_word_embeddings": True}),
    Case(
        "command-r+",
        "Cohere",
        {"use_qk_norm": True, "hidden_size": 32, "num_hidden_layers": 64, "tie_word_embeddings": True},
    ),
    Case("smollm3", "SmolLM3", {"num_hidden_layers": 5, "tie_word_embeddings": True}),
    Case(
        "smollm3, yarn rope",
        "SmolLM3",
        {"num_hidden_layers": 4, **rope("yarn", factor=4.0, original_max_position_embeddings=128)},
    ),
    Case("ministral", "Ministral", {"head_dim": 24, "sliding_window": 264}, n_ctx=264),
    Case(
        "ministral, window in some layers",
        "Ministral",
        {"head_dim": 16, "sliding_window": 264, "layer_types": ["full_attention", *["sliding_attention"] * 2]},
        n_ctx=264,
    ),
    Case("ministral 3", "Ministral3", MINISTRAL3),
    Case(
        "ministral 3, other yarn rope",
        "Ministral3",
        {"rope_parameters": {**MINISTRAL3["rope_parameters"], "beta_fast": 4.0, "mscale": 0.5}},
    ),
    Case(
        "ministral 3 that sees",
        "Mistral3",
        {**MINISTRAL3, "model_type": "ministral3", "tie_word_embeddings": True},
        around={"vision_config": PIXTRAL, "tie_word_embeddings": True},
    ),
    Case(
        "mistral small 3.1",
        "Mistral3",
        {"head_dim": 32, "model_type": "mistral", "sliding_window": None, **rope("default", rope_theta=1e9)},
        around={"vision_config": PIXTRAL, "tie_word_embeddings": False},
    ),
    Case("gemma 3n", "Gemma3n", GEMMA3N, config_kind="Gemma3nText"),
    Case("command-r7b", "Cohere2", {"sliding_window": 32, "num_hidden_layers": 5, "tie_word_embeddings": True}),
    *MIXTURES,
)
