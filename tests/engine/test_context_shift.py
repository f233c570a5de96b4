"""``overflow="shift"``: generations longer than the context."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.checkpoints import models

import pyggml
from pyggml import LLM, InvalidParameterError

N_CTX = 256
PROMPT = [1 + i % 200 for i in range(40)]
LONG: dict[str, Any] = {"ignore_eos": True, "max_tokens": 3 * N_CTX, "overflow": "shift"}

WRITERS: dict[str, Callable[[Path], Path]] = {
    "attention": models.write_llama,
    "window": models.write_gemma2,
    "recurrent": models.write_mamba,
    "hybrid": models.write_jamba,
}


@pytest.fixture(scope="module", params=WRITERS)
def path(request: pytest.FixtureRequest, model_dir: Path) -> Path:
    return WRITERS[request.param](model_dir / f"shift-{request.param}.gguf")


@pytest.fixture(scope="module")
def alone(path: Path) -> Iterator[LLM]:
    """Nothing is reused here."""
    with pyggml.load(path, n_ctx=N_CTX, n_threads=1, n_parallel=1, prefix_cache=False) as llm:
        yield llm


def expected(alone: LLM, prompt: list[int], n: int, n_keep: int) -> list[int]:
    """The tokens of a generation, each shift being a new request for the tokens that stay."""
    tokens, generated = list(prompt), list[int]()
    while len(generated) < n:
        n_now = min(N_CTX + 1 - len(tokens), n - len(generated))
        new = alone.generate(tokens, max_tokens=n_now, ignore_eos=True).token_ids
        generated += new
        tokens += new
        if len(tokens) > N_CTX:
            n_dropped = (len(tokens) - n_keep + 1) // 2
            tokens = tokens[:n_keep] + tokens[n_keep + n_dropped :]
    return generated


@pytest.mark.parametrize("n_keep", [0, 4, -1])
def test_it_continues_as_a_prompt_of_what_stays(path: Path, alone: LLM, n_keep: int) -> None:
    with pyggml.load(path, n_ctx=N_CTX, n_threads=1, n_parallel=2) as llm:
        found = llm.generate(PROMPT, n_keep=n_keep, **LONG)
        assert found.finish_reason == "length"
        assert found.stop_reason == "max_tokens"
        n_kept = len(PROMPT) if n_keep < 0 else n_keep
        assert found.token_ids == expected(alone, PROMPT, LONG["max_tokens"], n_kept)


def test_what_it_leaves_in_the_prefix_cache_fits_others(path: Path, alone: LLM) -> None:
    with pyggml.load(path, n_ctx=N_CTX, n_threads=1, n_parallel=2) as llm:
        generated = llm.generate(PROMPT, n_keep=4, **{**LONG, "max_tokens": 300}).token_ids
        whole = [*PROMPT, *generated]
        whole = whole[:4] + whole[4 + (N_CTX + 1 - 4 + 1) // 2 :]  # it shifted once
        for prompt in ([*whole, 7, 8, 9], [*PROMPT, *generated[:20]], [*whole[:30], 5]):
            found = llm.generate(prompt, max_tokens=20, ignore_eos=True)
            assert found.token_ids == alone.generate(prompt, max_tokens=20, ignore_eos=True).token_ids
            if prompt[-1] == 9:
                assert found.cached_tokens >= len(whole) - 1  # the one of the shifted sequence


def test_neighbours_change_nothing(path: Path, alone: LLM) -> None:
    prompts = [PROMPT, [*PROMPT, 9], [*PROMPT[:20], *range(60, 70)]]
    with pyggml.load(path, n_ctx=N_CTX, n_threads=1, n_parallel=3) as llm:
        found = llm.generate_batch(prompts, n_keep=4, **LONG)
    assert [each.token_ids for each in found] == [expected(alone, each, LONG["max_tokens"], 4) for each in prompts]


def test_without_it_the_end_of_the_context_is_the_end(path: Path) -> None:
    with pyggml.load(path, n_ctx=N_CTX, n_threads=1, n_parallel=1) as llm:
        found = llm.generate(PROMPT, **{**LONG, "overflow": "stop"})
    assert len(found.token_ids) == N_CTX + 1 - len(PROMPT)
    assert found.stop_reason == "context"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_tokens": -1}, "would never end with max_tokens=-1: set max_tokens"),
        ({"n_keep": -1}, "keeps 200 tokens, more than half of a context of 256"),
        ({"n_keep": 129}, "use n_keep=128 or less"),
        ({"overflow": "drop"}, "overflow"),
        ({"n_keep": -2}, "n_keep"),
    ],
)
def test_what_is_refused(tiny_path: Path, options: dict[str, Any], message: str) -> None:
    with (
        pyggml.load(tiny_path, n_ctx=N_CTX, n_threads=1) as llm,
        pytest.raises(InvalidParameterError, match=message),
    ):
        llm.generate([5] * 200, **{**LONG, **options})


def test_penalties_and_a_grammar_go_on(tiny_path: Path) -> None:
    """The sampler has seen all tokens, the dropped ones too."""
    with pyggml.load(tiny_path, n_ctx=N_CTX, n_threads=1) as llm:
        text = llm.generate("a" * 30, overflow="shift", max_tokens=700, grammar='root ::= ("ab" | "cd"){340}').text
        assert len(text) == 680
        assert {text[i : i + 2] for i in range(0, 680, 2)} <= {"ab", "cd"}


def test_a_repetition_is_still_found(tiny_path: Path) -> None:
    """It may be longer than the context, of which a part is looked at."""
    with pyggml.load(tiny_path, n_ctx=1536, n_threads=1) as llm:
        found = llm.generate(
            PROMPT, overflow="shift", max_tokens=9000, logit_bias={66: 1000.0}, repetition_guard=True, ignore_eos=True
        )
        assert found.stop_reason == "repetition"
        assert len(found.token_ids) < 1200


def test_in_a_process_of_its_own(tiny_path: Path) -> None:
    with (
        pyggml.load(tiny_path, n_ctx=N_CTX, n_threads=1) as ours,
        pyggml.load(tiny_path, n_ctx=N_CTX, n_threads=1, isolate=True) as isolated,
    ):
        assert isolated.generate(PROMPT, **LONG).token_ids == ours.generate(PROMPT, **LONG).token_ids
        assert len(isolated.slots()) == len(ours.slots()) == 4
