"""Qwen1.5, Qwen2 and Qwen2.5, dense and mixture of experts."""

from pyggml.families._family import Family

FAMILY = Family(
    name="qwen2",
    title="Qwen1.5, 2 or 2.5",
    stop_tokens=("<|im_end|>", "<|endoftext|>"),
    architectures=("qwen2", "qwen2moe"),
    model_types=("qwen2", "qwen2_moe"),
    hf_architectures=("Qwen2ForCausalLM", "Qwen2MoeForCausalLM"),
    required_tokens=("<|im_end|>", "<|endoftext|>"),
)
