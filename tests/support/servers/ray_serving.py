"""Observations of a cluster for test_ray_serve.py. A separate program: Ray keeps threads and settings in its process.

python tests/support/servers/ray_serving.py PART FOUND

Writes what it has seen to the file FOUND, as JSON: Ray itself prints, and when it likes.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # tests/

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import openai
import ray
import ray.serve
from ray.util.placement_group import placement_group_table

import pyggml
import pyggml.ray
from pyggml.ray import Hosts, ServedModel
from support.paths import ROOT

sys.path.append(str(ROOT / "benchmarks" / "internal"))
from ray_serve import serving_cluster

QUESTION: Any = [{"role": "user", "content": "What colour is the sky?"}]
STORY: Any = [{"role": "user", "content": "Tell me a story."}]
LOAD = {"n_ctx": 16384, "n_parallel": 4}


class Streamed(threading.Thread):
    """A long stream, read in a thread: "whole" if it came to its end, "lost" if an error ended it."""

    def __init__(self, client: openai.OpenAI, user: str, n_tokens: int) -> None:
        super().__init__(daemon=True)
        self.outcome = "running"
        self.has_begun = threading.Event()
        self._client, self._user, self._n_tokens = client, user, n_tokens
        self.start()

    def begun(self) -> Streamed:
        """The same, once its first token is there."""
        assert self.has_begun.wait(120)
        return self

    def run(self) -> None:
        messages: Any = [{"role": "system", "content": self._user}, *STORY]
        try:
            for _ in self._client.chat.completions.create(
                model="one", messages=messages, max_tokens=self._n_tokens, extra_body={"ignore_eos": True}, stream=True
            ):
                self.has_begun.set()
            self.outcome = "whole"
        except openai.APIError:
            self.outcome = "lost"


def answer(client: openai.OpenAI, model: str = "one") -> str | None:
    return client.chat.completions.create(model=model, messages=QUESTION, max_tokens=8).choices[0].message.content


def replicas(url: str) -> dict[str, Any]:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=600)
    models = [ServedModel(name="one", serve={"num_replicas": 2}), ServedModel(name="two")]
    ray.serve.run(pyggml.ray.deployment(models, load=LOAD, page=False))
    seen: dict[str, Any] = {"answer": answer(client)}
    seen["models"] = [model.id for model in client.models.list()]
    seen["two"] = client.chat.completions.create(model="two", messages=QUESTION, max_tokens=1).model

    # Each stream is on a replica of its own, as a new conversation goes where there is less to do.
    streams = [Streamed(client, user, 8000).begun() for user in ("one", "two")]
    until(lambda: [n_running(actor) for actor in replica_actors("one")] == [1, 1], 60)
    ray.kill(ray.get_actor(replica_actors("one")[0], namespace="serve"))
    for stream in streams:
        stream.join(300)
    seen["killed"] = [stream.outcome for stream in streams]
    seen["after the kill"] = answer(client)

    until(lambda: len(replica_actors("one")) == 2, 300)
    lasting = Streamed(client, "lasting", 10_000).begun()
    asking = Asking(client)
    ray.serve.run(pyggml.ray.deployment(models, load=LOAD, page=False, sampling={"temperature": 0.0}))
    lasting.join(300)
    seen["updated"] = lasting.outcome
    asking.ended()
    seen["failed during the update"], seen["answers of the new version"] = asking.n_failed, asking.n_answered

    left = client.chat.completions.create(
        model="two", messages=STORY, max_tokens=12_000, extra_body={"ignore_eos": True}, stream=True
    )
    next(iter(left))
    left.close()
    until(lambda: not any(map(n_running, replica_actors("two"))), 60)
    seen["running after a client has left"] = sum(map(n_running, replica_actors("two")))
    return seen


def hosts(url: str) -> dict[str, Any]:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", timeout=600)
    soon = {"health_check_period_s": 1, "health_check_timeout_s": 60}
    ray.serve.run(pyggml.ray.deployment(ServedModel(name="one", serve=soon), hosts=Hosts(1), load={"n_ctx": 1024}))
    seen: dict[str, Any] = {"answer": answer(client)}
    (group,) = (each for each in placement_group_table().values() if each["state"] == "CREATED")
    seen["strategy"], seen["nodes"] = group["strategy"], len({*group["bundles_to_node_id"].values()})

    before = replica_actors("one")
    (lender,) = lenders()
    os.kill(lender, signal.SIGKILL)
    until(lambda: (now := replica_actors("one")) != [] and now != before, 300)
    seen["again"] = answer(client)
    return seen


def scaling(url: str) -> dict[str, Any]:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=600)
    soon = {"upscale_delay_s": 1, "downscale_delay_s": 2, "look_back_period_s": 2, "metrics_interval_s": 0.5}
    one_or_two = ServedModel(name="one", serve={"autoscaling_config": {"min_replicas": 1, "max_replicas": 2, **soon}})
    ray.serve.run(pyggml.ray.deployment(one_or_two, load={"n_ctx": 8192, "n_parallel": 2}, page=False))
    seen: dict[str, Any] = {"at first": len(replica_actors("one"))}
    streams = [Streamed(client, f"user {n}", 3000) for n in range(8)]
    until(lambda: len(replica_actors("one")) == 2, 120)
    for stream in streams:
        stream.join(300)
    seen["streams"] = [stream.outcome for stream in streams]
    until(lambda: len(replica_actors("one")) == 1, 120)
    seen["answer"] = answer(client)
    return seen


# --- looking into the cluster ---------------------------------------------------------------------------------------


def replica_actors(model: str) -> list[str]:
    """The names of the replicas' actors."""
    names = [each["name"] for each in ray.util.list_named_actors(all_namespaces=True)]
    return sorted(name for name in names if name.startswith(f"SERVE_REPLICA::default#{model}#"))


def n_running(actor: str) -> int:
    """Return the number of requests that a replica has."""
    n: int = ray.get(ray.get_actor(actor, namespace="serve").get_num_ongoing_requests.remote())
    return n


def lenders() -> list[int]:
    """The processes on hosts of this cluster that lend their devices."""
    session = ray._private.worker._global_node.get_session_dir_path()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            is_ours = session in Path(f"/proc/{parent}/cmdline").read_text()
            if is_ours and (folder / "cmdline").read_text().startswith("ray::_DeviceExporter"):
                found.append(int(folder.name))
    return found


def until(is_so: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.1)


class Asking(threading.Thread):
    """Asks again and again."""

    def __init__(self, client: openai.OpenAI) -> None:
        super().__init__(daemon=True)
        self.n_failed = self.n_answered = 0
        self._client = client
        self._is_over = threading.Event()
        self.start()

    def run(self) -> None:
        while not self._is_over.wait(0.05):
            try:
                answer(self._client)
                self.n_answered += 1
            except openai.APIError as error:
                print(repr(error), file=sys.stderr)
                self.n_failed += 1

    def ended(self) -> None:
        self._is_over.set()
        self.join(300)


if __name__ == "__main__":
    part = {"replicas": replicas, "scaling": scaling, "hosts": hosts}[sys.argv[1]]
    with serving_cluster(n_cpus=4, n_more_nodes=1) as address:
        Path(sys.argv[2]).write_text(json.dumps(part(address)))
