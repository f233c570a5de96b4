"""Reentrant calls: code that interrupts a call and uses the same object gets a result or an error, and never blocks."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.checkpoints import models
from support.interrupts import interrupted

import pyggml
from pyggml import InvalidParameterError, gguf, quant

TEXTS = ["Once upon a time, there was a little cat that wanted to see the sea"] * 40
IDS = list(range(3, 40))
SOON = 0.003


@pytest.fixture
def interrupting() -> Iterator[Callable[[Callable[[], object]], list[object]]]:
    """Begins to do something in the handler of a signal, soon and again and again; its outcomes."""
    before = signal.getsignal(signal.SIGALRM)

    def begin(work: Callable[[], object]) -> list[object]:
        outcomes: list[object] = []

        def handler(_number: int, _frame: object) -> None:
            try:
                outcomes.append(work())
            except pyggml.InferError as error:
                outcomes.append(error)
            signal.setitimer(signal.ITIMER_REAL, SOON)  # not before: it would interrupt itself

        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, SOON)
        return outcomes

    yield begin
    # A handler that is still pending would set the timer again, and pytest-timeout's handler would take the alarm for
    # the end of the test's time.
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_embed_within_embed_is_answered(
    own_llm: pyggml.LLM, interrupting: Callable[[Callable[[], object]], list[object]]
) -> None:
    """Or refused, if it interrupts one of the moments in which the queue of texts is locked."""
    vectors, one = own_llm.embed(TEXTS), own_llm.embed([IDS])
    outcomes = interrupting(lambda: own_llm.embed([IDS]))
    while sum(isinstance(outcome, np.ndarray) for outcome in outcomes) < 5:
        assert (own_llm.embed(TEXTS) == vectors).all()
    signal.setitimer(signal.ITIMER_REAL, 0)
    answers = [outcome for outcome in outcomes if not isinstance(outcome, InvalidParameterError)]
    assert all(np.array_equal(outcome, one) for outcome in answers)  # type: ignore[arg-type]


@pytest.mark.slow_except("generate", "stream", "chat")
@pytest.mark.parametrize("what", ["generate", "stream", "chat", "logits", "tokenize", "stats", "batch"])
def test_other_calls_within_each_other_are_answered(
    own_llm: pyggml.LLM, interrupting: Callable[[Callable[[], object]], list[object]], what: str
) -> None:
    work: dict[str, Callable[[], Any]] = {
        "generate": lambda: own_llm.generate("Once", max_tokens=20).token_ids,
        "stream": lambda: "".join(chunk.text for chunk in own_llm.stream("Once", max_tokens=9)),
        "chat": lambda: own_llm.chat([{"role": "user", "content": "What colour is the sky?"}]).message.content,
        "logits": lambda: own_llm.logits(IDS).argmax(axis=1).tolist(),
        "tokenize": lambda: own_llm.tokenize(TEXTS[0]),
        "stats": lambda: own_llm.stats().n_parallel,
        "batch": lambda: [done.text for done in own_llm.generate_batch(["Once", "One"], max_tokens=4)],
    }
    alone = work[what]()
    outcomes = interrupting(work[what])
    while len(outcomes) < 5:
        assert work[what]() == alone
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert all(outcome == alone for outcome in outcomes), outcomes


def test_a_context_within_its_own_calls(interrupting: Callable[[Callable[[], object]], list[object]]) -> None:
    with pyggml.Model(pyggml.SHIPPED_MODEL) as model, pyggml.Context(model, n_ctx=256, n_threads=1) as context:
        context.decode(IDS)
        saved = context.state_save()
        outcomes = interrupting(context.state_save)
        while len(outcomes) < 5:
            context.state_restore(saved)
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert all(outcome == saved for outcome in outcomes)


def test_hidden_states_within_hidden_states_are_refused(
    own_llm: pyggml.LLM, interrupting: Callable[[Callable[[], object]], list[object]]
) -> None:
    """Or computed, if it interrupts a moment between two texts."""
    states, one = own_llm.embed(TEXTS, layers=[1]), own_llm.embed([IDS], layers=[1])
    outcomes = interrupting(lambda: own_llm.embed([IDS], layers=[1]))
    while not any(isinstance(outcome, InvalidParameterError) for outcome in outcomes):
        assert (own_llm.embed(TEXTS, layers=[1]) == states).all()
    signal.setitimer(signal.ITIMER_REAL, 0)
    answers = [outcome for outcome in outcomes if not isinstance(outcome, InvalidParameterError)]
    assert all(np.array_equal(outcome, one) for outcome in answers)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{}, {"layers": [1]}], ids=["vectors", "layers"])
def test_a_handler_may_close_what_it_interrupts(
    own_llm: pyggml.LLM, interrupting: Callable[[Callable[[], object]], list[object]], options: dict[str, Any]
) -> None:
    own_llm.embed(TEXTS, **options)
    interrupting(own_llm.close)

    def embed_for_ever() -> None:
        while True:
            own_llm.embed(TEXTS, **options)

    with pytest.raises(pyggml.ClosedError):
        embed_for_ever()


CALLS: dict[str, Callable[[pyggml.LLM], object]] = {
    "embed": lambda llm: llm.embed(["Once", "upon"]),
    "layers": lambda llm: llm.embed(["Once", "upon"], layers=[1]),
    "generate": lambda llm: llm.generate("Once", max_tokens=3),
    "stream": lambda llm: list(llm.stream("Once", max_tokens=3)),
    "batch": lambda llm: llm.generate_batch(["Once", "upon"], max_tokens=2),
    "logits": lambda llm: llm.logits([3, 4, 5]),
    "chat": lambda llm: llm.chat([{"role": "user", "content": "Hi"}], max_tokens=3),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_a_handler_may_close_at_every_point(name: str) -> None:
    """The call then ends as always, or is told that its model was closed."""
    llms: list[pyggml.LLM] = []
    outcomes = set()
    for place, raised in interrupted(
        lambda: CALLS[name](llms[-1]),
        step=29 if name == "embed" else 47,  # each point takes a model of its own
        handler=lambda: llms[-1].close(),
        prepare=lambda: llms.append(pyggml.load()),
    ):
        assert raised is None or isinstance(raised, pyggml.ClosedError), (place, raised)
        outcomes.add(type(raised))
        llms.pop().close()
    llms.pop().close()
    assert pyggml.ClosedError in outcomes


def test_a_finalizer_within_embed(own_llm: pyggml.LLM) -> None:
    """Garbage is collected in the middle of any call."""
    outcomes: list[object] = []

    class Garbage:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            try:
                outcomes.append(own_llm.embed([IDS]))
            except InvalidParameterError as error:
                outcomes.append(error)

    own_llm.embed([IDS])
    before = gc.get_threshold()
    try:
        for n in range(10, 200, 3):  # objects, after which garbage is looked for
            Garbage()
            gc.set_threshold(n)
            own_llm.embed([IDS])
            gc.set_threshold(*before)
    finally:
        gc.set_threshold(*before)
        gc.collect()
    assert any(isinstance(outcome, InvalidParameterError) for outcome in outcomes)


def test_a_writer_within_its_own_parts(tmp_path: Path) -> None:
    target = tmp_path / "x.gguf"
    row = np.zeros((1, 32), np.float32)

    def parts(then: Callable[[], object]) -> Iterator[np.ndarray[Any, Any]]:
        yield row
        then()
        yield row

    def declared() -> gguf.GGUFWriter:
        writer = gguf.GGUFWriter(target)
        writer.add_tensor("x", (2, 32), quant.GGMLType.F32)
        return writer

    with declared() as writer:
        with pytest.raises(InvalidParameterError, match="within itself"):
            writer.write_tensor_parts("x", parts(lambda: writer.write_tensor("x", np.zeros((2, 32), np.float32))))
        writer.write_tensor_parts("x", parts(lambda: None))
    assert target.exists()
    target.unlink()
    writer = declared()
    with pytest.raises(pyggml.ClosedError):
        writer.write_tensor_parts("x", parts(writer.close))
    assert not any(tmp_path.iterdir())


AT_THE_END = """
import asyncio, atexit
import pyggml

