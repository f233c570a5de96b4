"""Attributes that are computed when they are first asked for."""

from __future__ import annotations

import os
import sys
import threading

import pytest

from pyggml._core.cached_property import cached_property


class Slow:
    def __init__(self) -> None:
        self.began, self.go_on, self.n_computed = threading.Event(), threading.Event(), 0

    @cached_property
    def value(self) -> int:
        """The value."""
        self.n_computed += 1
        self.began.set()
        self.go_on.wait(60)
        return self.n_computed


def test_it_is_computed_once() -> None:
    one = Slow()
    one.go_on.set()
    assert (one.value, one.value, one.n_computed) == (1, 1, 1)
    assert Slow.value.__doc__ == "The value."


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_waits_for_no_thread() -> None:
    """A thread of the parent that computes the value of another object does not block the child."""
    one, other = Slow(), Slow()
    other.go_on.set()
    computing = threading.Thread(target=lambda: one.value)
    computing.start()
    one.began.wait(60)
    child = os.fork()
    if child == 0:
        threading.Timer(30, os._exit, (1,)).start()
        os._exit(0 if other.value == 1 else 2)
    one.go_on.set()
    computing.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
