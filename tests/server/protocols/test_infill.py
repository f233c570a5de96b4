"""Infilling over HTTP: suffixes in OpenAI's and ollama's APIs, and llama-server's ``/infill``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import ollama
import pytest
from support.checkpoints import models
from support.servers import servers

import pyggml
from pyggml.server import ModelSpec, Settings, create_app

PREFIX, SUFFIX = "def add(a, b):\n    return ", "\n\nprint(add(1, 2))\n"
SPECIAL = ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>")
#: Only letters, so that the random model does not end its texts.
LETTERS = [*range(97, 123)]
OPTIONS: dict[str, Any] = {"temperature": 1.0, "seed": 5, "top_k": 0, "min_p": 0, "allowed_token_ids": LETTERS}


@pytest.fixture(scope="module")
def path(model_dir: Path) -> Path:
    return models.write_llama(model_dir / "coder.gguf", models.byte_vocabulary(*SPECIAL))


@pytest.fixture(scope="module")
def url(path: Path) -> Iterator[str]:
    with servers.serving(create_app(Settings(models=(ModelSpec(str(path)),)))) as url:
        yield url


@pytest.fixture(scope="module")
def llm(path: Path) -> Iterator[pyggml.LLM]:
    with pyggml.load(path) as llm:
        yield llm


def post(url: str, path: str, **body: Any) -> Any:
    answer = httpx.post(f"{url}{path}", json={**OPTIONS, **body}, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_completions(url: str, llm: pyggml.LLM) -> None:
    expected = llm.infill(PREFIX, SUFFIX, max_tokens=12, **OPTIONS)
    found = post(url, "/v1/completions", prompt=PREFIX, suffix=SUFFIX, max_tokens=12)
    assert found["choices"][0]["text"] == expected.text
    assert found["usage"]["prompt_tokens"] == expected.prompt_tokens
    several = post(url, "/v1/completions", prompt=[PREFIX, "x = "], suffix=SUFFIX, max_tokens=12)
    assert several["choices"][0]["text"] == expected.text
    assert several["choices"][1]["text"] == llm.infill("x = ", SUFFIX, max_tokens=12, **OPTIONS).text
    first = expected.token_ids[:1]
    stops = post(url, "/v1/completions", prompt=PREFIX, suffix=SUFFIX, max_tokens=12, stop_token_ids=first)
    assert (stops["choices"][0]["text"], stops["choices"][0]["stop_reason"]) == ("", first[0])


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"prompt": [5, 6], "suffix": "x"}, "suffix: it takes prompts that are texts"),
        ({"prompt": "a", "suffix": "x", "echo": True}, "suffix: it cannot be combined with echo"),
    ],
)
def test_what_completions_refuse(url: str, body: dict[str, Any], said: str) -> None:
    answer = httpx.post(f"{url}/v1/completions", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "suffix")
    assert said in answer.json()["error"]["message"]


def test_ollama(url: str, llm: pyggml.LLM) -> None:
    client = ollama.Client(host=url)
    expected = llm.infill(PREFIX, SUFFIX, max_tokens=12, **OPTIONS).text
    options = {**OPTIONS, "num_predict": 12}
    assert client.generate("default", PREFIX, suffix=SUFFIX, options=options).response == expected
    lines = client.generate("default", PREFIX, suffix=SUFFIX, options=options, stream=True)
    assert "".join(line.response or "" for line in lines) == expected
    with pytest.raises(ollama.ResponseError, match=r"^system: ") as caught:
        client.generate("default", PREFIX, suffix=SUFFIX, system="x")
    assert caught.value.status_code == 400
    client._client.close()


def test_llama_server(url: str, llm: pyggml.LLM) -> None:
    files = [{"filename": "a.py", "text": "A = 1\n"}]
    body = {"input_prefix": PREFIX, "input_suffix": SUFFIX, "input_extra": files, "prompt": "a +", "n_predict": 12}
    expected = llm.infill(PREFIX + "a +", SUFFIX, extra_files={"a.py": "A = 1\n"}, max_tokens=12, **OPTIONS)
    found = post(url, "/infill", **body, cache_prompt=True, samplers=None, t_max_predict_ms=500)
    assert (found["content"], found["stop"], found["truncated"]) == (expected.text, True, False)
    assert found["tokens_evaluated"] == expected.prompt_tokens
    assert found["tokens_predicted"] == found["timings"]["predicted_n"] == len(expected.token_ids)
    assert found["stop_type"] in ("limit", "eos")
    assert found["timings"]["prompt_ms"] > 0
    with httpx.stream("POST", f"{url}/infill", json={**OPTIONS, **body, "stream": True}, timeout=60) as answer:
        events = [json.loads(data) for _, data in servers.events([*answer.iter_lines()])]
    assert "".join(each["content"] for each in events) == expected.text
    assert [each["stop"] for each in events] == [False] * (len(events) - 1) + [True]


def test_llama_server_truncates(url: str, llm: pyggml.LLM) -> None:
    extra = [{"filename": f"{n}.py", "text": "x" * 500} for n in range(9)]
    found = post(url, "/infill", input_prefix="p" * llm.n_ctx, input_suffix="s", input_extra=extra, n_predict=8)
    assert (found["truncated"], found["tokens_evaluated"]) == (True, llm.n_ctx - 8)


def test_models_without_tokens_for_it() -> None:
    with servers.serving() as url:
        for path, body in (
            ("/infill", {"input_prefix": "a", "input_suffix": "b"}),
            ("/v1/completions", {"prompt": "a", "suffix": "b"}),
            ("/api/generate", {"model": "default", "prompt": "a", "suffix": "b"}),
        ):
            answer = httpx.post(f"{url}{path}", json=body)
            assert answer.status_code == 400, path
            assert "cannot fill in text" in answer.text
