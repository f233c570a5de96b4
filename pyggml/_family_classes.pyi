# The classes and methods that pyggml/inference.py creates for the families. Written by tools/make_families.py.

from typing_extensions import Unpack

from pyggml._keywords import LoadKeywords
from pyggml.inference import FamilyModel, TokenizerPath
from pyggml.source import Source

__all__ = [
    "CommandR",
    "Falcon",
    "Gemma",
    "Glm4",
    "GptOss",
    "Granite",
    "Llama",
    "Llama4",
    "Llama31",
    "Mistral",
    "OLMo2",
    "Phi",
    "Phi3",
    "Phi4",
    "Qwen2",
    "Qwen3",
    "SmolLM2",
    "SmolLM3",
    "SmolLm2",
    "StableLM",
    "Yi",
]

class CommandR(FamilyModel):
    """Command-R or Aya Expanse."""

class Falcon(FamilyModel):
    """Falcon."""

class Gemma(FamilyModel):
    """Gemma 1, 2, 3 or 3n."""

class Glm4(FamilyModel):
    """GLM-4."""

class GptOss(FamilyModel):
    """gpt-oss."""

class Granite(FamilyModel):
    """Granite 3."""

class Llama(FamilyModel):
    """Llama 1, 2 or TinyLlama; Llama 3, 3.1, 3.2 or 3.3; Yi; DeepSeek-R1-Distill-Llama."""

class Llama31(FamilyModel):
    """Llama 3, 3.1, 3.2 or 3.3."""

class Llama4(FamilyModel):
    """Llama 4."""

class Mistral(FamilyModel):
    """Mistral or Mixtral."""

class OLMo2(FamilyModel):
    """OLMo 2 or 3."""

class Phi(FamilyModel):
    """Phi-1, 1.5 or 2."""

class Phi3(FamilyModel):
    """Phi-3 or 3.5; Phi-4-mini."""

class Phi4(FamilyModel):
    """Phi-4; Phi-4-mini."""

class Qwen2(FamilyModel):
    """Qwen1.5, 2 or 2.5; DeepSeek-R1-Distill-Qwen."""

class Qwen3(FamilyModel):
    """Qwen3; DeepSeek-R1-0528-Qwen3."""

class SmolLM2(FamilyModel):
    """SmolLM or SmolLM2."""

class SmolLM3(FamilyModel):
    """SmolLM3."""

class StableLM(FamilyModel):
    """StableLM."""

class Yi(FamilyModel):
    """Yi."""

SmolLm2 = SmolLM2

class Factories:
    """The methods of :class:`pyggml.Inference` that load models of particular families."""

    def use_commandr(
        self, model_path: Source, tokenizer_path: TokenizerPath = None, **load_options: Unpack[LoadKeywords]
    ) -> CommandR:
        """Command-R or Aya Expanse."""

    def use_falcon(
        self, model_path: Source, tokenizer_path: TokenizerPath = None, **load_options: Unpack[LoadKeywords]
    ) -> Falcon:
        """Falcon."""

    def use_gemma(
        self, model_path: Source, tokenizer_path: TokenizerPath = None, **load_options: Unpack[LoadKeywords]
    ) -> Gemma:
        """Gemma 1, 2, 3 or 3n."""

    def use_glm4(
        self, model_path: Source, tokenizer_path: TokenizerPath = None, **load_options: Unpack[LoadKeywords]
    ) -> Glm4:
        """GLM-4."""

    def use_gptoss(
        self, model_path: Source, tokenizer_path: TokenizerPath = None, **load_options: Unpack[LoadKeywords]
    ) -> GptOss:
        """gpt-oss."""

    def use_granite(
        self, model_path: Source, tokenizer_path: TokenizerPath = None, **load_options: Unpack[LoadKeywords]
    ) -> Granite:
        """Granite 3."""

    def use_llama(
        self, model_path: Source, tokenizer_path: TokenizerPath = None, **load_options: Unpack[LoadKeywords]
    ) -> Llama:
        """Llama 1, 2 or TinyLlama; Llama 3, 3.1, 3.2 or 3.3; Yi; DeepSeek-R1-Distill-Llama."""

    def use_llama31(
        self, model_path: Source, tokenizer_path: TokenizerPath = None, **load_options: Unpack[LoadKeywords]
    ) -> Llama31:
        """Llama 3, 3.1, 3.2 or 3.3."""

    def use_llama4(
        self, model_path: Source, tokenizer_path: TokenizerPath = None, **load_options: Unpack[LoadKeywords]
    ) -> Llama4:
        """Llama 4."""

    def use_mistral(
        self, model_path: Source, tokenizer_path: TokenizerPath = None, **load_options: Unpack[LoadKeywords]
    ) -> Mistral:
        """Mistral or Mixtral."""

    def use_olmo2(
        self, model_path: Source, tokenizer_path: TokenizerPath = None, **load_options: Unpack[LoadKeywords]
    ) -> OLMo2:
        """OLMo 2 or 3."""

    def use_phi(
        self, model_path: Source, tokenizer_path: TokenizerPath = None, **load_options: Unpack[LoadKeywords]
    ) -> Phi:
        """Phi-1, 1.5 or 2."""

    def use_phi3(
        self, model_path: Source, tokenizer_path: TokenizerPath = None, **load_options: Unpack[LoadKeywords]
    ) -> Phi3:
        """Phi-3 or 3.5; Phi-4-mini."""

    def use_phi4(
        self, model_path: Source, tokenizer_path: TokenizerPath = None, **load_options: Unpack[LoadKeywords]
    ) -> Phi4:
        """Phi-4; Phi-4-mini."""

    def use_qwen2(
        self, model_path: Source, tokenizer_path: TokenizerPath = None, **load_options: Unpack[LoadKeywords]
    ) -> Qwen2:
        """Qwen1.5, 2 or 2.5; DeepSeek-R1-Distill-Qwen."""

    def use_qwen3(
        self, model_path: Source, tokenizer_path: TokenizerPath = None, **load_options: Unpack[LoadKeywords]
    ) -> Qwen3:
        """Qwen3; DeepSeek-R1-0528-Qwen3."""

    def use_smollm2(
        self, model_path: Source, tokenizer_path: TokenizerPath = None, **load_options: Unpack[LoadKeywords]
    ) -> SmolLM2:
        """SmolLM or SmolLM2."""
    use_smolm2 = use_smollm2

    def use_smollm3(
        self, model_path: Source, tokenizer_path: TokenizerPath = None, **load_options: Unpack[LoadKeywords]
    ) -> SmolLM3:
        """SmolLM3."""

    def use_stablelm(
        self, model_path: Source, tokenizer_path: TokenizerPath = None, **load_options: Unpack[LoadKeywords]
    ) -> StableLM:
        """StableLM."""

    def use_yi(
        self, model_path: Source, tokenizer_path: TokenizerPath = None, **load_options: Unpack[LoadKeywords]
    ) -> Yi:
        """Yi."""
