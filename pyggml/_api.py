"""The public names. Importing them takes a fifth of a second, so the package imports them on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyggml._core.ffi import ffi, lib
from pyggml._native.adapter import Adapter
from pyggml._native.backend import Backend, Device, device_advice, devices, find_device, unused_gpu
from pyggml._native.context import Context
from pyggml._native.grammar import CompiledGrammar, GrammarMatcher
from pyggml._native.imatrix import ImportanceMatrix
from pyggml._native.model import Model
from pyggml._native.placement import Placement
from pyggml._native.sampler import Sampler
from pyggml._native.vocab import Vocab
from pyggml._version import __version__
from pyggml.chat import ChatParser, ChatPrompt, ChatTemplates
from pyggml.chat.messages import Message, checked_messages
from pyggml.chat.sessions.session import Session
from pyggml.chat.stream import ChatStream
from pyggml.chat.types import (
    ChatAbilities,
    ChatChunk,
    ChatCompletion,
    ChatDelta,
    ChatMessage,
    ToolCall,
    ToolCallDelta,
)
from pyggml.diagnostics import (
    FileReport,
    LayerReport,
    LoadPlan,
    ModelReport,
    Problem,
    QuantizationReport,
    ReportSection,
    RopeReport,
    SpecialToken,
    TemplateReport,
    TensorShare,
    VocabularyReport,
    inspect,
    inspect_adapter,
)
from pyggml.errors import (
    ArchitectureMismatchError,
    ClosedError,
    ContextOverflowError,
    CopyError,
    DeviceError,
    DiskFullError,
    DownloadError,
    EmptyPromptError,
    EngineError,
    EngineLostError,
    GrammarError,
    HostLostError,
    InferError,
    InvalidParameterError,
    MissingPackageError,
    ModelLoadError,
    ModelNotFoundError,
    OutOfMemoryError,
    OutputParsingError,
    QueueFullError,
    RequestTimeout,
    SavedStateError,
    SavedStateNotFoundError,
    TokenizerError,
    TokenizerNotFoundError,
    UnknownParameterError,
    UnsupportedArchitectureError,
)
from pyggml.families import Family
from pyggml.generation.engine import Engine
from pyggml.generation.infill.prompt import InfillPrompt
from pyggml.generation.logits_processing import BatchedLogitsProcessor
from pyggml.generation.request import Request
from pyggml.generation.scoring.scorer import Scorer
from pyggml.generation.stream import Stream
from pyggml.importer import Conversion, convert
from pyggml.importer.adapter import AdapterReport, AdapterTarget, is_adapter
from pyggml.inference import NAMES, Inference
from pyggml.llm import LLM
from pyggml.loading import load
from pyggml.memory.estimate import DeviceMemory, MemoryEstimate, Suggestions
from pyggml.quantization import Perplexity, compute_imatrix, perplexity, quantize
from pyggml.schema import schema_of
from pyggml.schema.grammar import grammar_of
from pyggml.source import SHIPPED_MODEL
from pyggml.tokenizer import Tokenizer
from pyggml.tokenizer.hugging_face import open_tokenizer
from pyggml.types import (
    Chunk,
    Completion,
    EngineStats,
    Grammar,
    SamplingParams,
    Score,
    Slot,
    Timings,
    TokenLogprob,
    TokenLogprobs,
)

if TYPE_CHECKING:
    from pyggml._family_classes import *  # noqa: F403
    from pyggml.chat.async_stream import AsyncChatStream
    from pyggml.generation.async_stream import AsyncStream

__all__ = [
    "LLM",
    "SHIPPED_MODEL",
    "Adapter",
    "AdapterReport",
    "AdapterTarget",
    "ArchitectureMismatchError",
    "AsyncChatStream",
    "AsyncStream",
    "Backend",
    "BatchedLogitsProcessor",
    "ChatAbilities",
    "ChatChunk",
    "ChatCompletion",
    "ChatDelta",
    "ChatMessage",
    "ChatParser",
    "ChatPrompt",
    "ChatStream",
    "ChatTemplates",
    "Chunk",
    "ClosedError",
    "CompiledGrammar",
    "Completion",
    "Context",
    "ContextOverflowError",
    "Conversion",
    "CopyError",
    "Device",
    "DeviceError",
    "DeviceMemory",
    "DiskFullError",
    "DownloadError",
    "EmptyPromptError",
    "Engine",
    "EngineError",
    "EngineLostError",
    "EngineStats",
    "Family",
    "FileReport",
    "Grammar",
    "GrammarError",
    "GrammarMatcher",
    "HostLostError",
    "ImportanceMatrix",
    "InferError",
    "Inference",
    "InfillPrompt",
    "InvalidParameterError",
    "LayerReport",
    "LoadPlan",
    "MemoryEstimate",
    "Message",
    "MissingPackageError",
    "Model",
    "ModelLoadError",
    "ModelNotFoundError",
    "ModelReport",
    "OutOfMemoryError",
    "OutputParsingError",
    "Perplexity",
    "Placement",
    "Problem",
    "QuantizationReport",
    "QueueFullError",
    "ReportSection",
    "Request",
    "RequestTimeout",
    "RopeReport",
    "Sampler",
    "SamplingParams",
    "SavedStateError",
    "SavedStateNotFoundError",
    "Score",
    "Scorer",
    "Session",
    "Slot",
    "SpecialToken",
    "Stream",
    "Suggestions",
    "TemplateReport",
    "TensorShare",
    "Timings",
    "TokenLogprob",
    "TokenLogprobs",
    "Tokenizer",
    "TokenizerError",
    "TokenizerNotFoundError",
    "ToolCall",
    "ToolCallDelta",
    "UnknownParameterError",
    "UnsupportedArchitectureError",
    "Vocab",
    "VocabularyReport",
    "__version__",
    "checked_messages",
    "compute_imatrix",
    "convert",
    "device_advice",
    "devices",
    "ffi",
    "find_device",
    "grammar_of",
    "inspect",
    "inspect_adapter",
    "is_adapter",
    "lib",
    "load",
    "open_tokenizer",
    "perplexity",
    "quantize",
    "schema_of",
    "unused_gpu",
    *NAMES,  # of the families
]
globals().update(NAMES)
