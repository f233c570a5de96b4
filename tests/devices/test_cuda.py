"""Behaviour that needs a GPU: memory, failures, processes. Results of devices are in test_results_on_devices.py.

It runs on the first CUDA device. PYGGML_TEST_DEVICE names another, so that the tests themselves can be tried where
there is none: what needs NVIDIA's driver then skips.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.checkpoints import models
from support.raw_graphs import Graph, add, graph_on, put, take

import pyggml
from pyggml import ffi, lib, quant
from pyggml._native.backend import Backend, Device, find_device
from pyggml.errors import DeviceError, EngineError, OutOfMemoryError
from pyggml.quant import GGMLType, dequantize, quantize

pytestmark = pytest.mark.gpu

NAME = os.environ.get("PYGGML_TEST_DEVICE", "cuda")

#: What drivers hand out and take back at once is up to this much; all of a leak of 200 cycles is more.
SLACK = 16 << 20


@pytest.fixture(scope="module")
def gpu() -> Device:
    try:
        return find_device(NAME)
    except DeviceError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def cuda(gpu: Device) -> Device:
    if not gpu.name.startswith("CUDA"):
        pytest.skip(f"only for CUDA, and this is {gpu.name}")
    return gpu


def free(device: Device) -> int:
    return find_device(device.name).memory_free


def answer(device: str, path: Path | None = None, n_tokens: int = 8, **options: Any) -> list[int]:
    """Loads a model, generates, and closes it."""
    with pyggml.load(path, device=device, n_parallel=1, **{"n_ctx": 512, **options}) as llm:
        return list(llm.generate([1, 2, 3], max_tokens=n_tokens, ignore_eos=True).token_ids)


def output_of(code: str, *arguments: object, **environment: str) -> str:
    """The output of a new process; its exit status must be 0."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | environment,
        check=False,
    )
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


# --- what there is ---------------------------------------------------------------------------------------------------


def test_what_the_driver_says_of_it(cuda: Device) -> None:
    command = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    try:
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    except OSError:
        pytest.skip("there is no nvidia-smi")
    said = {name.strip(): int(mib) << 20 for name, mib in (line.split(",") for line in lines)}
    # A MIG slice is described by its GPU, and has less.
    assert cuda.description in said
    assert 0 < cuda.memory_free <= cuda.memory_total <= said[cuda.description]


IMPORT = """
import json, sys
def has(name):
    with open("/proc/self/maps") as maps:
        return any(name in line for line in maps)
import pyggml
before = has("libggml-cuda") or has("libcuda.so")
pyggml.find_device(sys.argv[1])
print(json.dumps([before, has("libggml-cuda")]))
"""


def test_the_driver_is_loaded_on_first_need(cuda: Device) -> None:
    assert json.loads(output_of(IMPORT, cuda.name)) == [False, True]


HIDDEN = """
import json, pyggml
try:
    pyggml.load(device="cuda")
except pyggml.DeviceError as error:
    print(json.dumps([str(error), pyggml.load().generate("Once", max_tokens=3).text]))
"""


@pytest.mark.usefixtures("cuda")
def test_hidden_devices() -> None:
    """The error names what hides them, and the rest of the process works without."""
    message, text = json.loads(output_of(HIDDEN, CUDA_VISIBLE_DEVICES=""))
    assert re.search(r"no device .*CUDA_VISIBLE_DEVICES", message)
    assert text


# --- what it computes ------------------------------------------------------------------------------------------------

QUESTIONS = [f"What is {a} plus {b}?" for a in range(1, 9) for b in (3, 5, 8, 11)]


def test_the_shipped_model_says_what_it_says_on_the_cpu(gpu: Device) -> None:
    """One question after the other, and 32 at once; its weights are trained, so that few choices are near ties."""
    asked: list[list[dict[str, Any]]] = [[{"role": "user", "content": question}] for question in QUESTIONS]
    with (
        pyggml.load(device="cpu", n_ctx=8192, n_parallel=1) as there,
        pyggml.load(device=gpu.name, n_ctx=8192, n_parallel=32) as here,
    ):
        expected = [there.chat(messages, max_tokens=24).text for messages in asked]
        alone = [here.chat(messages, max_tokens=24).text for messages in asked]
        prompts = [here.tokenize_chat(messages) for messages in asked]
        here.reset()
        together = [done.text for done in here.generate_batch(prompts, max_tokens=24)]
    for texts in (alone, together):
        assert sum(a == b for a, b in zip(texts, expected, strict=True)) >= len(QUESTIONS) - 2


