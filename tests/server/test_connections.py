"""Connections that hang, break or do not read; and shutdown of the server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from soak import attack_server
from support.paths import TESTS
from support.servers import servers

HEAD = b"POST /execute HTTP/1.1\r\nhost: localhost\r\n"
LONG: dict[str, Any] = {"prompt": "Once", "ignore_eos": True, "max_tokens": 100_000, "temperature": 0}
WIDE = ("--n-ctx", "100000", "--n-parallel", "2")


@pytest.fixture
def server() -> Iterator[servers.Running]:
    with servers.running(
        header_timeout=1,
        keep_alive_timeout=1,
        send_timeout=1,
        max_connections=20,
        load={"n_parallel": 2, "n_ctx": 100_000},
    ) as server:
        yield server


def until(condition: Callable[[], bool], seconds: float = 20) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def connected(server: servers.Running, sent: bytes = b"") -> socket.socket:
    client = socket.create_connection(server.host, 20)
    client.sendall(sent)
    return client


def request(path: str = "/execute", **body: Any) -> bytes:
    content = json.dumps(body).encode()
    return f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(content)}\r\n\r\n".encode() + content


def is_closed(client: socket.socket) -> bool:
    try:
        return not client.recv(65536)
    except ConnectionResetError:
        return True


def is_free(server: servers.Running) -> bool:
    stats = server.worker.models.loaded[0].llm.stats()
    return (stats.n_running, stats.n_queued) == (0, 0)


def n_descriptors() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def in_flight(url: str) -> dict[str, int]:
    """Number of requests that have arrived and not been answered, by route."""
    found = re.findall(
        r'^pyggml_requests_in_flight{route="(.+)"} (\d+)', httpx.get(f"{url}/metrics").text, re.MULTILINE
    )
    return {route: int(number) for route, number in found if route != "/metrics" and int(number)}


def is_busy(server: servers.Running, number: int = 1) -> bool:
    return server.worker.models.loaded[0].llm.stats().n_running >= number


# --- clients that take too long -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("sent", [b"", b"GET", b"GET /health HTTP/1.1\r\nhost: loc"], ids=["nothing", "word", "half"])
def test_a_request_whose_head_does_not_come_is_ended(sent: bytes, server: servers.Running) -> None:
    with connected(server, sent) as client:
        began = time.monotonic()
        assert is_closed(client)
        assert 0.9 < time.monotonic() - began < 10


@pytest.mark.slow
def test_a_second_request_whose_head_does_not_come_is_ended(server: servers.Running) -> None:
    with connected(server, b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n") as client:
        answer = b""
        while not answer.endswith(b"}"):
            answer += client.recv(65536)
        assert answer.startswith(b"HTTP/1.1 200")
        client.sendall(b"GET /hea")
        assert is_closed(client)


@pytest.mark.slow
def test_a_head_that_comes_a_byte_at_a_time_is_ended(server: servers.Running) -> None:
    began = time.monotonic()
    with connected(server, b"GET / HTTP/1.1\r\n") as client, contextlib.suppress(OSError):
        while time.monotonic() - began < 20:
            client.sendall(b"a")
            time.sleep(0.1)
    assert time.monotonic() - began < 10


@pytest.mark.slow
def test_a_stream_outlives_the_limits_on_heads(server: servers.Running) -> None:
    with httpx.stream("POST", f"{server.url}/execute", json=LONG, timeout=30) as answer:
        began, lines = time.monotonic(), answer.iter_lines()
        while time.monotonic() - began < 4:
            assert next(lines) is not None


@pytest.mark.slow_except("within a body")
@pytest.mark.parametrize("between", [b"", b"0\r\n\r\n"], ids=["within a body", "after a request"])
def test_what_is_no_http_after_a_request_breaks_nothing(
    between: bytes, server: servers.Running, caplog: pytest.LogCaptureFixture
) -> None:
    """The request before it may be answered already, or not yet."""
    head = b"GET /health HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
    for pause in (0, 0.2):
        with connected(server, head) as client:
            time.sleep(pause)
            client.sendall(between + b"\x00 nonsense\r\n\r\n")
            with client.makefile("rb") as file:
                answer = file.read()
            assert answer.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 400 "))
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_too_many_connections_make_the_oldest_idle_ones_go(server: servers.Running) -> None:
    with contextlib.ExitStack() as stack:
        streaming = stack.enter_context(connected(server, request(**LONG)))
        assert until(lambda: is_busy(server))
        idle = [stack.enter_context(connected(server, b"GET /hea")) for _ in range(10)]
        half = HEAD + b"content-length: 9\r\n\r\n{"
        idle += [stack.enter_context(connected(server, half)) for _ in range(30)]
        answer = httpx.get(f"{server.url}/health", timeout=20)
        assert answer.status_code == 200
        assert until(lambda: len(server.server.server_state.connections) <= 20)
        assert is_closed(idle[0])
        assert streaming.recv(65536)
        assert is_busy(server)


@pytest.mark.slow
def test_who_does_not_read_is_cut_off() -> None:
    # Answers are long, so that they fill what the kernel keeps for both.
    with servers.running(send_timeout=1, max_body_bytes=2**24) as server:
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(30)
        with client:
            client.connect(server.host)
            client.sendall(request("/tokenize", content="a b c " * 100_000, with_pieces=True))
            connections = server.server.server_state.connections
            assert until(lambda: any(each.transport.get_write_buffer_size() for each in connections))
            began = time.monotonic()
            assert until(lambda: not connections)
            assert time.monotonic() - began > 0.9


@pytest.mark.slow
def test_who_reads_slowly_gets_all() -> None:
    with servers.running(send_timeout=1, max_body_bytes=2**24) as server:
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        client.settimeout(30)
        with client:
            client.connect(server.host)
            client.sendall(request("/tokenize", content="a b c " * 100_000, with_pieces=True))
            answer, began = bytearray(), time.monotonic()
            while not (answer.endswith(b"}") and b'"max_model_len":' in answer[-40:]):
                part = client.recv(50_000)
                assert part, f"cut off after {len(answer)} bytes"
                answer += part
                time.sleep(0.025)
        assert time.monotonic() - began > 2  # long after the limit


_FEW_DESCRIPTORS = """
import contextlib, resource, socket
import httpx
from support.servers import servers

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
with servers.running() as server, contextlib.ExitStack() as stack:
    for _ in range(20):
        stack.enter_context(socket.create_connection(server.host, 20))
    print(httpx.get(f"{server.url}/health", timeout=20).status_code)
