"""Options for loading a model and for sampling, each declared once with its type, default and range."""

from pyggml._core.fields import Field as Field
from pyggml._core.fields import check as check
from pyggml._core.fields import fields_of as fields_of
from pyggml._core.fields import option_class as option_class
from pyggml._core.fields import require_known as require_known
from pyggml._core.hints import hints as hints
from pyggml._native.placement_options import All as All
from pyggml._native.placement_options import Auto as Auto
from pyggml._native.placement_options import PlacementOptions as PlacementOptions
from pyggml._native.placement_options import SplitMode as SplitMode
from pyggml._native.rope_options import RopeScaling as RopeScaling
from pyggml.options.load import BATCH_N_PARALLEL as BATCH_N_PARALLEL
from pyggml.options.load import EstimateOptions as EstimateOptions
from pyggml.options.load import LoadOptions as LoadOptions
from pyggml.options.load import MemoryOptions as MemoryOptions
from pyggml.options.load import QueueFull as QueueFull
from pyggml.options.load import SnapshotOptions as SnapshotOptions
from pyggml.options.sampling import FORMATS as FORMATS
