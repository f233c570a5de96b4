"""Batch jobs on Ray: use of the whole cluster, and recovery from failures of its parts."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.paths import ROOT, TESTS

import pyggml
import pyggml.ray
from pyggml.memory.estimate import estimate
from pyggml.ray.plan import Node, plan

GB = 2**30
needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")


def test_models_fill_what_nodes_have() -> None:
    nodes = [Node(16, 0, 64 * GB), Node(8, 0, 64 * GB), Node(0, 0, 64 * GB)]
    assert (plan(nodes, None, {}).n_actors, plan(nodes, None, {}).n_cpus) == (3, 8)
    assert plan(nodes, None, {"n_threads": 2}).n_actors == 12
    assert plan(nodes, None, {}, n_actors=5).n_actors == 5
    assert plan([*nodes, Node(8, 2, 64 * GB)], None, {}).n_gpus == 1
    assert plan([*nodes, Node(8, 2, 64 * GB)], None, {"device": "cpu"}).n_gpus == 0


def test_one_small_node_makes_no_small_models() -> None:
    planned = plan([Node(1, 0, 64 * GB), *[Node(16, 0, 64 * GB)] * 4], None, {})
    assert (planned.n_actors, planned.n_cpus) == (8, 8)
    assert plan([Node(1, 0, 64 * GB)] * 3, None, {}).n_actors == 3


def test_laid_out_weights_are_counted_for_every_process() -> None:
    weights = estimate(device="cpu").devices[0]
    planned = plan([Node(8, 0, GB), Node(8, 0, GB // 64)], None, {"n_threads": 1})
    assert planned.memory_bytes > weights.repacked_bytes + weights.cache_bytes
    assert 1 <= planned.n_actors == (GB - weights.weights_bytes + weights.repacked_bytes) // planned.memory_bytes < 8


def test_a_cluster_without_room_is_refused() -> None:
    with pytest.raises(pyggml.OutOfMemoryError, match="fits on no node"):
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


# --- on a cluster -----------------------------------------------------------------------------------------------


def run(script: Path, *arguments: object) -> str:
    # A busy machine takes longer to start Ray's own processes than Ray waits by itself.
    command = [sys.executable, str(script), *map(str, arguments)]
    patient = {**os.environ, "RAY_agent_register_timeout_ms": "200000"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=patient)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@needs_ray
@pytest.mark.slow
@pytest.mark.ray
def test_a_node_that_dies_loses_no_row() -> None:
    output = run(ROOT / "benchmarks" / "internal" / "ray_batch.py", "--rows", 600, "--rounds", 1)
    assert "median of 3 nodes, one killed" in output


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The results of the jobs of ``ray_jobs.py``."""
    folder = tmp_path_factory.mktemp("jobs")
    body = {"prompt": "A", "max_tokens": 2}
    requests: list[Any] = [{"custom_id": str(n), "url": "/v1/completions", "body": body} for n in range(20)]
    (folder / "requests.jsonl").write_text("".join(json.dumps(line) + "\n" for line in requests) + "{torn\n")
    prompts = [json.dumps({"id": n, "prompt": f"{n} cats"}) + "\n" for n in range(300)]
    (folder / "prompts.jsonl").write_text("".join(prompts))
    run(TESTS / "support" / "servers" / "ray_jobs.py", folder)
    found: dict[str, Any] = json.loads((folder / "found.json").read_text())
    return found


@needs_ray
@pytest.mark.slow
@pytest.mark.ray
def test_a_job_in_openais_format_goes_on(jobs: dict[str, Any]) -> None:
    found = jobs["requests"]
    assert found["n_kept"] >= 5
    assert [row["custom_id"] for row in found["rows"]] == [*map(str, range(20)), None]
    assert all(row["response"]["status_code"] == 200 for row in found["rows"][:-1])
    assert found["rows"][-1]["error"]["code"] == "invalid_request"


@needs_ray
@pytest.mark.slow
@pytest.mark.ray
def test_killed_actors_lose_no_row(jobs: dict[str, Any]) -> None:
    found = jobs["killed"]
    assert found["n_killed"] == 2
    assert [row["id"] for row in found["rows"]] == [*range(300)]
    assert all(row["answer_tokens"] == 4 and row["answer_error"] is None for row in found["rows"])


@needs_ray
@pytest.mark.slow
@pytest.mark.ray
def test_a_row_that_kills_processes_fails_alone(jobs: dict[str, Any]) -> None:
    found = jobs["poisoned"]
    assert [index for index, _ in found] == [*range(12)]
    for index, answer in found:
        assert answer["answer_tokens"] == (None if index == 5 else 4)
        assert answer["answer_error"] == ("the actor crashes each time it computes this row" if index == 5 else None)


