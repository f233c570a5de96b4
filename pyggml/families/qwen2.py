"""Qwen1.5, Qwen2 and Qwen2.5, dense and mixture of experts."""

from pyggml.families import _parts
from pyggml.families._family import Family, Variant
from pyggml.families._layout import Architecture, Layout

QWEN2 = Layout(
    "qwen2",
    model_types=("qwen2",),
    hf_architectures=("Qwen2ForCausalLM",),
    name="Qwen2",
    tensors=(
        _parts.EMBEDDING,
        _parts.OUTPUT,
        *_parts.NORMS,
        *_parts.attention(qkv_bias="always", out_bias=None),
        *_parts.gated_feed_forward(),
    ),
    ignored=_parts.SAVED_TABLES,
    required={"hidden_act": ("silu",)},
    defaults={"use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28},
    switches={"tie_word_embeddings": False},
    is_head_dim_fixed=True,
    window="limit",
)

FAMILY = Family(
    name="qwen2",
    title="Qwen1.5, 2 or 2.5",
    stop_tokens=("<|im_end|>", "<|endoftext|>"),
    builds=(QWEN2, Architecture("qwen2moe", ("qwen2_moe",), ("Qwen2MoeForCausalLM",))),
    required_tokens=("<|im_end|>", "<|endoftext|>"),
    classes=("Qwen2",),
    variants=(
        Variant("Qwen2.5", ("qwen2 5", "qwen 2 5"), template="You are Qwen, created by Alibaba Cloud"),
        Variant("QwQ", ("qwq",)),
        Variant("Qwen2", ("qwen2", "qwen 2"), {"is_grouped": (True,), "n_expert": (0,)}),
        Variant("Qwen1.5", ("qwen1 5", "qwen 1 5"), {"is_grouped": (False,)}),
    ),
)
