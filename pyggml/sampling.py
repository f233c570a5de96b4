"""Sampling parameters: the public name of :mod:`pyggml.options.sampling`."""

from pyggml.options.grammar import Grammar as Grammar
from pyggml.options.sampling import BESIDE_MIROSTAT as BESIDE_MIROSTAT
from pyggml.options.sampling import SamplingParams as SamplingParams
from pyggml.options.sampling_values import DEFAULT_SAMPLERS as DEFAULT_SAMPLERS
