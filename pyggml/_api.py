"""The public names, which are those imported here.

Importing them takes a fifth of a second, so the package does it on first use.
"""

from typing import TYPE_CHECKING

from pyggml._core.ffi import ffi as ffi
from pyggml._core.ffi import lib as lib
from pyggml._native.backend import Backend as Backend
from pyggml._native.backend import Device as Device
from pyggml._native.backend import device_advice as device_advice
from pyggml._native.backend import devices as devices
from pyggml._native.backend import find_device as find_device
from pyggml._native.backend import unused_gpu as unused_gpu
from pyggml._native.context import Context as Context
from pyggml._native.imatrix import ImportanceMatrix as ImportanceMatrix
from pyggml._native.model import Model as Model
from pyggml._native.placement import Placement as Placement
from pyggml._native.sampler import Sampler as Sampler
from pyggml._native.vocab import Vocab as Vocab
from pyggml._version import __version__ as __version__
from pyggml.chat import ChatParser as ChatParser
from pyggml.chat import ChatPrompt as ChatPrompt
from pyggml.chat import ChatTemplates as ChatTemplates
from pyggml.chat.messages import Message as Message
from pyggml.chat.messages import checked_messages as checked_messages
from pyggml.chat.stream import ChatStream as ChatStream
from pyggml.chat.types import ChatAbilities as ChatAbilities
from pyggml.chat.types import ChatChunk as ChatChunk
from pyggml.chat.types import ChatCompletion as ChatCompletion
from pyggml.chat.types import ChatDelta as ChatDelta
from pyggml.chat.types import ChatMessage as ChatMessage
from pyggml.chat.types import ToolCall as ToolCall
from pyggml.chat.types import ToolCallDelta as ToolCallDelta
from pyggml.diagnostics import FileReport as FileReport
from pyggml.diagnostics import LayerReport as LayerReport
from pyggml.diagnostics import LoadPlan as LoadPlan
from pyggml.diagnostics import ModelReport as ModelReport
from pyggml.diagnostics import Problem as Problem
from pyggml.diagnostics import QuantizationReport as QuantizationReport
from pyggml.diagnostics import ReportSection as ReportSection
from pyggml.diagnostics import RopeReport as RopeReport
from pyggml.diagnostics import SpecialToken as SpecialToken
from pyggml.diagnostics import TemplateReport as TemplateReport
from pyggml.diagnostics import TensorShare as TensorShare
from pyggml.diagnostics import VocabularyReport as VocabularyReport
from pyggml.diagnostics import inspect as inspect
from pyggml.errors import *  # noqa: F403
from pyggml.families import Family as Family
from pyggml.generation.engine import Engine as Engine
from pyggml.generation.request import Request as Request
from pyggml.generation.stream import Stream as Stream
from pyggml.importer import Conversion as Conversion
from pyggml.importer import convert as convert
from pyggml.inference import NAMES as _FAMILY_CLASSES
from pyggml.inference import Inference as Inference
from pyggml.llm import LLM as LLM
from pyggml.loading import load as load
from pyggml.memory.estimate import DeviceMemory as DeviceMemory
from pyggml.memory.estimate import MemoryEstimate as MemoryEstimate
from pyggml.memory.estimate import Suggestions as Suggestions
from pyggml.quantization import Perplexity as Perplexity
from pyggml.quantization import compute_imatrix as compute_imatrix
from pyggml.quantization import perplexity as perplexity
from pyggml.quantization import quantize as quantize
from pyggml.schema import schema_of as schema_of
from pyggml.schema.grammar import grammar_of as grammar_of
from pyggml.source import SHIPPED_MODEL as SHIPPED_MODEL
from pyggml.tokenizer import Tokenizer as Tokenizer
from pyggml.tokenizer.hugging_face import open_tokenizer as open_tokenizer
from pyggml.types import Chunk as Chunk
from pyggml.types import Completion as Completion
from pyggml.types import EngineStats as EngineStats
from pyggml.types import Grammar as Grammar
from pyggml.types import SamplingParams as SamplingParams
from pyggml.types import Timings as Timings
from pyggml.types import TokenLogprob as TokenLogprob
from pyggml.types import TokenLogprobs as TokenLogprobs

if TYPE_CHECKING:
    from pyggml._family_classes import *  # noqa: F403
    from pyggml.chat.async_stream import AsyncChatStream as AsyncChatStream
    from pyggml.generation.async_stream import AsyncStream as AsyncStream
else:  # type checkers read the imports
    globals().update(_FAMILY_CLASSES)
    __all__ = [name for name in globals() if not name.startswith("_") and name != "TYPE_CHECKING"]
    __all__ += ["AsyncChatStream", "AsyncStream", "__version__"]  # the package imports the streams itself
