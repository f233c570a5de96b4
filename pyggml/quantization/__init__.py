"""GGUF files to smaller ones, what they lose, and which weights matter."""

from pyggml.quantization.collecting import compute_imatrix
from pyggml.quantization.scoring import Perplexity, perplexity
from pyggml.quantization.writing import quantize

__all__ = ["Perplexity", "compute_imatrix", "perplexity", "quantize"]
