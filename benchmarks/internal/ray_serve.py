"""Conversations on Ray Serve: how much of their prompts is found computed, with requests sent by prefix and by load.

Each round, every conversation asks its next question, all in random order, a few at a time; so a conversation's next
question comes when the others' have come in between. Each model keeps as many conversations as it has sequences.

    python benchmarks/internal/ray_serve.py --replicas 4 --conversations 32 --n-parallel 8

Starts a cluster on this machine, unless RAY_ADDRESS names one, whose Serve RAY_SERVE_URL has the address of. With
--in-process the same policy chooses among as many engines in this process, without Ray; that decides what is cached,
not how fast it is. Prints both figures from the same run, and fails unless by prefix twice as many tokens are cached.
"""

from __future__ import annotations

import argparse
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import openai
import ray
import ray.serve

import pyggml
import pyggml.ray
from pyggml.ray.routing import PrefixIndex, prefix_hashes

_WORDS = ("cat", "dog", "house", "river", "spider", "garden", "father", "red", "small", "lake", "bird", "old", "boat")


class Answer(NamedTuple):
    """Result of one request."""

    text: str
    n_prompt: int
    n_cached: int


Ask = Callable[[list[Any]], Answer]


@dataclass
class Conversation:
    """Messages so far, and how many tokens of prompts were sent and cached."""

    rng: random.Random
    messages: list[Any] = field(default_factory=list)
    n_prompt: int = 0
    n_cached: int = 0

    def go_on(self, ask: Ask) -> None:
        question = " ".join(self.rng.choices(_WORDS, k=40))
        self.messages.append({"role": "user", "content": f"Tell me about {question}."})
        answer = ask(self.messages)
        self.messages.append({"role": "assistant", "content": answer.text})
        self.n_prompt += answer.n_prompt
        self.n_cached += answer.n_cached


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--conversations", type=int, default=32)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--n-parallel", type=int, default=8)
    parser.add_argument("--callers", type=int, default=4)
    parser.add_argument("--in-process", action="store_true")
    given = parser.parse_args()
    load = {"n_parallel": given.n_parallel, "n_ctx": 512 * given.n_parallel}
    sides = in_process if given.in_process else on_serve
    found = {}
    for by_prefix, ask in sides(given.replicas, load):
        began = time.monotonic()
        talks = talked(ask, given.conversations, given.turns, given.callers)
        elapsed_s = time.monotonic() - began
        found[by_prefix] = n_cached = sum(talk.n_cached for talk in talks)
        n_prompt = sum(talk.n_prompt for talk in talks)
        print(
            f"{'by prefix' if by_prefix else 'by load  '}: {n_cached} of {n_prompt} tokens of prompts were cached "
            f"({n_cached / n_prompt:.0%}), {elapsed_s:.1f} s",
            flush=True,
        )
    ratio = found[True] / max(found[False], 1)
    print(f"{ratio:.2f} times as many, {given.replicas} replicas")
    if ratio < 2:
        raise SystemExit("less than twice as many")


def talked(ask: Ask, n: int, n_turns: int, n_callers: int) -> list[Conversation]:
    """Have so many conversations, of so many turns each."""
    talks = [Conversation(random.Random(number)) for number in range(n)]
    order = random.Random(0)
    with ThreadPoolExecutor(n_callers) as callers:
        for _ in range(n_turns):
            list(callers.map(lambda talk: talk.go_on(ask), order.sample(talks, n)))
    return talks


def on_serve(n_replicas: int, load: dict[str, Any]) -> Iterator[tuple[bool, Ask]]:
    """Both ways to send on, each with replicas of its own."""
    with serving_cluster(n_cpus=n_replicas) as url:
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", timeout=600)

        def ask(messages: list[Any]) -> Answer:
            done = client.chat.completions.create(
                model="default", messages=messages, max_tokens=24, extra_body={"ignore_eos": True}
            )
            assert done.usage is not None
            assert done.usage.prompt_tokens_details is not None
            n_cached = done.usage.prompt_tokens_details.cached_tokens or 0
            return Answer(done.choices[0].message.content or "", done.usage.prompt_tokens, n_cached)

        for by_prefix in (False, True):
            serve = {"num_replicas": n_replicas}
            ray.serve.run(pyggml.ray.deployment(load=load, serve=serve, prefix_routing=by_prefix))
            yield by_prefix, ask
            ray.serve.delete("default")


def in_process(n_replicas: int, load: dict[str, Any]) -> Iterator[tuple[bool, Ask]]:
    """The same with engines in this process, and with Serve's policy, the less busy one of two, done here."""
    for by_prefix in (False, True):
        with ExitStack() as stack:
            llms = [stack.enter_context(pyggml.load(n_threads=1, **load)) for _ in range(n_replicas)]
            yield by_prefix, _Engines(llms, by_prefix).ask


class _Engines:
    """Engines as replicas."""

    def __init__(self, llms: list[pyggml.LLM], by_prefix: bool) -> None:
        self._llms = llms
        self._by_prefix = by_prefix
        self._index: PrefixIndex[int] = PrefixIndex(slack=llms[0].n_parallel)
        self._loads = dict.fromkeys(range(len(llms)), 0)
        self._lock = threading.Lock()
        self._rng = random.Random(0)

    def ask(self, messages: list[Any]) -> Answer:
        request = prefix_hashes({"messages": messages})
        with self._lock:
            two = self._rng.sample(range(len(self._llms)), 2)
            by_load = min(two, key=self._loads.__getitem__)
            chosen = self._index.rank(request, self._loads)[0] if self._by_prefix else by_load
            self._index.record(request, chosen)
            self._loads[chosen] += 1
        done = self._llms[chosen].chat(messages, max_tokens=24, ignore_eos=True)
        with self._lock:
            self._loads[chosen] -= 1
        return Answer(done.message.content, done.prompt_tokens, done.cached_tokens)


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
