"""``pyggml rpc-serve``: access control, and no process outlives it."""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from support.servers.remote_servers import KEY, Server, is_alive, server, until

import pyggml
from pyggml._native.model import Model
from pyggml._native.placement import resolve_placement
from pyggml.options import PlacementOptions
from pyggml.remote import ExportedDevices, Supervisor, connect, find_key, host, list_exported_devices, supervisor
from pyggml.remote.address import Address
from pyggml.remote.handshake import MAGIC, HandshakeError, PeerInfo, Wire, authenticate_as_client


@pytest.fixture(scope="module")
def one() -> Iterator[Server]:
    with server() as running:
        yield running


def talk(address: str, *pieces: bytes) -> bytes:
    """Sends bytes to a server and returns what it says until it hangs up."""
    name, _, port = address.rpartition(":")
    heard = b""
    with socket.create_connection((name, int(port)), 5) as connection, suppress(OSError):
        for piece in pieces:
            connection.sendall(piece)
        connection.shutdown(socket.SHUT_WR)
        while part := connection.recv(4096):
            heard += part
    return heard


def test_a_client_sees_what_is_lent(one: Server) -> None:
    with connect(one.address, KEY) as client:
        assert len(client.devices) == 1
        assert client.info.devices[0][0] == "CPU"
        assert client.info.engine == PeerInfo.this().engine
        assert one.address in repr(client)
        client.check()


def test_a_wrong_key_is_refused(one: Server) -> None:
    with pytest.raises(pyggml.DeviceError, match=rf"{re.escape(one.address)} .*another key"):
        connect(one.address, KEY[:-1] + b"!")
    assert one.said("rejected: it does not know the key")
    connect(one.address, KEY).close()


def test_each_wrong_key_waits_longer() -> None:
    failures = supervisor._FailedAttempts()
    waits = [failures.add("a") for _ in range(20)]
    assert waits == sorted(waits)
    assert waits[0] < waits[3] < waits[-1] == 8.0
    assert failures.add("b") == waits[0]
    failures.clear("a")
    assert failures.add("a") == waits[0]


def test_garbage_and_half_handshakes_leave_the_server_alive(one: Server) -> None:
    draw = random.Random(16)
    noise = [draw.randbytes(draw.randrange(1, 400)) for _ in range(20)]
    for pieces in (
        [b"GET / HTTP/1.1\r\n\r\n"],
        [hello()],
        [MAGIC],
        [MAGIC[:-1] + b"\x09" + bytes(32)],
        [MAGIC + bytes(31)],
        *([each] for each in noise),
    ):
        assert len(talk(one.address, *pieces)) <= len(MAGIC) + 32
    connect(one.address, KEY).close()


def test_strangers_have_a_limit_and_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "_HANDSHAKE_S", 0.5)
    monkeypatch.setattr(supervisor, "_MAX_UNAUTHENTICATED", 3)
    with server() as running:
        name, _, port = running.address.rpartition(":")
        silent = [socket.create_connection((name, int(port)), 5) for _ in range(6)]
        assert running.said("rejected, 3 others")
        assert until(lambda: sum("too long" in line for line in running.lines) == 3)
        for each in silent:
            each.close()
        connect(running.address, KEY).close()


def hello(size: int = 24) -> bytes:
    """The first message of upstream's protocol."""
    return b"\x0e" + size.to_bytes(8, "little") + bytes(24)


@pytest.mark.slow_except("0")
@pytest.mark.parametrize("seed", range(6))
def test_garbage_from_whoever_has_the_key_ends_only_its_worker(one: Server, seed: int) -> None:
    """Upstream's server asserts on some of it, and reads and computes whatever it can of the rest."""
    draw = random.Random(seed)
    name, _, port = one.address.rpartition(":")
    with socket.create_connection((name, int(port)), 5) as connection:
        authenticate_as_client(Wire(connection, 5), KEY)
        wire = Wire(connection, 30)
        wire.send_info(PeerInfo.this())
        wire.receive_info()
        body = draw.randbytes(draw.randrange(400))
        command = draw.choice([bytes([draw.randrange(24)]) + len(body).to_bytes(8, "little"), b""])
        with suppress(HandshakeError):
            wire.send(hello() + command + body)
        pid = one.workers[-1]
        with suppress(OSError):  # the worker may have hung up
            connection.shutdown(socket.SHUT_WR)
    assert until(lambda: not is_alive(pid))
    connect(one.address, KEY).close()


def test_a_request_larger_than_the_loan_is_not_waited_for() -> None:
    """Upstream allocates memory for a request as soon as it knows its size."""
    with server(ExportedDevices(("cpu",), max_bytes=1_000_000, n_threads=1)) as running:
        name, _, port = running.address.rpartition(":")
        with socket.create_connection((name, int(port)), 5) as connection:
            authenticate_as_client(Wire(connection, 5), KEY)
            wire = Wire(connection, 30)
            wire.send_info(PeerInfo.this())
            wire.receive_info()
            wire.send(hello() + b"\x06" + (1 << 30).to_bytes(8, "little"))
            assert until(lambda: not is_alive(running.workers[-1]))
        connect(running.address, KEY).close()


