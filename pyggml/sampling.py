"""Sampling parameters: the public name of :mod:`pyggml.options.sampling`."""

from pyggml.options.sampling import BESIDE_MIROSTAT as BESIDE_MIROSTAT
from pyggml.options.sampling import DEFAULT_SAMPLERS as DEFAULT_SAMPLERS
from pyggml.options.sampling import Grammar as Grammar
from pyggml.options.sampling import SamplingParams as SamplingParams
