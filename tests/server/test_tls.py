"""HTTPS, and SIGHUP, which reloads certificates and API keys, in a separate process as users run it."""

from __future__ import annotations

import signal
import ssl
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from support.servers import servers

import pyggml
from pyggml.server import Settings
from pyggml.server.serve import Server


def make_certificate(folder: Path, name: str) -> None:
    """Make a self-signed certificate for localhost and 127.0.0.1 in cert.pem, and its key in key.pem."""
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    command += ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("there is no openssl")


def get(url: str, certificate: Path, key: str) -> httpx.Response:
    context = ssl.create_default_context(cafile=str(certificate))
    return httpx.get(url, headers={"Authorization": f"Bearer {key}"}, verify=context, timeout=30)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_https_and_what_a_hangup_reloads(tmp_path: Path) -> None:
    make_certificate(tmp_path, "first")
    keys, certificate = tmp_path / "keys", tmp_path / "cert.pem"
    keys.write_text("sk-old\n")
    keys.chmod(0o600)
    with servers.ServerProcess(
        *("--tls-cert", certificate, "--tls-key", tmp_path / "key.pem", "--api-key-file", keys)
    ) as process:
        assert process.url.startswith("https://127.0.0.1:")
        assert get(f"{process.url}/v1/models", certificate, "sk-old").status_code == 200
        with pytest.raises(httpx.HTTPError):
            httpx.get(process.url.replace("https", "http") + "/health")

        before = certificate.read_bytes()
        make_certificate(tmp_path, "second")
        keys.write_text("sk-new label=alice\n")
        process.process.send_signal(signal.SIGHUP)
        until(lambda: "reloaded the certificate" in process.log)
        assert get(f"{process.url}/v1/models", certificate, "sk-new").status_code == 200
        assert get(f"{process.url}/v1/models", certificate, "sk-old").status_code == 401
        (tmp_path / "first.pem").write_bytes(before)
        with pytest.raises(httpx.ConnectError):
            get(f"{process.url}/health", tmp_path / "first.pem", "")

        certificate.write_text("damaged")  # the one before remains
        process.process.send_signal(signal.SIGHUP)
        until(lambda: "the certificate is not reloaded" in process.log)
        assert "Traceback" not in process.log
        assert process.process.poll() is None
        assert process.stop() == -signal.SIGTERM or process.process.returncode == 143


def test_a_key_of_another_certificate_changes_nothing(tmp_path: Path) -> None:
    make_certificate(tmp_path, "first")
    before = (tmp_path / "cert.pem").read_bytes()
    (tmp_path / "first.pem").write_bytes(before)
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    with servers.ServerProcess(
        "--tls-cert", certificate, "--tls-key", key, "--api-key-file", keys_in(tmp_path)
    ) as process:
        old_key = key.read_bytes()
        make_certificate(tmp_path, "second")
        key.write_bytes(old_key)
        process.process.send_signal(signal.SIGHUP)
        until(lambda: "the certificate is not reloaded" in process.log)
        assert get(f"{process.url}/v1/models", tmp_path / "first.pem", "sk-a").status_code == 200


def keys_in(folder: Path) -> Path:
    """Write a file with the key sk-a."""
    path = folder / "keys"
    path.write_text("sk-a\n")
    path.chmod(0o600)
    return path


def test_files_that_are_no_certificate_are_refused(tmp_path: Path) -> None:
    make_certificate(tmp_path, "first")
    app = pyggml.server.create_app(Settings())
    (tmp_path / "damaged").write_text("-----BEGIN CERTIFICATE-----")
    for cert, key, message in (
        ("damaged", "key.pem", "are not a certificate and its private key"),
        ("cert.pem", "cert.pem", "are not a certificate and its private key"),
        ("absent", "key.pem", "tls_cert=.*absent cannot be read"),
        ("cert.pem", "absent", "tls_key=.*absent cannot be read"),
    ):
        with pytest.raises(pyggml.InvalidParameterError, match=message):
            Server(app, Settings(tls_cert=tmp_path / cert, tls_key=tmp_path / key))
    with pytest.raises(pyggml.InvalidParameterError, match="no effect without tls_cert"):
        Settings(tls_key=tmp_path / "key.pem")