@pytest.mark.parametrize("type", [type for type in quant.types() if type.is_quantized and type.is_convertible])
def test_products_with_quantised_weights(gpu: Device, type: GGMLType) -> None:
    """Each type has kernels of its own, for one token, a few, and many; what they multiply by, they round to 8 bits."""
    draw = models.Draw(1)
    weights = draw(96, 512)
    packed = quantize(weights, type, np.ones(512, np.float32))
    exact = dequantize(packed, type, weights.shape)
    with Backend(gpu.name) as backend:
        for n_tokens in (1, 5, 70):
            inputs = draw(n_tokens, 512, scale=1.0)
            with graph_on(backend) as graph:
                a, b = graph.input(512, 96, type=type), graph.input(512, n_tokens)
                product = lib.ggml_mul_mat(graph.ctx, a, b)
                cgraph = graph.of(product)
                if not lib.ggml_backend_supports_op(backend.handle, product):
                    pytest.skip(f"{gpu.name} leaves {type.name} to the CPU")
                put(a, packed)
                put(b, inputs)
                backend.compute(cgraph)
                found, expected = take(product, (n_tokens, 96)), inputs @ exact.T
            assert np.sqrt(np.mean((found - expected) ** 2)) < 0.02 * expected.std()


PLACED = """
import json, sys, pyggml
story = "Once upon a time there was a little dog. " * 30
for where in json.loads(sys.argv[1]):
    with pyggml.load(**where, n_ctx=2048, n_parallel=1, n_batch=512, n_ubatch=64) as llm:
        texts = [llm.chat([{"role": "user", "content": question}], max_tokens=24).text for question in sys.argv[2:]]
        texts.append(llm.generate(story, max_tokens=12).text)
        taken = {memory.name: memory.weights_bytes for memory in llm.memory}
    print(json.dumps([texts, taken]))
"""


def placed(*places: dict[str, Any], **environment: str) -> list[tuple[list[str], dict[str, int]]]:
    """Answers of the shipped model in each placement, and the bytes of its weights on each device."""
    output = output_of(PLACED, json.dumps(places), *QUESTIONS[:8], **environment)
    return [json.loads(line) for line in output.splitlines()]


@pytest.mark.usefixtures("cuda")
def test_a_model_over_three_devices() -> None:
    """One GPU stands for three, as upstream has it: the streams, the copies and the waiting between them are real."""
    split = {"device": ["cuda:0", "cuda:1", "cuda:2"], "tensor_split": [2, 1, 1]}
    (expected, _), (texts, taken) = placed({"device": "cpu"}, split, GGML_CUDA_DEVICES="3")
    assert sum(a == b for a, b in zip(texts, expected, strict=True)) >= len(expected) - 1
    assert taken["CUDA0"] > taken["CUDA1"] > 0
    assert taken["CUDA2"] > 0


def test_cancel_inside_a_long_prompt(gpu: Device) -> None:
    """The prompt is one forward pass of many micro-batches; the wait for its end would be most of it."""
    most = 30_000
    with pyggml.load(device=gpu.name, n_ctx=most + 64, n_parallel=1, n_batch=most, n_ubatch=16) as llm:
        first = llm.generate([7] * 256, max_tokens=1).timings.prefill_s
        n_prompt = max(1024, min(most, int(256 * 2.0 / first)))  # two seconds of work, or less on a fast device
        whole = llm.generate([5] * n_prompt, max_tokens=1).timings.prefill_s
        llm.reset()
        stream = llm.stream([5] * n_prompt, max_tokens=4)
        time.sleep(whole / 5)
        begin = time.perf_counter()
        stream.cancel()
        assert stream.finish().finish_reason == "cancelled"
        while llm.stats().n_running:
            time.sleep(0.001)
        assert time.perf_counter() - begin < whole / 3 + 0.05
        assert llm.generate("Once", max_tokens=3).token_ids


# --- failures --------------------------------------------------------------------------------------------------------


def test_a_failed_check_in_a_kernel_is_an_exception(gpu: Device) -> None:
    """The host's half of the kernel compares sizes before it starts anything on the device."""
    if not gpu.name.startswith(("CUDA", "CPU")):
        pytest.skip(f"{gpu.name} does not compare them")
    backend = Backend(gpu.name, n_threads=1)
    with graph_on(backend) as graph:
        cgraph = graph.of(too_short(graph))
        with pytest.raises(EngineError, match=r"a check inside the engine failed: .*GGML_ASSERT"):
            backend.compute(cgraph)
        with pytest.raises(EngineError, match="can no longer be used"):
            backend.compute(cgraph)
    backend.close()
    ones = models.Draw(0)(8)
    with Backend(gpu.name, n_threads=1) as other:
        assert add(other, ones, ones).tolist() == (ones + ones).tolist()
    assert answer(gpu.name)


