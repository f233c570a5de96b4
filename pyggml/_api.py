"""The public names. They take a fifth of a second to import, so the package waits until one is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyggml._ffi import ffi, lib
from pyggml._version import __version__
from pyggml.backend import Backend, Device, devices
from pyggml.chat import ChatParser, ChatPrompt, ChatTemplates
from pyggml.chat.conversation import ChatStream
from pyggml.chat.types import (
    ChatAbilities,
    ChatChunk,
    ChatCompletion,
    ChatDelta,
    ChatMessage,
    ToolCall,
    ToolCallDelta,
)
from pyggml.context import Context
from pyggml.diagnostics.estimate import DeviceMemory, MemoryEstimate, Suggestions
from pyggml.errors import (
    ArchitectureMismatchError,
    ClosedError,
    ContextOverflowError,
    DeviceError,
    DiskFullError,
    EmptyPromptError,
    EngineError,
    GrammarError,
    InferError,
    InvalidParameterError,
    ModelLoadError,
    ModelNotFoundError,
    OutOfMemoryError,
    QueueFullError,
    RequestTimeout,
    TokenizerError,
    TokenizerNotFoundError,
    UnsupportedArchitectureError,
)
from pyggml.families import Family
from pyggml.importer import Conversion, convert
from pyggml.inference import (
    Gemma,
    Inference,
    Llama,
    Llama31,
    Mistral,
    Phi,
    Phi3,
    Phi4,
    Qwen2,
    Qwen3,
    SmolLM2,
)
from pyggml.llm import LLM
from pyggml.loading import load
from pyggml.model import Model
from pyggml.sampler import Sampler
from pyggml.schema import schema_of
from pyggml.stream import Stream
from pyggml.tokenizer import Tokenizer
from pyggml.tokenizer.hugging_face import open_tokenizer
from pyggml.types import (
    Chunk,
    Completion,
    EngineStats,
    Grammar,
    SamplingParams,
    Timings,
    TokenLogprob,
    TokenLogprobs,
)
from pyggml.vocab import Vocab

if TYPE_CHECKING:
    from pyggml.astream import AsyncStream
    from pyggml.chat.aconversation import AsyncChatStream

__all__ = [
    "LLM",
    "ArchitectureMismatchError",
    "AsyncChatStream",
    "AsyncStream",
    "Backend",
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
    "Completion",
    "Context",
    "ContextOverflowError",
    "Conversion",
    "Device",
    "DeviceError",
    "DeviceMemory",
    "DiskFullError",
    "EmptyPromptError",
    "EngineError",
    "EngineStats",
    "Family",
    "Gemma",
    "Grammar",
    "GrammarError",
    "InferError",
    "Inference",
    "InvalidParameterError",
    "Llama",
    "Llama31",
    "MemoryEstimate",
    "Mistral",
    "Model",
    "ModelLoadError",
    "ModelNotFoundError",
    "OutOfMemoryError",
    "Phi",
    "Phi3",
    "Phi4",
    "QueueFullError",
    "Qwen2",
    "Qwen3",
    "RequestTimeout",
    "Sampler",
    "SamplingParams",
    "SmolLM2",
    "Stream",
    "Suggestions",
    "Timings",
    "TokenLogprob",
    "TokenLogprobs",
    "Tokenizer",
    "TokenizerError",
    "TokenizerNotFoundError",
    "ToolCall",
    "ToolCallDelta",
    "UnsupportedArchitectureError",
    "Vocab",
    "__version__",
    "convert",
    "devices",
    "ffi",
    "lib",
    "load",
    "open_tokenizer",
    "schema_of",
]
