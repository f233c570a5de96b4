"""What the tests share: small models made once, and a watch over native objects."""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import models
import pytest
import tokenizer_files

from pyggml.model import Model

# A shell that runs this in the background has it ignore Ctrl-C, and its children with it, whose tests are about that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def no_handle_leaks(pyggml_no_leaks: None) -> None:
    """No test leaves native objects behind."""


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
