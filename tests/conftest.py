"""What the tests share: small models made once, and a watch over native objects."""

from __future__ import annotations

import functools
import gc
import signal
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import models
import pytest
import tokenizer_files

from pyggml import lib
from pyggml.model import Model

# A shell that runs this in the background has it ignore Ctrl-C, and its children with it, whose tests are about that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_HANDLE_KINDS = {
    "Model": lib.PYG_HANDLE_MODEL,
    "Context": lib.PYG_HANDLE_CONTEXT,
    "Sampler": lib.PYG_HANDLE_SAMPLER,
    "Engine": lib.PYG_HANDLE_ENGINE,
    "Request": lib.PYG_HANDLE_REQUEST,
    "Backend": lib.PYG_HANDLE_BACKEND,
    "GGUF": lib.PYG_HANDLE_GGUF,
    "Waker": lib.PYG_HANDLE_WAKER,
    "ChatTemplates": lib.PYG_HANDLE_CHAT_TEMPLATES,
    "ChatParser": lib.PYG_HANDLE_CHAT_PARSER,
}

_failed = pytest.StashKey[bool]()


def live_handles() -> dict[str, int]:
    """How many native objects of each kind there are, garbage aside."""
    gc.collect()
    return {name: lib.pyg_live_handles(kind) for name, kind in _HANDLE_KINDS.items()}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[_failed] = item.stash.get(_failed, False) or report.failed
    return report


@pytest.fixture(autouse=True)
def no_handle_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """No test leaves native objects behind. A failed one keeps its own in its traceback, for a while."""
    before = live_handles()
    yield
    if not request.node.stash.get(_failed, False):
        request.node.funcargs.clear()  # pytest would hold on to what the test's own fixtures made
        left = {kind: n - before[kind] for kind, n in live_handles().items() if n > before[kind]}
        assert not left, "this test leaves native objects behind"


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


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
def tokenizer_dir(model_dir: Path) -> Callable[[str], Path]:
    """By the name of one of the engine's vocabularies, a directory with the same as a ``tokenizer.json``."""

    @functools.cache
    def make(name: str) -> Path:
        return tokenizer_files.write_json(model_dir / name, models.real_vocabulary(name)).parent

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
