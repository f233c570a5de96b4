"""Options for loading a model and for sampling, each declared once with its type, default and range."""

from pyggml._core.hints import hints as hints
from pyggml.options.load import All as All
from pyggml.options.load import Auto as Auto
from pyggml.options.load import EstimateOptions as EstimateOptions
from pyggml.options.load import Field as Field
from pyggml.options.load import LoadOptions as LoadOptions
from pyggml.options.load import MemoryOptions as MemoryOptions
from pyggml.options.load import PlacementOptions as PlacementOptions
from pyggml.options.load import QueueFull as QueueFull
from pyggml.options.load import SplitMode as SplitMode
from pyggml.options.load import check as check
from pyggml.options.load import fields_of as fields_of
from pyggml.options.load import option_class as option_class
from pyggml.options.load import require_known as require_known
