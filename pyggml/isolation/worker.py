"""The process of an engine, seen from inside: started by :mod:`pyggml.isolation.process`, serves one program."""

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
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np
import numpy.typing as npt

from pyggml._core import c_calls
from pyggml._core.c_values import pointer
from pyggml._core.ffi import ffi, lib
from pyggml._core.log import logger
from pyggml.engine_factory import start_engine
from pyggml.errors import InferError, UnsupportedArchitectureError
from pyggml.generation.embedding_batches import BatchEncoder, Kind, encoder_factory
from pyggml.generation.engine import Engine
from pyggml.generation.request_options import request_options
from pyggml.isolation import messages
from pyggml.isolation.isolated_model import facts_of
from pyggml.memory.llm_context import checked_n_ctx, generates
from pyggml.model_loader import open_model
from pyggml.options import LoadOptions

if TYPE_CHECKING:
    from pyggml._core.ffi import CData
    from pyggml._native.model import Model
    from pyggml.memory.search import DeviceMemory

T = TypeVar("T")
_Ids = npt.NDArray[np.int32]

# What may take longer than a moment has threads of its own, so that requests, cancels and statistics need not wait.
_SLOW_THREADS = 4
_FAILED = 70


def main() -> int:
    """Serves the program that started this process, and ends with it."""
    task = json.loads(sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    lib.pyg_end_with_parent(task["parent"])
    logging.basicConfig(level=logging.ERROR, format="%(message)s", stream=sys.stderr)
    out = ffi.new("pyg_feed **")
    c_calls.call(lib.pyg_feed_new, task["memory"], task["socket"], out)
    _Worker(_Feed(out[0])).run()


class _Feed:
    """What goes to the program."""

    def __init__(self, handle: CData) -> None:
        self.handle = handle

    def reply(self, call: int, fields: dict[str, object], array: Any = b"", *, last: bool = True) -> None:
        self._send(call, messages.message(fields, array), last)

    def refuse(self, call: int, error: InferError) -> None:
        self._send(call, messages.failed(error), last=True)

    def _send(self, call: int, message: bytes, last: bool) -> None:
        c_calls.call(lib.pyg_feed_reply, self.handle, call, message, len(message), last)


class _Worker:
    """Carries out what the program asks for, in the order in which it asks; what is slow, beside it."""

    def __init__(self, feed: _Feed) -> None:
        self._feed = feed
        self._slow = ThreadPoolExecutor(_SLOW_THREADS)
        self._served: _Served | None = None

    def run(self) -> NoReturn:
        threading.Thread(target=lib.pyg_feed_run, args=(self._feed.handle,), daemon=True).start()
        frame = ffi.new("pyg_frame *")
        while True:
            c_calls.call(lib.pyg_feed_next, self._feed.handle, frame)
            if frame.kind == lib.PYG_FRAME_NONE:
                os._exit(0)  # the system frees everything, and faster
            data = ffi.gc(frame.data, lib.pyg_string_free)
            content = memoryview(ffi.buffer(data, frame.n_numbers * 4 + frame.n_bytes))
            numbers = np.frombuffer(content, np.int32, frame.n_numbers)
            self._take(frame.kind, frame.id, numbers, bytes(content[frame.n_numbers * 4 :]))

    def _take(self, kind: int, number: int, numbers: _Ids, said: bytes) -> None:
        if kind == lib.PYG_FRAME_SUBMIT:
            asked = messages.asked(said)
            submit = self._beside if asked.params.grammar is not None or asked.params.dry_multiplier else _at_once
            submit(lambda: self._loaded().submit(number, numbers, asked))
            return
        fields = messages.heard(said)
        do = fields.pop("do")
        run = self._beside if do in ("logits", "vectors") else _at_once
        run(lambda: self._answer(number, do, numbers, fields))

    def _answer(self, call: int, do: str, numbers: _Ids, fields: dict[str, Any]) -> None:
        try:
            if do == "load":
                self._served = _Served(self._feed, call, **fields)
                self._feed.reply(call, self._served.about())
            else:
                self._feed.reply(call, *getattr(self._loaded(), do)(numbers, **fields))
        except InferError as error:
            self._feed.refuse(call, error)

    def _loaded(self) -> _Served:
        assert self._served is not None, "the program loads first"
        return self._served

    def _beside(self, work: Callable[[], None]) -> None:
        self._slow.submit(_or_die, work)


class _Served:
    """The loaded model, and what is done with it; the public methods are what calls name."""

    def __init__(self, feed: _Feed, call: int, path: str, options: dict[str, Any], level: int) -> None:
        self._feed = feed
        self._vectors = threading.Lock()
        given = LoadOptions(
            path, **options, progress=lambda fraction: feed.reply(call, {"progress": fraction}, last=False)
        )
        with _Telling(feed, call, level):
            opened = open_model(Path(path), given)
            self._model: Model = opened.model
            self._n_ctx = checked_n_ctx(opened.model, opened.n_ctx)
            self._engine: Engine | None = None
            self._memory: tuple[DeviceMemory, ...] = ()
            if generates(opened.model):
                self._engine, self._memory = start_engine(opened.model, given, self._n_ctx, ())
        new_passes = encoder_factory(self._model, self._n_ctx, given.n_threads, deterministic=given.deterministic)
        self._passes: dict[Kind, BatchEncoder] = {"none": new_passes("none"), "rank": new_passes("rank")}

    def about(self) -> dict[str, object]:
        invariant = () if self._engine is None else self._engine.stats().not_batch_invariant
        return {
            "model": facts_of(self._model),
            "n_ctx": self._n_ctx,
            "memory": [asdict(device) for device in self._memory],
            "not_batch_invariant": list(invariant),
        }

    def submit(self, number: int, prompt: _Ids, asked: messages.Asked) -> None:
        options, borrowed = request_options(asked.params, asked.stop_token_ids, watched=asked.watched)
        options.timeout_s = -1.0 if asked.timeout_s is None else asked.timeout_s
        engine = self._generating()._handle
        ids = pointer("int32_t[]", prompt)
        c_calls.call(lib.pyg_feed_submit, self._feed.handle, engine, number, ids, len(prompt), options)
        del borrowed  # native code has copied it

    def stats(self, _: _Ids) -> tuple[dict[str, object]]:
        return (self._generating().stats().to_dict(),)

    def reset(self, _: _Ids) -> tuple[dict[str, object]]:
        self._generating().reset()
        return ({},)

    def logits(self, prompt: _Ids) -> tuple[dict[str, object], memoryview]:
        return {}, _bytes_of(self._generating().logits(prompt))

    def vectors(self, numbers: _Ids, pooling: Kind, lengths: list[int]) -> tuple[dict[str, object], memoryview]:
        texts = np.split(numbers, np.cumsum(lengths)[:-1])
        passes = self._passes[pooling]
        with self._vectors:
            found = passes.head_outputs(texts) if pooling == "rank" else np.concatenate(passes.token_embeddings(texts))
        return {}, _bytes_of(found)

    def _generating(self) -> Engine:
        if self._engine is None:
            raise UnsupportedArchitectureError(f"{self._model.desc} does not generate text token by token")
        return self._engine


class _Telling(logging.Handler):
    """Passes on, while the model loads, what the program's logger wants to know. A context manager."""

    def __init__(self, feed: _Feed, call: int, level: int) -> None:
        super().__init__(level)
        self._feed, self._call = feed, call

    def emit(self, record: logging.LogRecord) -> None:
        fields: dict[str, object] = {"log": record.getMessage(), "level": record.levelno}
        self._feed.reply(self._call, fields, last=False)

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


def _at_once(work: Callable[[], None]) -> None:
    work()


def _or_die(work: Callable[[], None]) -> None:
    """Ends the process where nobody would see the exception, and the program would wait forever."""
    try:
        work()
    except BaseException:
        traceback.print_exc()
        os._exit(_FAILED)
