"""DeepSeek-R1-Distill: Llama and Qwen models that DeepSeek trained to reason, with DeepSeek's own tokens."""

from dataclasses import replace

from pyggml.families import llama2, qwen2, qwen3
from pyggml.families._family import Family, Signs

LLAMA = Family(
    name="deepseek-r1-distill-llama",
    title="DeepSeek-R1-Distill-Llama",
    stop_tokens=("<｜end▁of▁sentence｜>",),
    builds=(llama2.LLAMA,),
    required_tokens=("<｜end▁of▁sentence｜>", "<｜Assistant｜>"),
    signs=Signs(tokens=("<｜begin▁of▁sentence｜>", "<｜User｜>"), names=("deepseek",), template=("<｜Assistant｜>",)),
    needs_sign=True,
    precedence=-1,  # after the families of its base models
    classes=("Llama",),
    variant_kind="distilled",
)

QWEN2 = replace(
    LLAMA,
    name="deepseek-r1-distill-qwen",
    title="DeepSeek-R1-Distill-Qwen",
    more_stop_tokens=qwen2.FAMILY.more_stop_tokens,
    builds=(qwen2.QWEN2,),
    classes=("Qwen2",),
)

QWEN3 = replace(
    LLAMA,
    name="deepseek-r1-distill-qwen3",
    title="DeepSeek-R1-0528-Qwen3",
    more_stop_tokens=qwen3.FAMILY.more_stop_tokens,
    builds=(qwen3.QWEN3,),
    classes=("Qwen3",),
)
