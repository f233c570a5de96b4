"""Sampling from what a device finds: here the CPU of another process, as in test_engine_on_device."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.checkpoints import models
from support.servers.cpu_host import LentCPU, lent_cpu

import pyggml

N_TIED = 3  # tokens with the same logit, one after another
TOLERANCE = 1e-3
PROMPTS = ["Once upon a time", "The dog", "A little bird said", "In the end"]


@pytest.fixture(scope="module")
def device() -> Iterator[LentCPU]:
    with lent_cpu() as device:
        yield device


@pytest.fixture(scope="module")
def tied_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model in which several tokens are always equally likely; only the first of them is ever chosen.

    Those that end a text are not among these. The layers add little, so that the next likeliest are far away: company
    in a batch changes the last bits of the logits, and with them only what is nearly as likely.
    """
    path = models.write_llama(tmp_path_factory.mktemp("tied") / "tied.gguf")
    weights = models.llama_weights()
    rows = models.Draw(1)(models.N_BYTE_VOCAB // N_TIED, models.N_EMBD)
    weights["output.weight"] = np.repeat(rows, N_TIED, axis=0)
    for name in weights:
        if "attn_output" in name or "ffn_down" in name:
            weights[name] *= np.float32(0.1)
    return models.write(path, models.metadata_of(path), weights)


@pytest.fixture(scope="module")
def plain(device: LentCPU, tied_path: Path) -> Iterator[pyggml.LLM]:
    with device.load(tied_path, n_ctx=512) as llm:
        yield llm


@pytest.fixture
def there(device: LentCPU, tied_path: Path) -> Iterator[pyggml.LLM]:
    """The same, and it chooses on the device."""
    with device.load(tied_path, n_ctx=512, backend_sampling=True) as llm:
        yield llm


def n_there(llm: pyggml.LLM) -> int:
    return llm.stats().n_sampled_on_device


def greedy(llm: pyggml.LLM, n: int = 60) -> list[list[int]]:
    """The tokens of four requests at once."""
    return [list(each.token_ids) for each in llm.generate_batch(PROMPTS, max_tokens=n)]


class TestTies:
    def test_the_logits_are_tied(self, plain: pyggml.LLM) -> None:
        rows = plain.logits(PROMPTS[0]).reshape(-1, models.N_BYTE_VOCAB // N_TIED, N_TIED)
        assert (rows == rows[..., :1]).all()

    def test_the_first_is_chosen(self, plain: pyggml.LLM, there: pyggml.LLM) -> None:
        expected = greedy(plain)
        assert greedy(there) == expected
        assert {token_id % N_TIED for tokens in expected for token_id in tokens} == {0}
        assert n_there(plain) == 0
        assert n_there(there) > len(PROMPTS) * 60 / 2


@pytest.mark.slow
def test_texts(device: LentCPU) -> None:
    """Of the shipped model, with their ends. In this mode nothing but the sampling could make a difference."""
    options: dict[str, Any] = {"n_ctx": 2048, "n_parallel": 1, "prefix_cache": False}
    with device.load(**options) as plain, device.load(**options, backend_sampling=True) as there:
        for prompt in PROMPTS:
            expected, found = (llm.generate(prompt, max_tokens=100) for llm in (plain, there))
            assert (found.token_ids, found.text) == (expected.token_ids, expected.text)
            assert found.finish_reason == expected.finish_reason
        assert n_there(there) > 0


@pytest.mark.slow
def test_requests_that_come_and_go(plain: pyggml.LLM, there: pyggml.LLM) -> None:
    """More than run at once, of different lengths, which continue from what others left."""
    for n in (40, 17, 80):
        expected, found = (llm.generate_batch([*PROMPTS, *PROMPTS[:2]], max_tokens=n) for llm in (plain, there))
        assert [each.token_ids for each in found] == [each.token_ids for each in expected]
    assert n_there(there) > 0


class TestBetweenOthers:
    @pytest.mark.slow
    def test_seeded(self, plain: pyggml.LLM, there: pyggml.LLM) -> None:
        """A request that needs the logits gets them, and greedy ones in the same batch keep their tokens."""
        (long,) = plain.generate_batch([PROMPTS[0]], max_tokens=400)
        seeded = plain.generate(PROMPTS[1], max_tokens=30, temperature=1.2, seed=7)
        with there.stream(PROMPTS[0], max_tokens=400) as stream:
            while n_there(there) == 0:
                next(stream)
            assert there.generate(PROMPTS[1], max_tokens=30, temperature=1.2, seed=7).token_ids == seeded.token_ids
            for _ in stream:
                pass
        assert stream.completion.token_ids == long.token_ids
        assert any(token_id % N_TIED for token_id in seeded.token_ids)

    @pytest.mark.slow
    def test_seeded_alone(self, there: pyggml.LLM) -> None:
        greedy(there)
        before = n_there(there)
        there.generate(PROMPTS[1], max_tokens=30, temperature=1.2, seed=7)
        assert n_there(there) == before

    def test_logprobs(self, plain: pyggml.LLM, there: pyggml.LLM) -> None:
        greedy(there)
        before = n_there(there)
        expected, found = (llm.generate(PROMPTS[2], max_tokens=20, logprobs=4) for llm in (plain, there))
        assert n_there(there) == before
        assert found.token_ids == expected.token_ids
        assert found.logprobs is not None
        assert expected.logprobs is not None
        for one, other in zip(found.logprobs, expected.logprobs, strict=True):
            assert one is not None
            assert other is not None
            assert one.logprob == pytest.approx(other.logprob, abs=TOLERANCE)

    @pytest.mark.slow
    def test_the_logits_of_a_prompt(self, plain: pyggml.LLM, there: pyggml.LLM) -> None:
        greedy(there)
        assert n_there(there) > 0
        np.testing.assert_allclose(there.logits(PROMPTS[3]), plain.logits(PROMPTS[3]), atol=TOLERANCE)

    @pytest.mark.slow
    def test_it_comes_back(self, there: pyggml.LLM) -> None:
        first = greedy(there)
        there.generate(PROMPTS[1], max_tokens=5, temperature=1.2, seed=7)
        before = n_there(there)
        assert greedy(there) == first
        assert n_there(there) > before


#: Of requests for which a shortlist of candidates suffices.
SHORT: list[dict[str, Any]] = [
    {"top_k": 40},
    {"top_p": 0.9},
    {"min_p": 0.05},
    {"top_k": 40, "top_p": 0.9, "repeat_penalty": 1.2},
    {"top_p": 0.9, "ignore_eos": True},
    {"temperature": 0, "presence_penalty": 0.5},
]


@pytest.fixture(scope="module")
def pair(device: LentCPU) -> Iterator[tuple[pyggml.LLM, pyggml.LLM]]:
    """The shipped model on the CPU's samplers, and on the device's candidates."""
    options: dict[str, Any] = {"n_ctx": 1024, "n_parallel": 1, "prefix_cache": False}
    with device.load(**options) as plain, device.load(**options, backend_sampling=True) as there:
        yield plain, there


class TestShortlists:
    """Alone, so that the logits have the same bits with the option and without."""

    @pytest.mark.parametrize("params", SHORT, ids=lambda params: " ".join(params))
    def test_seeded(self, pair: tuple[pyggml.LLM, pyggml.LLM], params: dict[str, Any]) -> None:
        plain, there = pair
        before = n_there(there)
        for seed, prompt in enumerate(PROMPTS):
            options = {"max_tokens": 40, "temperature": 0.8, "seed": seed, **params}
            assert there.generate(prompt, **options).token_ids == plain.generate(prompt, **options).token_ids
        assert n_there(there) > before

    def test_ties(self, plain: pyggml.LLM, there: pyggml.LLM) -> None:
        """Equal logits have no order that a device and the CPU share, so the rows are copied."""
        params: dict[str, Any] = {"max_tokens": 60, "temperature": 1.2, "seed": 7, "top_k": 10}
        expected, found = (llm.generate(PROMPTS[1], **params) for llm in (plain, there))
        assert found.token_ids == expected.token_ids
        assert n_there(there) == 0


def with_logprobs(llm: pyggml.LLM, prompts: list[str]) -> list[list[int]]:
    """Tokens of greedy requests at once, of which the last one also wants logprobs."""
    streams = [llm.stream(prompt, max_tokens=60) for prompt in prompts[:-1]]
    last = llm.generate(prompts[-1], max_tokens=20, logprobs=2)
    for stream in streams:
        for _ in stream:
            pass
    return [*([*stream.completion.token_ids] for stream in streams), [*last.token_ids]]


class TestMixed:
    def test_one_of_four_needs_its_row(self, plain: pyggml.LLM, there: pyggml.LLM) -> None:
        greedy(there)
        before = n_there(there)
        assert with_logprobs(there, PROMPTS) == with_logprobs(plain, PROMPTS)
        assert n_there(there) > before

    def test_rows_of_several_micro_batches(self, device: LentCPU, tied_path: Path) -> None:
        """The device keeps the rows of the last micro-batch only, so tokens are decoded again."""
        options: dict[str, Any] = {"n_ctx": 2048, "n_ubatch": 32, "n_batch": 512, "prefix_cache": False}
        prompts = [prompt * 4 for prompt in PROMPTS]
        with (
            device.load(tied_path, **options) as plain,
            device.load(tied_path, **options, backend_sampling=True) as there,
        ):
            greedy(plain)
            greedy(there)
            for _ in range(3):
                assert with_logprobs(there, prompts) == with_logprobs(plain, prompts)
            assert n_there(there) > 100
            assert there.stats().n_prompt_tokens > plain.stats().n_prompt_tokens


class TestEnds:
    @pytest.mark.slow
    def test_cancel(self, plain: pyggml.LLM, there: pyggml.LLM) -> None:
        with there.stream(PROMPTS[0], max_tokens=400) as stream:
            while n_there(there) < 5:
                next(stream)
            stream.cancel()
        assert greedy(there) == greedy(plain)

    @pytest.mark.slow
    def test_close_and_load_again(self, device: LentCPU, tied_path: Path, plain: pyggml.LLM) -> None:
        for _ in range(2):
            with device.load(tied_path, n_ctx=512, backend_sampling=True) as llm:
                assert greedy(llm) == greedy(plain)
                assert n_there(llm) > 0
                llm.stream(PROMPTS[0], max_tokens=400)  # and it is closed in the middle


@pytest.mark.slow
def test_not_on_the_cpu(tied_path: Path) -> None:
    found = []
    for wanted in (False, True):
        with pyggml.load(tied_path, device="cpu", n_threads=1, backend_sampling=wanted) as llm:
            found.append(greedy(llm))
            assert n_there(llm) == 0
    assert found[0] == found[1]
