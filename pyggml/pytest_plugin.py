"""Fixtures for testing programs that use pyggml; pytest finds them automatically.

Their names begin with ``pyggml_``. The library is imported when the first one is used, and not at the top, because
pytest inspects a plugin's attributes, and accessing an attribute of the package loads the library.
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
_PATIENCE_S = 1.0


@pytest.fixture(scope="session")
def pyggml_model_path() -> Path:
    """The file of the small model that ships with pyggml, for code that wants to load one."""
    from pyggml.source import SHIPPED_MODEL

    return SHIPPED_MODEL


@pytest.fixture(scope="session")
def pyggml_llm(pyggml_model_path: Path) -> Iterator[LLM]:
    """That model, loaded once for all tests, on one thread, each request alone and from its beginning.

    The same prompt with the same parameters gives the same text, whatever ran before.
    """
    import pyggml

    with pyggml.load(pyggml_model_path, device="cpu", n_parallel=1, n_threads=1, prefix_cache=False) as llm:
        llm.embed(["The context for embeddings is kept, and no test should be blamed for it."])
        yield llm


@pytest.fixture(scope="module")
def _pyggml_collect() -> Iterator[None]:
    """Collects garbage after a module's last test."""
    yield
    gc.collect()


@pytest.fixture
def pyggml_no_leaks(request: pytest.FixtureRequest, _pyggml_collect: None) -> Iterator[None]:
    """Fails a test that leaks models, contexts, requests or other native objects.

    Another thread, such as a server's, has a second to let go of its own. Failed tests are not checked: their
    tracebacks keep objects alive.
    """
    n_failed = request.session.testsfailed
    # The collector skips frozen objects. Only the test's own remain, so that a collection is quick (it would otherwise
    # take a tenth of a second); and older garbage is counted both before and after the test.
    gc.freeze()
    before = _live_handles()
    yield
    left = {}
    if request.session.testsfailed == n_failed:
        request.node.funcargs.clear()  # pytest would keep the values of the test's fixtures alive
        left = _left_over(before)
    gc.unfreeze()
    if left:
        what = ", ".join(f"{n} {kind}" for kind, n in left.items())
        pytest.fail(f"this test leaks native objects: {what}", pytrace=False)


def _left_over(before: dict[str, int]) -> dict[str, int]:
    """Number of native objects of each kind that have come since, and do not go soon."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        gc.collect()
        left = {kind: n - before[kind] for kind, n in _live_handles().items() if n > before[kind]}
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.02)


def _live_handles() -> dict[str, int]:
    """Number of live native objects of each kind."""
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
