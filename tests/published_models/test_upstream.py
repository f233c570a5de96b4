"""Published models compute what upstream's own program computes, with its kernels exactly, with ours within limits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import llama_cpp_programs
import numpy as np
import pytest
from support import measured_model

import pyggml

#: Ours round activations otherwise: perplexities differ by less than this, and first choices only where the two best
#: logits are closer than DECISIVE.
PERPLEXITY_LIMIT = 0.01  # of 470 words; which of the two is lower depends on the text and the CPU
DECISIVE = 0.5


@pytest.fixture(scope="module")
def with_upstream_kernels(model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    out = tmp_path_factory.mktemp("measured") / "upstream.npz"
    env = os.environ | {"PYGGML_KERNELS": "off"}
    subprocess.run([sys.executable, measured_model.__file__, str(model_path), str(out)], env=env, check=True)
    with np.load(out) as measured:
        return dict(measured)


@pytest.fixture(scope="module")
def with_our_kernels(model_path: Path) -> dict[str, Any]:
    with pyggml.load(model_path, n_ctx=2048, n_parallel=1, prefix_cache=False) as llm:
        return measured_model.measure(llm)


def upstreams_text(program: Path, model: Path, prompt: str) -> bytes:
    """The output of llama-simple: prompt and continuation. On one thread, as there."""
    command = [str(program), "-m", str(model), "-n", str(measured_model.N_TOKENS), prompt]
    env = os.environ | {"OMP_THREAD_LIMIT": "1"}
    return subprocess.run(command, env=env, capture_output=True, check=True).stdout.removesuffix(b"\n")


@pytest.mark.timeout(1200)  # builds llama-simple from the sdist that vendor/llama.cpp.lock names
def test_greedy_texts_are_those_of_llama_simple(model_path: Path, with_upstream_kernels: Any) -> None:
    program = llama_cpp_programs.llama_simple()
    expected = [upstreams_text(program, model_path, prompt) for prompt in measured_model.PROMPTS]
    assert with_upstream_kernels["texts"].tolist() == expected
    assert len(set(expected)) == len(measured_model.PROMPTS) == 20


def test_perplexities_agree(with_our_kernels: dict[str, Any], with_upstream_kernels: Any) -> None:
    expected = float(with_upstream_kernels["perplexity"])
    assert with_our_kernels["perplexity"] == pytest.approx(expected, rel=PERPLEXITY_LIMIT)
    assert 5 < with_our_kernels["perplexity"] < 50


def test_decisive_first_choices_are_the_same(with_our_kernels: dict[str, Any], with_upstream_kernels: Any) -> None:
    decisive = with_upstream_kernels["margins"] > DECISIVE
    assert decisive.mean() > 0.3
    agree = with_our_kernels["choices"] == with_upstream_kernels["choices"]
    assert agree[decisive].all()
    assert agree.mean() > 0.9
