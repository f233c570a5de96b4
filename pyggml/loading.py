"""From a path to a model that generates: the walk of a model file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from pyggml.files.model_files import gguf_at
from pyggml.importer.cache import Accept, Imported, imported
from pyggml.llm import LLM, QueueFull
from pyggml.memory.estimate import Auto, Planner, PlanOptions, Settings, require_room, resolve
from pyggml.model import Model, Progress
from pyggml.source import Source, identify
from pyggml.tokenizer import Tokenizer
from pyggml.tokenizer import files as tokenizer_files

if TYPE_CHECKING:
    from tokenizers import Tokenizer as HuggingFace

_Kind = TypeVar("_Kind", bound=LLM)


class LoadOptions(TypedDict, total=False):
    """The keywords of :func:`load` that say how to load, and not what or where to."""

    n_ctx: int | Auto | None
    n_parallel: int
    n_batch: int
    n_ubatch: int
    n_threads: int | None
    n_gpu_layers: int | Auto | None
    cache_type: str
    prefix_cache: bool
    max_queue: int | None
    queue_full: QueueFull
    progress: Progress | None


def load(
    source: Source = None,
    *,
    tokenizer: str | os.PathLike[str] | Tokenizer | HuggingFace | None = None,
    device: str = "auto",
    n_ctx: int | Auto | None = None,
    n_parallel: int = 4,
    n_batch: int = 2048,
    n_ubatch: int = 512,
    n_threads: int | None = None,
    n_gpu_layers: int | Auto | None = None,
    cache_type: str = "f16",
    prefix_cache: bool = True,
    max_queue: int | None = None,
    queue_full: QueueFull = "raise",
    progress: Progress | None = None,
) -> LLM:
    """Loads a model, ready to generate.

    With ``n_parallel=1, prefix_cache=False`` the same prompt gives the same bits whatever else was or is asked: each
    generation is computed alone and from its beginning. Otherwise what shares a batch or was reused changes the order
    of some sums, and now and then the last bit decides between two tokens.

    Args:
        source: path of a ``.gguf`` file (the first of a split set), or of a Hugging Face directory, which is imported
            the first time; a reference, ``hf:org/repo`` or ``hf:org/repo:file.gguf``, which is downloaded the first
            time; or None for the small demonstration model that ships with pyggml.
        tokenizer: what turns text to token ids: path of a ``tokenizer.json`` or ``tokenizer.model``, or of a directory
            with one; or a tokenizer that is there already. None: the vocabulary in the model's file.
        device: "auto" (GPUs this build can use, else the CPU), "cpu", "cuda", "cuda:1" ...
        n_ctx: cells of the context, each for one token, prompt or answer. All running requests share them, and one
            that is alone may use them all. None: the model's training length, at most 8,192. "auto": the training
            length too, or as much of it as leaves a tenth of the available memory free.
        n_parallel: requests computed together, 1 to 256; the others wait their turn.
        n_batch: tokens in one forward pass at most; at least n_parallel.
        n_ubatch: of these, tokens computed at once.
        n_threads: compute threads. None: the engine measures itself and chooses, anew when other programs want the
            cores or leave them; in the bit-reproducible mode one per core, since another number adds up in another
            order. A number is obeyed.
        n_gpu_layers: layers on the GPU; None: all of them; "auto": as many as leave a tenth of its memory free. With
            ``n_ctx="auto"`` too, layers are placed beside a context of the usual size, which then grows.
        cache_type: element type of the key-value cache: "f32", "f16", "bf16", "q8_0", "q4_0" ...
        prefix_cache: keep what finished requests computed, while there is room, for prompts that begin alike.
        max_queue: requests that may wait; None: any number.
        queue_full: what happens to a request when ``max_queue`` are waiting: "raise" QueueFullError, or "wait" until
            there is room, for as long as its ``timeout_s`` allows.
        progress: called with 0..1 while files are downloaded, again while a directory is imported, and again while the
            weights load; returning False stops it.

    Raises:
        ModelNotFoundError, ModelLoadError, UnsupportedArchitectureError: the file or directory.
        DownloadError: what is referred to cannot be downloaded.
        MissingPackageError: that takes ``pip install 'pyggml[hub]'``.
        DiskFullError: no room for what is downloaded or imported.
        DeviceError: the device asked for is not there.
        OutOfMemoryError: it does not fit; names required and available bytes, and what would fit. Raised before the
            weights are read.
        InvalidParameterError: an argument is out of range.
        TokenizerError: the vocabulary has no token to stop at, or ``tokenizer`` is not this model's.
        TokenizerNotFoundError: no tokenizer at the path.
    """
    return open_llm(
        LLM,
        source,
        device=device,
        n_gpu_layers=n_gpu_layers,
        progress=progress,
        tokenizer=tokenizer,
        n_ctx=n_ctx,
        n_parallel=n_parallel,
        n_batch=n_batch,
        n_ubatch=n_ubatch,
        n_threads=n_threads,
        cache_type=cache_type,
        prefix_cache=prefix_cache,
        max_queue=max_queue,
        queue_full=queue_full,
    )


def model_files(
    source: Source, progress: Progress | None = None, tokenizer: object = None, accept: Accept | None = None
) -> Imported:
    """The GGUF file that ``source`` means; a Hugging Face directory is imported first, if it is not in the cache.

    Args:
        source: as for :func:`load`, like the other arguments.
        progress: called while a directory is imported.
        tokenizer: what will encode; one that is not this model's is noticed before the import, which may take minutes.
        accept: called with a GGUF file, before an import with one that has all but the weights; what it raises is the
            end.

    Raises:
        As :func:`load`.
    """
    found = identify(source, progress)
    if found.format == "huggingface":
        files = imported(found, progress=progress, tokenizer=tokenizer, accept=accept)
    else:
        files = Imported(found.path, None)
    if accept is not None:
        accept(files.path)
    return files


def open_llm(
    kind: type[_Kind],
    source: Source,
    *,
    device: str = "auto",
    n_ctx: int | Auto | None = None,
    n_gpu_layers: int | Auto | None = None,
    progress: Progress | None = None,
    tokenizer: str | os.PathLike[str] | Tokenizer | HuggingFace | None = None,
    **options: Any,
) -> _Kind:
    """Loads a model as ``kind``, a class of LLMs.

    Args:
        kind: the class to make.
        source: as for :func:`load`, like the other arguments.
        device: where the weights go.
        n_ctx: how long the context is.
        n_gpu_layers: how many of them.
        progress: called while they load.
        tokenizer: in place of the vocabulary; looked for first, since the weights may take minutes.
        **options: what else ``kind`` takes.

    Raises:
        As :func:`load`.
    """
    if isinstance(tokenizer, (str, os.PathLike)):
        tokenizer = tokenizer_files.find(tokenizer)
    files = model_files(source, progress, tokenizer)
    if tokenizer is None:
        tokenizer = files.tokenizer
    settings = _planned(files.path, device, n_ctx=n_ctx, n_gpu_layers=n_gpu_layers, **options)
    model = Model(
        files.path,
        device=None if device == "auto" else device,
        n_gpu_layers=settings.n_gpu_layers,
        progress=progress,
    )
    try:
        return kind(model, tokenizer=tokenizer, n_ctx=settings.n_ctx, **options)
    except BaseException:
        model.close()
        raise


def _planned(path: Path, device: str, **options: Any) -> Settings:
    """The numbers that "auto" stands for, of a model that has room."""
    with Planner(gguf_at(path), device) as planner:
        settings = resolve(
            planner, **{name: value for name, value in options.items() if name in PlanOptions.__annotations__}
        )
        require_room(planner, settings)
        return settings
