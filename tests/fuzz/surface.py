"""The public callables: functions, methods and properties, with the values that their parameters usually have."""

from __future__ import annotations

import enum
import functools
import importlib
import inspect
from dataclasses import dataclass
from typing import Any

# Object in a case -> the class whose public members are called on it.
OBJECTS = {
    "llm": "pyggml.LLM",
    "model": "pyggml.Model",
    "context": "pyggml.Context",
    "sampler": "pyggml.Sampler",
    "vocab": "pyggml.Vocab",
    "tokenizer": "pyggml.Tokenizer",
    "engine": "pyggml.Engine",
    "request": "pyggml.Request",
    "stream": "pyggml.Stream",
    "chat_stream": "pyggml.ChatStream",
    "templates": "pyggml.ChatTemplates",
    "parser": "pyggml.ChatParser",
    "backend": "pyggml.Backend",
    "reader": "pyggml.gguf.GGUFReader",
    "writer": "pyggml.gguf.GGUFWriter",
    "completion": "pyggml.Completion",
    "message": "pyggml.ChatMessage",
    "matrix": "pyggml.ImportanceMatrix",
    "inference": "pyggml.Inference",
    "report": "pyggml.ModelReport",
}
# Modules whose functions and classes are called; "" is the package itself.
MODULES = ("", "cache", "gguf", "hub", "memory", "options", "quant", "sampling", "schema", "system")
# Raw pointers, which are unchecked as in C; what a session's machine may not do; what the package keeps for itself.
LEFT_OUT = {"handle", "from_handle", "when_there_is_room", "cuda", "metal", "gpu"}
LEFT_OUT |= {"enqueue", "aenqueue", "try_enqueue", "notify_when_queue_has_capacity"}
LEFT_OUT |= {"display_name", "shown_name", "__iter__"}
LEFT_OUT |= {"BatchedLogitsProcessor"}  # needs PyTorch
# Classes that calls return, and whose constructors take what they are given: frozen records without checks.
RECORDS = [
    "Report",
    "Device",
    "DeviceMemory",
    "Chunk",
    "Completion",
    "ChatCompletion",
    "ChatChunk",
    "ChatDelta",
    "ChatAbilities",
    "ChatPrompt",
    "Conversion",
    "EngineStats",
    "Family",
    "LoadPlan",
    "MemoryEstimate",
    "Perplexity",
    "Problem",
    "RopeReport",
    "SpecialToken",
    "Suggestions",
    "TensorShare",
    "Timings",
    "TokenLogprob",
    "TokenLogprobs",
    "ToolCallDelta",
    "CacheEntry",
    "TensorInfo",
    "Download",
    "BuildInfo",
    "CpuLimits",
    "MemoryLimits",
    "Reference",
    "ImportanceMatrix",
    "Request",
    "Stream",
    "ChatStream",
    "AsyncStream",
    "AsyncChatStream",
    "ChatParser",
    "Tokenizer",
    "Vocab",
]
# They read or write files, or load models.
SLOW = {
    "load",
    "LLM",
    "convert",
    "quantize",
    "perplexity",
    "compute_imatrix",
    "inspect",
    "inspect_adapter",
    "estimate",
    "Inference",
}

