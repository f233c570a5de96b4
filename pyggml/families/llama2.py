"""Llama 1 and 2, TinyLlama, and the many that were made from them."""

from pyggml.families._family import Family, Signs

FAMILY = Family(
    name="llama2",
    title="Llama 1, 2 or TinyLlama",
    stop_tokens=("</s>",),
    architectures=("llama",),
    model_types=("llama",),
    hf_architectures=("LlamaForCausalLM", "LLaMAForCausalLM"),
    required_tokens=("</s>",),
    signs=Signs(
        names=("llama", "llama2", "tinyllama", "codellama", "openllama", "open llama", "vicuna", "alpaca"),
        template=("<<SYS>>",),
        n_vocab=(32000, 32016),
    ),
)
