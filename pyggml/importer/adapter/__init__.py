"""LoRA adapters as files: PEFT directories become GGUF adapters, which are checked before the engine reads them.

A GGUF adapter holds two matrices for each weight of the base model that it changes, ``NAME.lora_a`` and
``NAME.lora_b``; their product, times ``alpha / rank``, is added to the weight. Upstream's loader aborts on some broken
files and skips some tensors in silence, so every file passes :func:`check_adapter` first.
"""

from pyggml.importer.adapter.base_model import Base, BaseModel
from pyggml.importer.adapter.check import check_adapter, is_adapter
from pyggml.importer.adapter.conversion import ADAPTER_TYPES, convert_adapter, gguf_adapter
from pyggml.importer.adapter.peft_config import is_peft
from pyggml.importer.adapter.report import AdapterReport, AdapterTarget

__all__ = [
    "ADAPTER_TYPES",
    "AdapterReport",
    "AdapterTarget",
    "Base",
    "BaseModel",
    "check_adapter",
    "convert_adapter",
    "gguf_adapter",
    "is_adapter",
    "is_peft",
]
