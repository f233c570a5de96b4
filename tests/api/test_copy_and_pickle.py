"""Copying and pickling: plain data can be copied; objects that own engine memory refuse and name the alternative."""

from __future__ import annotations

import asyncio
import copy
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import pyggml
from pyggml._native.backend import Backend
from pyggml.gguf import GGUFReader, GGUFWriter

COPIES: tuple[Callable[[object], object], ...] = (copy.copy, copy.deepcopy, pickle.dumps)
QUESTION = [{"role": "user", "content": "What colour is the sky?"}]


@pytest.fixture(scope="module")
def llm() -> Iterator[pyggml.LLM]:
    with pyggml.load(n_threads=1) as llm:
        yield llm


def _refuses(owner: object, way_out: str) -> None:
    for make in COPIES:
        with pytest.raises(pyggml.CopyError, match=way_out) as caught:
            make(owner)
        assert isinstance(caught.value, TypeError)
        assert str(caught.value).startswith(f"{type(owner).__name__} objects cannot be copied or pickled: ")


def test_models(llm: pyggml.LLM) -> None:
    _refuses(llm, "share this one between threads and tasks; another process loads its own")
    _refuses(llm.model, "another process loads its own")
    _refuses(llm.model.vocab, "the model it loads")
    _refuses(llm.tokenizer, "the model it loads")
    _refuses(llm.chat_templates(), "share this one")
    assert llm.generate("Once", max_tokens=3).text  # none of that harmed it


def test_contexts_samplers_and_engines(llm: pyggml.LLM) -> None:
    with pyggml.Sampler(llm.model).top_k(3) as sampler:
        _refuses(sampler, r"clone\(\) returns a copy")
        assert sampler.clone().names == sampler.names
    context = pyggml.Context(llm.model, n_ctx=64)
    _refuses(context, "make another one")
    engine = pyggml.Engine(context)
    _refuses(engine, "share this one")
    engine.close()


def test_streams(llm: pyggml.LLM) -> None:
    with llm.stream("Once", max_tokens=3) as stream:
        _refuses(stream, r"finish\(\) returns a completion")
    with llm.stream_chat(QUESTION, max_tokens=3) as chat:
        _refuses(chat, r"finish\(\) returns a completion")

    async def asynchronous() -> None:
        async with llm.astream("Once", max_tokens=3) as stream:
            _refuses(stream, r"await finish\(\)")

    asyncio.run(asynchronous())


def test_files_and_devices(tmp_path: Path) -> None:
    with GGUFReader(pyggml.SHIPPED_MODEL) as reader:
        _refuses(reader, "open the file again")
        _refuses(reader.metadata, r"dict\(metadata\) is a copy")
        assert pickle.loads(pickle.dumps(dict(reader.metadata)))["general.architecture"] == "llama"
    _refuses(GGUFWriter(tmp_path / "x.gguf"), "share this one")
    with Backend("CPU") as backend:
        _refuses(backend, "open the device again")


def test_results_are_plain_data(llm: pyggml.LLM) -> None:
    results = (
        llm.generate("Once", max_tokens=3, logprobs=2),
        llm.chat(QUESTION, max_tokens=3),
        next(llm.stream("Once", max_tokens=1)),
        llm.stats(),
        pyggml.SamplingParams(temperature=0.5, stop=("a", "b")),
        pyggml.devices()[0],
        pyggml.inspect(pyggml.SHIPPED_MODEL).estimate(n_ctx=512),
    )
    for result in results:
        assert pickle.loads(pickle.dumps(result)) == copy.deepcopy(result) == copy.copy(result) == result


@pytest.mark.slow
def test_reprs_say_what_it_is_and_work_after_close() -> None:
    llm = pyggml.load(n_threads=1)
    vocabulary = pyggml.Model(pyggml.SHIPPED_MODEL, vocab_only=True)
    owners = [llm, llm.model, vocabulary, pyggml.Context(llm.model, n_ctx=64), pyggml.Sampler(llm.model).top_k(3)]
    for owner in owners:
        shown = repr(owner)
        assert shown.startswith(type(owner).__name__)
        assert "?" not in shown  # the engine's name for a size it does not know
        owner.close()
        assert "closed" in repr(owner)
    assert "llama 3.5M Q8_0" in repr(llm)
    assert re.search(r": [0-9.]+M, closed\)$", repr(vocabulary))
