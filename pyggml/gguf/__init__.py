"""GGUF files: metadata and tensors, read and written through the engine's own parser and writer.

Shapes are in numpy's order, columns last; the file stores them reversed (``ne``), without leading dimensions of 1.
Invalid UTF-8 is read as lone surrogates (``surrogateescape``) and can be written back unchanged; the engine cuts text
at the first NUL.
"""

from pyggml.gguf._reader import GGUFReader, TensorInfo
from pyggml.gguf._writer import GGUFWriter
from pyggml.gguf.values import MetadataValue, ValueType
from pyggml.quant import GGMLType

__all__ = ["GGMLType", "GGUFReader", "GGUFWriter", "MetadataValue", "TensorInfo", "ValueType"]
