"""Processes that exit while daemon threads are in native calls: the exit status is theirs, not a signal's."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from pyggml import system

N_PROCESSES = 4  # at once, so that threads are interrupted anywhere

CALLS = {
    "templates": """
        with pyggml.ChatTemplates(llm.model, "{% for i in range(2000) %}{{ i|string|upper }}{% endfor %}") as templates:
            templates.render([{"role": "user", "content": "hello"}])""",
    "tokens": """
        llm.tokenize("wörds и слова 漢字 " * 3000)""",
    "grammars": """
        pyggml.Sampler(llm.model).grammar("root ::= " + "[a-z]{1,30} " * 200)""",
}

PROGRAM = """
import random, threading, time
import pyggml

llm = pyggml.load(n_threads=1, n_ctx=256)

def call():
    while True:{call}

for _ in range(3):
    threading.Thread(target=call, daemon=True).start()
time.sleep(0.05 + 0.1 * random.random())
"""


@pytest.mark.slow_except("tokens")
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_daemon_threads_may_be_anywhere(call: str) -> None:
    """Memory that daemon threads read is not freed; with MALLOC_PERTURB_, glibc would overwrite it at once."""
    program = [sys.executable, "-c", PROGRAM.format(call=call)]
    environment = {**os.environ, "MALLOC_PERTURB_": "90"}
    processes = [
        subprocess.Popen(program, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(N_PROCESSES)
    ]
    ends = [(process.communicate(timeout=300)[0], process.returncode) for process in processes]
    assert ends == [("", 0)] * N_PROCESSES


LOOP_AT_THE_END = """
import asyncio, atexit, threading, time
atexit.register(time.sleep, 0.5)  # first, and so called last: the loop goes on until then

import uvloop
import pyggml
from pyggml.generation.event_loops import LoopWaiter

async def begin_and_drop():
    while True:
        LoopWaiter()
        await asyncio.sleep(0)

threading.Thread(target=lambda: uvloop.run(begin_and_drop()), daemon=True).start()
time.sleep(0.2)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="uvloop is not for Windows")
def test_loops_of_daemon_threads_may_go_on() -> None:
    """Resources of a request are freed in its loop, or libuv aborts the process."""
    program = [sys.executable, "-c", LOOP_AT_THE_END]
    done = subprocess.run(program, timeout=300, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems' linkers cannot leave destructors out")
def test_no_static_variable_is_destroyed() -> None:
    """No destructors of statics in the module and the libraries next to it, except those of GPUs."""
    of_gpus = ("cuda", "vulkan", "hip")
    paths = [path for path in system.build_info().module.glob("*.so") if not any(gpu in path.name for gpu in of_gpus)]
    assert paths
    assert [path.name for path in paths if b"\0__cxa_atexit\0" in path.read_bytes()] == []
