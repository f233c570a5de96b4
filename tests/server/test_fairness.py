"""Small requests do not wait for the end of large ones: the order in which they end, without a clock.

benchmarks/server_fairness.py measures the times.
"""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from server_fairness import bad_schema, sentence
from support.servers import servers

CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "What colour is the sky?"}], "max_tokens": 2}


def post(server: servers.Running, path: str, **body: Any) -> int:
    return httpx.post(server.url + path, json=body, timeout=300).status_code


def wait_until_running(server: servers.Running, n: int) -> None:
    deadline = time.monotonic() + 60
    while len(server.worker.running_requests) < n:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def small_ones_end_first(server: servers.Running, large: list[Future[int]]) -> None:
    wait_until_running(server, len(large) // 2)
    assert post(server, "/v1/chat/completions", **CHAT) == 200
    assert httpx.get(server.url + "/health").status_code == 200
    assert not all(each.done() for each in large)
    assert {each.result() for each in large} == {200}


@pytest.mark.slow
def test_beside_long_texts_to_tokenize() -> None:
    text = (sentence(64, random.Random(1)) + "\n") * 4000
    with servers.running() as server, ThreadPoolExecutor(8) as pool:
        small_ones_end_first(server, [pool.submit(post, server, "/tokenize", content=text) for _ in range(8)])


@pytest.mark.slow
def test_beside_long_prompts() -> None:
    prompts = [sentence(2500, random.Random(seed)) for seed in range(4)]
    bodies = [{"prompt": prompt, "max_tokens": 1} for prompt in prompts]
    with servers.running(load={"n_ctx": 20_000, "n_parallel": 4}) as server, ThreadPoolExecutor(4) as pool:
        small_ones_end_first(server, [pool.submit(post, server, "/v1/completions", **body) for body in bodies])


@pytest.mark.slow
def test_a_known_schema_does_not_wait_for_new_ones() -> None:
    def form(schema: dict[str, Any]) -> dict[str, Any]:
        return {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}

    known = {**CHAT, "response_format": form({"type": "integer"})}
    with servers.running() as server, ThreadPoolExecutor(12) as pool:
        assert post(server, "/v1/chat/completions", **known) == 200
        schemas = [bad_schema(random.Random(seed)) for seed in range(12)]
        chats = [{**CHAT, "response_format": form(each)} for each in schemas]
        large = [pool.submit(post, server, "/v1/chat/completions", **chat) for chat in chats]
        wait_until_running(server, 6)
        assert post(server, "/v1/chat/completions", **known) == 200
        assert not all(each.done() for each in large)
        assert {each.result() for each in large} <= {200, 400}


@pytest.mark.slow
def test_threads_for_one_kind_of_work_leave_the_others_free() -> None:
    """Not even a text that takes forever keeps other requests waiting."""
    release = threading.Event()
    long_chat = {**CHAT, "metadata": {"padding": "x" * 40_000}}
    others: dict[str, dict[str, Any]] = {
        "/v1/chat/completions": long_chat,
        "/apply-template": {"messages": CHAT["messages"]},
        "/v1/embeddings": {"input": "a"},
    }
    with servers.running() as server, ThreadPoolExecutor(4) as pool:
        tokenizer = server.worker.models.loaded[0].llm.tokenizer
        encode_batch = tokenizer.encode_batch

        def stuck(*args: Any, **kwargs: Any) -> Any:
            if threading.current_thread().name.startswith("pyggml-tokens"):
                release.wait(60)
            return encode_batch(*args, **kwargs)

        tokenizer.encode_batch = stuck  # type: ignore[method-assign]
        try:
            waiting = [pool.submit(post, server, "/tokenize", content="a") for _ in range(3)]
            wait_until_running(server, 3)
            for path, body in others.items():
                assert post(server, path, **body) == 200
            assert not any(each.done() for each in waiting)
        finally:
            release.set()
        assert {each.result() for each in waiting} == {200}
