"""lm-evaluation-harness's clients of servers, against recorded results of its ``hf``.

The server has the demonstration model in Q8_0, of which the recorded checkpoint has the same weights in F32, so the
likelihoods are only about the same.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lm_eval.api.registry import get_model
from support import lm_eval_tasks

URL = os.environ["PYGGML_URL"]
CLOSE: Any = {"rtol": 0.01, "atol": 0.5}
RECORDED = json.loads(lm_eval_tasks.RECORDED.read_text())["tasks"]


def loglikelihoods(found: Any) -> Any:
    """The sums, (n,), and the flags of greediness."""
    pairs = [pair for sample in found for choice in sample for pair in choice]
    return np.array([pair[0] for pair in pairs]), [pair[1] for pair in pairs]


@pytest.fixture(scope="module")
def completions() -> Any:
    return get_model("local-completions")(
        model="demo",
        base_url=f"{URL}/v1/completions",
        tokenizer=os.environ["PYGGML_TEST_CHECKPOINT"],
        tokenizer_backend="huggingface",  # by default it is the server's, which is given no conversations
        add_bos_token=True,
        max_length=1024,
        num_concurrent=1,
        max_retries=1,
        batch_size=4,
    )


def test_local_completions(completions: Any, tmp_path: Path) -> None:
    found = lm_eval_tasks.evaluate(completions, tmp_path, tasks=["pyggml_choice", "pyggml_generate"])
    ours, theirs = (loglikelihoods(each["pyggml_choice"]["samples"])[0] for each in (found, RECORDED))
    np.testing.assert_allclose(ours, theirs, **CLOSE)
    accuracy = RECORDED["pyggml_choice"]["metrics"]["acc,none"]
    assert found["pyggml_choice"]["metrics"]["acc,none"] == pytest.approx(accuracy, abs=0.05)
    same = [
        a == b for a, b in zip(found["pyggml_generate"]["samples"], RECORDED["pyggml_generate"]["samples"], strict=True)
    ]
    assert np.mean(same) > 0.9


def test_gguf(tmp_path: Path) -> None:
    model = get_model("gguf")(base_url=URL)
    found = lm_eval_tasks.evaluate(model, tmp_path, tasks=["pyggml_choice"])
    ours, theirs = (loglikelihoods(each["pyggml_choice"]["samples"])[0] for each in (found, RECORDED))
    np.testing.assert_allclose(ours, theirs, **CLOSE)


def test_the_tokenizer_of_the_server(completions: Any) -> None:
    remote = get_model("local-completions")(
        model="demo",
        base_url=f"{URL}/v1/completions",
        tokenizer_backend="remote",
        max_length=1024,
    )
    text = "The capital of Spain is Madrid."
    begin, *ids = completions.tok_encode(text)  # the remote tokenizer adds no special tokens
    assert begin == remote.tokenizer.bos_token_id
    assert remote.tok_encode(text) == ids