llm = pyggml.load(n_threads=1)

@atexit.register
def late():
    try:
        asyncio.run(llm.aembed("a"))
    except pyggml.ClosedError as error:
        print(error)
"""


@pytest.mark.slow
def test_embed_in_an_event_loop_at_the_end_of_the_interpreter() -> None:
    """Python starts no threads any more: those that embed run already, or the call is refused."""
    done = subprocess.run([sys.executable, "-c", AT_THE_END], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "" or "the interpreter is shutting down" in done.stdout


FORKS = """
import asyncio, os, signal, sys, threading
import pyggml
from pyggml import gguf, quant
import numpy as np

llm = pyggml.load(n_threads=1)
llm.embed("a")
asyncio.run(llm.aembed("a"))
writer = gguf.GGUFWriter("x.gguf")
writer.add_tensor("x", (2, 32), quant.GGMLType.F32)
is_over, is_writing = threading.Event(), threading.Event()

def embed():
    while not is_over.is_set():
        llm.embed(["Once upon a time " * 20] * 8)

def parts():
    is_writing.set()
    is_over.wait()
    yield np.zeros((2, 32), np.float32)

threads = [threading.Thread(target=embed), threading.Thread(target=writer.write_tensor_parts, args=("x", parts()))]
for thread in threads:
    thread.start()
