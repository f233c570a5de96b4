"""Options for loading a model, each declared once with its type, default, range and help.

To add an option, add a field and its line in the docstring. It reaches the C struct of a context if that has a field of
the same name, and the memory planner if it belongs to MemoryOptions. Signatures and docstrings of :func:`pyggml.load`,
``LLM(...)`` and :func:`~pyggml.memory.estimate.estimate` and the options of the command are made from these classes;
``make stubs`` writes the keyword types of ``Inference.use_...``.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pyggml._core.checks import INT32_MAX, UINT32_MAX, UINT64_MAX, integer, invalid, is_path, shown
from pyggml._core.fields import CACHE_TYPE_NUMBERS, CACHE_TYPES, CacheType, Field, Threads, option_class
from pyggml._core.hints import hints
from pyggml._native.placement_options import All, Auto, PlacementOptions
from pyggml._native.rope_options import RopeOptions
from pyggml.options.adapter_choice import checked_lora
from pyggml.options.sampling_values import SPECULATIVE_MODES

if TYPE_CHECKING:
    from tokenizers import Tokenizer as HuggingFace

    from pyggml._native.model import Model
    from pyggml.progress import ProgressOption
    from pyggml.source import Source
    from pyggml.tokenizer import Tokenizer

QueueFull = Literal["raise", "wait"]

#: Default ``n_parallel`` of batch jobs, which optimise throughput, not latency.
BATCH_N_PARALLEL = 16


@option_class
@dataclass(frozen=True, kw_only=True)
class SizeOptions(PlacementOptions):
    """The options that determine a model's memory use on each device.

    Attributes:
        rpc: hosts that run "pyggml rpc-serve", such as "gpu-box:50052", whose devices take layers. None: no others.
        rpc_key: a file with the key of those hosts. None: PYGGML_RPC_KEY, or the key that this user's server made.
        n_ctx: context size in tokens, prompts and answers together; "auto": as large as fits.
        n_parallel: maximum number of requests computed together; the others wait in the queue.
        n_batch: maximum number of tokens in a batch, which is one forward pass.
        n_ubatch: maximum number of tokens in a micro-batch; n_parallel, if that is more.
        cache_type: element type of the KV cache.
        type_k: element type of the K cache. None: ``cache_type``.
        type_v: element type of the V cache. None: ``cache_type``.
        draft: a small model that guesses the next tokens of this one (``speculative``), with the same vocabulary. None:
            no draft model.
        draft_device: devices of the draft model, as for ``device``. None: those of ``device``.
        draft_n_gpu_layers: number of the draft model's layers on the GPU. None: all of them.
    """

    HINTS: ClassVar[Mapping[str, str]] = hints("loading")

    rpc: Annotated[str | Sequence[str] | None, Field()] = None
    rpc_key: "str | os.PathLike[str] | None" = None
    n_ctx: Annotated[int | Auto | None, Field(1, UINT32_MAX, letter="c", without="None is the model's own")] = None
    n_parallel: Annotated[int, Field(1, 256, letter="np", hidden=True)] = 4  # upstream's LLAMA_MAX_SEQ
    n_batch: Annotated[int, Field(1, UINT32_MAX, letter="b")] = 2048
    n_ubatch: Annotated[int, Field(1, UINT32_MAX, letter="ub")] = 512
    cache_type: CacheType = "f16"
    type_k: Annotated[str | None, Field(choices=CACHE_TYPES, without=CACHE_TYPE_NUMBERS, letter="ctk")] = None
    type_v: Annotated[str | None, Field(choices=CACHE_TYPES, without=CACHE_TYPE_NUMBERS, letter="ctv")] = None
    draft: Annotated["Source | Model", Field(letter="md")] = None
    draft_device: Annotated[str | Sequence[str] | None, Field(letter="devd")] = None
    draft_n_gpu_layers: Annotated[int | All | None, Field(-1, INT32_MAX, letter="ngld")] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.draft, os.PathLike):
            object.__setattr__(self, "draft", os.fspath(self.draft))
        for name in ("draft_device", "draft_n_gpu_layers"):
            if self.draft is None and getattr(self, name) is not None:
                raise invalid(f"{name} has no effect without a draft model: add draft, or leave it out")
        if self.n_batch < self.n_parallel:
            raise invalid(
                f"n_batch is {self.n_batch} and n_parallel is {self.n_parallel}: n_batch must be at least n_parallel, "
                "since a forward pass takes one token from each running request"
            )


@option_class
@dataclass(frozen=True, kw_only=True)
class MemoryOptions(RopeOptions, SizeOptions):
    """The options for memory, and those for longer contexts than a model was trained with."""


@option_class
@dataclass(frozen=True, kw_only=True)
class SnapshotOptions(MemoryOptions):
    """The options for memory, and the limit of what the prefix cache allocates later.

    Attributes:
        prefix_cache_bytes: most bytes of main memory for evicted KV cells and for checkpoints; 0: none. None: at most
            1 GiB.
    """

    prefix_cache_bytes: Annotated[int | None, Field(0, UINT64_MAX, hidden=True)] = None


def require_prefix_cache(
    prefix_cache: bool, n_bytes: int | None, folder: object = None, n_disk_bytes: int | None = None
) -> None:
    """Reject tiers of the prefix cache without the tiers above."""
    if folder is not None and not is_path(folder):
        raise invalid(f"prefix_cache_dir must be the path of a directory, not {shown(folder)}")
    for name, number in (("prefix_cache_bytes", n_bytes), ("prefix_cache_disk_bytes", n_disk_bytes)):
        if number is not None:
            integer(name, number, 0, UINT64_MAX)
    given = {"prefix_cache_bytes": n_bytes, "prefix_cache_dir": folder, "prefix_cache_disk_bytes": n_disk_bytes}
    for name, value in given.items():
        if value and not prefix_cache:
            raise invalid(f"{name}={value} has no effect with prefix_cache=False: leave one of them out")
    if folder is not None and n_bytes == 0:
        raise invalid("prefix_cache_dir needs main memory to copy through: leave prefix_cache_bytes=0 out")
    if folder is None and n_disk_bytes is not None:
        raise invalid(
            f"prefix_cache_disk_bytes={n_disk_bytes} has no effect without prefix_cache_dir: name a directory"
        )


@option_class
@dataclass(frozen=True)
class LoadOptions(SnapshotOptions):
    """The parameters of :func:`pyggml.load`, whose docstring adds details.

    Attributes:
        source: a model's file, directory or reference, or an open Model.
        tokenizer: a tokenizer.json, a tokenizer.model, or a directory with one. None: the model's own.
        n_threads: number of compute threads. None: the engine measures its speed and adapts.
        prefix_cache: keep the KV cache of finished requests for prompts with the same beginning.
        prefix_cache_dir: directory for evicted KV cells as files, which outlive the process and which others share.
        prefix_cache_disk_bytes: most bytes of files in ``prefix_cache_dir``; the oldest are removed. None: 10 GiB.
        deterministic: refuse to load unless every request gets the same bits in a batch as alone.
        kv_unified: share the KV cache: a lone request can use all of n_ctx. False: divide it among n_parallel requests,
            while none needs more than its part. None: divide it on GPUs if at least four requests run.
        backend_sampling: find the likeliest tokens on the GPU (experimental).
        speculative: how next tokens are guessed, unless a request sets it: "auto", "forced", "lookup", "draft" or
            "off". See SamplingParams.
        max_queue: maximum number of waiting requests. None: no limit.
        queue_full: "raise": refuse a request if the queue is full; "wait": wait until it is not.
        progress: called with 0..1 while loading. None: a bar in a notebook; False: no bar.
        outtype: type of the weights that a directory is imported with, such as q4_k_m. "auto": the checkpoint's own.
        lora: LoRA adapters to apply, as [NAME=]FILE[:SCALE]. None: no adapter.
        chat_template: chat template to use: a name such as chatml, a file, or Jinja text. None: the model's own.
        isolate: run model and engine in a separate process: a crash there does not end this one.
    """

    LISTED_BY: ClassVar[str] = "help(pyggml.load)"

    source: "Source | Model" = None
    tokenizer: "str | os.PathLike[str] | Tokenizer | HuggingFace | None" = None
    _: KW_ONLY
    n_threads: Threads = None
    prefix_cache: Annotated[bool, Field(hidden=True)] = True
    prefix_cache_dir: "str | os.PathLike[str] | None" = None
    prefix_cache_disk_bytes: Annotated[int | None, Field(1, UINT64_MAX)] = None
    deterministic: bool = False
    kv_unified: Annotated[bool | None, Field(hidden=True)] = None
    backend_sampling: Annotated[bool, Field(letter="bs")] = False
    speculative: Annotated[str, Field(choices=SPECULATIVE_MODES)] = "auto"
    max_queue: Annotated[int | None, Field(1, UINT32_MAX, hidden=True)] = None
    queue_full: Annotated[QueueFull, Field(hidden=True)] = "raise"
    progress: Annotated["ProgressOption", Field(hidden=True)] = None
    outtype: str = "auto"
    lora: "str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Mapping[str, float] | None" = None
    chat_template: Annotated["str | os.PathLike[str] | None", Field(hidden=True)] = None
    isolate: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        checked_lora(self.lora)
        if self.isolate and not isinstance(self.draft, (str, type(None))):
            raise invalid("with isolate=True, draft must be a path or a reference: the engine is in another process")
        require_prefix_cache(
            self.prefix_cache, self.prefix_cache_bytes, self.prefix_cache_dir, self.prefix_cache_disk_bytes
        )


@option_class
@dataclass(frozen=True)
class EstimateOptions(SnapshotOptions):
    """The parameters of :func:`pyggml.memory.estimate.estimate`.

    Attributes:
        source: a model's file, directory or reference.
        outtype: estimate for weights converted to this type, such as "q4_k_m".
    """

    source: "Source" = None
    _: KW_ONLY
    outtype: str = "auto"