USUAL: dict[str, list[str]] = {
    "prompt": ["'Once'", "[1,2,3]", "'x'*600"],
    "prompts": ["['a','b']"],
    "texts": ["'a'", "['a','bc']"],
    "text": ["'the bath'", "'a b '*300"],
    "query": ["'a'"],
    "documents": ["['b']"],
    "messages": ["[{'role':'user','content':'x'}]"],
    "tools": ["None", "[{'type':'function','function':{'name':'f','parameters':{'type':'object'}}}]"],
    "params": ["None", "SamplingParams(max_tokens=2)"],
    "n": ["1", "2"],
    "token_ids": ["[1,2]", "[257]", "np.arange(9)"],
    "token_id": ["1", "0"],
    "seq_id": ["0"],
    "src": ["0"],
    "dst": ["1", "'out.gguf'"],
    "delta": ["1"],
    "d": ["2"],
    "p0": ["0", "-1"],
    "p1": ["2", "-1"],
    "data": [
        "state",
        "b''",
        "state[:-1]",
        "bytes(len(state))",
        "state[:50]+b'x'+state[51:]",
        "np.ones((2,34),np.uint8)",
    ],
    "type": ["F32", "quant.GGMLType.Q8_0", "8"],
    "shape": ["(2,32)", "(32,)", "[1,2,3,4]"],
    "array": ["np.ones((2,32),np.float32)", "np.ones((2,256),np.float32)"],
    "imatrix": ["None", "np.ones(32)", "np.ones(256)"],
    "name": ["'token_embd.weight'", "'x'"],
    "key": ["'general.architecture'", "'a.b'"],
    "value": ["1", "'x'", "[1.5]"],
    "parts": ["[np.zeros(4,np.float32)]"],
    "model": ["model"],
    "context": ["context", "Context(model,n_ctx=256)"],
    "logits": ["np.zeros(261,np.float32)"],
    "k": ["5"],
    "p": ["0.5"],
    "t": ["0.5"],
    "target": ["0.5"],
    "grammar": ["'root ::= \"a\"'", "'root ::= root \"a\"'", "'root ::= [^'"],
    "trigger_patterns": ["['a(b)']"],
    "biases": ["{1:2.0}"],
    "multiplier": ["0.5"],
    "index": ["0"],
    "sample_len": ["3"],
    "source": ["path", "hf", "None"],
    "path": ["path", "'out.gguf'", "'missing'"],
    "out": ["'out.gguf'"],
    "outtype": ["'q8_0'", "'f16'"],
    "schema": ["{'type':'object'}", '\'{"type":"integer"}\'', "int"],
    "annotation": ["int", "dict"],
    "graph": ["None"],
    "device": ["'cpu'"],
    "model_path": ["path"],
    "n_ctx": ["256"],
    "n_threads": ["1"],
    "n_parallel": ["2"],
    "n_gpu_layers": ["0"],
    "max_tokens": ["3"],
    "min_tokens": ["1"],
    "template": ["None", "'{{ messages[0].content }}'"],
    "entry": ["cache.CacheEntry(Path('x'),1,1.0)"],
    "download": ["None"],
}


@dataclass(frozen=True)
class Target:
    """Something to call.

    Attributes:
        name: as a Python expression, on the object if there is one.
        object: the object in the case; "" for functions and classes.
        parameters: name -> whether it is required.
        is_property: it is read, not called.
    """

    name: str
    object: str
    parameters: dict[str, bool]
    is_property: bool = False

    @property
    def is_slow(self) -> bool:
        return self.name in SLOW or (self.object == "inference" and self.name != "__repr__")


@functools.cache
def targets() -> tuple[Target, ...]:
    """Everything that is called, in an order that does not change."""
    found = [target for name, path in OBJECTS.items() for target in _members(name, _named(path))]
    for module in MODULES:
        found += _of_module(module)
    return tuple(found)


def _named(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def _members(name: str, cls: type) -> list[Target]:
    found = []
    for member in sorted(dir(cls)):
        if member in LEFT_OUT or (member.startswith("_") and member not in ("__repr__", "__len__")):
            continue
        value = inspect.getattr_static(cls, member)
        if callable(value) or isinstance(value, (classmethod, staticmethod)):
            found.append(Target(member, name, _parameters(getattr(cls, member))))
        elif hasattr(type(value), "__get__"):
            found.append(Target(member, name, {}, is_property=True))
    return found


def _of_module(name: str) -> list[Target]:
    module = importlib.import_module(f"pyggml.{name}" if name else "pyggml")
    prefix = f"{name}." if name else ""
    found = []
    for each in sorted(module.__all__ if not name else vars(module)):
        value = getattr(module, each)
        ours = getattr(value, "__module__", "").startswith(f"pyggml.{name}")
        is_class = isinstance(value, type)
        if each.startswith("_") or each in LEFT_OUT or not callable(value) or not ours:
            continue
        if is_class and (issubclass(value, (BaseException, enum.Enum)) or each in RECORDS or each.endswith("Report")):
            continue
        if is_class and any(base.__name__ == "FamilyModel" for base in value.__mro__):
            continue
        found.append(Target(prefix + each, "", _parameters(value)))
    return found


def _parameters(function: Any) -> dict[str, bool]:
    """The parameters that can be given by name; those behind ``**`` come from the classes that they stand for."""
    from pyggml.sampling import SamplingParams

    found: dict[str, bool] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            if "Sampling" in str(parameter.annotation):
                found |= dict.fromkeys(inspect.signature(SamplingParams).parameters, False)
        elif name != "self" and parameter.kind is not parameter.VAR_POSITIONAL:
            found[name] = parameter.default is parameter.empty
    return found
