"""The demonstration model with llama-cpp-python's interface."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import pyggml
from pyggml.compat.llama_cpp import Llama

PATH = str(pyggml.SHIPPED_MODEL)


@pytest.fixture(scope="module")
def llama() -> Iterator[Llama]:
    with Llama(PATH, n_ctx=1024, n_threads=1, verbose=False) as llama:
        # Contexts are made on first use; not within a test, which is checked for leaks.
        llama("x", max_tokens=1, stopping_criteria=lambda _ids, _scores: False)
        llama.eval([1])
        llama.embed("x")
        yield llama
