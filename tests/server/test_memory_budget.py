"""The memory budget for models, and the limits of request queues."""

from __future__ import annotations

import asyncio
import functools
import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.servers import servers
from support.servers.several_models import NEED, PATIENCE_S, SMALL, Diary, answer, copied, opened, refusal, run

import pyggml
from pyggml.server import ModelSpec, create_app
from pyggml.server.models.pool import DEFAULT, ModelPool


@pytest.fixture
def copies(tmp_path: Path) -> list[Path]:
    return copied(tmp_path)


# --- room -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_least_recently_used_makes_room(copies: list[Path]) -> None:
    async def main() -> None:
        for limit in ({"max_memory": 2 * NEED + 1000}, {"max_loaded_models": 2}):
            diary = Diary()
            async with opened(copies, diary, **limit) as offered:
                for name in "abac":
                    await answer(offered, name)
                assert diary.lines == ["+a", "+b", "-b", "+c"]
                await answer(offered, "b")
                assert diary.lines[4:] == ["-a", "+b"]
                assert offered.not_ready_reason() is None  # the first can come back

    run(main)


def test_a_model_that_never_fits_is_refused_and_the_others_stay(copies: list[Path]) -> None:
    async def main() -> None:
        diary = Diary()
        roomy = ModelSpec(copies[1], load={"n_ctx": 100_000})
        async with opened([copies[0], roomy], diary, max_memory=2 * NEED) as offered:
            await offered.start()
            failure = (await refusal(offered, "b")).failure
            assert (failure.status, failure.code) == (503, "out_of_memory")
            assert "needs" in failure.message
            assert f"max_memory is {2 * NEED / 1e6:.1f} MB: raise it" in failure.message
            assert (await answer(offered, "a"))[0] == "a"
            assert diary.lines == ["+a", "!b: OutOfMemoryError"]

    run(main)


def test_a_given_limit_of_the_prefix_cache_counts_and_the_default_does_not(copies: list[Path]) -> None:
    async def main() -> None:
        greedy = ModelSpec(copies[1], load={**SMALL, "prefix_cache_bytes": NEED})
        modest = ModelSpec(copies[2], load={**SMALL, "prefix_cache_bytes": 1000})
        async with opened([copies[0], greedy, modest], max_memory=NEED + 2000) as offered:
            assert (await answer(offered, "a"))[0] == "a"  # with a limit of more than max_memory by default
            failure = (await refusal(offered, "b")).failure
            assert (failure.status, failure.code) == (503, "out_of_memory")
            assert "smaller n_ctx or prefix_cache_bytes" in failure.message
            assert (await answer(offered, "c"))[0] == "c"

    run(main)


def test_what_the_machine_has_no_room_for_is_refused(copies: list[Path]) -> None:
    async def main() -> None:
        diary = Diary()
        huge = {"n_ctx": 2_000_000_000, "n_parallel": 1}
        async with opened([ModelSpec(copies[1], load=huge), copies[0]], diary) as offered:
            alone = (await refusal(offered, "b")).failure  # by the library itself
            await answer(offered, "a")
            await asyncio.sleep(1.0)
            adjacent = (await refusal(offered, "b")).failure
            for failure in (alone, adjacent):
                assert (failure.status, failure.code) == (503, "out_of_memory")
                assert "mapped weights" in failure.message
            assert (await answer(offered, "a"))[0] == "a"
            assert diary.lines == ["!b: OutOfMemoryError", "+a", "!b: OutOfMemoryError"]

    run(main)


@pytest.mark.slow
def test_32_requests_for_three_models_with_room_for_two(copies: list[Path]) -> None:
    async def main() -> None:
        diary = Diary()
        async with opened(copies, diary, max_memory=2 * NEED + 1000) as offered:
            names = [("a", "b", "c")[i % 3] for i in range(32)]
            found = await asyncio.gather(*(answer(offered, name, 8) for name in names))
            assert [name for name, _ in found] == names
            assert len({text for _, text in found}) == 1
            assert diary.most == 2
            loads = sum(line.startswith("+") for line in diary.lines)
            assert 3 <= loads <= 12  # those who wait for one model get it together

    run(main)


def test_steady_use_of_one_model_does_not_keep_another_out(copies: list[Path]) -> None:
    async def main() -> None:
        async with opened(copies, max_loaded_models=1) as offered:
            is_done = asyncio.Event()

            async def keep_asking() -> int:
                n = 0
                while not is_done.is_set():
                    await answer(offered, "a", 20)
                    n += 1
                return n

            busy = [asyncio.create_task(keep_asking()) for _ in range(4)]
            while not offered.loaded:
                await asyncio.sleep(0.001)
            assert [(await answer(offered, "b"))[0] for _ in range(3)] == ["b"] * 3
            is_done.set()
            assert min(await asyncio.gather(*busy)) > 0

    run(main)


@pytest.mark.slow
def test_who_finds_no_room_in_time_is_told_what_is_in_use(copies: list[Path]) -> None:
    async def main() -> None:
        diary = Diary()
        async with opened(copies, diary, max_memory=NEED + 1000, load_timeout=3.0) as offered:
            async with offered.lease("a") as served:
                failure = (await refusal(offered, "b")).failure
                assert (failure.status, failure.kind, failure.retry_after_s) == (503, "unavailable", 10)
                assert "'a' (" in failure.message
                assert f"max_memory is {(NEED + 1000) / 1e6:.1f} MB" in failure.message
                assert (await served.llm.agenerate("Once", max_tokens=2)).token_ids  # it was never unloaded
                assert (await answer(offered, "a"))[0] == "a"  # and others may use it again
            assert (await answer(offered, "b"))[0] == "b"
            assert diary.lines == ["+a", "-a", "+b"]

    run(main)