is_writing.wait()

def in_a_child(use):
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    signal.alarm(20)
    try:
        use()
    except pyggml.EngineError as error:
        os._exit(1 if "fork" in str(error) else 2)
    os._exit(0)

for use in (
    lambda: llm.embed([[1, 2]]),
    lambda: asyncio.run(llm.aembed([[1, 2]])),
    lambda: writer.n_bytes,
    writer.close,
    llm.close,
):
    print([in_a_child(use) for _ in range(3)])
is_over.set()
for thread in threads:
    thread.join()
writer.finish()
print(llm.embed("a").any(), os.listdir())
"""


@pytest.mark.slow
def test_a_child_waits_for_no_thread_of_its_parent(tmp_path: Path) -> None:
    """Forked while other threads are within their calls."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(FORKS)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    used = "[1, 1, 1]"
    assert done.stdout.splitlines() == [used, used, used, "[0, 0, 0]", "[0, 0, 0]", "True ['x.gguf']"], done.stderr


CLOSED_MEANWHILE = """
import sys
from pyggml.errors import ClosedError
from pyggml.model import Model

def outcome(path, call, n):
    # What `call` gives if the model is closed at the n-th event of Python code in it; None: there are fewer.
    left = n

    def closing(frame, event, argument):
        nonlocal left
        left -= 1
        if left == 0:
            sys.settrace(None)
            model.close()
        return closing

    with Model(path, vocab_only=True) as model:
        vocab = model.vocab
        sys.settrace(closing)
        try:
            result = call(vocab)
        except ClosedError:
            result = "closed"
        finally:
            sys.settrace(None)
    return result if left <= 0 else None

with Model(sys.argv[1], vocab_only=True) as model:
    right = model.vocab.text(1234)
found, n = [], 1
while (result := outcome(sys.argv[1], lambda vocab: vocab.text(1234), n)) is not None:
    found.append(result)
    n += 1
assert set(found) == {right, "closed"}, found
"""


@pytest.mark.slow
def test_a_text_is_whole_or_the_model_is_closed() -> None:
    """Freed memory of the engine is never read: glibc unmaps a vocabulary of this size at once."""
    path = models.VOCABULARIES / "ggml-vocab-gpt-2.gguf"
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(128 << 10)}
    subprocess.run([sys.executable, "-c", CLOSED_MEANWHILE, str(path)], check=True, timeout=120, env=environment)
