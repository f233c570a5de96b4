"""Qwen 1, from GGUF files only."""

from pyggml.families._family import Family
from pyggml.families._layout import Architecture

QWEN = Architecture(
    "qwen",
    ("qwen",),
    ("QWenLMHeadModel",),
    refusal="Qwen 1 is computed by Python code that comes with the model, which pyggml does not run, and its tokenizer "
    "has a format of its own (qwen.tiktoken). Use Qwen1.5 or later, or a GGUF file of the model",
)

FAMILY = Family(
    name="qwen",
    title="Qwen 1",
    stop_tokens=("<|im_end|>", "<|endoftext|>"),
    builds=(QWEN,),
    required_tokens=("<|endoftext|>",),
)
