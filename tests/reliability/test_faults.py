"""Injected faults in system calls and allocations: an error, the process survives, and the next call is right."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fuzz import faults, fuzzer
from fuzz.process import Process
from support.checkpoints import models
from support.checkpoints.hf_llama import HFLlama
from support.paths import TESTS

import pyggml
from pyggml.gguf import GGUFReader

SECONDS = 120

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="faults are made as Linux has them")


def in_child(program: str, *arguments: object, **environment: str) -> str:
    """Run a program in a separate process, which may not end by a signal; return its output."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env={**os.environ, **environment},
        cwd=TESTS,
    )
    name = signal.Signals(-done.returncode).name if done.returncode < 0 else done.returncode
    assert done.returncode == 0, f"{name}: {done.stderr[-2000:]}"
    return done.stdout


CUT = """
import os, shutil, sys
import pyggml

path, other, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
shutil.copy(path, path + ".whole")
with pyggml.load(path, n_ctx=256, n_threads=threads) as llm, pyggml.load(other, n_ctx=256, n_threads=1) as sound:
    before = llm.generate("abc", max_tokens=4, ignore_eos=True).token_ids
    also = sound.generate("abc", max_tokens=4, ignore_eos=True).token_ids
    os.truncate(path, 8192)
    for call in (
        lambda: llm.generate("abd", max_tokens=4, ignore_eos=True),
        lambda: list(llm.stream("abd", max_tokens=4, ignore_eos=True)),
        lambda: llm.embed(["abd"]),
    ):
        try:
            call()
            print("no error")
        except (pyggml.EngineError, pyggml.ModelLoadError) as error:
            assert path in str(error), error
    assert sound.generate("abc", max_tokens=4, ignore_eos=True).token_ids == also
os.replace(path + ".whole", path)
with pyggml.load(path, n_ctx=256, n_threads=threads) as llm:
    assert llm.generate("abc", max_tokens=4, ignore_eos=True).token_ids == before
print("fine")
"""


@pytest.mark.slow_except("1")
@pytest.mark.parametrize("threads", [1, 3])
def test_a_model_whose_file_is_cut_short(tmp_path: Path, threads: int) -> None:
    path, other = models.write_llama(tmp_path / "a.gguf"), models.write_llama(tmp_path / "b.gguf", seed=1)
    assert in_child(CUT, path, other, threads).split() == ["fine"]


