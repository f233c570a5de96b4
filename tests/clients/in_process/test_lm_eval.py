"""lm-evaluation-harness with ``--model pyggml``, against recorded results of ``hf`` on the same float checkpoint."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import lm_eval_tasks
from support.checkpoints import demo_checkpoint, lora_files

import pyggml
from pyggml.integrations.lm_eval import PyggmlLM

EXACT = 1e-3
RECORDED = json.loads(lm_eval_tasks.RECORDED.read_text())["tasks"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return demo_checkpoint.write(tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture(scope="module")
def llm(checkpoint: Path) -> Iterator[pyggml.LLM]:
    with pyggml.load(checkpoint, cache_type="f32") as llm:
        yield llm


@pytest.fixture(scope="module")
def found(llm: pyggml.LLM, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    model = PyggmlLM(llm, max_length=lm_eval_tasks.MAX_LENGTH)
    return lm_eval_tasks.evaluate(model, tmp_path_factory.mktemp("tasks"))


@pytest.mark.parametrize("task", lm_eval_tasks.TASKS)
def test_metrics_are_those_of_the_reference(task: str, found: dict[str, Any]) -> None:
    assert found[task]["metrics"] == pytest.approx(RECORDED[task]["metrics"], rel=1e-5, abs=EXACT)


@pytest.mark.parametrize("task", ["pyggml_choice", "pyggml_rolling"])
def test_likelihoods_are_those_of_the_reference(task: str, found: dict[str, Any]) -> None:
    ours, theirs = np.ravel(_numbers(found[task])), np.ravel(_numbers(RECORDED[task]))
    assert len(ours) == len(theirs) > 0
    np.testing.assert_allclose(ours, theirs, atol=EXACT)


def test_generated_texts_are_those_of_the_reference(found: dict[str, Any]) -> None:
    assert found["pyggml_generate"]["samples"] == RECORDED["pyggml_generate"]["samples"]


def test_shared_prefixes_change_nothing(llm: pyggml.LLM) -> None:
    """Random trees of prefixes, some longer than the KV cache together, against the library's own logprobs."""
    random = np.random.default_rng(0)
    words = [[int(token) for token in random.integers(10, 2000, size=random.integers(1, 40))] for _ in range(6)]
    items = []
    for _ in range(90):
        token_ids = [token for word in random.integers(0, 6, size=random.integers(1, 4)) for token in words[word]]
        token_ids = [*token_ids[:150], int(random.integers(10, 2000))]
        items.append((token_ids, int(random.integers(1, len(token_ids)))))
    scorer = pyggml.Scorer(llm.model, 256, cache_type="f32")
    try:
        scores = dict(scorer.scores(items))
    finally:
        scorer.close()
    assert sorted(scores) == list(range(len(items)))
    for index, (token_ids, n_scored) in enumerate(items):
        done = llm.generate(token_ids, max_tokens=0, prompt_logprobs=1)
        expected: list[Any] = (done.prompt_logprobs or [])[-n_scored:]
        assert scores[index].logprob == pytest.approx(sum(one.logprob for one in expected), abs=EXACT)
        assert scores[index].is_greedy == all(one.top[0].token_id == one.token_id for one in expected)


def test_adapters_apply_to_likelihoods(checkpoint: Path, llm: pyggml.LLM, tmp_path: Path) -> None:
    file = lora_files.write_adapter(tmp_path / "law.gguf", Path(llm.model.path))
    requests = [(None, [5, 6, 7], [8, 9]), (None, [5, 6, 7], [10])]
    [plain, *_] = PyggmlLM(llm)._loglikelihood_tokens(requests, disable_tqdm=True)
    with pyggml.load(checkpoint, cache_type="f32", lora=file) as adapted:
        found = PyggmlLM(adapted)._loglikelihood_tokens(requests, disable_tqdm=True)
        expected = adapted.score([5, 6, 7], [[8, 9], [10]])
    assert [logprob for logprob, _ in found] == pytest.approx([score.logprob for score in expected], abs=10 * EXACT)
    assert abs(found[0][0] - plain[0]) > 1


def test_a_sequence_that_is_too_long_is_refused(llm: pyggml.LLM) -> None:
    scorer = pyggml.Scorer(llm.model, 256)
    try:
        with pytest.raises(pyggml.ContextOverflowError, match="sequence 0 has 300 tokens"):
            list(scorer.scores([([5] * 300, 1)]))
    finally:
        scorer.close()


def test_the_command(checkpoint: Path, tmp_path: Path) -> None:
    tasks = lm_eval_tasks.write(tmp_path / "tasks")
    command = [sys.executable, "-m", "pyggml.integrations.lm_eval", "run", "--model", "pyggml"]
    arguments = f"pretrained={checkpoint},max_length={lm_eval_tasks.MAX_LENGTH}"
    options = ["--model_args", arguments, "--tasks", "pyggml_choice", "--include_path", str(tasks)]
    output = ["--output_path", str(tmp_path / "out"), "--batch_size", "8"]
    # In another folder than the checkout, whose package has no compiled module unless it was built there.
    run = functools.partial(subprocess.run, cwd=tmp_path, timeout=280, check=False)
    done = run([*command, *options, *output], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    (path,) = (tmp_path / "out").rglob("results_*.json")
    results = json.loads(path.read_text())["results"]["pyggml_choice"]
    assert results["acc,none"] == pytest.approx(RECORDED["pyggml_choice"]["metrics"]["acc,none"], abs=EXACT)


def _numbers(found: dict[str, Any]) -> list[float]:
    """The log likelihoods among nested results."""
    if isinstance(found, dict):
        found = found["samples"]
    if isinstance(found, list):
        return [number for each in found for number in _numbers(each)]
    return [float(found)] if isinstance(found, (int, float)) and not isinstance(found, bool) else []