"""


@pytest.mark.slow
def test_a_process_that_may_open_little_serves_few() -> None:
    command = [sys.executable, "-c", _FEW_DESCRIPTORS]
    done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.returncode) == ("200\n", 0), done.stderr


# --- clients that leave ---------------------------------------------------------------------------------------


@pytest.mark.slow_except("0-half a body")
@pytest.mark.parametrize(
    "sent",
    [
        HEAD + b"content-length: 100\r\n\r\n{",
        request(**LONG),
        request("/v1/completions", model="default", **LONG),
        request("/v1/completions", model="default", **{**LONG, "prompt": "word " * 4000}),
    ],
    ids=["half a body", "stream", "no stream", "prefill"],
)
@pytest.mark.parametrize("delay_s", [0, 0.05, 0.3])
def test_who_leaves_frees_what_it_had(sent: bytes, delay_s: float, server: servers.Running) -> None:
    before = n_descriptors()
    for end in (socket.socket.close, _reset):
        clients = [connected(server, sent) for _ in range(4)]  # two of which wait in the queue
        time.sleep(delay_s)
        for client in clients:
            end(client)
    assert until(lambda: is_free(server) and not server.server.server_state.connections)
    assert until(lambda: n_descriptors() <= before)
    assert until(lambda: not server.worker.running_requests)


def _reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    client.close()


def test_a_client_that_is_killed_frees_its_sequence_within_steps(server: servers.Running) -> None:
    program = (
        "import socket, sys; client = socket.create_connection(('127.0.0.1', int(sys.argv[1])));"
        "client.sendall(bytes.fromhex(sys.argv[2]))\nwhile client.recv(65536): pass"
    )
    command = [sys.executable, "-c", program, str(server.host[1]), request(**LONG).hex()]
    with subprocess.Popen(command) as client:
        try:
            assert until(lambda: is_busy(server))
        finally:
            client.kill()
    killed = time.monotonic()
    assert until(lambda: is_free(server))
    assert time.monotonic() - killed < 10  # all of it would take minutes


# --- the end --------------------------------------------------------------------------------------------------


def streamed(url: str, **body: Any) -> list[tuple[str, str]]:
    with httpx.stream("POST", f"{url}/execute", json=body, timeout=60) as answer:
        if answer.status_code != 200:
            return [(str(answer.status_code), answer.read().decode())]
        return servers.events([*answer.iter_lines()])


@pytest.mark.slow
def test_a_server_that_is_killed_breaks_its_streams() -> None:
    with (
        servers.ServerProcess(*WIDE) as process,
        httpx.stream("POST", f"{process.url}/execute", json=LONG, timeout=60) as answer,
    ):
        lines = answer.iter_lines()
        while "token" not in next(lines):
            pass
        process.process.kill()
        with pytest.raises(httpx.RemoteProtocolError):
            for _ in lines:
                pass


@pytest.mark.slow
def test_running_requests_end_when_the_server_is_told_to() -> None:
    with servers.ServerProcess("--drain-timeout", "200", *WIDE) as process, ThreadPoolExecutor(8) as pool:
        asks = [pool.submit(streamed, process.url, **{**LONG, "max_tokens": 300}) for _ in range(8)]
        with httpx.Client(base_url=process.url) as before:
            assert before.get("/ready").status_code == 200
            assert until(lambda: in_flight(process.url) == {"/execute": 8})
            process.process.send_signal(signal.SIGTERM)
            assert until(lambda: before.get("/ready").status_code == 503)
            assert before.get("/health").status_code == 200
            late = before.post("/execute", json={"prompt": "a"})
            assert (late.status_code, late.json()["error"]["code"]) == (503, "stopping")
            assert late.headers["retry-after"]
        for ask in asks:
            events = ask.result(200)
            assert events[-1][0] == "end"
            found = [json.loads(data) for name, data in events if name == "token"]
            assert [token["index"] for token in found] == list(range(300))
        assert process.process.wait(30) in (0, 143, -signal.SIGTERM)
        assert "Traceback" not in process.log


@pytest.mark.slow
def test_what_does_not_end_in_time_hears_of_it() -> None:
    with servers.ServerProcess("--drain-timeout", "0.5", *WIDE) as process, ThreadPoolExecutor(8) as pool:
        body = {**LONG, "model": "default"}
        streams = [pool.submit(streamed, process.url, **LONG) for _ in range(4)]  # two of which wait
        whole = [pool.submit(httpx.post, f"{process.url}/v1/completions", json=body, timeout=60) for _ in range(2)]
        half = socket.create_connection(("127.0.0.1", int(process.url.rpartition(":")[2])), 60)
        half.sendall(HEAD + b"content-length: 100\r\n\r\n{")
        assert until(lambda: in_flight(process.url) == {"/execute": 5, "/v1/completions": 2})
        began = time.monotonic()
        process.process.send_signal(signal.SIGTERM)
        for stream in streams:
            name, data = stream.result(60)[-1]
            assert name in ("error", "503")
            assert json.loads(data)["error"]["code"] == "stopping"
        for each in whole:
            assert each.result().status_code == 503
        with half:
            assert half.recv(65536).startswith(b"HTTP/1.1 503")
        assert process.process.wait(30) in (0, 143, -signal.SIGTERM)
        assert time.monotonic() - began < 10
        assert "Traceback" not in process.log


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_second_signal_ends_it_at_once(number: int) -> None:
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip("the tests run under nohup, or in the background")
    with servers.ServerProcess(*WIDE) as process:
        thread = threading.Thread(target=lambda: _ignoring(httpx.HTTPError, lambda: streamed(process.url, **LONG)))
        thread.start()
        assert until(lambda: in_flight(process.url) == {"/execute": 1})
        process.process.send_signal(number)
        time.sleep(0.5)
        assert process.process.poll() is None
        began = time.monotonic()
        assert process.stop(number) != 0
        assert time.monotonic() - began < 10  # and not the 30 that requests may have
        thread.join(30)
        assert "Traceback" not in process.log


def _ignoring(kind: type[Exception], function: Callable[[], object]) -> None:
    with contextlib.suppress(kind):
        function()


@pytest.mark.slow
def test_clients_that_hang_and_leave_cost_the_others_no_token() -> None:
    """The campaign of tests/soak/attack_server.py, small and without a clock."""
    n_tokens, load = 300, {"n_parallel": 2, "n_ctx": 8192}

    async def campaign(port: int) -> list[tuple[list[int], str]]:
        streams = [asyncio.ensure_future(attack_server.honest(port, n_tokens, asyncio.Event())) for _ in range(2)]
        await attack_server.attack(port, 60, 1.0)
        return await asyncio.gather(*streams)

    with servers.running(header_timeout=1, load=load) as server:
        for ids, text in asyncio.run(campaign(server.host[1])):
            assert len(ids) == n_tokens
            llm = server.worker.models.loaded[0].llm
            assert llm.detokenize(ids).strip() == text.strip()
        assert until(lambda: is_free(server) and not server.server.server_state.connections)
        assert until(lambda: not server.worker.running_requests)
