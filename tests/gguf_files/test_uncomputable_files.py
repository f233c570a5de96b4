"""Files whose computation would crash or hang the process: loading refuses them."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from fuzz import gguf_file
from fuzz.fuzzers import gguf as fuzzer
from fuzz.gguf_file import File
from soak.stress import allocated_bytes
from support.checkpoints import family_models, models
from support.checkpoints import handmade_gguf as handmade

import pyggml
from pyggml.gguf import GGMLType

# Asserts on compute threads cannot become exceptions: what is tried has the usual number of threads, and a process of
# its own.
TRY = """
import sys, pyggml
from pyggml.memory.estimate import estimate

def answer(path):
    llm = pyggml.load(path, n_ctx=64)
    try:
        llm.generate("a", max_tokens=2, ignore_eos=True, timeout_s=10)
    except pyggml.UnsupportedArchitectureError:
        llm.embed(["a"])

for use in (
    lambda path: estimate(path, n_ctx=64),
    answer,
    lambda path: pyggml.Context(pyggml.Model(path), n_ctx=256, embeddings=True).decode([1, 2]),
):
    try:
        use(sys.argv[1])
        print("fine")
    except pyggml.ModelLoadError as error:
        print(error)
"""
SECONDS = 60  # what hangs takes longer


def family(name: str) -> Callable[[Path], Path]:
    return lambda path: family_models.write(path, name, models.byte_vocabulary())


def retyped(type: GGMLType, *ends: str) -> Callable[[File], None]:
    """All tensors whose names end so are of a type, and zeros."""

    def change(file: File) -> None:
        found = [tensor for tensor in file.tensors if tensor.name.decode().endswith(ends)]
        assert found
        for tensor in found:
            tensor.type, tensor.data = type, bytes(gguf_file.n_bytes(type, tensor.ne))

    return change


def without(end: str) -> Callable[[File], None]:
    def change(file: File) -> None:
        before = len(file.tensors)
        file.tensors = [tensor for tensor in file.tensors if not tensor.name.decode().endswith(end)]
        assert len(file.tensors) < before

    return change


def sized(key: str, value: int) -> Callable[[File], None]:
    return lambda file: file.set(f"{file.architecture}.{key}", gguf_file.value_bytes(handmade.UINT32, value))


def named(architecture: str, **sizes: int) -> Callable[[File], None]:
    """The file of another architecture, with these sizes."""

    def change(file: File) -> None:
        old, new = f"{file.architecture}.".encode(), f"{architecture}.".encode()
        file.pairs = [(key.replace(old, new, 1), value) for key, value in file.pairs]
        file.set("general.architecture", gguf_file.value_bytes(handmade.STRING, architecture))
        for key, value in sizes.items():
            sized(key.replace("__", "."), value)(file)

    return change


CASES: dict[str, tuple[Callable[[Path], Path], Callable[[File], None]]] = {
    # Types that no kernel has: a call to address 0.
    "weights of Q8_K": (
        lambda path: family_models.write(path, "llama", models.byte_vocabulary(), size=fuzzer.WIDE),
        retyped(GGMLType.Q8_K, "ffn_up.weight"),
    ),
    "an embedding of Q8_1": (family("llama"), retyped(GGMLType.Q8_1, "token_embd.weight")),
    # Tensors that the family needs and upstream takes for optional: null pointers while a graph is built.
    "phi3 without queries": (family("phi3"), without("attn_qkv.weight")),
    # Divisions before checks, while sizes are read, tensors made and graphs built.
    "phimoe without heads": (family("llama"), named("phimoe", attention__head_count=0)),
    "olmo2 without heads": (family("olmo2"), sized("attention.head_count", 0)),
    # Loops that do not end.
    **{
        f"{name} without rotated dimensions": (family(name), sized("rope.dimension_count", 0))
        for name in ("gemma2", "gemma3", "phi2", "phi3")
    },
    # Asserts on compute threads.
    "more rotated dimensions than there are": (family("phi2"), sized("rope.dimension_count", 64)),
    "an odd number of rotated dimensions": (family("phi2"), sized("rope.dimension_count", 1)),
    "norms of F16": (family("phi2"), retyped(GGMLType.F16, "norm.weight")),
    "biases of BF16": (family("qwen2"), retyped(GGMLType.BF16, ".bias")),
    "a mamba with norms of BF16": (models.write_mamba, retyped(GGMLType.BF16, "norm.weight")),
    "a mamba with A of F16": (models.write_mamba, retyped(GGMLType.F16, "ssm_a")),
    "a classifier with biases of F16": (models.write_bert, retyped(GGMLType.F16, "norm.bias")),
    # What Python would stumble over.
    "an unknown pooling": (family("llama"), sized("pooling_type", 16)),
}


@pytest.mark.slow_except("a mamba with A of F16")
@pytest.mark.parametrize("case", CASES)
def test_is_refused_when_it_is_loaded(tmp_path: Path, case: str) -> None:
    write, change = CASES[case]
    file = gguf_file.read(write(tmp_path / "good.gguf"))
    change(file)
    path = tmp_path / "changed.gguf"
    path.write_bytes(file.content())
    done = subprocess.run(
        [sys.executable, "-c", TRY, path], capture_output=True, text=True, check=True, timeout=SECONDS
    )
    estimated, *computed = done.stdout.splitlines()
    assert len(computed) == 2
    assert all(
        ("changed.gguf" in message and "cannot be computed" in message) or "could not be loaded" in message
        for message in computed
    )
    assert estimated == "fine" or "changed.gguf" in estimated


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rope.freq_base", float("nan")),
        ("rope.scale_linear", float("nan")),
        ("block_count", float("inf")),
        ("attention.head_count", float("nan")),
    ],
)
def test_reports_on_sizes_that_are_no_numbers(tmp_path: Path, key: str, value: float) -> None:
    file = gguf_file.read(models.write_llama(tmp_path / "good.gguf"))
    file.set(f"llama.{key}", gguf_file.value_bytes(handmade.FLOAT32, value))
    path = tmp_path / "changed.gguf"
    path.write_bytes(file.content())
    assert str(pyggml.inspect(path))


HANDLERS = """
import ctypes, faulthandler, sys, threading, pyggml

