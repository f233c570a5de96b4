"""llama-cpp-python's interface: ``from pyggml.compat.llama_cpp import Llama``.

:func:`pyggml.compat.install` makes ``import llama_cpp`` mean it. Constants and functions of the C API are attributes,
too: ``llama_cpp.GGML_TYPE_Q8_0``, ``llama_cpp.llama_supports_gpu_offload()``.
"""

from __future__ import annotations

import importlib
from typing import Any

from pyggml.compat.llama_cpp import llama_types
from pyggml.compat.llama_cpp.llama import Llama as Llama
from pyggml.compat.llama_cpp.llama import LlamaState as LlamaState
from pyggml.compat.llama_cpp.llama import LogitsProcessor as LogitsProcessor
from pyggml.compat.llama_cpp.llama import LogitsProcessorList as LogitsProcessorList
from pyggml.compat.llama_cpp.llama import MinTokensLogitsProcessor as MinTokensLogitsProcessor
from pyggml.compat.llama_cpp.llama import StoppingCriteria as StoppingCriteria
from pyggml.compat.llama_cpp.llama import StoppingCriteriaList as StoppingCriteriaList
from pyggml.compat.llama_cpp.llama_cache import BaseLlamaCache as BaseLlamaCache
from pyggml.compat.llama_cpp.llama_cache import LlamaCache as LlamaCache
from pyggml.compat.llama_cpp.llama_cache import LlamaDiskCache as LlamaDiskCache
from pyggml.compat.llama_cpp.llama_cache import LlamaRAMCache as LlamaRAMCache
from pyggml.compat.llama_cpp.llama_grammar import LlamaGrammar as LlamaGrammar
from pyggml.compat.llama_cpp.llama_tokenizer import BaseLlamaTokenizer as BaseLlamaTokenizer
from pyggml.compat.llama_cpp.llama_tokenizer import LlamaTokenizer as LlamaTokenizer
from pyggml.compat.llama_cpp.llama_types import *  # noqa: F403

#: The version whose interface this is; programs compare it.
__version__ = "0.3.36"


def __getattr__(name: str) -> Any:
    """Return a type, or a name of the C API, on first use."""
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.llama_cpp"), name)


__all__ = [name for name in (*vars(llama_types), *globals()) if name[0].isupper()]