def test_so_many_wait_for_a_model_and_no_more(copies: list[Path]) -> None:
    async def main() -> None:
        spec = ModelSpec(copies[0], load={"max_queue": 3, "n_parallel": 1})
        async with opened([spec], max_loaded_models=1) as offered:
            found = await asyncio.gather(*(_served(offered, "a") for _ in range(6)), return_exceptions=True)
            assert [type(each) for each in found] == [str] * 4 + [pyggml.QueueFullError] * 2

    run(main)


async def _served(offered: ModelPool, name: str) -> str:
    async with offered.lease(name) as served:
        return served.name


# --- how much may wait ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_request_may_not_fill_the_queue(copies: list[Path]) -> None:
    for limits, limit in (({"max_queue": 5, "n_parallel": 2}, 7), ({"max_queue": 50, "n_parallel": 2}, 8)):
        app = create_app(copies[0], load={**SMALL, **limits}, max_choices=8)
        with servers.serving(app) as url:
            body: dict[str, Any] = {"model": DEFAULT, "prompt": "Once", "max_tokens": 2}
            enough = httpx.post(f"{url}/v1/completions", json={**body, "n": limit}, timeout=PATIENCE_S)
            assert len(enough.json()["choices"]) == limit
            for more in ({"n": limit + 1}, {"n": 3, "prompt": ["Once"] * 3}):
                refused = httpx.post(f"{url}/v1/completions", json={**body, **more}, timeout=PATIENCE_S)
                assert refused.status_code == 400
                assert f"the limit of {limit} choices" in refused.json()["error"]["message"]


def test_a_full_queue_says_when_to_come_back(copies: list[Path]) -> None:
    app = create_app(copies[0], load={**SMALL, "max_queue": 1, "n_parallel": 1})
    endless = {"prompt": "Once", "ignore_eos": True, "max_tokens": 500}
    with servers.serving(app) as url, httpx.Client(base_url=url, timeout=PATIENCE_S) as client:
        client.post("/execute", json={"prompt": "Once", "max_tokens": 2}).raise_for_status()
        with client.stream("POST", "/execute", json=endless), client.stream("POST", "/execute", json=endless):
            refused = client.post("/execute", json=endless)
            assert (refused.status_code, refused.json()["error"]["code"]) == (429, "queue_full")
            assert 1 <= int(refused.headers["Retry-After"]) <= 60
            assert client.get("/ready").json() == {"ready": False, "reason": "the queue is full"}
            # What the engine does not queue has places of its own.
            assert client.post("/tokenize", json={"content": "Once"}).status_code == 200
            (served,) = app.state.worker.models.loaded
            with served.concurrency.slot(), served.concurrency.slot():
                for path, body in (("/tokenize", {"content": "Once"}), ("/v1/embeddings", {"input": "Once"})):
                    refused = client.post(path, json={"model": DEFAULT, **body})
                    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "1")
        assert served.concurrency.n_taken == 0
        assert client.post("/v1/embeddings", json={"model": DEFAULT, "input": "Once"}).status_code == 200


@pytest.mark.slow
def test_a_job_that_waits_for_its_model_is_cancelled(copies: list[Path]) -> None:
    endless = {"prompt": "Once", "ignore_eos": True, "max_tokens": 1_000_000}

    def last_event(url: str, **body: Any) -> dict[str, Any]:
        with httpx.stream("POST", f"{url}/execute", json={**endless, **body}, timeout=PATIENCE_S) as answer:
            name, data = servers.events([*answer.iter_lines()])[-1]
        assert name == "end"
        return json.loads(data)  # type: ignore[no-any-return]

    app = create_app([*copies[:2]], load={**SMALL, "n_ctx": 100_000}, max_loaded_models=1)
    models = app.state.worker.models
    with servers.serving(app) as url, ThreadPoolExecutor(2) as pool:
        runs = pool.submit(last_event, url, model="a", job_id="runs")
        servers.eventually(lambda: models.loaded[0].llm.stats().n_running == 1)
        waits = pool.submit(last_event, url, model="b", job_id="waits")
        cancel = functools.partial(httpx.post, f"{url}/cancel")
        servers.eventually(lambda: cancel(json={"job_id": "waits"}).json()["cancelled"])
        assert not waits.done()
        assert cancel(json={"job_id": "runs"}).json()["cancelled"]
        assert runs.result()["reason"] == "cancelled"
        assert waits.result()["reason"] == "cancelled"


# An address space with little left: the context for a long text does not fit, and everything else does.
_LITTLE_LEFT = """
import asyncio, re, resource
import httpx
from pyggml.server import create_app

async def main():
    app = create_app(load={"n_ctx": 65536, "n_threads": 1})
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client:
        completion = {"model": "default", "prompt": "Once", "max_tokens": 4}
        before = await client.post("/v1/completions", json=completion)
        size = 1024 * int(re.search(r"VmSize:\\s+(\\d+)", open("/proc/self/status").read())[1])
        resource.setrlimit(resource.RLIMIT_AS, (size + 320 * 2**20,) * 2)
        long = await client.post("/v1/embeddings", json={"model": "default", "input": "Hello " * 20_000})
        print(long.status_code, long.text)
        after = await client.post("/v1/completions", json=completion)
        assert after.json()["choices"] == before.json()["choices"], after.text
    await app.state.worker.models.aclose()

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="/proc says how large a process is")
def test_a_request_that_does_not_fit_the_memory_is_refused() -> None:
    command = [sys.executable, "-c", _LITTLE_LEFT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("503 "), done.stdout
    assert re.search(r"needs \d+ MB of memory, but only \d+ MB is available", done.stdout), done.stdout
