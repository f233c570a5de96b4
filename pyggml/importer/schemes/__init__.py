"""How checkpoints name and lay out quantised weights.

``quantization_config`` names the method, and says which modules are quantised and how; their tensors must agree.
"""

from pyggml.importer.schemes.methods import scheme_of
from pyggml.importer.schemes.module import IGNORED, SIGNS, Module, Role, Scheme

__all__ = ["IGNORED", "SIGNS", "Module", "Role", "Scheme", "scheme_of"]
