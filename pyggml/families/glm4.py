"""GLM-4: the chat models of 2024 ("glm", ChatGLM's graph in the engine), and those of 2025 with two more norms."""

from dataclasses import replace

from pyggml.families import _parts
from pyggml.families._family import Family, Variant
from pyggml.families._layout import Layout

GLM = Layout(
    "chatglm",
    model_types=("glm",),
    hf_architectures=("GlmForCausalLM",),
    name="GLM",
    tensors=(
        *_parts.COMMON,
        # transformers rotates neighbouring columns, as the engine does here.
        *_parts.attention(qkv_bias="attention_bias", out_bias=None),
        _parts.block("ffn_up", "mlp.gate_up_proj", "2*n_ff", "n_embd"),
        _parts.block("ffn_down", "mlp.down_proj", "n_embd", "n_ff"),
    ),
    required={"hidden_act": ("silu",)},
    switches={"tie_word_embeddings": False, "attention_bias": True},
    is_head_dim_fixed=True,
)

GLM4 = replace(
    GLM,
    architecture="glm4",
    model_types=("glm4",),
    hf_architectures=("Glm4ForCausalLM",),
    name="GLM-4",
    tensors=(
        *GLM.tensors,
        _parts.block("post_attention_norm", "post_self_attn_layernorm", "n_embd"),
        _parts.block("post_ffw_norm", "post_mlp_layernorm", "n_embd"),
    ),
    is_head_dim_fixed=False,
)

FAMILY = Family(
    name="glm4",
    title="GLM-4",
    stop_tokens=("<|user|>", "<|endoftext|>", "<|observation|>"),
    builds=(GLM, GLM4),
    required_tokens=("<|endoftext|>", "<|user|>", "<|observation|>"),
    classes=("Glm4",),
    variants=(
        Variant("GLM-4-0414", ("glm 4 9b 0414", "glm 4 32b 0414"), {"architecture": ("glm4",)}),
        Variant("GLM-Z1", ("glm z1",), {"architecture": ("glm4",)}),
        Variant("GLM-4-9B", ("glm 4 9b",), {"architecture": ("chatglm",)}),
    ),
)
