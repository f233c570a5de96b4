"""Gemma 1, 2, 3 and 3n. Their vocabulary has the tags of HTML as tokens, `</s>` among them: plain text."""

from pyggml.families._family import Family

FAMILY = Family(
    name="gemma",
    title="Gemma 1, 2 or 3",
    stop_tokens=("<end_of_turn>", "<eos>"),
    architectures=("gemma", "gemma2", "gemma3", "gemma3n"),
    model_types=("gemma", "gemma2", "gemma3", "gemma3_text", "gemma3n", "gemma3n_text"),
    hf_architectures=(
        "GemmaForCausalLM",
        "Gemma2ForCausalLM",
        "Gemma3ForCausalLM",
        "Gemma3ForConditionalGeneration",
        "Gemma3nForCausalLM",
        "Gemma3nForConditionalGeneration",
    ),
    required_tokens=("<end_of_turn>", "<eos>"),
    text_tokens=("</s>",),
)
