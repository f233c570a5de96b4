"""Yi and Yi-1.5."""

from pyggml.families._family import Family, Signs

FAMILY = Family(
    name="yi",
    title="Yi",
    stop_tokens=("<|im_end|>", "<|endoftext|>"),
    architectures=("llama",),
    model_types=("llama", "Yi"),
    hf_architectures=("LlamaForCausalLM", "YiForCausalLM"),
    required_tokens=("<|im_end|>", "<|endoftext|>"),
    signs=Signs(
        tokens=("<|startoftext|>",),
        names=("yi",),
        n_vocab=(64000,),
    ),
    needs_sign=True,
)
