"""A loaded model: its weights, properties and vocabulary."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from pyggml import errors
from pyggml._core import c_calls, log
from pyggml._core.checks import INT32_MAX, c_string, callback, flag, integer, is_path, shown
from pyggml._core.ffi import ffi, lib
from pyggml._core.owner import ClosableOwner
from pyggml._core.platforms import call_in_forked_child
from pyggml._native.placement import Placement, resolve_placement
from pyggml._native.placement_options import PlacementOptions
from pyggml._native.vocab import Vocab
from pyggml.progress import Progress
from pyggml.units import size_label

if TYPE_CHECKING:
    from typing_extensions import Self

    from pyggml._core.ffi import CData

#: Metadata key of a checkpoint's whole ``tokenizer.json`` as text, from the GGUF specification (docs/gguf.md of ggml).
TOKENIZER_JSON = "tokenizer.huggingface.json"

_KEY_BYTES = 512


class Model(ClosableOwner):
    """A GGUF model in memory.

    Thread-safe. Contexts and samplers created from it keep it alive. Close it, or use it as a context manager; its
    properties and methods then raise ClosedError, but the attributes below are read while loading and stay readable.

    Attributes:
        path: the model's file.
        placement: the devices of its weights; contexts put their KV caches on the same devices.
        vocab: its :class:`pyggml.Vocab`.
        arch: the file's ``general.architecture``, such as "llama".
        desc: a one-line description, such as "llama 135M Q4_K - Medium".
        n_ctx_train: context length it was trained with, in tokens.
        n_embd: width of its hidden state.
        n_embd_out: width of its embeddings.
        n_layer: number of transformer or recurrent blocks.
        n_head: attention heads of the first layer that has any.
        n_head_kv: key and value heads of that layer.
        n_swa: width of the sliding window, 0 if attention is full.
        n_cls_out: outputs of its classification head, 0 if it has none.
        n_params: number of weights.
        size_bytes: size of all tensors.
        ftype: its quantisation, ``enum llama_ftype``.
        rope_type: ``enum llama_rope_type``.
        has_encoder: True if input must go through :meth:`Context.encode <pyggml.Context.encode>`.
        has_decoder: True if it generates.
        is_recurrent: True if it has a recurrent state instead of a KV cache (Mamba, RWKV ...).
        is_hybrid: True if some layers have a recurrent state and others a KV cache.
        is_diffusion: True if it fills in text rather than continuing it.
        is_causal: True if each token attends only to earlier tokens.
    """

    _instead_of_a_copy = "share this one between threads and contexts; another process loads its own"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        device: str | Sequence[str] = "auto",
        n_gpu_layers: int = -1,
        placement: Placement | None = None,
        use_mmap: bool = True,
        use_mlock: bool = False,
        vocab_only: bool = False,
        shape_only: bool = False,
        check_tensors: bool = False,
        progress: Progress | None = None,
    ) -> None:
        """Load a GGUF file, without the GIL.

        Args:
            path: the file; for a split set the first file, which loads the others.
            device: as for :func:`pyggml.load`.
            n_gpu_layers: layers to put on the GPU; -1: all of them.
            placement: the devices of the model, from ``resolve_placement``; it replaces
                ``device`` and ``n_gpu_layers``.
            use_mmap: map the weights from the file instead of reading them: faster, and shared between
                processes. Files with a ``general.alignment`` below 32 are always read.
            use_mlock: keep the weights in main memory, never swapped out.
            vocab_only: load only the vocabulary and properties; contexts cannot be created.
            shape_only: load only the properties and the weights' shapes: takes milliseconds, and is enough to plan
                memory. Contexts cannot be created either.
            check_tensors: check every block of the weights for invalid values while loading.
            progress: called on this thread with a fraction from 0 to 1. Returning False stops the load, and so does an
                exception, which is passed on.

        Raises:
            ModelNotFoundError: there is no such file.
            ModelLoadError: it is not a GGUF file, is damaged, or ``progress`` stopped the load.
            UnsupportedArchitectureError: the engine does not support the architecture.
            DeviceError: there is no such device.
            OutOfMemoryError: the weights do not fit.
            InvalidParameterError: an argument is of the wrong kind or out of range.
        """
        self.path = _checked_path(path)
        callback("progress", progress)
        if placement is not None and not isinstance(placement, Placement):
            raise errors.InvalidParameterError(f"placement must be a Placement or None, not {shown(placement)}")
        n_gpu_layers = integer("n_gpu_layers", n_gpu_layers, -1, INT32_MAX)
        self.placement = placement or resolve_placement(PlacementOptions(device=device, n_gpu_layers=n_gpu_layers))
        log.sync_level()
        self._handle = _load(
            self.path,
            self.placement,
            progress,
            use_mmap=flag("use_mmap", use_mmap),
            use_mlock=flag("use_mlock", use_mlock),
            vocab_only=flag("vocab_only", vocab_only),
            shape_only=flag("shape_only", shape_only),
            check_tensors=flag("check_tensors", check_tensors),
        )
        self._read_info()

    @classmethod
    def from_handle(cls, path: str | os.PathLike[str], handle: CData) -> Self:
        """Create a model that owns an existing ``pyg_model *``.

        Args:
            path: the file's path, for messages and ``path``.
            handle: the native model, *owned* by the result.
        """
        model = cls.__new__(cls)
        model.path = os.fsdecode(path)
        model.placement = Placement()
        model._handle = handle
        model._read_info()
        return model

    def _read_info(self) -> None:
        info = ffi.new("pyg_model_info *")
        c_calls.call(lib.pyg_model_get_info, self._handle, info)
        self.arch = c_calls.text_of(info.arch)
        self.n_ctx_train: int = info.n_ctx_train
        self.n_embd: int = info.n_embd
        self.n_embd_out: int = info.n_embd_out
        self.n_layer: int = info.n_layer
        self.n_head: int = info.n_head
        self.n_head_kv: int = info.n_head_kv
        self.n_swa: int = info.n_swa
        self.n_cls_out: int = info.n_cls_out
        self.n_params: int = info.n_params
        self.desc: str = _with_size(c_calls.text_of(info.desc), self.n_params)
        self.size_bytes: int = info.size_bytes
        self.ftype: int = info.ftype
        self.rope_type: int = info.rope_type
        self.has_encoder: bool = info.has_encoder
        self.has_decoder: bool = info.has_decoder
        self.is_recurrent: bool = info.is_recurrent
        self.is_hybrid: bool = info.is_hybrid
        self.is_diffusion: bool = info.is_diffusion
        self.is_causal: bool = info.is_causal
        self.vocab = Vocab(self._handle)

    @property
    def handle(self) -> CData:
        """The ``struct llama_model *`` for the raw API, borrowed until :meth:`close`."""
        model: CData = c_calls.call_for_value("struct llama_model *", lib.pyg_model_get, self._handle)
        return model

    @property
    def metadata(self) -> dict[str, str]:
        """The file's metadata without arrays and the :attr:`tokenizer_json` (:mod:`pyggml.gguf` reads those).

        A new dict each time.
        """
        pairs = self._metadata_pairs(lambda key: key != TOKENIZER_JSON)
        return {key: value.decode(errors="replace") for key, value in pairs}

    @property
    def tokenizer_json(self) -> bytes | None:
        """The checkpoint's ``tokenizer.json``, if the file has it in ``tokenizer.huggingface.json``; a new copy."""
        return next((value for _, value in self._metadata_pairs(lambda key: key == TOKENIZER_JSON)), None)

    def chat_template(self, name: str | None = None) -> str | None:
        """Return the Jinja chat template called ``name``, or the default one; None if the file has none.

        Args:
            name: the name of a template in the file; None: the default one.
        """
        wanted = ffi.NULL if name is None else c_string("name", name)
        text = c_calls.call_for_text(lib.pyg_model_chat_template, self._handle, wanted)
        return None if text is None else text.decode(errors="replace")

    def require_weights(self) -> None:
        """Reject a model whose weights are in another process, such as that of an isolated LLM.

        Raises:
            InvalidParameterError: they are in another process.
        """

    def close(self) -> None:
        """Free the weights once running calls end; existing contexts keep working. Can be called repeatedly."""
        c_calls.call(lib.pyg_model_close, self._handle)
        self._is_closed = True

    def _metadata_pairs(self, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
        """Yield the pairs whose keys are wanted. The values of others, which may be large, are not copied."""
        for index in range(c_calls.call_for_value("int32_t", lib.pyg_model_meta_count, self._handle)):
            key, n_value = self._metadata_key(index)
            if wanted(key):
                yield key, self._metadata_value(index, n_value)

    def _metadata_key(self, index: int) -> tuple[str, int]:
        """Return a key, and the size of its value in bytes."""
        n_key, n_value = ffi.new("size_t *", _KEY_BYTES - 1), ffi.new("size_t *")
        while True:
            size = n_key[0] + 1
            key = ffi.new("char[]", size)
            c_calls.call(lib.pyg_model_meta_get, self._handle, index, key, size, n_key, ffi.new("char *"), 1, n_value)
            if n_key[0] < size:
                return c_calls.text_of(key), n_value[0]

    def _metadata_value(self, index: int, n_bytes: int) -> bytes:
        if n_bytes > INT32_MAX:
            raise errors.ModelLoadError(f"{self.path}: metadata value {index} has more than 2 GiB of text")
        n_key, n_value = ffi.new("size_t *"), ffi.new("size_t *")
        value = ffi.new("char[]", n_bytes + 1)
        c_calls.call(
            lib.pyg_model_meta_get, self._handle, index, ffi.new("char *"), 1, n_key, value, n_bytes + 1, n_value
        )
        found: bytes = ffi.string(value)
        return found

    def __repr__(self) -> str:
        desc = self.desc or self.arch  # without the weights' shapes there is no description
        return f"Model({self.path!r}: {desc}{', closed' * self._is_closed})"


def _with_size(desc: str, n_params: int) -> str:
    """Replace the size, which the engine guesses from the number of layers, by that of the parameters."""
    architecture, _, rest = desc.partition(" ")
    _, _, type = rest.partition(" ")
    return " ".join(filter(None, [architecture, size_label(n_params) if n_params else "", type]))


def _checked_path(path: str | os.PathLike[str]) -> str:
    try:
        text = os.fsdecode(path)
    except TypeError:
        raise errors.InvalidParameterError(f"path must be a path, not {type(path).__name__}") from None
    if not is_path(text):
        raise errors.InvalidParameterError("the path of the model holds a NUL character, or an unpaired surrogate")
    return text


# ------------------------------------------------------------------------------------------------------------
# Loading. The protocol of the progress callback:
#   1. `_ProgressHandler` holds the caller's function, and the exception that it raised, if any.
#   2. `ffi.new_handle` turns it into a `void *` that is valid as long as the handle, a local variable of `_load`.
#   3. The engine calls `pyg_python_progress` on the loading thread; cffi acquires the GIL for it.
#   4. An exception cannot pass through C: cffi passes it to `_on_error`, which stores it, and returns False, so that
#      the load fails. `try` would miss an exception that a signal handler (Ctrl-C) raises before its first line.
#   5. `_load` raises the stored exception instead of that failure.
#   6. When the interpreter exits, Python (before 3.14) ends a thread that tries to acquire the GIL, which would unwind
#      the engine's frames and crash the process. So loads on other threads are stopped and joined before.
# ------------------------------------------------------------------------------------------------------------


class _ProgressHandler:
    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.stopped = False
        self.error: BaseException | None = None


_running_loads: set[_ProgressHandler] = set()
_is_ending = False
_STOP_TIMEOUT_S = 5.0  # unless the caller's function takes longer


def _must_stop() -> bool:
    return _is_ending and threading.current_thread() is not threading.main_thread()


def _require_running(path: str) -> None:
    if _must_stop():
        raise errors.ClosedError(f"{path} was not loaded: the interpreter is shutting down") from None


@atexit.register
def _stop_loads() -> None:
    global _is_ending
    _is_ending = True
    deadline = time.monotonic() + _STOP_TIMEOUT_S
    while _running_loads and time.monotonic() < deadline:
        time.sleep(0.001)


call_in_forked_child(_running_loads.clear)


def _on_error(_kind: type[BaseException], error: BaseException, traceback: TracebackType) -> None:
    handler: _ProgressHandler = ffi.from_handle(traceback.tb_frame.f_locals["user_data"])
    handler.error = error.with_traceback(traceback)


@ffi.def_extern(name="pyg_python_progress", error=False, onerror=_on_error)
def _on_progress(fraction: float, user_data: CData) -> bool:
    handler: _ProgressHandler = ffi.from_handle(user_data)
    handler.stopped = handler.progress(fraction) is False or _must_stop()
    return not handler.stopped


def _load(path: str, placement: Placement, progress: Progress | None, **settings: object) -> CData:
    """Load a file, and return its ``pyg_model *``, *owned*."""
    options = ffi.new("pyg_model_options *", lib.pyg_model_default_options())
    kept = placement.native()
    options.placement = kept[0]
    for name, value in settings.items():
        setattr(options, name, value)
    handler = None if progress is None else _ProgressHandler(progress)
    if handler is not None:
        user_data = ffi.new_handle(handler)
        options.progress, options.progress_data = lib.pyg_python_progress, user_data
    try:
        if handler is not None:
            _running_loads.add(handler)
            _require_running(path)
        return c_calls.create("pyg_model", lib.pyg_model_free, lib.pyg_model_new, os.fsencode(path), options)
    except errors.ModelLoadError:
        if handler is None or not (handler.error or handler.stopped):
            raise
        if handler.error is not None:
            raise handler.error from None
        _require_running(path)
        raise errors.ModelLoadError(f"loading {path} was stopped by its progress callback") from None
    finally:
        if handler is not None:
            _running_loads.discard(handler)
