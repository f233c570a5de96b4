"""SmolLM and SmolLM2."""

from pyggml.families import llama2
from pyggml.families._family import Family, Signs, Variant

FAMILY = Family(
    name="smollm2",
    title="SmolLM or SmolLM2",
    stop_tokens=("<|im_end|>", "<|endoftext|>", "</s>"),
    more_stop_tokens=("<reponame>",),
    builds=(llama2.LLAMA,),
    required_tokens=("<|im_end|>", "<|endoftext|>"),
    signs=Signs(tokens=("<reponame>", "<gh_stars>"), names=("smollm", "smollm2"), n_vocab=(49152,)),
    needs_sign=True,
    classes=("SmolLM2",),
    aliases=("SmolLm2", "use_smolm2"),
    variants=(
        Variant("SmolLM2", ("smollm2",), {"n_ctx": (8192,)}),
        Variant("SmolLM", ("smollm",), {"n_ctx": (2048,)}),
    ),
)
