"""Fixtures for testing programs that use pyggml; pytest finds them automatically.

Their names begin with ``pyggml_``. The library is imported when the first one is used, and not at the top: pytest
inspects a plugin's attributes, and accessing an attribute of the package loads the library.
"""

from __future__ import annotations

import functools
import gc
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyggml import LLM

_HANDLE = "PYG_HANDLE_"
_TIMEOUT_S = 1.0


@pytest.fixture(scope="session")
def pyggml_model_path() -> Path:
    """Path of the small model that ships with pyggml, for code that loads a model."""
    from pyggml.source import SHIPPED_MODEL

    return SHIPPED_MODEL


@pytest.fixture(scope="session")
def pyggml_llm(pyggml_model_path: Path) -> Iterator[LLM]:
    """The small model, loaded once for all tests, on one thread, without batching or prefix cache.

    The same prompt with the same parameters gives the same text, whatever ran before.
    """
    import pyggml

    with pyggml.load(pyggml_model_path, device="cpu", n_parallel=1, n_threads=1, prefix_cache=False) as llm:
        llm.embed(["The context for embeddings stays, and must not count as a leak of a test."])
        yield llm


@pytest.fixture(scope="module")
def _pyggml_collect() -> Iterator[None]:
    """Collect garbage after a module's last test."""
    yield
    gc.collect()


@pytest.fixture
def pyggml_no_leaks(request: pytest.FixtureRequest, _pyggml_collect: None) -> Iterator[None]:
    """Fail a test that leaks models, contexts, requests or other native objects.

    Other threads, such as a server's, have a second to release their objects. Failed tests are not checked: their
    tracebacks keep objects alive.
    """
    n_failed = request.session.testsfailed
    # The garbage collector skips frozen objects, so a collection visits only the test's own (visiting all takes 0.1 s),
    # and older garbage is counted both before and after the test.
    gc.freeze()
    before = _live_handles()
    yield
    leaked = {}
    if request.session.testsfailed == n_failed:
        request.node.funcargs.clear()  # pytest would keep the values of the test's fixtures alive
        leaked = _leaked(before)
    gc.unfreeze()
    if leaked:
        what = ", ".join(f"{n} {kind}" for kind, n in leaked.items())
        pytest.fail(f"this test leaks native objects: {what}", pytrace=False)


def _leaked(before: dict[str, int]) -> dict[str, int]:
    """Return the number of new native objects of each kind that remain after the timeout."""
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        gc.collect()
        leaked = {kind: n - before[kind] for kind, n in _live_handles().items() if n > before[kind]}
        if not leaked or time.monotonic() > deadline:
            return leaked
        time.sleep(0.02)


def _live_handles() -> dict[str, int]:
    """Return the number of live native objects of each kind."""
    from pyggml import lib

    return {name: lib.pyg_live_handles(kind) for name, kind in _kinds().items()}


@functools.cache
def _kinds() -> dict[str, int]:
    """Return the kinds of native objects, by name."""
    from pyggml import lib

    return {
        name.removeprefix(_HANDLE).lower(): getattr(lib, name)
        for name in dir(lib)
        if name.startswith(_HANDLE) and name != f"{_HANDLE}KINDS"
    }
