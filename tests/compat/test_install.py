"""``install`` makes ``import llama_cpp`` mean pyggml's modules, and the C API's names are there."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

import pyggml
from pyggml.compat import llama_cpp
from pyggml.compat.llama_cpp import Llama

from .conftest import PATH

INSTALLED = """
import importlib.util, sys
import pyggml.compat
assert "pyggml.compat.llama_cpp" not in sys.modules
pyggml.compat.install()
pyggml.compat.install()
import llama_cpp
import llama_cpp.llama_chat_format as llama_chat_format
from llama_cpp import Llama, LlamaGrammar, llama_cpp as low_level, llama_types
from llama_cpp.llama import LogitsProcessorList, StoppingCriteriaList
from llama_cpp.llama_cache import LlamaDiskCache
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding
from llama_cpp.llama_tokenizer import LlamaHFTokenizer
from llama_cpp._logger import logger
from llama_cpp import *
assert Llama is pyggml.compat.llama_cpp.Llama is llama_cpp.llama.Llama
assert llama_chat_format is pyggml.compat.llama_cpp.llama_chat_format
assert ChatCompletionRequestMessage is llama_types.ChatCompletionRequestMessage
assert importlib.util.find_spec("llama_cpp") is not None
assert low_level.LLAMA_ROPE_SCALING_TYPE_YARN == llama_cpp.LLAMA_ROPE_SCALING_TYPE_YARN
"""


def test_install() -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", INSTALLED], check=True)


def test_install_after_the_other_package(tmp_path: Path) -> None:
    (tmp_path / "llama_cpp.py").touch()
    program = "import llama_cpp, pyggml.compat; pyggml.compat.install()"
    run = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "InvalidParameterError: llama_cpp has been imported already, from" in run.stderr


def test_importing_pyggml_does_not_import_it() -> None:
    program = "import sys, pyggml; pyggml.load; assert not [name for name in sys.modules if 'pyggml.compat' in name]"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_functions_of_the_c_api(llama: Llama) -> None:
    vocab = llama_cpp.llama_model_get_vocab(llama.model)
    assert llama_cpp.llama_vocab_n_tokens(vocab) == llama.n_vocab()
    assert llama_cpp.llama_token_get_attr(vocab, llama.token_eos()) & llama_cpp.LLAMA_TOKEN_ATTR_CONTROL
    buffer = ctypes.create_string_buffer(32)
    token = llama.tokenize(b" upon", add_bos=False)[0]
    n_bytes = llama_cpp.llama_token_to_piece(vocab, token, buffer, 32, 0, True)
    assert buffer.raw[:n_bytes] == b" upon"
    llama.reset()
    llama.eval([1, 2])
    logits = llama_cpp.llama_get_logits(llama.ctx)
    assert logits[5] == pytest.approx(float(llama.scores[1, 5]))
    assert b"CPU" in llama_cpp.llama_print_system_info()
    assert llama_cpp.llama_cpp._lib.llama_max_devices() == llama_cpp.LLAMA_MAX_DEVICES


def test_structs_of_the_c_api() -> None:
    parameters = llama_cpp.llama_model_default_params()
    parameters.vocab_only = True
    model = llama_cpp.llama_model_load_from_file(PATH.encode(), parameters)
    assert llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model)) == 2048
    llama_cpp.llama_model_free(model)
    assert ctypes.sizeof(llama_cpp.llama_batch) == pyggml.ffi.sizeof("struct llama_batch")


def test_logging_is_left_alone() -> None:
    @llama_cpp.llama_cpp.llama_log_callback  # type: ignore[untyped-decorator]
    def forget(*message: object) -> None:
        raise AssertionError(message)

    llama_cpp.llama_log_set(forget, ctypes.c_void_p())
    llama_cpp.llama_backend_init()
    llama_cpp.llama_backend_free()


@pytest.mark.parametrize("name", ["llama_nothing", "LLAMA_NOTHING", "llama_model", "Nothing"])
def test_other_names(name: str) -> None:
    with pytest.raises(AttributeError, match=r"use-llama-cpp-python-code\.md"):
        getattr(llama_cpp, name)