def test_another_build_of_the_engine_is_refused(one: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    real = PeerInfo.this()
    monkeypatch.setattr(PeerInfo, "this", lambda: PeerInfo("9.9", "b1"))
    with pytest.raises(pyggml.DeviceError, match=rf"{re.escape(one.address)} .*{real.engine} .*b1 "):
        connect(one.address, KEY)
    assert one.said("ended with 1: .*b1 .*both ends need the same")
    monkeypatch.undo()
    connect(one.address, KEY).close()


def test_a_server_that_takes_the_key_for_granted_is_refused() -> None:
    """A program that accepts anybody is not the server that the client looks for."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = str(Address(*listening.getsockname()))
        script = (
            "import socket,sys; from pyggml.remote.handshake import MAGIC\n"
            "s=socket.socket(fileno=int(sys.argv[1])); c,_=s.accept()\n"
            "c.sendall(MAGIC+bytes(32)+b'\\1'+bytes(32)); c.recv(4096)"
        )
        descriptor = listening.fileno()
        with (
            subprocess.Popen([sys.executable, "-c", script, str(descriptor)], pass_fds=[descriptor]),
            pytest.raises(pyggml.DeviceError, match="does not know the key"),
        ):
            connect(address, KEY)


def test_an_address_where_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = str(Address(*listening.getsockname()))
    with pytest.raises(pyggml.DeviceError, match=rf"{re.escape(address)} cannot be reached .*rpc-serve"):
        connect(address, KEY)


@pytest.mark.parametrize("name", ["a..b", "a" * 300 + ".x", "\ud800"])
def test_a_name_that_no_network_has(name: str) -> None:
    with pytest.raises(pyggml.DeviceError, match="cannot be reached"):
        connect(name, KEY)


def test_memory_is_limited_as_stated(tiny_path: Path) -> None:
    """The memory that the device reports is the client's limit."""
    with (
        server(ExportedDevices(("cpu",), max_bytes=100_000, n_threads=1)) as small,
        connect(small.address, KEY) as client,
    ):
        with pytest.raises(pyggml.OutOfMemoryError):
            Model(tiny_path, placement=resolve_placement(PlacementOptions(), client.devices))
        client.check()  # a refusal does not lose the host


def test_a_closed_host_cannot_be_used(one: Server, tiny_path: Path) -> None:
    client = connect(one.address, KEY)
    placement = resolve_placement(PlacementOptions(), client.devices)
    client.close()
    client.close()
    with pytest.raises(pyggml.ClosedError):
        client.check()
    with pytest.raises(pyggml.DeviceError):
        Model(tiny_path, placement=placement)


def test_workers_go_with_their_clients(one: Server) -> None:
    client = connect(one.address, KEY)
    pid = one.workers[-1]
    assert is_alive(pid)
    client.close()
    assert until(lambda: not is_alive(pid))


def test_an_unknown_device_is_named_at_the_start() -> None:
    with pytest.raises(pyggml.DeviceError, match="cuda:77"):
        list_exported_devices(ExportedDevices(("cuda:77",)))
    assert [each["name"] for each in list_exported_devices(ExportedDevices(("cpu",)))] == ["CPU"]


def test_a_port_in_use_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        Supervisor(Address(*taken.getsockname()), ExportedDevices(), KEY)


def test_no_worker_can_be_started(one: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client gets an error, and the next one is served."""
    monkeypatch.setattr(supervisor, "child_command", lambda *_: ["/nonexistent/python"])
    with pytest.raises(pyggml.DeviceError, match="cannot be used: "):
        connect(one.address, KEY)
    assert one.said("no worker could be started: .*No such file")
    monkeypatch.undo()
    connect(one.address, KEY).close()


def test_workers_take_nothing_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    assert [each["name"] for each in list_exported_devices(ExportedDevices(("cpu",)))] == ["CPU"]


@contextmanager
def command(tmp_path: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """``pyggml rpc-serve`` on a free port, and its address."""
    environment = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path)}
    environment.pop("PYGGML_RPC_KEY", None)
    line = [sys.executable, "-m", "pyggml", "rpc-serve", "--port", "0", "--device", "cpu", "-t", "1", *arguments]
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stderr is not None
            said = ""
            while "CPU" not in said:
                text = process.stderr.readline()
                assert text, said
                said += text
            yield process, said
        finally:
            process.kill()


def address_in(said: str) -> str:
    found = re.search(r"exports devices at (\S+):\n", said)
    assert found is not None, said
    return found[1]


@pytest.mark.slow_except("9")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_the_command_and_its_workers_end(tmp_path: Path, number: signal.Signals) -> None:
    with command(tmp_path) as (process, said):
        file = tmp_path / "pyggml" / "rpc-key"
        assert str(file) in said
        assert file.stat().st_mode & 0o777 == 0o600
        client = connect(address_in(said), find_key(file))
        assert process.stderr is not None
        worker = int(process.stderr.readline().rpartition(" ")[2])
        assert is_alive(worker)
        process.send_signal(number)
        assert process.wait(10) == (-9 if number == signal.SIGKILL else 128 + number)
        assert until(lambda: not is_alive(worker))
        assert until(lambda: lost(client))
        client.close()


def lost(client: host.Host) -> bool:
    try:
        client.check()
        return False
    except pyggml.HostLostError:
        return True


def test_a_key_that_is_too_short_is_not_passed_over(tmp_path: Path) -> None:
    """An invalid key is an error; no other key is generated in its place."""
    environment = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path), "PYGGML_RPC_KEY": "short"}
    line = [sys.executable, "-m", "pyggml", "rpc-serve", "--port", "0", "--device", "cpu"]
    done = subprocess.run(line, capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert done.returncode != 0
    assert "the key in PYGGML_RPC_KEY has 5 bytes" in done.stderr
    assert not (tmp_path / "pyggml").exists()


@pytest.mark.slow
def test_the_command_takes_a_key_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "own.key"
    file.write_bytes(KEY + b"\n")
    with command(tmp_path, "--key-file", str(file)) as (_, said):
        assert "generated a key" not in said
        began = time.monotonic()
        connect(address_in(said), KEY).close()
        assert time.monotonic() - began < 30
