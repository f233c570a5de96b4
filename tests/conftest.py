"""Shared fixtures: small models made once, and a check for leaked native objects."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import filelock
import pytest
from support import device_kinds, event_loops, sanitizers, sweeps
from support.checkpoints import models, tokenizer_files

import pyggml
from pyggml._native.model import Model

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from support.servers.browser import Visit

# A shell that runs this in the background has it ignore Ctrl-C, and nohup has it ignore the end of the terminal. What
# the tests start would ignore both as well, and there are tests about that. Other than SIG_IGN, a handler of our own is
# not handed down.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda _number, _frame: None)


collect_ignore = ["clients"]  # noxfile.py runs them in other environments


@pytest.hookimpl(tryfirst=True)  # before pytest deselects by marks
def pytest_collection_modifyitems(items: list[pytest.Item], config: pytest.Config) -> None:
    sweeps.mark_slow(items, config)
    sanitizers.leave_out(items)


@pytest.fixture(autouse=True)
def no_handle_leaks(pyggml_no_leaks: None) -> None:
    """No test leaves native objects behind."""


@pytest.fixture(params=event_loops.LOOPS)
def run(request: pytest.FixtureRequest) -> event_loops.Run[Any]:
    """Runs a coroutine in a new loop of each kind."""
    if not event_loops.is_installed(request.param):
        pytest.skip(f"{request.param} is not installed")
    return lambda main: event_loops.run_in(request.param, main)


@pytest.fixture(scope="module")
def llm() -> Iterator[pyggml.LLM]:
    """The shipped model with eight sequences, shared by the tests of a file; many files need another, and have it."""
    with pyggml.load(n_ctx=16384, n_parallel=8, n_threads=1) as llm:
        yield llm


@pytest.fixture
def own_llm() -> Iterator[pyggml.LLM]:
    """A shipped model that the test may close."""
    with pyggml.load(n_ctx=16384, n_parallel=2, n_threads=1) as llm:
        yield llm


@pytest.fixture
def narrow() -> Iterator[pyggml.LLM]:
    """The shipped model with one request at a time, one that waits, and no more."""
    with pyggml.load(n_ctx=16384, n_parallel=1, max_queue=1, n_threads=1) as llm:
        yield llm


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Headless Chromium. Not for longer: while it is there, this thread has a running event loop."""
    from support.servers import browser

    with browser.chromium() as chromium:
        yield chromium


@pytest.fixture(scope="module")
def page_url() -> Iterator[str]:
    """A server whose page may be visited."""
    from support.servers import browser, servers

    app = pyggml.server.create_app(pyggml.server.Settings(load=browser.LOAD))
    with servers.serving(app) as url:
        yield url


@pytest.fixture
def visit(browser: Browser, page_url: str) -> Iterator[Visit]:
    """A visit to it."""
    from support.servers import browser as chromium

    with chromium.visit(browser, page_url) as visit:
        yield visit


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def shelf(model_dir: Path) -> device_kinds.Shelf:
    """Models to compare devices by."""
    return device_kinds.Shelf(model_dir)


@pytest.fixture(scope="module", params=device_kinds.KINDS)
def placed(request: pytest.FixtureRequest) -> Iterator[device_kinds.Placed]:
    """Devices that are not the CPU, of each kind."""
    with device_kinds.placed(request.param) as placed:
        yield placed


@pytest.fixture(scope="session")
def tiny_path(model_dir: Path) -> Path:
    """A Llama of two layers with the byte vocabulary."""
    return models.write_llama(model_dir / "tiny.gguf")


@pytest.fixture(scope="session")
def other_path(model_dir: Path) -> Path:
    """Another of the same shape."""
    return models.write_llama(model_dir / "other.gguf", seed=1)


@pytest.fixture(scope="session")
def mamba_path(model_dir: Path) -> Path:
    """A recurrent model with the byte vocabulary."""
    return models.write_mamba(model_dir / "mamba.gguf")


@pytest.fixture(scope="session")
def bert_path(model_dir: Path) -> Path:
    """A model that embeds, with a real vocabulary."""
    return models.write_bert(model_dir / "bert.gguf")


@pytest.fixture(scope="session")
def thinking_path(model_dir: Path) -> Path:
    """A Llama whose template has it reason before it answers."""
    vocabulary = models.byte_vocabulary("<think>", "</think>")
    template = models.VOCABULARIES / "templates" / "deepseek-ai-DeepSeek-R1-Distill-Llama-8B.jinja"
    vocabulary["tokenizer.chat_template"] = template.read_text()
    return models.write_llama(model_dir / "thinking.gguf", vocabulary)


@pytest.fixture(scope="session")
def shared_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that all processes of this run share, for what takes long to make. Hold a lock while making it."""
    own = tmp_path_factory.getbasetemp()
    directory = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "shared"
    directory.mkdir(exist_ok=True)
    return directory


@pytest.fixture(scope="session")
def tokenizer_dir(shared_dir: Path) -> Callable[[str], Path]:
    """By the name of one of the engine's vocabularies, a directory with the same as a ``tokenizer.json``."""

    def make(name: str) -> Path:
        directory = shared_dir / name
        with filelock.FileLock(f"{directory}.lock"):
            if not directory.exists():
                made = tokenizer_files.write_json(shared_dir / f"{name}.part", models.real_vocabulary(name))
                made.parent.rename(directory)
        return directory

    return make


@pytest.fixture(scope="session")
def tiny(tiny_path: Path) -> Iterator[Model]:
    with Model(tiny_path) as model:
        yield model


@pytest.fixture(scope="session")
def mamba(mamba_path: Path) -> Iterator[Model]:
    with Model(mamba_path) as model:
        yield model


@pytest.fixture(scope="session")
def bert(bert_path: Path) -> Iterator[Model]:
    with Model(bert_path) as model:
        yield model
