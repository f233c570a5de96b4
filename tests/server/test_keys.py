"""API keys: limits of each, fair queueing between them, and what belongs to each; reloading."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.servers import servers

from pyggml.server.http.errors import RequestError
from pyggml.server.keys import fair_queue
from pyggml.server.keys.accounts import Account
from pyggml.server.keys.fair_queue import FairQueue
from pyggml.server.settings.api_keys import KeyLimits

ENDLESS = {
    "prompt": "Once upon a time",
    "max_tokens": 1_000_000,
    "ignore_eos": True,
    "repetition_guard": False,
    "overflow": "shift",
}


def post(server: servers.Running, path: str, key: str, **body: Any) -> httpx.Response:
    return httpx.post(server.url + path, json=body, headers={"Authorization": f"Bearer {key}"}, timeout=60)


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    path.write_text("sk-a label=alice max_requests=1\nsk-b label=bob tokens_per_minute=40\nsk-c\n")
    path.chmod(0o600)
    return path


def wait_until_running(server: servers.Running, n: int) -> None:
    deadline = time.monotonic() + 60
    while len(server.worker.running_requests) != n:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_each_key_has_its_limits(key_file: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pyggml.server")
    with servers.running(api_key_file=key_file, load={"n_ctx": 1024}) as server, ThreadPoolExecutor(1) as pool:
        endless = pool.submit(post, server, "/execute", "sk-a", job_id="x", **ENDLESS)
        wait_until_running(server, 1)
        refused = post(server, "/v1/completions", "sk-a", prompt="a", max_tokens=1)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert refused.json()["error"]["code"] == "rate_limit_exceeded"
        assert refused.headers["x-ratelimit-limit-requests"] == "1"
        assert refused.headers["x-ratelimit-remaining-requests"] == "0"
        # what does not count, and what others may do
        assert httpx.get(server.url + "/v1/models", headers={"x-api-key": "sk-a"}).status_code == 200
        assert post(server, "/v1/completions", "sk-c", prompt="a", max_tokens=1).status_code == 200
        # a job belongs to the key
        assert post(server, "/cancel", "sk-c", job_id="x").status_code == 404
        assert post(server, "/cancel", "sk-a", job_id="x").json()["cancelled"] is True
        assert '"reason":"cancelled"' in endless.result().text

        body = {"prompt": "a b c d e", "max_tokens": 60, "ignore_eos": True, "stream": True}
        first = post(server, "/v1/completions", "sk-b", **body)
        assert (first.status_code, first.headers["x-ratelimit-limit-tokens"]) == (200, "40")
        spent = post(server, "/v1/completions", "sk-b", prompt="a", max_tokens=1)
        assert spent.status_code == 429
        assert "40 tokens per minute" in spent.json()["error"]["message"]
        assert 20 < int(spent.headers["retry-after"]) < 60
        assert spent.headers["x-ratelimit-remaining-tokens"] == "0"
        assert float(spent.headers["x-ratelimit-reset-tokens"].removesuffix("s")) > 60
        metrics = httpx.get(server.url + "/metrics", headers={"x-api-key": "sk-c"}).text
    assert 'pyggml_key_requests_total{key="alice",status="429"} 1.0' in metrics
    assert re.search('pyggml_key_tokens_total{key="key-[0-9a-f]{8}"}', metrics)
    assert "key=alice" in caplog.text
    assert "sk-" not in caplog.text + metrics


def test_embeddings_count_as_tokens() -> None:
    with servers.running(api_keys=("sk-a",), tokens_per_minute=3) as server:
        assert post(server, "/v1/embeddings", "sk-a", input="one two three four five").status_code == 200
        assert post(server, "/v1/embeddings", "sk-a", input="one").status_code == 429
    for path, body in (
        ("/api/embed", {"model": "default", "input": "one two three"}),
        ("/api/embeddings", {"model": "default", "prompt": "one two three"}),
        ("/embedding", {"content": "one two three"}),
        ("/v1/score", {"text_1": "one two three", "text_2": "four five six"}),
    ):
        with servers.running(api_keys=("sk-a",)) as server:
            assert post(server, path, "sk-a", **body).status_code == 200
            metrics = httpx.get(f"{server.url}/metrics", headers={"x-api-key": "sk-a"}).text
            (n_tokens,) = re.findall(r"pyggml_key_tokens_total{.*} (\S+)", metrics)
            assert 3 <= float(n_tokens) <= 9 * (1 + path.endswith("score"))


def test_keys_are_reloaded(key_file: Path, caplog: pytest.LogCaptureFixture) -> None:
    with servers.running(api_key_file=key_file) as server:
        assert post(server, "/tokenize", "sk-c", content="a").status_code == 200
        account = server.worker.api_keys.accounts[0]
        key_file.write_text("sk-a label=alice max_requests=7\nsk-new\n")
        key_file.chmod(0o644)
        server.worker.reload_api_keys()
        assert post(server, "/tokenize", "sk-c", content="a").status_code == 401
        assert post(server, "/tokenize", "sk-new", content="a").status_code == 200
        assert server.worker.api_keys.accounts[0] is account
        assert account.limits.max_requests == 7
        assert "other users can read the api_key_file" in caplog.text
        key_file.write_text("# none\n")
        server.worker.reload_api_keys()
        assert "has no key" in caplog.text
        assert post(server, "/tokenize", "sk-new", content="a").status_code == 200


def test_the_balance_is_refilled_and_running_requests_count(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    account = Account("a", KeyLimits(tokens_per_minute=600))
    account.admit()
    account.admit()  # each will probably take some hundreds
    with pytest.raises(RequestError, match="used up"):
        account.admit()
    account.release(0)
    account.release(500)
    account.admit()  # 100 are left, and this one will probably take 500
    with pytest.raises(RequestError, match="used up: try again in 41 s"):
        account.admit()
    account.release(0)  # it failed
    account.admit()
    account.release(700)
    with pytest.raises(RequestError, match="try again in 61 s"):
        account.admit()
    now += 61
    account.admit()
    now += 1e6
    assert account.headers()["x-ratelimit-remaining-tokens"] == str(600 - 540)


async def _served(queue: FairQueue, accounts: list[Account], n_tokens: list[int], n_rounds: int) -> list[int]:
    """Return how many requests of each account were granted, when all always have requests waiting."""
    counts = [0] * len(accounts)

    async def run(index: int) -> None:
        while sum(counts) < n_rounds:
            turn = queue.enqueue(accounts[index])
            await turn.granted
            counts[index] += 1
            await asyncio.sleep(0)
            accounts[index].n_running += 1
            accounts[index].release(n_tokens[index])
            turn.end(n_tokens[index])

    await asyncio.wait_for(asyncio.gather(*(run(index) for index in range(len(accounts)) for _ in range(6))), 60)
    return counts


def test_accounts_get_tokens_by_their_shares() -> None:
    accounts = [Account("a", KeyLimits(share=3)), Account("b", KeyLimits()), Account("c", KeyLimits())]
    for account, mean in zip(accounts, (10, 10, 20), strict=True):
        account.mean_tokens = mean
    a, b, c = asyncio.run(_served(FairQueue(4), accounts, [10, 10, 20], 800))
    assert b * 2.5 < a < b * 3.5  # three times the share
    assert c * 1.6 < b < c * 2.4  # as many tokens in half as many requests


def test_an_account_that_returns_finds_a_slot() -> None:
    async def run() -> None:
        queue = FairQueue(4)
        flood, other = Account("flood", KeyLimits()), Account("other", KeyLimits())
        queue.enqueue(other).end(10)
        turns = [queue.enqueue(flood) for _ in range(20)]
        assert [each.granted.done() for each in turns] == [True] * 3 + [False] * 17  # one is left to the other
        turn = queue.enqueue(other)
        assert turn.granted.done()
        turns[5].end(0)  # its client disconnects
        for each in (turn, *turns[:3]):
            each.end(10)
            each.end(10)  # has no effect
        assert [index for index, each in enumerate(turns) if each.granted.done()] == [0, 1, 2, 3, 4, 6]
        for each in turns:
            each.end(0)

        queue = FairQueue(4)
        pair, single = queue.enqueue(flood, 2), queue.enqueue(other)
        three, one = queue.enqueue(flood, 3), queue.enqueue(other)
        assert [each.granted.done() for each in (pair, single, three, one)] == [True, True, False, False]
        pair.end(0)
        assert three.granted.done()
        assert not one.granted.done()  # it did not overtake
        assert queue.enqueue(Account("many", KeyLimits()), 100).n == 4

    asyncio.run(run())


def test_a_slot_that_no_one_returns_to_is_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fair_queue, "_RETURN_S", 0.05)

    async def run() -> None:
        queue = FairQueue(4)
        flood, other = Account("flood", KeyLimits()), Account("other", KeyLimits())
        queue.enqueue(other).end(10)
        turns = [queue.enqueue(flood) for _ in range(5)]
        assert not turns[3].granted.done()
        await asyncio.wait_for(turns[4].granted, 30)
        assert queue.n_waiting(flood) == queue.n_waiting(other) == 0

    asyncio.run(run())


def test_a_full_queue_of_one_key_is_not_that_of_others() -> None:
    load = {"n_parallel": 1, "max_queue": 2, "n_ctx": 1024}
    with servers.running(api_keys=("sk-a", "sk-b"), load=load) as server, ThreadPoolExecutor(8) as pool:
        flood = [pool.submit(post, server, "/execute", "sk-a", job_id=str(index), **ENDLESS) for index in range(5)]
        wait_until_running(server, 5)
        full = post(server, "/v1/completions", "sk-a", prompt="a", max_tokens=1)
        assert full.status_code == 429
        assert "of this API key" in full.json()["error"]["message"]
        other = pool.submit(post, server, "/v1/completions", "sk-b", prompt="a", max_tokens=1)
        wait_until_running(server, 6)
        for index in range(5):
            post(server, "/cancel", "sk-a", job_id=str(index))
        assert other.result().status_code == 200
        assert {each.result().status_code for each in flood} == {200}


def test_an_account_alone_fills_the_engines_queue() -> None:
    async def run() -> None:
        queue, account = FairQueue(4), Account("a", KeyLimits())
        turns = [queue.enqueue(account) for _ in range(10)]
        assert sum(each.granted.done() for each in turns) == 8

    asyncio.run(run())


@pytest.mark.slow
def test_a_flood_of_one_key_does_not_stop_another() -> None:
    """The other key's requests overtake those that wait, in the order of the queue."""
    with servers.running(api_keys=("sk-a", "sk-b"), load={"n_parallel": 2}) as server, ThreadPoolExecutor(24) as pool:
        body = {"prompt": "Once upon a time", "max_tokens": 100, "ignore_eos": True}
        flood = [pool.submit(post, server, "/v1/completions", "sk-a", **body) for _ in range(24)]
        while not any(each.done() for each in flood):
            time.sleep(0.01)
        for _ in range(3):
            assert post(server, "/v1/completions", "sk-b", prompt="a", max_tokens=5).status_code == 200
        assert not all(each.done() for each in flood)
        assert {each.result().status_code for each in flood} == {200}
