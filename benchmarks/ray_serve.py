"""Conversations on Ray Serve: how much of their prompts is found computed, with requests sent by prefix and by load.

Each round, every conversation asks its next question, all in random order, a few at a time; so a conversation's next
question comes when the others' have come in between. Each model keeps as many conversations as it has sequences.

    python benchmarks/ray_serve.py --replicas 4 --conversations 32 --n-parallel 8

Starts a cluster on this machine, unless RAY_ADDRESS names one. Prints both figures from the same run, and fails unless
sending by prefix finds at least twice as many tokens.
"""

from __future__ import annotations

import argparse
import os
import random
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import openai
import ray
import ray.serve

import pyggml.ray

_WORDS = ("cat", "dog", "house", "river", "spider", "garden", "father", "red", "small", "lake", "bird", "old", "boat")


@dataclass
class Conversation:
    """Messages so far, and the tokens that its answers' usage has counted."""

    rng: random.Random
    messages: list[Any] = field(default_factory=list)
    n_prompt: int = 0
    n_cached: int = 0

    def ask(self, client: openai.OpenAI) -> None:
        question = " ".join(self.rng.choices(_WORDS, k=40))
        self.messages.append({"role": "user", "content": f"Tell me about {question}."})
        done = client.chat.completions.create(
            model="default", messages=self.messages, max_tokens=24, extra_body={"ignore_eos": True}
        )
        self.messages.append({"role": "assistant", "content": done.choices[0].message.content})
        assert done.usage is not None
        assert done.usage.prompt_tokens_details is not None
        self.n_prompt += done.usage.prompt_tokens
        self.n_cached += done.usage.prompt_tokens_details.cached_tokens or 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--conversations", type=int, default=32)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--n-parallel", type=int, default=8)
    parser.add_argument("--callers", type=int, default=4)
    given = parser.parse_args()
    found = {}
    with serving_cluster(n_cpus=given.replicas) as url:
        for by_prefix in (False, True):
            app = pyggml.ray.deployment(
                load={"n_parallel": given.n_parallel, "n_ctx": 512 * given.n_parallel},
                serve={"num_replicas": given.replicas},
                prefix_routing=by_prefix,
            )
            ray.serve.run(app)
            began = time.monotonic()
            talks = talked(url, given.conversations, given.turns, given.callers)
            elapsed_s = time.monotonic() - began
            found[by_prefix] = n_cached = sum(talk.n_cached for talk in talks)
            n_prompt = sum(talk.n_prompt for talk in talks)
            print(
                f"{'by prefix' if by_prefix else 'by load  '}: {n_cached} of {n_prompt} tokens of prompts were cached "
                f"({n_cached / n_prompt:.0%}), {elapsed_s:.1f} s",
                flush=True,
            )
            ray.serve.delete("default")
    ratio = found[True] / max(found[False], 1)
    print(f"{ratio:.2f} times as many, {given.replicas} replicas")
    if ratio < 2:
        raise SystemExit("less than twice as many")


def talked(url: str, n: int, n_turns: int, n_callers: int) -> list[Conversation]:
    """Has so many conversations, of so many turns each."""
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", timeout=600)
    talks = [Conversation(random.Random(number)) for number in range(n)]
    order = random.Random(0)
    with ThreadPoolExecutor(n_callers) as callers:
        for _ in range(n_turns):
            list(callers.map(lambda talk: talk.ask(client), order.sample(talks, n)))
    return talks


@contextmanager
def serving_cluster(n_cpus: int, n_more_nodes: int = 0) -> Iterator[str]:
    """Serve on a cluster of its own, or on that of RAY_ADDRESS; yields its URL. The other nodes have one CPU each."""
    if os.environ.get("RAY_ADDRESS"):
        ray.init(log_to_driver=False)
        details = ray.serve.status().proxies
        assert details, "Serve does not run on the cluster of RAY_ADDRESS"
        yield os.environ.get("RAY_SERVE_URL", "http://127.0.0.1:8000")
        ray.shutdown()
        return
    from ray.cluster_utils import Cluster

    small = {"object_store_memory": 100_000_000}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": n_cpus, "include_dashboard": False, **small})
    try:
        ray.init(cluster.address, log_to_driver=False)
        for _ in range(n_more_nodes):
            cluster.add_node(num_cpus=1, **small)
        cluster.wait_for_nodes()
        port = free_port()
        ray.serve.start(http_options={"host": "127.0.0.1", "port": port})
        yield f"http://127.0.0.1:{port}"
        ray.serve.shutdown()
    finally:
        ray.shutdown()
        cluster.shutdown()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


if __name__ == "__main__":
    main()