@needs_ray
@pytest.mark.slow
@pytest.mark.ray
def test_a_model_that_cannot_be_loaded_ends_the_job(jobs: dict[str, Any]) -> None:
    assert jobs["unloadable"].startswith("DeviceError: on ")


@needs_ray
@pytest.mark.slow
@pytest.mark.ray
def test_a_dataset_gets_columns(jobs: dict[str, Any]) -> None:
    found = jobs["dataset"]["rows"]
    assert sorted(row["id"] for row in found) == [*range(400)]
    assert all(row["answer_tokens"] == (None if row["id"] == 3 else 4) for row in found)
    assert [bool(row["answer_error"]) for row in found if row["id"] == 3] == [True]
    assert jobs["dataset"]["n_counted"] == 400


@needs_ray
@pytest.mark.slow
@pytest.mark.ray
def test_a_dataset_gets_vectors(jobs: dict[str, Any]) -> None:
    found = sorted(jobs["vectors"], key=lambda row: int(row["id"]))
    with pyggml.load(n_threads=1) as llm:
        expected = llm.embed([f"{n} cats" for n in range(100)], dimensions=16, normalize=True)
    for n, row in enumerate(found):
        assert row["embedding"] == (None if n == 3 else expected[n].tolist())


@pytest.mark.slow
@needs_ray
def test_a_table_gets_vectors() -> None:
    import pyarrow as pa

    from pyggml.batch import FieldNames
    from pyggml.ray.actor import WorkerSpec
    from pyggml.ray.embedding import _TableEmbedder

    spec = WorkerSpec(None, None, FieldNames(), False, {"n_threads": 1})
    embedder = _TableEmbedder(spec, "text", "vector", {"dtype": "int8", "dimensions": 16})
    table = embedder(pa.table({"id": [0, 1, 2], "text": ["a dog", None, "a cat"]}))
    with pyggml.load(n_threads=1) as llm:
        first, last = llm.embed(["a dog", "a cat"], dtype="int8", dimensions=16).tolist()
    assert table["vector"].to_pylist() == [first, None, last]
    with pytest.raises(pyggml.InvalidParameterError, match="no column 'text', but words"):
        embedder(pa.table({"words": ["a"]}))


@pytest.mark.slow
@needs_ray
def test_a_process_of_a_pipeline_says_how_fast_it_is(capfd: pytest.CaptureFixture[str]) -> None:
    from pyggml.ray.throughput import ThroughputMeter

    meter = ThroughputMeter("answer", prints=True, every_s=0.0)
    meter.count({"answer": None, "answer_error": "no prompt", "answer_tokens": None})
    meter.count({"answer": "a", "answer_prompt_tokens": 2, "answer_tokens": 4})
    failed, answered = capfd.readouterr().err.splitlines()
    assert failed == "1 row answered here, 0 tokens/s"
    assert answered.startswith("2 rows answered here, ")
    assert not answered.endswith(" 0 tokens/s")
    ThroughputMeter("answer", prints=False, every_s=0.0).count({"answer": "a"})
    assert capfd.readouterr().err == ""


@needs_ray
@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timeout(900)
def test_a_pipeline_that_was_killed_goes_on(tmp_path: Path) -> None:
    """With Ray Data's checkpoints: no row is missing, and none is answered twice."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "prompts").mkdir()
    for part in range(4):
        rows = [{"id": 2000 * part + n, "prompt": f"There were {n} cats"} for n in range(2000)]
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "prompts" / f"{part}.parquet")
    command = [sys.executable, str(TESTS / "support" / "servers" / "ray_pipeline.py"), str(tmp_path)]
    with subprocess.Popen(command, start_new_session=True) as first:
        end = time.monotonic() + 200
        while len(list((tmp_path / "answers").glob("*.parquet"))) < 3:
            assert first.poll() is None
            assert time.monotonic() < end
            time.sleep(0.05)
        os.killpg(first.pid, signal.SIGKILL)
    kept = set(pq.read_table(tmp_path / "answers")["id"].to_pylist())
    assert 0 < len(kept) < 8000
    run(TESTS / "support" / "servers" / "ray_pipeline.py", tmp_path)
    answers = pq.read_table(tmp_path / "answers").to_pylist()
    assert sorted(row["id"] for row in answers) == [*range(8000)]
    assert all(row["answer_tokens"] == 8 for row in answers)
