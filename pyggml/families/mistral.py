"""Mistral, Mixtral, Ministral and their siblings."""

from pyggml.families._family import Family, Signs

FAMILY = Family(
    name="mistral",
    title="Mistral or Mixtral",
    stop_tokens=("</s>",),
    architectures=("llama", "mistral3"),
    model_types=("mistral", "mixtral", "mistral3", "ministral", "ministral3"),
    hf_architectures=(
        "MistralForCausalLM",
        "MixtralForCausalLM",
        "MinistralForCausalLM",
        "Ministral3ForCausalLM",
        "Mistral3ForConditionalGeneration",
    ),
    required_tokens=("</s>",),
    signs=Signs(
        tokens=("[INST]", "[/INST]"),
        names=(
            "mistral",
            "mistralai",
            "mixtral",
            "ministral",
            "mathstral",
            "codestral",
            "devstral",
            "magistral",
        ),
        template=("[INST]",),
        n_vocab=(32000, 32768, 131072),
    ),
)
