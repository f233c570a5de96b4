"""Fixtures for the tests of programs that use pyggml; pytest finds them by itself.

They begin with ``pyggml_``. The library is imported when the first of them is used, and not at the top: pytest asks
what it finds in a plugin for attributes, and asking the package for one is what loads the library.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyggml import LLM

_HANDLE = "PYG_HANDLE_"


@pytest.fixture(scope="session")
def pyggml_model_path() -> Path:
    """The file of the small model that ships with pyggml, for code that wants to load one."""
    from pyggml.source import SHIPPED_MODEL

    return SHIPPED_MODEL


@pytest.fixture(scope="session")
def pyggml_llm(pyggml_model_path: Path) -> Iterator[LLM]:
    """That model, loaded once for all tests, on one thread and in its bit-reproducible mode.

    The same prompt with the same parameters gives the same text, whatever other tests asked before.
    """
    import pyggml

    with pyggml.load(pyggml_model_path, device="cpu", n_parallel=1, n_threads=1, prefix_cache=False) as llm:
        llm.embed(["The context for embeddings is kept, and no test should be blamed for it."])
        yield llm


@pytest.fixture(scope="module")
def _pyggml_collect() -> Iterator[None]:
    """Collects the garbage of a module's tests and fixtures after the last of them."""
    yield
    gc.collect()


@pytest.fixture
def pyggml_no_leaks(request: pytest.FixtureRequest, _pyggml_collect: None) -> Iterator[None]:
    """Fails a test that leaves models, contexts, requests or other native objects behind.

    A test that failed already is let off: its traceback keeps what it had.
    """
    n_failed = request.session.testsfailed
    # Frozen objects are not looked at by the collector. That leaves it the test's own, which takes a moment where all
    # would take a tenth of a second; and older garbage that is counted now is still there to be counted afterwards.
    gc.freeze()
    before = _live_handles()
    yield
    left = {}
    if request.session.testsfailed == n_failed:
        request.node.funcargs.clear()  # pytest would hold on to what the test's own fixtures made
        gc.collect()
        left = {kind: n - before[kind] for kind, n in _live_handles().items() if n > before[kind]}
    gc.unfreeze()
    if left:
        what = ", ".join(f"{n} {kind}" for kind, n in left.items())
        pytest.fail(f"this test leaves native objects behind: {what}", pytrace=False)


def _live_handles() -> dict[str, int]:
    """How many native objects of each kind there are."""
    from pyggml import lib

    return {name: lib.pyg_live_handles(kind) for name, kind in _kinds().items()}


@functools.cache
def _kinds() -> dict[str, int]:
    """The kinds of native objects, by name."""
    from pyggml import lib

    return {
        name.removeprefix(_HANDLE).lower(): getattr(lib, name)
        for name in dir(lib)
        if name.startswith(_HANDLE) and name != f"{_HANDLE}KINDS"
    }
