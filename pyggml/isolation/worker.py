"""The program of the engine's process, started by :mod:`pyggml.isolation.process`."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, astuple
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np
import numpy.typing as npt

from pyggml._core import c_calls
from pyggml._core.c_values import pointer
from pyggml._core.ffi import ffi, lib
from pyggml._core.log import logger
from pyggml.adapter_loader import load_adapter
from pyggml.engine_factory import start_engine
from pyggml.errors import InferError, UnsupportedArchitectureError
from pyggml.generation.adapters import Adapters
from pyggml.generation.embedding.encoder import BatchEncoder, GrowingContext, Kind
from pyggml.generation.engine import Engine
from pyggml.generation.request_options import request_options
from pyggml.isolation import protocol
from pyggml.isolation.isolated_embedding import decode_parts
from pyggml.isolation.isolated_model import model_properties
from pyggml.memory.llm_context import checked_n_ctx, generates
from pyggml.model_loader import open_model
from pyggml.options import LoadOptions

if TYPE_CHECKING:
    from pyggml._core.ffi import CData
    from pyggml._native.model import Model
    from pyggml.memory.search import DeviceMemory

T = TypeVar("T")
_Ids = npt.NDArray[np.int32]

# Threads for slow requests, so that new requests, cancellations and statistics do not wait for them.
_N_SLOW_THREADS = 4


def main() -> int:
    """Serve the program that started this process, and exit when it does."""
    task = json.loads(sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    lib.pyg_end_with_parent(task["parent"])
    logging.basicConfig(level=logging.ERROR, format="%(message)s", stream=sys.stderr)
    out = ffi.new("pyg_engine_server **")
    c_calls.call(lib.pyg_engine_server_new, task["memory"], task["socket"], out)
    _Worker(_ReplyChannel(out[0])).run()


class _ReplyChannel:
    """Sends replies to the program."""

    def __init__(self, handle: CData) -> None:
        self.handle = handle

    def reply(self, call_id: int, fields: dict[str, object], array: Any = b"", *, last: bool = True) -> None:
        self.send(call_id, protocol.encode_reply(fields, array), last=last)

    def send(self, call_id: int, message: bytes, *, last: bool = True) -> None:
        c_calls.call(lib.pyg_engine_server_reply, self.handle, call_id, message, len(message), last)


class _Worker:
    """Executes the program's requests in their order, slow ones on other threads."""

    def __init__(self, replies: _ReplyChannel) -> None:
        self._replies = replies
        self._slow = ThreadPoolExecutor(_N_SLOW_THREADS)
        self._model: _LoadedModel | None = None

    def run(self) -> NoReturn:
        threading.Thread(target=lib.pyg_engine_server_run, args=(self._replies.handle,), daemon=True).start()
        frame = ffi.new("pyg_frame *")
        while True:
            c_calls.call(lib.pyg_engine_server_next, self._replies.handle, frame)
            if frame.kind == lib.PYG_FRAME_NONE:
                os._exit(0)  # the system frees everything, and faster
            data = ffi.gc(frame.data, lib.pyg_string_free)
            content = memoryview(ffi.buffer(data, frame.n_numbers * 4 + frame.n_bytes))
            token_ids = np.frombuffer(content, np.int32, frame.n_numbers)
            self._dispatch(frame.kind, frame.id, token_ids, bytes(content[frame.n_numbers * 4 :]))

    def _dispatch(self, kind: int, call_id: int, token_ids: _Ids, data: bytes) -> None:
        if kind == lib.PYG_FRAME_SUBMIT:
            request = protocol.decode_generation(data)
            is_slow = request.params.grammar is not None or bool(request.params.dry_multiplier)
            work = partial(self._loaded().submit, call_id, token_ids, request)
        else:
            method, arguments = protocol.decode_request(data)
            is_slow = method in ("logits", "embed", "save_prefix", "restore_prefix", "load_adapter")
            work = partial(self._call, call_id, method, token_ids, arguments)
            if method == "close_adapter":  # waits for its requests, as long as they take
                threading.Thread(target=_exit_on_error, args=(work,), daemon=True).start()
                return
        if is_slow:
            self._slow.submit(_exit_on_error, work)
        else:
            work()

    def _call(self, call_id: int, method: str, token_ids: _Ids, arguments: dict[str, Any]) -> None:
        try:
            if method == "load":
                self._model = _LoadedModel(self._replies, call_id, **arguments)
                self._replies.reply(call_id, self._model.info())
            else:
                self._replies.reply(call_id, *getattr(self._loaded(), method)(token_ids, **arguments))
        except InferError as error:
            self._replies.send(call_id, protocol.encode_error(error))

    def _loaded(self) -> _LoadedModel:
        assert self._model is not None, "the program loads first"
        return self._model


