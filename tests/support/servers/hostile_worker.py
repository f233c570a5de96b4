"""A process in place of an engine's that lies to its program; HOW, in the environment, says how."""

from __future__ import annotations

import json
import mmap
import os
import random
import struct
import sys
import time

from pyggml._core import c_calls
from pyggml._core.ffi import ffi, lib
from pyggml.isolation import protocol

_N_WRITTEN, _BYTES = 0, 384  # where they are in the shared memory: csrc/isolation/ring_buffer.cpp
_EVENT = struct.Struct("<IIQQ")


def main() -> int:
    task = json.loads(sys.argv[1])
    lib.pyg_end_with_parent(task["parent"])
    how = os.environ["HOW"]
    if how.startswith("ring"):
        _write_over(task, how)
    else:
        _answer(task, how)
    time.sleep(600)  # until it is ended
    return 0


def _write_over(task: dict[str, int], how: str) -> None:
    shared = mmap.mmap(task["memory"], 0)
    content = {
        "ring garbage": random.Random(1).randbytes(4096),
        "ring endless event": _EVENT.pack(1, 0, 1, 2**63),
        "ring short news": _EVENT.pack(1, 0, 1, 8) + bytes(8),
        "ring no kind": _EVENT.pack(9, 0, 1, 0),
        "ring impossible count": b"",
    }[how]
    shared[_BYTES : _BYTES + len(content)] = content
    n_written = 2**60 if how == "ring impossible count" else len(content)
    shared[_N_WRITTEN : _N_WRITTEN + 8] = struct.pack("<Q", n_written)
    os.write(task["socket"], b"!")


def _answer(task: dict[str, int], how: str) -> None:
    out, frame = ffi.new("pyg_engine_server **"), ffi.new("pyg_frame *")
    c_calls.call(lib.pyg_engine_server_new, task["memory"], task["socket"], out)
    c_calls.call(lib.pyg_engine_server_next, out[0], frame)
    message = {
        "no json": b"\x05\0\0\0{oops",
        "no length": b"\x05",
        "long length": b"\xff\xff\xff\xff{}",
        "no object": protocol.encode_reply({})[:4] + b"[]",
        "no facts": protocol.encode_reply({"model": {}, "n_ctx": 5, "memory": [], "not_batch_invariant": []}),
        "wrong type": protocol.encode_reply({"model": {}, "n_ctx": "5", "memory": [], "not_batch_invariant": []}),
        "endless answer": bytes(2 << 20),
        "no pyggml error": protocol.encode_reply({"error": "SystemExit", "text": "boo"}),
        "deep json": protocol.encode_reply({})[:4] + b"[" * 100_000,
    }[how]
    if how == "deep json":
        message = struct.pack("<I", 100_000) + b"[" * 100_000
    c_calls.call(lib.pyg_engine_server_reply, out[0], frame.id, message, len(message), True)
