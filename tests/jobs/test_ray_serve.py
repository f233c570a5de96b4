"""The server on Ray Serve: streams, a replica that dies, an update, several models, and a model split over hosts."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.paths import ROOT, TESTS

import pyggml
import pyggml.ray

SCRIPT = ROOT / "benchmarks" / "internal" / "ray_serve.py"

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")


def on_a_cluster(what: str, folder: Path) -> dict[str, Any]:
    """Run a part of ray_serving.py in a separate process with its own cluster; return its observations."""
    script, found = TESTS / "support" / "servers" / "ray_serving.py", folder / "found.json"
    done = subprocess.run([sys.executable, str(script), what, str(found)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-5000:]
    seen: dict[str, Any] = json.loads(found.read_text())
    return seen


@needs_ray
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Ray's own, when it is imported
def test_what_cannot_be_served_is_refused_before_anything_starts() -> None:
    with pytest.raises(pyggml.InvalidParameterError, match="have the same name"):
        pyggml.ray.deployment(["a/model.gguf", "b/model.gguf"])
    with pyggml.load(n_ctx=128) as llm, pytest.raises(pyggml.InvalidParameterError, match="name its file"):
        pyggml.ray.deployment([llm])  # type: ignore[list-item]
    with pytest.raises(pyggml.InvalidParameterError, match="at least 1"):
        pyggml.ray.Hosts(0)
    with pytest.raises(pyggml.InvalidParameterError, match="reserves nothing"):
        pyggml.ray.Hosts(1, {})


@needs_ray
@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timeout(900)
def test_streams_outlive_everything_but_their_own_replica(tmp_path: Path) -> None:
    seen = on_a_cluster("replicas", tmp_path)
    assert seen["answer"] == "The sky is blue."
    assert sorted(seen["models"]) == ["one", "two"]
    assert seen["two"] == "two"
    # One replica of two was killed while each had a stream.
    assert sorted(seen["killed"]) == ["lost", "whole"]
    assert seen["after the kill"] == "The sky is blue."
    # A stream was running during the update, and new requests came.
    assert seen["updated"] == "whole"
    assert seen["failed during the update"] == 0
    assert seen["answers of the new version"] > 0
    # Who leaves frees the replica.
    assert seen["running after a client has left"] == 0


@needs_ray
@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timeout(900)
def test_replicas_come_with_a_queue_and_go_without(tmp_path: Path) -> None:
    seen = on_a_cluster("scaling", tmp_path)
    assert seen["at first"] == 1
    assert seen["streams"] == ["whole"] * 8
    assert seen["answer"] == "The sky is blue."


@needs_ray
@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timeout(900)
def test_a_model_lies_on_the_hosts_of_its_placement_group(tmp_path: Path) -> None:
    seen = on_a_cluster("hosts", tmp_path)
    assert seen["answer"] == "The sky is blue."
    assert seen["strategy"] == "STRICT_SPREAD"
    assert seen["nodes"] == 2
    assert seen["again"] == "The sky is blue."  # after the host's actor was killed, and Serve has replaced the replica


@needs_ray
@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timeout(900)
def test_conversations_find_what_is_computed() -> None:
    command = [sys.executable, str(SCRIPT), "--replicas", "4", "--conversations", "16", "--n-parallel", "4"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "by prefix" in done.stdout