class _LoadedModel:
    """The loaded model. Its public methods execute requests, which name them."""

    def __init__(self, replies: _ReplyChannel, call_id: int, path: str, options: dict[str, Any], level: int) -> None:
        self._replies = replies
        self._embed_lock = threading.Lock()
        given = LoadOptions(
            path, **options, progress=lambda fraction: replies.reply(call_id, {"progress": fraction}, last=False)
        )
        with _LogForwarder(replies, call_id, level):
            opened = open_model(Path(path), given)
            self._model: Model = opened.model
            self._n_ctx = checked_n_ctx(opened.model, opened.n_ctx)
            self._engine: Engine | None = None
            self._memory: tuple[DeviceMemory, ...] = ()
            if generates(opened.model):
                self._engine, self._memory = start_engine(opened.model, given, self._n_ctx, (), opened.draft)
        self._adapters = Adapters(self._model) if self._engine is None else self._engine.shared_adapters
        settings = self._n_ctx, given.n_threads, given.deterministic, given
        kinds: tuple[Kind, ...] = ("none", "rank")
        self._passes: dict[Kind, BatchEncoder] = {kind: GrowingContext(self._model, kind, *settings) for kind in kinds}

    def info(self) -> dict[str, object]:
        invariant = () if self._engine is None else self._engine.stats().not_batch_invariant
        return {
            "model": model_properties(self._model),
            "n_ctx": self._n_ctx,
            "memory": [asdict(device) for device in self._memory],
            "not_batch_invariant": list(invariant),
        }

    def submit(self, call_id: int, prompt: _Ids, request: protocol.GenerationRequest) -> None:
        try:
            adapters = self._adapters.of_choice(request.params.adapter)
        except InferError:  # the program closed it in another thread
            code, why = lib.PYG_ERR_CLOSED, b"an adapter of the request was closed"
            c_calls.call(lib.pyg_engine_server_refuse, self._replies.handle, call_id, code, why)
            return
        options, borrowed = request_options(
            request.params,
            request.stop_token_ids,
            [*adapters.items()],
            is_streamed=request.watched,
            reasoning=request.reasoning,
        )
        options.timeout_s = -1.0 if request.timeout_s is None else request.timeout_s
        engine = self._require_engine()._handle
        ids = pointer("int32_t[]", prompt)
        c_calls.call(lib.pyg_engine_server_submit, self._replies.handle, engine, call_id, ids, len(prompt), options)
        del borrowed  # native code has copied it

    def stats(self, _: _Ids) -> tuple[dict[str, object]]:
        return (self._require_engine().stats().to_dict(),)

    def reset(self, _: _Ids) -> tuple[dict[str, object]]:
        self._require_engine().reset()
        return ({},)

    def slots(self, _: _Ids) -> tuple[dict[str, object]]:
        return ({"slots": [astuple(slot) for slot in self._require_engine().slots()]},)

    def slot_tokens(
        self, _: _Ids, index: int, cache_salt: str | None, adapter: dict[str, float]
    ) -> tuple[dict[str, object]]:
        return ({"token_ids": self._require_engine().slot_tokens(index, cache_salt=cache_salt, adapter=adapter)},)

    def erase_slot(
        self, _: _Ids, index: int, cache_salt: str | None, adapter: dict[str, float]
    ) -> tuple[dict[str, object]]:
        return ({"n_tokens": self._require_engine().erase_slot(index, cache_salt=cache_salt, adapter=adapter)},)

    def logits(self, prompt: _Ids, adapter: dict[str, float]) -> tuple[dict[str, object], memoryview]:
        return {}, _bytes_of(self._require_engine().logits(prompt, adapter=adapter))

    def save_prefix(
        self, prompt: _Ids, cache_salt: str | None, timeout_s: float | None
    ) -> tuple[dict[str, object], bytes]:
        return {}, self._require_engine().save_prefix(prompt, cache_salt=cache_salt, timeout_s=timeout_s)

    def restore_prefix(self, numbers: _Ids, size: int, cache_salt: str | None) -> tuple[dict[str, object]]:
        data = numbers.data.cast("B")[:size]
        return ({"n_tokens": self._require_engine().restore_prefix(data, cache_salt=cache_salt)},)

    def load_adapter(self, _: _Ids, path: str, name: str, scale: float) -> tuple[dict[str, object]]:
        adapter = load_adapter(self._adapters, self._model, path, name, scale)
        return ({fact: getattr(adapter, fact) for fact in ("rank", "alpha", "n_targets", "content")},)

    def adapter_bytes(self, _: _Ids, name: str) -> tuple[dict[str, object]]:
        return ({"n_bytes": self._adapters.by_name()[name].size_bytes},)

    def close_adapter(self, _: _Ids, name: str) -> tuple[dict[str, object]]:
        if (adapter := self._adapters.by_name().get(name)) is not None:  # it was loaded again after a restart
            adapter.close()
        return ({},)

    def embed(
        self, token_ids: _Ids, parts: list[dict[str, Any]], adapter: dict[str, float]
    ) -> tuple[dict[str, object], memoryview]:
        texts, adapters = decode_parts(parts, token_ids), self._adapters.of_choice(adapter)
        passes = self._passes["rank" if texts[0].kind == "scores" else "none"]
        with self._embed_lock:
            found = passes.outputs(texts, adapters)
        return {}, _bytes_of(np.concatenate([rows.ravel() for rows in found]))

    def _require_engine(self) -> Engine:
        if self._engine is None:
            raise UnsupportedArchitectureError(f"{self._model.desc} does not generate text token by token")
        return self._engine


class _LogForwarder(logging.Handler):
    """Forwards log messages to the program while the model loads. A context manager."""

    def __init__(self, replies: _ReplyChannel, call_id: int, level: int) -> None:
        super().__init__(level)
        self._replies, self._call_id = replies, call_id

    def emit(self, record: logging.LogRecord) -> None:
        fields: dict[str, object] = {"log": record.getMessage(), "level": record.levelno}
        self._replies.reply(self._call_id, fields, last=False)

    def __enter__(self) -> None:
        logger.addHandler(self)
        logger.setLevel(self.level)
        logger.propagate = False

    def __exit__(self, *_: object) -> None:
        logger.removeHandler(self)
        logger.setLevel(logging.ERROR)
        logger.propagate = True


def _bytes_of(array: npt.NDArray[np.float32]) -> memoryview:
    return np.ascontiguousarray(array, np.float32).data.cast("B")


def _exit_on_error(work: Callable[[], None]) -> None:
    """End the process on an exception, for which the program would otherwise wait forever."""
    try:
        work()
    except BaseException:
        traceback.print_exc()
        os._exit(os.EX_SOFTWARE)
