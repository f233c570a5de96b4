"""Options for loading a model and for sampling, each declared once with its type, default and range."""

from pyggml._core.hints import hints as hints
from pyggml.options.load import *  # noqa: F403
from pyggml.options.load import __all__ as __all__
