"""Llama 3, 3.1, 3.2 and 3.3."""

from pyggml.families._family import Family, Signs

FAMILY = Family(
    name="llama3",
    title="Llama 3, 3.1, 3.2 or 3.3",
    stop_tokens=("<|eot_id|>", "<|end_of_text|>", "<|eom_id|>"),
    architectures=("llama",),
    model_types=("llama",),
    hf_architectures=("LlamaForCausalLM",),
    required_tokens=("<|eot_id|>",),
    signs=Signs(
        tokens=("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>"),
        names=("llama 3", "llama3"),
        template=("<|start_header_id|>",),
        n_vocab=(128256,),
    ),
)
