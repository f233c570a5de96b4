"""Quantises GGUF files, measures the loss, and computes importance matrices."""

from pyggml.quantization.collecting import compute_imatrix
from pyggml.quantization.scoring import Perplexity, perplexity
from pyggml.quantization.writing import quantize

__all__ = ["Perplexity", "compute_imatrix", "perplexity", "quantize"]
