"""The messages of `pyggml serve` when it starts, and when it cannot."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from support.servers import servers


@pytest.mark.slow
def test_a_context_that_does_not_fit_is_one_error() -> None:
    command = [sys.executable, "-m", "pyggml", "serve", "--port", "0", "--n-ctx", "2000000000"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 1
    notice, error = ended.stderr.splitlines()
    assert "demonstration model" in notice
    assert error.startswith("pyggml: pyggml-demo-q8_0.gguf with n_ctx=2000000000 needs ")
    assert "; use n_ctx=" in error


@pytest.mark.slow
def test_all_networks_are_no_address_to_open(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("sk-a\n")
    keys.chmod(0o644)
    with servers.ServerProcess("--host", "0.0.0.0", "--api-key-file", keys) as process:
        assert process.url.startswith("http://127.0.0.1:")
        assert "0.0.0.0" not in process.log
        assert "and at all other addresses of this machine" in process.log
        assert "other users can read the api_key_file" in process.log
        assert httpx.get(f"{process.url}/health").status_code == 200
