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
        """Load Command-R or Aya Expanse.

        Args as :meth:`use_auto`.
        """

    def use_falcon(
        self, model_path: Source, tokenizer_path: TokenizerPath = None, **load_options: Unpack[LoadKeywords]
    ) -> Falcon:
        """Load Falcon.

        Args as :meth:`use_auto`.
        """

    def use_gemma(
        self, model_path: Source, tokenizer_path: TokenizerPath = None, **load_options: Unpack[LoadKeywords]
    ) -> Gemma:
        """Load Gemma 1, 2, 3 or 3n.

        Args as :meth:`use_auto`.
        """

    def use_glm4(
        self, model_path: Source, tokenizer_path: TokenizerPath = None, **load_options: Unpack[LoadKeywords]
    ) -> Glm4:
        """Load GLM-4.

        Args as :meth:`use_auto`.
        """

    def use_gptoss(
        self, model_path: Source, tokenizer_path: TokenizerPath = None, **load_options: Unpack[LoadKeywords]
    ) -> GptOss:
        """Load gpt-oss.

        Args as :meth:`use_auto`.
        """

    def use_granite(
        self, model_path: Source, tokenizer_path: TokenizerPath = None, **load_options: Unpack[LoadKeywords]
    ) -> Granite:
        """Load Granite 3.

        Args as :meth:`use_auto`.
        """

    def use_llama(
        self, model_path: Source, tokenizer_path: TokenizerPath = None, **load_options: Unpack[LoadKeywords]
    ) -> Llama:
        """Load Llama 1, 2 or TinyLlama; Llama 3, 3.1, 3.2 or 3.3; Yi; DeepSeek-R1-Distill-Llama.

        Args as :meth:`use_auto`.
        """

    def use_llama31(
        self, model_path: Source, tokenizer_path: TokenizerPath = None, **load_options: Unpack[LoadKeywords]
    ) -> Llama31:
        """Load Llama 3, 3.1, 3.2 or 3.3.

        Args as :meth:`use_auto`.
        """

    def use_llama4(
        self, model_path: Source, tokenizer_path: TokenizerPath = None, **load_options: Unpack[LoadKeywords]
    ) -> Llama4:
        """Load Llama 4.

        Args as :meth:`use_auto`.
        """

    def use_mistral(
        self, model_path: Source, tokenizer_path: TokenizerPath = None, **load_options: Unpack[LoadKeywords]
    ) -> Mistral:
        """Load Mistral or Mixtral.

        Args as :meth:`use_auto`.
        """

    def use_olmo2(
        self, model_path: Source, tokenizer_path: TokenizerPath = None, **load_options: Unpack[LoadKeywords]
    ) -> OLMo2:
        """Load OLMo 2 or 3.

        Args as :meth:`use_auto`.
        """

    def use_phi(
        self, model_path: Source, tokenizer_path: TokenizerPath = None, **load_options: Unpack[LoadKeywords]
    ) -> Phi:
        """Load Phi-1, 1.5 or 2.

        Args as :meth:`use_auto`.
        """

    def use_phi3(
        self, model_path: Source, tokenizer_path: TokenizerPath = None, **load_options: Unpack[LoadKeywords]
    ) -> Phi3:
        """Load Phi-3 or 3.5; Phi-4-mini.

        Args as :meth:`use_auto`.
        """

    def use_phi4(
        self, model_path: Source, tokenizer_path: TokenizerPath = None, **load_options: Unpack[LoadKeywords]
    ) -> Phi4:
        """Load Phi-4; Phi-4-mini.

        Args as :meth:`use_auto`.
        """

    def use_qwen2(
        self, model_path: Source, tokenizer_path: TokenizerPath = None, **load_options: Unpack[LoadKeywords]
    ) -> Qwen2:
        """Load Qwen1.5, 2 or 2.5; DeepSeek-R1-Distill-Qwen.

        Args as :meth:`use_auto`.
        """

    def use_qwen3(
        self, model_path: Source, tokenizer_path: TokenizerPath = None, **load_options: Unpack[LoadKeywords]
    ) -> Qwen3:
        """Load Qwen3; DeepSeek-R1-0528-Qwen3.

        Args as :meth:`use_auto`.
        """

    def use_smollm2(
        self, model_path: Source, tokenizer_path: TokenizerPath = None, **load_options: Unpack[LoadKeywords]
    ) -> SmolLM2:
        """Load SmolLM or SmolLM2.

        Args as :meth:`use_auto`.
        """
    use_smolm2 = use_smollm2

    def use_smollm3(
        self, model_path: Source, tokenizer_path: TokenizerPath = None, **load_options: Unpack[LoadKeywords]
    ) -> SmolLM3:
        """Load SmolLM3.

        Args as :meth:`use_auto`.
        """

    def use_stablelm(
        self, model_path: Source, tokenizer_path: TokenizerPath = None, **load_options: Unpack[LoadKeywords]
    ) -> StableLM:
        """Load StableLM.

        Args as :meth:`use_auto`.
        """

    def use_yi(
        self, model_path: Source, tokenizer_path: TokenizerPath = None, **load_options: Unpack[LoadKeywords]
    ) -> Yi:
        """Load Yi.

        Args as :meth:`use_auto`.
        """
