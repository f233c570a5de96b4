"""The parts of benchmarks/gpu.py that read what others print: a profiler's table of kernels, and compared tokens."""

from __future__ import annotations

from pathlib import Path

import large_models
import numpy as np
import pytest
from gpu_stages import invariance, profiling
from gpu_stages.setting import Results

import pyggml

METRIC = "gpu__time_duration.sum"


def printed(names: list[str]) -> list[str]:
    """A table of Nsight Compute, with its messages above and the row of units."""
    rows = [f'"{i}","1","{name}","{100 + i}"' for i, name in enumerate(names)]
    return ["==PROF== Connected to process 1", f'"ID","Process ID","Kernel Name","{METRIC}"', '"","","","ns"', *rows]


def test_kernels_of_one_step() -> None:
    layer = ["rms_norm(float*)", "void mul_mat_q<(ggml_type)12, (int)32, (bool)0>(char const*)", "add(float*)"]
    step = ["get_rows(int)", *layer * 4, "void mul_mat_q<(ggml_type)14, (int)32, (bool)0>(char const*)"]
    prefill = ["get_rows(int)", *["big(float*)", *layer] * 4, "copy()"]
    kernels = profiling.read_kernels(printed([*prefill, *step * 4]))
    assert len(kernels) == len(prefill) + 4 * len(step)
    found = profiling.last_step(kernels)
    assert [each.name for each in found] == step
    sums = {each["name"]: each["n"] for each in profiling.summed(found)}
    assert sums["mul_mat_q<12, (int)32, 0>"] == 4
    assert sums["mul_mat_q<14, (int)32, 0>"] == 1
    assert profiling.summed(found)[0]["ns"] >= profiling.summed(found)[-1]["ns"]


def test_no_kernels() -> None:
    assert profiling.read_kernels(["==ERROR== no permission"]) == []


def test_tokens_after_the_first_difference_do_not_count() -> None:
    assert invariance.compared([[1, 2, 3], [4, 5, 6]], [[1, 2, 3], [4, 7, 8]]) == (1, 5)


def test_results_are_kept_and_errors_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "stage.json"
    results = Results(path)
    results.once("good", lambda: {"seconds": 1.0})
    results.once("bad", lambda: 1 / 0)
    again = Results(path)
    assert again.get("good") == {"seconds": 1.0}
    assert "ZeroDivisionError" in again.errors["bad"]
    again.once("good", lambda: {"seconds": 2.0})
    again.once("bad", lambda: {"seconds": 3.0})
    assert [again.get(name)["seconds"] for name in ("good", "bad")] == [1.0, 3.0]


def test_a_large_model_has_distinct_rows_and_spread_logits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_models, "SCRATCH", tmp_path)
    path = large_models.model_file(large_models.shape_of("tiny-moe"))
    with pyggml.load(path, device="cpu", n_ctx=64, n_parallel=1, progress=False) as llm:
        logits = llm.logits(list(range(100, 130)))
    assert float(logits.std(axis=1).mean()) == pytest.approx(large_models.LOGIT_SPREAD, rel=0.1)
    assert all(len(np.unique(row)) > 0.9 * len(row) for row in logits)