def refused(path):
    try:
        pyggml.load(path, n_ctx=64)
    except pyggml.ModelLoadError:
        return True

def enable_while_others_load(path):
    loading = [threading.Thread(target=lambda: [refused(path) for _ in range(20)]) for _ in range(2)]
    for thread in loading: thread.start()
    for _ in range(200):
        faulthandler.enable()
        faulthandler.disable()
    for thread in loading: thread.join()

if sys.argv[2] == "meanwhile":
    enable_while_others_load(sys.argv[1])
faulthandler.enable()
assert all(refused(path) for path in sys.argv[3:]), "a file was not refused"
print("refused", flush=True)
ctypes.string_at(0)
"""


@pytest.mark.slow_except("before")
@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_handlers_of_others_are_left_as_they_were(tmp_path: Path, when: str) -> None:
    good = models.write_llama(tmp_path / "good.gguf")
    divides = tmp_path / "divides.gguf"
    file = gguf_file.read(good)
    named("phimoe", attention__head_count=0)(file)
    divides.write_bytes(file.content())
    done = subprocess.run(
        [sys.executable, "-c", HANDLERS, good, when, *[divides] * (when == "before")],
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.stdout == "refused\n"
    assert "Fatal Python error: Segmentation fault" in done.stderr
    assert done.returncode == -signal.SIGSEGV


@pytest.mark.skipif(sys.platform != "linux", reason="asks glibc's malloc")
@pytest.mark.parametrize("case", ["norms of F16", "more rotated dimensions than there are", "phi3 without queries"])
def test_a_refused_file_leaves_no_memory(tmp_path: Path, case: str) -> None:
    """Its context was kept, 23 MB and more of it, and a process that looked at many files had no end."""
    write, change = CASES[case]
    file = gguf_file.read(write(tmp_path / "good.gguf"))
    change(file)
    path = tmp_path / "changed.gguf"
    path.write_bytes(file.content())
    allocated = []
    for _ in range(4):  # what the first one makes is made once
        with pytest.raises(pyggml.ModelLoadError):
            pyggml.load(path, n_ctx=64)
        allocated.append(allocated_bytes())
    assert allocated[-1] < allocated[0] + 1_000_000


def test_a_trial_leaves_no_trace(tmp_path: Path) -> None:
    path = models.write_mamba(tmp_path / "mamba.gguf")
    with pyggml.load(path, n_ctx=64, n_threads=1) as llm:
        stats = llm.stats()
        assert (stats.n_decode_steps, stats.n_prompt_tokens, stats.n_cells_cached) == (0, 0, 0)
        first = llm.logits([1, 2, 3])
        llm.reset()
        np.testing.assert_array_equal(llm.logits([1, 2, 3]), first)
        assert np.abs(first).max() > 0  # products are left out of nothing but trials
