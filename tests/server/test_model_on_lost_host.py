"""A server whose model is on another host, which is lost and comes back."""

from __future__ import annotations

import logging
import signal
from pathlib import Path

import httpx
import pytest
from support.servers import servers
from support.servers.remote_servers import KEY, server

from pyggml.server.settings.options import ModelSpec

PROMPT = {"prompt": "Once upon a time", "max_tokens": 8}


@pytest.mark.slow
def test_a_model_whose_host_was_lost_is_loaded_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "pyggml.server")  # pytest keeps what is logged, and so the model that was lost
    key_file = tmp_path / "key"
    key_file.write_bytes(KEY)
    with server() as lending:
        model = ModelSpec(None, load={"rpc": lending.address, "rpc_key": str(key_file)})
        with servers.running(models=(model,)) as running:
            first = httpx.post(f"{running.url}/v1/completions", json=PROMPT, timeout=60)
            assert first.status_code == 200

            body = {**PROMPT, "max_tokens": 100_000, "ignore_eos": True, "stream": True}
            with httpx.stream("POST", f"{running.url}/v1/completions", json=body, timeout=60) as answer:
                lines = answer.iter_lines()
                next(lines)
                lending.signal(signal.SIGKILL)
                events = [line for line in lines if line]
            assert "a host that computes for the model is lost" in events[-1]
            assert lending.address not in events[-1]

            again = httpx.post(f"{running.url}/v1/completions", json=PROMPT, timeout=60)
            assert again.status_code == 200
            assert again.json()["choices"] == first.json()["choices"]
            assert len(lending.workers) > 2  # one for the first load's plan and model, others for the second

            lending.signal(signal.SIGKILL)  # while it is idle
            refused = httpx.post(f"{running.url}/v1/completions", json=PROMPT, timeout=60)
            assert refused.status_code == 503
            assert refused.json()["error"]["code"] == "host_lost"
            assert httpx.post(f"{running.url}/v1/completions", json=PROMPT, timeout=60).is_success
