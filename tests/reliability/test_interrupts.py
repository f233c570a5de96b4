"""Ctrl-C at any moment: KeyboardInterrupt is raised, and no lock, request or resource remains."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.interrupts import interrupted

import pyggml
from pyggml import gguf, quant

IDS = [5, 6, 7, 8]


def test_a_load_with_progress(tiny_path: Path) -> None:
    def load() -> None:
        pyggml.Model(tiny_path, progress=lambda _: None).close()

    places = []
    for place, error in interrupted(load):
        assert type(error) is KeyboardInterrupt, (place, error)
        places.append(place)
        error.__traceback__ = None
    assert len(places) > 100


@pytest.mark.slow_except(every=5)
@pytest.mark.parametrize("what", ["read", "read_now", "read_all", "logits", "submit"])
def test_a_request(llm: pyggml.LLM, what: str) -> None:
    """It can be read again while the exception is still there, as it is in a debugger and in a notebook."""
    engine = llm._engine
    kept = []

    def submit() -> pyggml.Request:
        return engine.submit(IDS, max_tokens=4, ignore_eos=True)

    work: dict[str, Callable[[], object]] = {
        "read": lambda: request.read(),
        "read_now": lambda: request.read_now(),
        "read_all": lambda: request.read_all(),
        "logits": lambda: engine.logits(IDS),
        "submit": submit,
    }
    request = submit()
    for place, error in interrupted(work[what]):
        assert type(error) is KeyboardInterrupt, (place, error)
        kept.append(error)
        request.read_all()
        assert request.finish_reason == "length", place
        request = submit()
    assert len(kept) > 10
    for error in kept:
        error.__traceback__ = None


def test_embedding(own_llm: pyggml.LLM) -> None:
    kept = []
    vector = own_llm.embed([IDS])[0]
    for place, error in interrupted(lambda: own_llm.embed([IDS])):
        assert type(error) is KeyboardInterrupt, (place, error)
        kept.append(error)
        assert (own_llm.embed([IDS])[0] == vector).all(), place
    assert len(kept) > 50
    for error in kept:
        error.__traceback__ = None


def test_the_log(tiny_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The lines of later loads arrive, whatever has been interrupted before."""
    caplog.set_level(logging.DEBUG, logger="pyggml")
    for place, error in interrupted(lambda: pyggml.Model(tiny_path, vocab_only=True).close(), step=3):
        assert type(error) is KeyboardInterrupt, (place, error)
        error.__traceback__ = None
        caplog.clear()
        pyggml.Model(tiny_path, vocab_only=True).close()
        assert caplog.records, place


@pytest.mark.filterwarnings("ignore:.*ScandirIterator")
def test_a_writer(tmp_path: Path) -> None:
    """An interrupted writer can be closed, and leaves only finished files."""

    def write() -> None:
        with gguf.GGUFWriter(tmp_path / "x.gguf") as writer:
            writer.add_tensor("x", (2, 32), quant.GGMLType.F32)
            writer.write_tensor("x", np.zeros((2, 32), np.float32))

    n = 0
    for place, error in interrupted(write):
        assert type(error) is KeyboardInterrupt, (place, error)
        error.__traceback__ = None
        n += 1
    assert n > 50
    assert [path.name for path in tmp_path.iterdir()] == ["x.gguf"]