def test_cuda_says_where_the_check_is(cuda: Device) -> None:
    backend = Backend(cuda.name)
    with graph_on(backend) as graph, pytest.raises(EngineError, match=r"ggml-cuda/arange\.cu:\d+"):
        backend.compute(graph.of(too_short(graph)))
    backend.close()


def too_short(graph: Graph) -> Any:
    """A range of 8 numbers that says it has 100: the engine's own functions would not make it."""
    numbers = lib.ggml_arange(graph.ctx, 0, 8, 1)
    ffi.cast("float *", numbers.op_params)[1] = 100
    return numbers


def test_a_full_device(cuda: Device, tiny_path: Path) -> None:
    """Other memory on it counts, and what failed for lack of it works once it is free."""
    expected = answer(cuda.name, tiny_path)
    with Backend(cuda.name) as backend:
        with filled(backend, cuda):
            with pytest.raises(OutOfMemoryError):
                answer(cuda.name, tiny_path)
            with graph_on(None) as graph:
                graph.input(1 << 20)
                assert lib.ggml_backend_alloc_ctx_tensors(graph.ctx, backend.handle) == ffi.NULL
        assert answer(cuda.name, tiny_path) == expected


@contextlib.contextmanager
def filled(backend: Backend, device: Device) -> Iterator[None]:
    """Has less than a megabyte free on the device."""
    buffers = []
    try:
        n_bytes = free(device)
        while n_bytes >= 1 << 20:
            buffer = lib.ggml_backend_alloc_buffer(backend.handle, n_bytes)
            if buffer == ffi.NULL:
                n_bytes //= 2
            else:
                buffers.append(buffer)
        yield
    finally:
        for buffer in buffers:
            lib.ggml_backend_buffer_free(buffer)


# --- what stays behind -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_ctx", [512, 65536])
def test_memory_is_given_back(cuda: Device, n_ctx: int) -> None:
    answer(cuda.name)  # what the first use allocates for good
    before = free(cuda)
    with pyggml.load(device=cuda.name, n_ctx=n_ctx) as llm:
        llm.generate_batch([[index] * 300 for index in range(1, 5)], max_tokens=4)
        llm.embed(["One", "Two"])
        assert before - free(cuda) > llm.model.size_bytes
    assert abs(before - free(cuda)) < SLACK


def test_two_hundred_models(gpu: Device, tiny_path: Path) -> None:
    def cycles(n: int) -> tuple[int, int, int]:
        for _ in range(n):
            answer(gpu.name, tiny_path, n_tokens=2)
        return free(gpu), resident(), threading.active_count()

    cycles(20)
    free_before, resident_before, threads_before = cycles(10)
    free_after, resident_after, threads_after = cycles(190)
    assert threads_after == threads_before
    assert resident_after - resident_before < 64 << 20
    if gpu.type != "cpu":  # whose memory all processes share
        assert free_before - free_after < SLACK


def resident() -> int:
    """Bytes of main memory that this process has."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


FORKED = """
import json, os, sys
import pyggml

def answer():
    with pyggml.load(sys.argv[1], device=sys.argv[2], n_ctx=256, n_parallel=1) as llm:
        return list(llm.generate([1, 2, 3], max_tokens=4, ignore_eos=True).token_ids)

used = sys.argv[3] == "used"
own = answer() if used else None
reading, writing = os.pipe()
child = os.fork()
if child == 0:
    try:
        said = answer()
    except pyggml.InferError as error:
        said = str(error)
    except BaseException as error:
        said = repr(error)
    os.write(writing, json.dumps(said).encode())
    os._exit(0)
os.close(writing)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
said = os.read(reading, 65536).decode()
print(json.dumps([status, json.loads(said or "null"), own, answer()]))
"""


def test_a_fork_after_the_import(gpu: Device, tiny_path: Path) -> None:
    """Nothing has spoken to the driver yet, so that both processes can."""
    status, in_child, _, in_parent = json.loads(output_of(FORKED, tiny_path, gpu.name, "unused"))
    assert (status, in_child) == (0, in_parent)


@pytest.mark.slow
def test_a_fork_after_the_first_use(cuda: Device, tiny_path: Path) -> None:
    """CUDA does not work in such a child: an error there, and the parent goes on."""
    status, in_child, before, after = json.loads(output_of(FORKED, tiny_path, cuda.name, "used"))
    assert before == after
    assert status == 0
    assert isinstance(in_child, str)
    assert in_child
