"""SmolLM and SmolLM2."""

from pyggml.families._family import Family, Signs

FAMILY = Family(
    name="smollm2",
    title="SmolLM or SmolLM2",
    stop_tokens=("<|im_end|>", "<|endoftext|>", "</s>"),
    architectures=("llama",),
    model_types=("llama",),
    hf_architectures=("LlamaForCausalLM",),
    required_tokens=("<|im_end|>", "<|endoftext|>"),
    signs=Signs(
        tokens=("<reponame>", "<gh_stars>"),
        names=("smollm", "smollm2"),
        n_vocab=(49152,),
    ),
    needs_sign=True,
)
