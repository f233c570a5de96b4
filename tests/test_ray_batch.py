"""Batch jobs on Ray: how a cluster is filled, and a node that dies in the middle of a job."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pyggml
import pyggml.ray
from pyggml.ray.plan import Node, plan

SCRIPT = Path(__file__).resolve().parent.parent / "benchmarks" / "ray_batch.py"
GB = 2**30
needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")


def test_models_fill_what_nodes_have() -> None:
    nodes = [Node(16, 0, 64 * GB), Node(8, 0, 64 * GB), Node(0, 0, 64 * GB)]
    assert (plan(nodes, None, {}).n_actors, plan(nodes, None, {}).n_cpus) == (3, 8)
    assert plan(nodes, None, {"n_threads": 2}).n_actors == 12
    assert plan([*nodes, Node(8, 2, 64 * GB)], None, {}).n_gpus == 1
    assert plan([*nodes, Node(8, 2, 64 * GB)], None, {"device": "cpu"}).n_gpus == 0
    small = plan([Node(8, 0, GB), Node(8, 0, GB // 64)], None, {"n_threads": 1})
    assert 1 <= small.n_actors < 8
    assert small.n_actors * small.memory_bytes < GB


def test_a_cluster_without_room_is_refused() -> None:
    with pytest.raises(pyggml.OutOfMemoryError, match="no node has room"):
        plan([Node(8, 0, 2**20)], None, {})
    with pytest.raises(pyggml.InvalidParameterError, match="no node"):
        plan([Node(0, 0, GB)], None, {})


def test_without_ray_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "ray" else found(name, *more))
    with pytest.raises(pyggml.MissingPackageError, match=r'pip install "pyggml\[ray\]"'):
        _ = pyggml.ray.map_batches
    with pytest.raises(AttributeError):
        getattr(pyggml.ray, "map_batch")  # noqa: B009


@needs_ray
@pytest.mark.slow
def test_a_node_that_dies_loses_no_row() -> None:
    command = [sys.executable, str(SCRIPT), "--rows", "600", "--batch-tokens", "512"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "3 nodes, one killed" in done.stdout


_ON_ONE_MACHINE = """
import json, sys
import ray, pyggml, pyggml.ray
from pathlib import Path
folder = Path(sys.argv[1])
ray.init("local", num_cpus=1, object_store_memory=100_000_000, include_dashboard=False, log_to_driver=False)
four = pyggml.SamplingParams(max_tokens=4, ignore_eos=True)
rows = ray.data.from_items([{"id": n, "prompt": f"{n} cats" if n != 3 else None} for n in range(8)])
answered = pyggml.ray.map_batches(rows, params=four, n_ctx=1024).take_all()
def stop(state):
    if state.n_done == 5:
        raise KeyError("stop")
for progress in (stop, None):
    try:
        report = pyggml.ray.run_batch(folder / "in.jsonl", folder / "out.jsonl", n_ctx=1024, progress=progress)
    except KeyError:
        pass
print(json.dumps([answered, report.n_kept, report.n_done]))
"""


@needs_ray
@pytest.mark.slow
def test_datasets_and_openais_format(tmp_path: Path) -> None:
    lines: list[Any] = [
        {"custom_id": str(n), "url": "/v1/completions", "body": {"prompt": "A", "max_tokens": 2}} for n in range(20)
    ]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + "{torn\n")
    command = [sys.executable, "-c", _ON_ONE_MACHINE, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    answered, n_kept, n_done = json.loads(done.stdout.splitlines()[-1])
    assert sorted(row["id"] for row in answered) == [*range(8)]
    assert all(row["answer_tokens"] == (None if row["id"] == 3 else 4) for row in answered)
    assert (n_kept, n_done) == (5, 21)
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["custom_id"] for row in found] == [*map(str, range(20)), None]
    assert all(row["response"]["status_code"] == 200 for row in found[:-1])
    assert found[-1]["error"]["code"] == "invalid_request"
