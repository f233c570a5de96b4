"""Quantisation schemes of checkpoints: names and layouts of quantised weights.

``quantization_config`` names the method and the quantised modules; their tensors must agree. Readers raise
ModelNotFoundError for a missing tensor, ModelLoadError for anything invalid, and UnsupportedArchitectureError for
settings that pyggml does not support.
"""

from pyggml.importer.schemes.methods import scheme_of
from pyggml.importer.schemes.module import IGNORED, METHOD_TENSORS, Module, Role, Scheme

__all__ = ["IGNORED", "METHOD_TENSORS", "Module", "Role", "Scheme", "scheme_of"]
