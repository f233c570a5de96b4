"""Quantisation of GGUF files, perplexities and importance matrices."""

from pyggml.quantization.importance_matrix import compute_imatrix
from pyggml.quantization.quantizer import quantize
from pyggml.quantization.scoring import Perplexity, perplexity

__all__ = ["Perplexity", "compute_imatrix", "perplexity", "quantize"]
