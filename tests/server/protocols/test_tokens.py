"""Tokens of texts and back, with llama-server's fields and with vLLM's."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from support.servers import servers

import pyggml
from pyggml.server import ModelSpec, Settings, create_app

TEXT = "Once upon a time"


@pytest.fixture(scope="module")
def http() -> Iterator[httpx.Client]:
    app = create_app(Settings(models=(ModelSpec(None, name="demo"),)))
    with servers.serving(app) as url, httpx.Client(base_url=url, timeout=60) as client:
        yield client


def test_fields_of_llama_server(http: httpx.Client, llm: pyggml.LLM) -> None:
    found = http.post("/tokenize", json={"content": TEXT}).json()
    assert found["tokens"] == llm.tokenize(TEXT, add_special=False)
    assert found["count"] == len(found["tokens"])
    special = http.post("/tokenize", json={"content": TEXT, "add_special": True}).json()
    assert special["tokens"] == llm.tokenize(TEXT)
    assert http.post("/detokenize", json={"tokens": found["tokens"]}).json()["content"] == TEXT


def test_fields_of_vllm(http: httpx.Client, llm: pyggml.LLM) -> None:
    found = http.post("/tokenize", json={"model": "demo", "prompt": TEXT}).json()
    assert found["tokens"] == llm.tokenize(TEXT)
    assert (found["count"], found["max_model_len"] > 0) == (len(found["tokens"]), True)
    bare = http.post("/tokenize", json={"prompt": TEXT, "add_special_tokens": False}).json()["tokens"]
    assert bare == llm.tokenize(TEXT, add_special=False)
    assert http.post("/detokenize", json={"model": "demo", "tokens": bare}).json()["prompt"] == TEXT


def test_one_text_is_needed(http: httpx.Client) -> None:
    for body in ({}, {"content": "a", "prompt": "a"}):
        refused = http.post("/tokenize", json=body)
        assert refused.status_code == 400
        assert "one of the fields 'content' and 'prompt'" in refused.text
    assert http.post("/tokenize", json={"content": ""}).json()["tokens"] == []


def test_tokenizer_info(http: httpx.Client, llm: pyggml.LLM) -> None:
    vocab = llm.model.vocab
    found = http.get("/tokenizer_info").json()
    texts = [None if each is None else vocab.text(each) for each in (vocab.bos, vocab.eos, vocab.pad)]
    assert [found[name] for name in ("bos_token", "eos_token", "pad_token")] == texts
    assert found["chat_template"] == llm.model.chat_template()
    assert http.get("/tokenizer_info", params={"model": "no such"}).status_code == 404
