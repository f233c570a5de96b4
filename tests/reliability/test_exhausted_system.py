"""Exhausted or changing system resources: at most an error, and the library continues to work.

Each test uses a separate process, because the limits apply to the whole process.
"""

from __future__ import annotations

import contextlib
import os
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from fuzz import faults
from reliability.test_faults import in_child

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits are set as Linux has them")

ANSWER = """
import asyncio, os, resource, sys, threading, time
import pyggml

def answer(llm):
    return llm.generate("Once upon a time", max_tokens=12).token_ids

def refused(call):
    try:
        call()
    except (pyggml.InferError, OSError) as error:
        assert str(error)
        return type(error).__name__
    raise AssertionError("it was not refused")
"""


@pytest.mark.slow
def test_clocks_that_jump_do_not_move_deadlines() -> None:
    program = """
        from fuzz.faults import Faults
        faults = Faults()
        with pyggml.load() as llm:
            before, over = answer(llm), threading.Event()
            def jump():
                while not over.wait(0.005):
                    for seconds in (86400, -86400 * 365):
                        faults.set_wall_clock(seconds)
            thread = threading.Thread(target=jump)
            thread.start()
            assert llm.generate("Once upon a time", max_tokens=12, timeout_s=60).token_ids == before
            start = time.monotonic()
            late = llm.generate("Once", max_tokens=900, ignore_eos=True, timeout_s=0.05)
            took = time.monotonic() - start
            over.set()
            thread.join()
            assert abs(time.time() - time.monotonic()) > 86400
        print(late.finish_reason, took >= 0.05)
    """
    out = in_child(ANSWER + textwrap.dedent(program), **faults.environment())
    assert out.split() == ["timeout", "True"]


@pytest.mark.slow
@pytest.mark.parametrize("n_threads", [None, 2])
def test_cores_that_are_taken_away_while_it_computes(n_threads: int | None) -> None:
    program = """
        n_threads = None if sys.argv[1] == "None" else int(sys.argv[1])
        all = os.sched_getaffinity(0)
        with pyggml.load(n_threads=n_threads) as llm:
            before, over = answer(llm), threading.Event()
            def pin():
                few = {min(all)}
                while not over.wait(0.01):
                    for task in os.listdir("/proc/self/task"):
                        try:
                            os.sched_setaffinity(int(task), few)
                        except ProcessLookupError:
                            pass
                    few = all if len(few) == 1 else {max(all)}
            thread = threading.Thread(target=pin)
            thread.start()
            during = [answer(llm) for _ in range(3)]
            over.set()
            thread.join()
            os.sched_setaffinity(0, {min(all)})
            assert during == [before] * 3 and answer(llm) == before
        with pyggml.load(n_threads=n_threads) as llm:
            assert answer(llm) == before
        print("fine")
    """
    assert in_child(ANSWER + textwrap.dedent(program), n_threads).split() == ["fine"]


@pytest.mark.slow
def test_no_descriptor_is_left(tiny_path: Path, tmp_path: Path) -> None:
    program = """
        path, out = sys.argv[1:]
        async def task(llm):
            return (await llm.agenerate("Once upon a time", max_tokens=12)).token_ids
        with pyggml.load() as llm:
            before = answer(llm)
            loop = asyncio.new_event_loop()
            n_open = len(os.listdir("/proc/self/fd"))
            _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, most))
            assert answer(llm) == before
            print(refused(lambda: loop.run_until_complete(task(llm))))
            print(refused(lambda: pyggml.load(path, n_ctx=256)))
            print(refused(lambda: pyggml.quantize(path, out, "q8_0")))
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
            assert loop.run_until_complete(task(llm)) == before
            loop.close()
        with pyggml.load(path, n_ctx=256) as tiny:
            tiny.generate("a", max_tokens=2)
        print("fine")
    """
    out = in_child(ANSWER + textwrap.dedent(program), tiny_path, tmp_path / "out.gguf").split()
    assert len(out) == 4
    assert out[-1] == "fine"


@pytest.mark.slow
def test_no_address_space_is_left(tiny_path: Path) -> None:
    program = """
        path = sys.argv[1]
        with pyggml.load(n_threads=2) as llm:
            before = answer(llm)
            pages = int(open("/proc/self/statm").read().split()[0])
            _, most = resource.getrlimit(resource.RLIMIT_AS)
            resource.setrlimit(resource.RLIMIT_AS, (pages * os.sysconf("SC_PAGE_SIZE") + (24 << 20), most))
            print(refused(lambda: pyggml.load(path, n_ctx=1 << 16, n_threads=8)))
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
            assert answer(llm) == before
        with pyggml.load(path, n_ctx=256) as tiny:
            tiny.generate("a", max_tokens=2)
        print("fine")
    """
    kind, last = in_child(ANSWER + textwrap.dedent(program), tiny_path).split()
    assert last == "fine"
    assert kind in ("OutOfMemoryError", "EngineError", "ModelLoadError")  # by what could not be had first


@pytest.mark.slow
def test_a_group_with_little_memory(tiny_path: Path) -> None:
    """Models that do not fit into the control group are refused, and the kernel kills no process."""
    program = """
        path, procs = sys.argv[1:]
        open(procs, "w").write(str(os.getpid()))
        with pyggml.load(path, n_ctx=256) as llm:
            before = llm.generate("a", max_tokens=4, ignore_eos=True).token_ids
            try:
                pyggml.load(path, n_ctx=1 << 21)
            except pyggml.OutOfMemoryError as error:
                assert error.available_bytes < 400 << 20, error
                print("refused")
            assert llm.generate("a", max_tokens=4, ignore_eos=True).token_ids == before
        print("fine")
    """
    with _memory_group(400 << 20) as procs:
        assert in_child(ANSWER + textwrap.dedent(program), tiny_path, procs).split() == ["refused", "fine"]


@contextlib.contextmanager
def _memory_group(n_bytes: int) -> Iterator[Path]:
    """A control group of either version with a limit; what is written to its file of processes belongs to it."""
    root = Path("/sys/fs/cgroup")
    is_first = (root / "memory").is_dir()
    group = (root / "memory" if is_first else root) / f"pyggml-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / ("memory.limit_in_bytes" if is_first else "memory.max")).write_text(str(n_bytes))
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        yield group / "cgroup.procs"
    finally:
        group.rmdir()
