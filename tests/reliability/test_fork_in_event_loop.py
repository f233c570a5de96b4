"""A fork inside an event loop: the child gets a clear error, and the parent's requests finish.

The child shares with its parent what their loop watches, so whatever it tidies up must leave that alone.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import asyncio, os, signal, sys
import pyggml

llm = pyggml.load(n_threads=1)

async def in_the_child(how, pending):
    signal.alarm(20)
    try:
        llm.generate("Once", max_tokens=3)
    except pyggml.EngineError:
        pass
    else:
        os._exit(3)
    if how == "raise":
        raise SystemExit(0)
    if how == "await":
        try:
            await pending
        except pyggml.EngineError:
            os._exit(0)
        os._exit(4)
    if how == "cancel":
        pending.cancel()
        asyncio.get_event_loop_policy().get_event_loop().call_later(0.05, os._exit, 0)
    if how == "close":
        llm.close()

async def main(how):
    pending = asyncio.create_task(llm.agenerate("Once upon a time", max_tokens=600, ignore_eos=True))
    async with llm.astream("There was", max_tokens=600, ignore_eos=True) as stream:
        child = os.fork()
        if not child:
            await in_the_child(how, pending)
            return
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        n = len((await pending).token_ids)
        n_streamed = sum([len(chunk.token_ids) async for chunk in stream])
        print("child", status, "parent", n, n_streamed)

asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.slow_except(every=5)
@pytest.mark.parametrize("how", ["return", "raise", "await", "cancel", "close"])
def test_the_parents_requests_end_whatever_the_child_does(how: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _PROGRAM, how], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "child 0 parent 600 600\n", done.stderr[-2000:]


_AFTER_A_CLOSED_LOOP = """
import asyncio, os
import pyggml

llm = pyggml.load(n_threads=1)
loop = asyncio.new_event_loop()
tasks = [loop.create_task(llm.agenerate("Once", max_tokens=4000, ignore_eos=True)) for _ in range(2)]
loop.call_later(0.05, loop.stop)
loop.run_forever()
loop.close()
child = os.fork()
if not child:
    os._exit(0)
print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
os._exit(0)
"""


@pytest.mark.slow
def test_a_fork_after_a_loop_was_closed_with_work_in_flight() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _AFTER_A_CLOSED_LOOP], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("child 0\n", "")
