"""Batch invariance with our kernels: each request gets the bits that it gets alone; exceptions are reported."""

from __future__ import annotations

import functools
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from soak import schedules
from support import device_kinds
from support.checkpoints import models
from support.paths import TESTS
from support.servers.cpu_host import lent_cpu

import pyggml
from pyggml import Context, lib

CPU_INFO = Path("/proc/cpuinfo")

pytestmark = pytest.mark.skipif(
    not CPU_INFO.exists() or not {"avx2", "fma", "f16c"} <= set(CPU_INFO.read_text().split()),
    reason="our kernels need instructions that this processor lacks",
)


# --- what processes with and without kernels say ---------------------------------------------------------------------


def names() -> dict[str, list[str]]:
    """The parts that are not batch-invariant: of models, and of contexts of the shipped one."""
    found = {}
    with TemporaryDirectory() as folder:
        shelf = device_kinds.Shelf(Path(folder))
        for model, ftype in (("llama", "q4_k_m"), ("window", "q8_0"), ("mixtral", "q4_k_m"), ("jamba", "f32")):
            with pyggml.load(shelf(model, ftype), n_ctx=256, device="cpu") as llm:
                found[model] = list(llm.stats().not_batch_invariant)
    with pyggml.load(device="cpu") as llm:
        found["shipped"] = list(llm.stats().not_batch_invariant)
        contexts: dict[str, dict[str, Any]] = {
            "q8_0 cache": {"type_k": "q8_0", "type_v": "q8_0"},
            "f32 cache": {"type_k": "f32", "type_v": "f32"},
            "embeddings": {"embeddings": True},
            "no flash attention": {"flash_attn": "off"},
            "sums of rows": {"embeddings": True, "pooling": "mean"},
        }
        for name, options in contexts.items():
            with Context(llm.model, n_ctx=256, **options) as context:
                found[name] = list(context.not_batch_invariant())
    return found


def refusals() -> dict[str, str]:
    """Try to load models with ``deterministic=True``; return the errors, "" for a model that loads."""
    found = {}

    def load(name: str, **options: Any) -> None:
        found[name] = ""
        try:
            with pyggml.load(deterministic=True, **options) as llm:
                llm.embed("a dog")
        except pyggml.InvalidParameterError as error:
            found[name] = str(error)

    load("here", device="cpu")
    with TemporaryDirectory() as folder:
        load("encoder", source=models.write_bert(Path(folder) / "bert.gguf"))
    with lent_cpu() as device:
        load("there", rpc=device.server.address, rpc_key=device.key_file)
    return found


def embeddings_differ() -> dict[str, int]:
    """Count the texts whose embedding differs between a batch and alone."""
    rng = random.Random(0)
    texts = [[rng.randrange(5, 200) for _ in range(rng.randrange(1, 60))] for _ in range(30)]
    with TemporaryDirectory() as folder:
        paths = {"bert": models.write_bert(Path(folder) / "bert.gguf"), "shipped": None}
        return {name: _n_different(path, texts) for name, path in paths.items()}


def _n_different(path: Path | None, texts: list[list[int]]) -> int:
    with pyggml.load(path, n_threads=1, device="cpu") as llm:
        together = llm.embed(texts)
        return sum(row.tobytes() != llm.embed([text]).tobytes() for row, text in zip(together, texts, strict=True))


def threads_alone() -> dict[str, bool]:
    """Check that the number of threads stays if each request is computed alone and from its beginning."""
    with pyggml.load(n_parallel=1, prefix_cache=False) as llm:
        for _ in range(3):
            llm.generate("Once upon a time", max_tokens=3)
        stats = llm.stats()
    return {"stays": stats.n_threads == stats.n_threads_batch == lib.pyg_cpu_count()}


@functools.cache
def results(function: str, kernels: str) -> dict[str, Any]:
    code = f"import json; from engine import test_batch_invariance as t; print(json.dumps(t.{function}()))"
    done = _run(["-c", code], kernels)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _run(arguments: list[str], kernels: str) -> subprocess.CompletedProcess[str]:
    paths = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")]), *filter(None, sys.path)]
    env = os.environ | {"PYGGML_KERNELS": kernels, "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.run([sys.executable, *arguments], env=env, capture_output=True, text=True, check=False)


# --- tests -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("adapters", [[], ["--adapters"]], ids=["without adapters", "with adapters"])
def test_random_schedules(adapters: list[str]) -> None:
    done = _run([str(TESTS / "soak" / "schedules.py"), "--rounds", "8", "--seed", "5", *adapters], "on")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_schedules_see_a_difference() -> None:
    """The comparison finds differences with upstream's kernels, whose rounding depends on the batch."""
    done = _run([str(TESTS / "soak" / "schedules.py"), "--rounds", "3", "--seed", "5", "--model", "llama"], "off")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "NOT EQUAL: --seed 5 --first" in done.stdout


@pytest.mark.slow_except("shipped")
@pytest.mark.parametrize(
    "name", ["llama", "window", "mixtral", "jamba", "shipped", "q8_0 cache", "f32 cache", "embeddings"]
)
def test_what_is_covered(name: str) -> None:
    assert results("names", "on")[name] == []


def test_what_is_not_covered_is_named() -> None:
    found = results("names", "on")
    assert found["no flash attention"] == ["MUL_MAT f16", "SOFT_MAX f32"]
    assert found["sums of rows"] == ["MUL_MAT f32"]


@pytest.mark.slow
def test_without_kernels_that_comes_first() -> None:
    found = results("names", "off")
    assert all("PYGGML_KERNELS" in each[0] for each in found.values())
    assert found["llama"][1:] == ["FLASH_ATTN_EXT f16", "MUL_MAT q4_K", "MUL_MAT q6_K"]
    assert "MUL_MAT_ID q4_K" in found["mixtral"]


@pytest.mark.slow
def test_deterministic_refuses_what_is_not_covered() -> None:
    on, off = results("refusals", "on"), results("refusals", "off")
    assert on["here"] == on["encoder"] == ""
    assert "MUL_MAT q8_0" in off["here"]
    assert "Start without PYGGML_KERNELS=off" in off["here"]
    assert "FLASH_ATTN_EXT" in off["encoder"]
    assert "MUL_MAT q8_0 on RPC" in on["there"]
    assert 'device="cpu"' in on["there"]


@pytest.mark.slow
def test_embeddings_do_not_depend_on_other_texts() -> None:
    assert results("embeddings_differ", "on") == {"bert": 0, "shipped": 0}


@pytest.mark.slow
def test_threads_adapt_only_where_that_changes_nothing() -> None:
    assert results("threads_alone", "off")["stays"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "model", "what"), [(113, ("gpt-oss", "q8_0"), "preempted"), (391, ("window", "q4_0"), "reused")]
)
def test_windows_keep_what_a_step_still_needs(number: int, model: tuple[str, str], what: str, tmp_path: Path) -> None:
    """Steps of several micro-batches once let go of cells in the window of the first: in some of these twenty runs.

    The second one's were such because n_ubatch was less than n_parallel.
    """
    schedule, tally = schedules.schedule_of(7, number, [model]), schedules.Tally()
    shelf = device_kinds.Shelf(tmp_path)
    for _ in range(20):
        schedules.run(schedule, shelf, tally)
    assert tally.faults == []
    assert tally.counts[what] > 0
