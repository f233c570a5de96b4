"""How to load a model: every option with its type, default and range, declared once.

A new option is one field here. By its name it reaches the C struct of a context, if that has a field of this name; as a
field of MemoryOptions also the planner, which answers whether a model fits. The signatures of :func:`pyggml.load`,
``LLM(...)`` and :func:`~pyggml.memory.estimate.estimate` and the options of the command are made of the classes;
``make stubs`` writes the types of the keywords that ``Inference.use_...`` takes.
"""

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from pyggml._checks import INT32_MAX, UINT32_MAX, refused
from pyggml._fields import CacheType, Field, Size, Threads, check, fields_of, plain_signature

if TYPE_CHECKING:
    import os

    from tokenizers import Tokenizer as HuggingFace

    from pyggml.model import Model, Progress
    from pyggml.source import Source
    from pyggml.tokenizer import Tokenizer

__all__ = ["Auto", "EstimateOptions", "Field", "LoadOptions", "MemoryOptions", "QueueFull", "fields_of"]

Auto = Literal["auto"]
QueueFull = Literal["raise", "wait"]


@plain_signature
@dataclass(frozen=True, kw_only=True)
class MemoryOptions:
    """What decides how much memory a model takes.

    Attributes:
        device: "auto" (GPUs this build can use, else the CPU), "cpu", "cuda", "cuda:1" ...
        n_ctx: cells of the context, each for one token of a prompt or an answer; "auto": what fits.
        n_parallel: requests computed together; the others wait their turn.
        n_batch: the most tokens in one forward pass.
        n_ubatch: of these, tokens computed at once.
        n_gpu_layers: layers on the GPU; "auto": what fits. None: all of them.
        cache_type: element type of the key-value cache.
    """

    device: str = "auto"
    n_ctx: Annotated[int | Auto | None, Field(1, UINT32_MAX, letter="c")] = None
    n_parallel: Annotated[int, Field(1, 256, hidden=True)] = 4  # upstream's LLAMA_MAX_SEQ
    n_batch: Size = 2048
    n_ubatch: Size = 512
    n_gpu_layers: Annotated[int | Auto | None, Field(-1, INT32_MAX)] = None
    cache_type: CacheType = "f16"

    def __post_init__(self) -> None:
        check(self)
        if self.n_batch < self.n_parallel:
            raise refused(
                f"n_batch is {self.n_batch} and n_parallel is {self.n_parallel}: a forward pass takes one token of "
                "each running request, so n_batch must be at least n_parallel"
            )


@plain_signature
@dataclass(frozen=True)
class LoadOptions(MemoryOptions):
    """What :func:`pyggml.load` takes, and explains at length.

    Attributes:
        source: a model's file, directory or reference, or a Model that is open already.
        tokenizer: a tokenizer.json, a tokenizer.model, or a directory with one.
        n_threads: compute threads. None: the engine measures itself and adapts.
        prefix_cache: keep what finished requests computed for prompts that begin alike.
        max_queue: the most requests that may wait; None: any number.
        queue_full: whether a request that finds the queue full is refused, or waits.
        progress: called with 0..1 on the way.
    """

    source: "Source | Model" = None
    tokenizer: "str | os.PathLike[str] | Tokenizer | HuggingFace | None" = None
    _: KW_ONLY
    n_threads: Threads = None
    prefix_cache: Annotated[bool, Field(hidden=True)] = True
    max_queue: Annotated[int | None, Field(1, UINT32_MAX, hidden=True)] = None
    queue_full: Annotated[QueueFull, Field(hidden=True)] = "raise"
    progress: Annotated["Progress | None", Field(hidden=True)] = None


@plain_signature
@dataclass(frozen=True)
class EstimateOptions(MemoryOptions):
    """What :func:`pyggml.memory.estimate.estimate` takes, and explains.

    Attributes:
        source: a model's file, directory or reference.
        outtype: as if the weights were made into this type first.
    """

    source: "Source" = None
    _: KW_ONLY
    outtype: str = "auto"
