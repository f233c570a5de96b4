"""A Hugging Face directory becomes a GGUF file."""

from pyggml.importer.convert import Conversion, convert

__all__ = ["Conversion", "convert"]
