"""``pyggml serve`` and ``python -m pyggml.server``: addresses, messages, and shutdown."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from support.command import called, fails, pyggml
from support.servers.servers import ServerProcess

from pyggml.source import SHIPPED_MODEL

MODEL = str(SHIPPED_MODEL)
NAME = SHIPPED_MODEL.stem


def models_at(url: str, **headers: str) -> list[str]:
    answer = httpx.get(f"{url}/v1/models", headers=headers, timeout=60)
    answer.raise_for_status()
    return [each["id"] for each in answer.json()["data"]]


def listens(url: str) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", httpx.URL(url).port or 0)) == 0


# --- what is served ---------------------------------------------------------------------------------------------


def test_it_serves_until_it_is_told_to_end() -> None:
    with ServerProcess() as server:
        assert models_at(server.url) == [NAME]
        lines = server.log.splitlines()
        assert "pyggml: no MODEL given: using the small demonstration model that ships with pyggml" in lines
        assert (
            f"pyggml: serving {NAME} at {server.url} "
            f"(chat page at the same address; base_url={server.url}/v1 for OpenAI's clients)"
        ) in lines
        assert server.stop() == 128 + signal.SIGTERM
        assert not listens(server.url)
        assert "Traceback" not in server.log


@pytest.mark.slow
def test_ctrl_c_ends_it() -> None:
    with ServerProcess(MODEL) as server:
        assert server.stop(signal.SIGINT) == 130
        assert "Traceback" not in server.log
        assert "no MODEL given" not in server.log


@pytest.mark.slow
def test_options_reach_the_server_from_all_places(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("sk-file\n")
    (tmp_path / "server.toml").write_text(
        """
        [server]
        api_key_file = "keys"
        max_body_bytes = "10kB"
        max_tokens_limit = 5
        [load]
        n_ctx = 1024
        n_parallel = 2
        [sampling]
        max_tokens = 3
        [[models]]
        name = "small"
        """
    )
    env = {"PYGGML_CONFIG": str(tmp_path / "server.toml"), "PYGGML_API_KEY": "sk-env", "PYGGML_N_CTX": "2048"}
    env["PYGGML_ROOT_PATH"] = "/llm"  # which a proxy takes off
    with ServerProcess("--n-parallel", "1", "--alias", "tiny,gpt-4o-mini", "--no-page", env=env) as server:
        assert "serving tiny at" in server.log
        assert "a page" not in server.log
        for key in ("sk-file", "sk-env"):
            assert models_at(server.url, authorization=f"Bearer {key}")[0] == "tiny"
        headers = {"authorization": "Bearer sk-env"}
        body = {"model": "gpt-4o-mini", "prompt": "Once upon a time"}
        answer = httpx.post(f"{server.url}/v1/completions", json=body, headers=headers, timeout=60).json()
        assert (answer["usage"]["completion_tokens"], answer["choices"][0]["finish_reason"]) == (3, "length")
        answer = httpx.post(
            f"{server.url}/v1/completions", json=body | {"max_tokens": 99}, headers=headers, timeout=60
        ).json()
        assert (answer["usage"]["completion_tokens"], answer["choices"][0]["finish_reason"]) == (5, "length")
        assert httpx.get(f"{server.url}/v1/models", timeout=60).status_code == 401
        long = {"model": "tiny", "prompt": "x" * 20_000}
        assert httpx.post(f"{server.url}/v1/completions", json=long, headers=headers, timeout=60).status_code == 413
        props = httpx.get(f"{server.url}/props", headers=headers, timeout=60).json()
        assert props["default_generation_settings"]["n_ctx"] == 2048
        assert props["total_slots"] == 1


@pytest.mark.slow
def test_the_module_is_the_same_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pyggml.server", "--help"], capture_output=True, text=True, check=False
    )
    assert done.stdout == pyggml("serve", "--help").out
    line = [
        sys.executable,
        "-m",
        "pyggml.server",
        "--model",
        MODEL,
        "--n_ctx",
        "512",
        "--port",
        "x",
    ]  # as for llama_cpp
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "pyggml serve: Invalid value for '--port': 'x' is not an integer.\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        "{model} --max-model-len 512 --max-num-seqs 2 --served-model-name tiny",  # vllm serve
        "-m {model} -c 512 -np 2 -a tiny -ngl 0 -t 2",  # llama-server
        "--model {model} --ctx-size 512 --parallel 2 --alias tiny --gpu-layers 0",
        "--model {model} --n_ctx 512 --max_num_seqs 2 --model_alias tiny --n_gpu_layers 0",  # llama_cpp.server
    ],
)
def test_lines_for_other_servers(line: str) -> None:
    with ServerProcess(*line.format(model=MODEL).split()) as server:
        assert "serving tiny at" in server.log
        props = httpx.get(f"{server.url}/props", timeout=60).json()
        assert (props["default_generation_settings"]["n_ctx"], props["total_slots"]) == (512, 2)


# --- what is said -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("options", "warns"), [((), True), (("--api-key-file", "keys"), False)])
def test_whoever_may_come_is_announced(
    options: tuple[str, ...], warns: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "keys").write_text("sk-1\n")
    with ServerProcess(MODEL, "--host", "0.0.0.0", *options, env={"OLLAMA_HOST": "0.0.0.0"}) as server:
        assert (
            "warning: the server accepts requests without a key from all hosts that can reach 0.0.0.0" in server.log
        ) == warns
        assert "OLLAMA_HOST is not read here; set PYGGML_HOST and PYGGML_PORT" in server.log


@pytest.mark.slow
def test_a_port_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = fails(1, "serve", MODEL, "--port", port, by=pyggml)
    assert f"cannot listen on port {port} of 127.0.0.1: Address already in use" in said
    assert "--port 0" in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([MODEL, "--host", "192.0.2.1"], "cannot listen on port 8080 of 192.0.2.1: "),
        (["no.gguf"], "there is no model file at no.gguf"),
    ],
)
def test_what_keeps_it_from_starting(options: list[str], message: str) -> None:
    assert message in fails(1, "serve", *options, by=pyggml, env={"PYGGML_API_KEY": "sk-1"})


@pytest.mark.slow_except(every=3)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--api-key sk-secret", "--api-key-file FILE, or set PYGGML_API_KEY"),
        ("--api-key=sk-secret", "--api-key-file FILE, or set PYGGML_API_KEY"),
        ("--api-key-file no", "the api_key_file no cannot be read: No such file or directory"),
        ("--config no.toml", "no.toml: the configuration cannot be read: No such file or directory"),
        ("--port 65536", "65536 is not in the range 0<=x<=65535"),
        ("--portt 1", "Did you mean '--port'?"),
        ("--max-memory 5x", "max_memory must be a number of bytes, such as 512MB or 12GiB, not '5x'"),
        ("--request-timeout 0", "request_timeout must be a finite number above 0"),
        ("--n-batch 2", "n_batch is 2 and n_parallel is 4"),
        ("--alias a --alias b", "aliases for 2 models, but 1"),
        ("--alias default", "a model cannot be called 'default'"),
        ("--root-path llm", "root_path must be a path that begins with a slash"),
        ("--threads-http 4", "--threads-http: not needed"),
        ("--no-webui", "--no-page leaves the page out"),
        ("--metrics", "/metrics is always there"),
        ("--slots", "/slots is always there"),
        ("--embeddings", "every model embeds"),
        ("-cb", "continuous batching is always on"),
        ("--jinja", "the model's template is used"),
        ("--ssl-key-file x", "a proxy"),
        ("--enable-auto-tool-choice", "template says how it calls tools"),
        ("--gpu-memory-utilization 0.9", "--n-ctx auto"),
        ("--dtype float16", "pyggml convert"),
        ("--models-dir .", "--config FILE"),
        ("-p 9000", "--port N is the port; requests bring their prompts"),
        ("--host 0.0.0.0:9000", "the port is an option of its own"),
        ("--host http://0.0.0.0", "host must be an address or a name alone"),
        ("--host [::1]", "such as 0.0.0.0, ::1 or localhost"),
        ("--bind 0.0.0.0", "--host ADDRESS and --port N"),
        ("-fit on", "--n-ctx auto"),
        ("--daemon", "docs/reference/server.md"),
    ],
)
def test_wrong_lines_are_answered(options: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = fails(2, "serve", *options.split())
    assert message in said
    assert "sk-secret" not in said


def test_wrong_variables_are_answered() -> None:
    said = fails(2, "serve", env={"PYGGML_PORT": "x"})
    assert said == "pyggml serve: PYGGML_PORT: port must be an integer, not 'x'\n"


def test_a_key_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.mkdir()
    assert "cannot be read: Is a directory" in fails(2, "serve", "--api-key-file", path)


@pytest.mark.slow
def test_help_needs_none_of_the_extra() -> None:
    """It is there before ``pip install "pyggml[server]"``, and so is the line that says what to install."""
    hide = "import sys; sys.modules.update(dict.fromkeys(['starlette', 'uvicorn', 'pydantic', 'prometheus_client']))"
    code = f"{hide}; sys.argv = ['pyggml', 'serve', *sys.argv[1:]]; import pyggml.cli; pyggml.cli.main()"
    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", code, *options], capture_output=True, text=True, env=env, check=False
        )

    assert run("--help").stdout == called("serve", "--help").out
    done = run(MODEL)
    assert done.returncode == 1
    assert re.fullmatch(
        r'pyggml: the server needs \w+, which is not installed: pip install "pyggml\[server\]"\n', done.stderr
    )