def test_a_file_that_is_cut_short_under_a_reader(tiny_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(tiny_path.read_bytes())
    with GGUFReader(path) as reader:
        last = max(reader.tensors.values(), key=lambda info: info.offset)
        array = reader.tensor(last.name)
        os.truncate(path, 4096)
        assert not np.asarray(array).any()  # what is gone reads as zeros
        with pytest.raises(pyggml.ModelLoadError, match=r"model\.gguf was truncated"):
            reader.tensor(last.name)
        with pytest.raises(pyggml.ModelLoadError, match="was truncated"):
            reader.dequantized(last.name)
    del array


def test_a_checkpoint_that_is_cut_short_while_it_is_converted(tmp_path: Path) -> None:
    directory = HFLlama(n_embd=32, n_head=2, n_head_kv=1, head_dim=16, n_ff=32).write(tmp_path / "hf", stored="BF16")
    weights = next(directory.glob("*.safetensors"))
    header = 8 + int.from_bytes(weights.read_bytes()[:8], "little")

    def cut(fraction: float) -> None:
        if fraction > 0 and weights.stat().st_size > header + 64:
            os.truncate(weights, header + 64)

    with pytest.raises(pyggml.ModelLoadError, match=r"bec[ao]me shorter"):
        pyggml.convert(directory, tmp_path / "out.gguf", progress=cut)
    assert not (tmp_path / "out.gguf").exists()


@pytest.mark.slow
def test_handlers_of_others_are_called_for_faults_of_others(tiny_path: Path, tmp_path: Path) -> None:
    """Python's faulthandler reports a mapping of the program's own, with a model loaded and after."""
    own = tmp_path / "own"
    own.write_bytes(bytes(1 << 16))
    program = """
        import faulthandler, mmap, os, sys
        faulthandler.enable()
        import pyggml
        with pyggml.load(sys.argv[1], n_ctx=256):
            file = open(sys.argv[2], "r+b")
            mapped = mmap.mmap(file.fileno(), 0)
            os.truncate(sys.argv[2], 0)
            mapped[5000]
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(tiny_path), str(own)], capture_output=True, text=True
    )
    assert done.returncode == -signal.SIGBUS
    assert "Fatal Python error: Bus error" in done.stderr


#: From the beginning, the middle and the end of scenarios; some ended the process, or were answered wrongly.
CASES = [
    ("generate", "ALLOCATION", 0.3, True),
    ("generate", "ALLOCATION", 0.9, True),
    ("sampled", "ALLOCATION", 0.6, True),
    ("load", "ALLOCATION", 0.2639502457067524, True),
    ("load", "THREAD", 0.0, True),
    ("tasks", "DESCRIPTOR", 0.6987929327164873, False),
    ("batch", "DESCRIPTOR", 0.5769230769230769, False),
    ("batch", "READ", 0.33228379269437713, True),
    ("inspect", "ALLOCATION", 0.5, False),
    ("inspect", "THREAD", 0.7535053911876402, False),
    ("isolated", "ALLOCATION", 0.008333333333333333, True),
    ("served", "ALLOCATION", 0.5, True),
]


LOST_IN_A_SERVER = """
import asyncio, json, sys
from pathlib import Path
import pyggml
from fuzz.asgi_client import ask
from fuzz.faults import Faults, Kind
from pyggml.server import create_app

async def main():
    faults, folder, opened = Faults(), Path(sys.argv[1]), sys.argv[2] == "opened"
    options = {"n_ctx": 256, "n_threads": 1}
    app = create_app(pyggml.load(**options)) if opened else create_app(load=options)

    async def chat():
        body = {"model": "default", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
        answer = await ask(app, {"path": "/v1/chat/completions", "body": json.dumps(body)})
        return answer.status, json.loads(answer.body)

    async def is_ready():
        return (await ask(app, {"method": "GET", "path": "/ready"})).status == 200

    async with app.router.lifespan_context(app):
        _, before = await chat()
        assert await is_ready()
        with faults.failing(Kind.ALLOCATION, 0, folder) as count:
            await chat()
        for nth in range(count.calls, 0, -1):  # the engine's own are among the last
            with faults.failing(Kind.ALLOCATION, nth, folder, lasts=True):
                await chat()
            status, lost = await chat()
            if status == 503 and lost["error"]["code"] == "engine_lost":
                break
        if opened:
            assert not await is_ready()
            assert (await chat())[0] == 503
        else:
            status, again = await chat()
            assert status == 200 and again["choices"] == before["choices"], again
            assert await is_ready()
    print("fine")

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("opened", ["opened", "loaded"])
def test_an_engine_that_is_lost_in_a_server(tmp_path: Path, opened: str) -> None:
    """One that the server loaded is loaded again; with another it is not ready any more."""
    pytest.importorskip("starlette")
    assert in_child(LOST_IN_A_SERVER, tmp_path, opened, **faults.environment()).split() == ["fine"]


@pytest.mark.slow_except(every=9)
@pytest.mark.parametrize(("scenario", "kind", "at", "lasts"), CASES)
def test_faults(faulty: Process, scenario: str, kind: str, at: float, lasts: bool) -> None:
    result = faulty.run([part(scenario, kind, at, lasts)])
    assert not result.is_finding, f"{result.outcome}: {result.words}"


@pytest.mark.slow
@pytest.mark.parametrize("lasts", [False, True])
@pytest.mark.parametrize("scenario", ["write_and_read", "tools", "embed", "stream"])
def test_memory_that_runs_out_anywhere(faulty: Process, scenario: str, lasts: bool) -> None:
    for at in (*(i / 40 for i in range(40)), 0.9955, 0.9975, 0.9992):  # many of the last ones are in the engine
        result = faulty.run([part(scenario, "ALLOCATION", at, lasts)])
        assert not result.is_finding, f"at {at}: {result.outcome}: {result.words}"


@pytest.fixture(scope="module")
def faulty() -> Any:
    with Process("faults", fuzzer.named("faults"), 0) as process:
        yield process


def part(scenario: str, kind: str, at: float, lasts: bool, error: int = 0) -> dict[str, Any]:
    return {"scenario": scenario, "kind": kind, "at": at, "lasts": lasts, "error": error}
