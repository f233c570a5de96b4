"""The memory of weights in tiles, which asks for large pages while a model is loaded."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import pytest

import pyggml

LARGE_PAGES = "hg"  # what asks for them, among the flags of a range of memory


def _asks_for_large_pages() -> set[str]:
    """The ranges of this process's memory that do."""
    found, ranges = set(), ""
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *flags = line.split()
        if "-" in first:
            ranges = first
        elif first == "VmFlags:" and LARGE_PAGES in flags:
            found.add(ranges)
    return found


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads what Linux says about memory")
def test_what_is_freed_does_not_ask_for_large_pages() -> None:
    """It went on to where malloc had it from its heap, and a process that opened and closed models grew."""
    gc.collect()  # models of other tests
    before = _asks_for_large_pages()
    loaded: set[str] = set()
    for _ in range(3):  # from the second on, malloc has room in its heap for what it would map else
        with pyggml.load():
            loaded = _asks_for_large_pages() - before
        assert not _asks_for_large_pages() - before
    if not loaded:
        pytest.skip("no weights in tiles here, or no large pages")
