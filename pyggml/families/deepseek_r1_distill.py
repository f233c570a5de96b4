"""DeepSeek-R1-Distill: Llama and Qwen models that DeepSeek taught to reason, with DeepSeek's own tokens."""

from dataclasses import replace

from pyggml.families._family import Family, Signs

LLAMA = Family(
    name="deepseek-r1-distill-llama",
    title="DeepSeek-R1-Distill-Llama",
    stop_tokens=("<｜end▁of▁sentence｜>",),
    architectures=("llama",),
    model_types=("llama",),
    hf_architectures=("LlamaForCausalLM",),
    required_tokens=("<｜end▁of▁sentence｜>", "<｜Assistant｜>"),
    signs=Signs(
        tokens=("<｜begin▁of▁sentence｜>", "<｜User｜>"),
        names=("deepseek",),
        template=("<｜Assistant｜>",),
    ),
    needs_sign=True,
)

QWEN2 = replace(
    LLAMA,
    name="deepseek-r1-distill-qwen",
    title="DeepSeek-R1-Distill-Qwen",
    architectures=("qwen2",),
    model_types=("qwen2",),
    hf_architectures=("Qwen2ForCausalLM",),
)

QWEN3 = replace(
    LLAMA,
    name="deepseek-r1-distill-qwen3",
    title="DeepSeek-R1-0528-Qwen3",
    architectures=("qwen3",),
    model_types=("qwen3",),
    hf_architectures=("Qwen3ForCausalLM",),
)
