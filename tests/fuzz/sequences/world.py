"""The reference: which objects there are, what they must refuse and may refuse, and what they answer.

An object may be closed from the start of a call that closes it, and must be closed once that call has returned. While
the call runs, both are right. So a sequence without overlaps is judged exactly, and one with threads loosely.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

PROMPTS = ["Once upon a time", "One day, a little", "There was a", "The little dog", "Tim had a cat", "The sky is"]
QUESTION = [{"role": "user", "content": "What colour is the sky?"}]
N_TOKENS = 60  # of each prompt's answer that are known
N_SLOTS = 3  # for objects of each kind


class CallersError(Exception):
    """An exception of callers' own functions."""


class Alarm(Exception):
    """An exception of a signal handler."""


class EndOfChild(SystemExit):
    """A forked child has done its part, and its interpreter ends."""


@dataclass(frozen=True)
class Answers:
    """The answers to each prompt of one model that does nothing else."""

    token_ids: list[list[int]]
    vector: npt.NDArray[np.float32]  # of the first prompt
    content: str  # of the answer to QUESTION


@dataclass(eq=False)
class Thing:
    """An object, and what is known of it.

    Attributes:
        needs: when one of these is closed, this must refuse what it is asked.
        linked: when one of these is closed, this may refuse.
        facts: what it was asked for.
    """

    object: Any
    needs: tuple[Thing, ...] = ()
    linked: list[Thing] = field(default_factory=list)
    closing: bool = False
    closed: bool = False
    inherited: bool = False
    facts: dict[str, Any] = field(default_factory=dict)

    def must_be_closed(self) -> bool:
        return self.closed or any(thing.must_be_closed() for thing in self.needs)

    def may_be_closed(self) -> bool:
        return self.closing or any(thing.may_be_closed() for thing in self.needs) or any(b.closing for b in self.linked)

    def is_inherited(self) -> bool:
        return self.inherited or any(thing.is_inherited() for thing in self.needs)

    def close(self) -> None:
        self.closing = True
        self.object.close()
        self.closed = True


class World:
    """The objects of a case, in slots that threads share, and the faults found."""

    def __init__(self, answers: Answers, folder: Path) -> None:
        self.answers = answers
        self.folder = folder
        self.is_child = False
        self.is_ending = False  # the interpreter ends, which closes every engine
        self.is_through = False  # no step is left, and no thread of one may go on
        self.handlers: list[Callable[[], None]] = []  # what the handler of SIGUSR1 does
        self.late: list[Callable[[], None]] = []  # what is done after pyggml's own handlers of atexit
        self.armed = False  # whether a signal may raise in the main thread now
        self._slots: dict[str, list[Thing | None]] = {}
        self._seen: list[weakref.ref[Any]] = []

    # --- objects ----------------------------------------------------------------------------------------------

    def put(self, kind: str, slot: int, thing: Thing) -> Thing:
        """Put an object into a slot; the previous one is dropped, not closed."""
        if type(thing.object).__weakrefoffset__:
            self._seen.append(weakref.ref(thing.object))
        self._slots.setdefault(kind, [None] * N_SLOTS)[slot % N_SLOTS] = thing
        return thing

    def get(self, kind: str, slot: int) -> Thing | None:
        return self._slots.get(kind, [None] * N_SLOTS)[slot % N_SLOTS]

    def drop(self, kind: str, slot: int) -> None:
        self._slots.get(kind, [None] * N_SLOTS)[slot % N_SLOTS] = None

    def things(self) -> list[Thing]:
        return [thing for slots in list(self._slots.values()) for thing in slots if thing is not None]

    def forget(self) -> None:
        self._slots.clear()
        self.handlers.clear()

    def kept_alive(self) -> list[str]:
        """Return the types of objects that live on although they are unreferenced."""
        return [type(one).__name__ for reference in self._seen if (one := reference()) is not None]

    def become_child(self) -> None:
        """After a fork: everything belongs to the parent."""
        self.is_child = True
        for thing in self.things():
            thing.inherited = True

    # --- judging ----------------------------------------------------------------------------------------------

    @contextmanager
    def attempt(
        self, what: str, *things: Thing, may: tuple[type[BaseException], ...] = (), lenient: bool = False
    ) -> Iterator[None]:
        """A call of these objects, whose answer is judged in the block.

        Args:
            what: says which, in a fault.
            *things: the objects it needs.
            may: what it may raise besides.
            lenient: it need not be refused by what is closed or inherited.
        """
        import pyggml

        refuses = not lenient and any(thing.must_be_closed() or thing.is_inherited() for thing in things)
        in_main = threading.current_thread() is threading.main_thread()
        self.armed = self.armed or in_main
        try:
            yield
        except may:
            pass
        except pyggml.ClosedError:
            if not self.is_ending and not any(thing.may_be_closed() for thing in things):
                self.fault(f"{what}: ClosedError, but it was not closed")
        except pyggml.EngineError:
            if not any(thing.is_inherited() for thing in things):
                self.fault(f"{what}: EngineError")
        except Alarm:
            if not in_main:
                self.fault(f"{what}: Alarm in a thread")
            raise
        except RuntimeError as error:
            # Python's own answer to whoever wants a thread then, asyncio.to_thread included.
            if not (self.is_ending and "interpreter shutdown" in str(error)):
                self.fault(f"{what}: {_told(error)}")
        except Exception as error:
            self.fault(f"{what}: {_told(error)}")
        else:
            if refuses:
                self.fault(f"{what}: answered by what is closed or of another process")
        finally:
            self.armed = self.armed and not in_main

    def judge(self, prompt: int, token_ids: Sequence[int], n: int | None) -> None:
        """Holds the tokens of a greedy generation against the answer; None: it may have been cancelled."""
        known = self.answers.token_ids[prompt % len(PROMPTS)]
        if n is not None and len(token_ids) != n:
            raise AssertionError(f"{len(token_ids)} tokens, and {n} were asked for")
        if list(token_ids) != known[: len(token_ids)]:
            raise AssertionError(f"other tokens than alone: {list(token_ids)}")

    def fault(self, kind: str) -> None:
        """Writes down what must not happen, with the exception that is being handled."""
        line = json.dumps({"kind": f"{'in a child: ' * self.is_child}{kind}", "words": traceback.format_exc()})
        write_line(self.folder / "faults", line)

    def expect(self, status: int) -> None:
        """Record the process's expected end: its exit status, or minus a signal."""
        write_line(self.folder / "expected", str(status))


def write_line(path: Path, line: str) -> None:
    """At once, so that it is there even if the process ends."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(file, line.encode() + b"\n")
    finally:
        os.close(file)


def _told(error: Exception) -> str:
    """Its kind, and the last line of pyggml or of the steps that it came from."""
    place = traceback.extract_tb(sys.exc_info()[2])[-1]
    return f"{type(error).__name__} at {Path(place.filename).name}:{place.lineno}"
