"""Draft models: every request gets the bits that it gets without one, whatever the draft guesses."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import device_kinds
from support.checkpoints import models
from support.speculation import FORMATS, check, facts

import pyggml
from pyggml import LLM, Context, Engine, Model
from pyggml.gguf import GGUFReader
from pyggml.memory.estimate import estimate

OPTIONS: dict[str, Any] = {"n_ctx": 512, "n_threads": 1}
LONG = [5, 6, 7, 8] * 10


def noisy(path: Path, to: Path, scale: float) -> Path:
    """A copy of a model in F32 with noise in its weights, relative to their deviation."""
    if not to.exists():
        rng = np.random.default_rng(1)
        with GGUFReader(path) as reader:
            weights = {}
            for name in reader.tensors:
                exact = reader.dequantized(name)
                weights[name] = (exact + scale * exact.std() * rng.standard_normal(exact.shape)).astype(np.float32)
            models.write(to, dict(reader.metadata), weights)
    return to


#: A model, its type, and how to get its draft: itself, itself with noise, and one that has nothing in common with it.
PAIRS = ("itself", "noise", "unrelated")


def draft_of(shelf: device_kinds.Shelf, model_dir: Path, name: str, kind: str) -> Path:
    if kind == "itself":
        return shelf(name)
    if kind == "noise":
        return noisy(shelf(name), model_dir / f"{name}-noisy.gguf", 0.02)
    if name == "window":
        return models.write_gemma2(model_dir / "other-window.gguf", seed=9)
    return shelf("qwen3" if name != "qwen3" else "llama")


def check_pair(path: Path, draft: Path, seed: int, n: int) -> pyggml.EngineStats:
    rng = random.Random(seed)
    with (
        pyggml.load(path, n_parallel=1, prefix_cache=False, speculative="off", **OPTIONS) as expected,
        pyggml.load(path, n_parallel=rng.choice((1, 3, 8)), draft=draft, **OPTIONS) as found,
    ):
        check(expected, found, rng, n, speculative="draft")
        check(expected, found, rng, n // 2, speculative="auto")
        return found.stats()


@pytest.mark.parametrize("kind", PAIRS)
def test_random_requests(shelf: device_kinds.Shelf, model_dir: Path, kind: str) -> None:
    stats = check_pair(shelf("llama", "q8_0"), draft_of(shelf, model_dir, "llama", kind), 5, 20)
    assert stats.n_drafted_model > 0
    if kind != "unrelated":
        assert stats.n_accepted_model > 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize("model", ["llama", "qwen3", "window", "mixtral", "phi3", "gpt-oss", "falcon"])
def test_many_random_requests(shelf: device_kinds.Shelf, model_dir: Path, model: str, kind: str) -> None:
    ftype = "f16" if model == "phi3" else "q8_0"
    stats = check_pair(shelf(model, ftype), draft_of(shelf, model_dir, model, kind), 60, 60)
    assert stats.n_drafted_model > 0


@pytest.fixture(scope="module")
def pair(shelf: device_kinds.Shelf) -> Iterator[tuple[LLM, LLM]]:
    """A model without guesses, and with itself as its draft: all guesses are right."""
    path = shelf("llama")
    with (
        pyggml.load(path, speculative="off", n_parallel=3, **OPTIONS) as off,
        pyggml.load(path, draft=path, n_parallel=3, speculative="draft", **OPTIONS) as on,
    ):
        yield off, on


def test_a_draft_that_is_right(pair: tuple[LLM, LLM]) -> None:
    off, on = pair
    params: dict[str, Any] = {"max_tokens": 60, "ignore_eos": True, "logprobs": 2}
    before = on.stats().n_decode_steps
    done = on.generate(LONG, **params, num_speculative_tokens=5)
    assert facts(done) == facts(off.generate(LONG, **params))
    assert on.stats().n_decode_steps - before < 20
    timings = done.timings
    assert timings.n_drafted_model >= timings.n_accepted_model > 40
    assert timings.n_drafted_lookup == timings.n_drafted_forced == 0


def test_cancelled_and_followed_up(pair: tuple[LLM, LLM]) -> None:
    off, on = pair
    params: dict[str, Any] = {"max_tokens": 200, "ignore_eos": True, "temperature": 1.0, "seed": 4}
    whole = off.generate(LONG, **params)
    for n_chunks in (1, 2, 5):
        with on.stream(LONG, **params, num_speculative_tokens=8) as stream:
            for _ in range(n_chunks):
                next(stream)
            stream.cancel()
        told = stream.completion.token_ids
        assert told == whole.token_ids[: len(told)]
        follow_up = [*LONG, *told, 7]
        done = on.generate(follow_up, max_tokens=5, num_speculative_tokens=15)
        assert done.token_ids == off.generate(follow_up, max_tokens=5).token_ids


def test_several_answers_and_sessions(pair: tuple[LLM, LLM]) -> None:
    """They share the cells of a prompt, which the draft shares as well."""
    off, on = pair
    params: dict[str, Any] = {"temperature": 1.2, "seed": 9, "max_tokens": 30, "ignore_eos": True, "logprobs": 3}
    expected = [facts(done) for done in off.generate_n(LONG * 4, 3, **params)]
    assert [facts(done) for done in on.generate_n(LONG * 4, 3, **params, num_speculative_tokens=6)] == expected


def test_shifted_contexts(shelf: device_kinds.Shelf, model_dir: Path) -> None:
    path, draft = shelf("llama"), draft_of(shelf, model_dir, "llama", "noise")
    options: dict[str, Any] = {"n_ctx": 64, "n_parallel": 1, "n_threads": 1}
    with pyggml.load(path, speculative="off", **options) as off, pyggml.load(path, draft=draft, **options) as on:
        for seed in range(3):
            params: dict[str, Any] = {"max_tokens": 150, "ignore_eos": True, "overflow": "shift", "logprobs": 1}
            params |= {"logit_bias": {20 + seed: 2.0}}
            found = on.generate(LONG[:20], **params, speculative="draft", num_speculative_tokens=4)
            assert facts(found) == facts(off.generate(LONG[:20], **params))
        assert on.stats().n_accepted_model > 30


def test_too_few_cells(shelf: device_kinds.Shelf) -> None:
    """Requests are preempted, and the draft's cells run out as well."""
    path = shelf("llama", "q8_0")
    options: dict[str, Any] = {"n_ctx": 200, "n_threads": 1}
    many: dict[str, Any] = {"ignore_eos": True, "max_tokens": 130}
    prompts = [[5 + i, 6, 7] * 20 for i in range(6)]
    with (
        pyggml.load(path, n_parallel=1, prefix_cache=False, speculative="off", **options) as off,
        pyggml.load(path, n_parallel=6, draft=shelf("llama"), **options) as on,
    ):
        alone = [off.generate(prompt, **many).token_ids for prompt in prompts]
        found = on.generate_batch(prompts, **many, speculative="draft", num_speculative_tokens=7)
        assert [done.token_ids for done in found] == alone
        stats = on.stats()
        assert stats.n_preemptions > 0
        assert stats.n_accepted_model > 0


def test_as_many_as_pay(pair: tuple[LLM, LLM]) -> None:
    """The number depends on the machine, the tokens do not."""
    off, on = pair
    params: dict[str, Any] = {"max_tokens": 300, "ignore_eos": True, "logprobs": 1}
    for speculative in ("draft", "auto"):
        assert facts(on.generate(LONG, **params, speculative=speculative)) == facts(off.generate(LONG, **params))
    prompts = [[7 + i, *LONG] for i in range(6)]
    alone = [facts(off.generate(prompt, **params)) for prompt in prompts]
    assert [facts(done) for done in on.generate_batch(prompts, **params)] == alone


def test_isolated(shelf: device_kinds.Shelf) -> None:
    path = shelf("llama")
    with pyggml.load(path, draft=path, isolate=True, n_parallel=2, **OPTIONS) as llm:
        done = llm.generate(LONG, max_tokens=20, ignore_eos=True, speculative="draft", num_speculative_tokens=4)
        assert done.timings.n_accepted_model > 10
        assert llm.stats().n_accepted_model == done.timings.n_accepted_model
        assert len(llm.memory) == 1


def test_an_open_model_and_memory(shelf: device_kinds.Shelf) -> None:
    """The caller's draft stays open; the memory of both is planned and told."""
    path = shelf("llama")
    with Model(path) as draft, pyggml.load(path, **OPTIONS) as alone:
        with pyggml.load(path, draft=draft, **OPTIONS) as llm:
            done = llm.generate(LONG, max_tokens=20, ignore_eos=True, speculative="draft", num_speculative_tokens=4)
            assert done.timings.n_accepted_model > 10
            assert llm.memory[0].cache_bytes > 1.9 * alone.memory[0].cache_bytes
        assert draft.n_layer > 0
        draft.require_weights()
    one, both = estimate(path, n_ctx=512), estimate(path, n_ctx=512, draft=str(path))
    assert both.weights_bytes == 2 * one.weights_bytes
    assert both.cache_bytes > 1.9 * one.cache_bytes


# --- other vocabularies -----------------------------------------------------------------------------------------------


def with_tokens(path: Path, to: Path, order: list[int], extra: int = 0) -> Path:
    """A llama of random weights whose vocabulary is that of another, in another order and with more tokens."""
    metadata = models.metadata_of(path)
    tokens, types = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    assert isinstance(tokens, tuple)
    added = [f"more{i}" for i in range(extra)]
    place = {old: new for new, old in enumerate(order)}
    metadata["tokenizer.ggml.tokens"] = [*(tokens[i] for i in order), *added]
    metadata["tokenizer.ggml.token_type"] = np.array([*(types[i] for i in order), *[1] * extra], np.int32)  # type: ignore[index]
    for kind in ("bos", "eos", "eot"):
        key = f"tokenizer.ggml.{kind}_token_id"
        metadata[key] = place[int(metadata[key])]  # type: ignore[call-overload]
    with GGUFReader(path) as reader:
        weights = {name: reader.dequantized(name) for name in reader.tensors}
    rows = weights["token_embd.weight"][order]
    weights["token_embd.weight"] = np.concatenate([rows, np.zeros((extra, rows.shape[1]), np.float32)])
    return models.write(to, metadata, weights)


def test_a_vocabulary_in_another_order(model_dir: Path) -> None:
    """The draft is the same model, with its tokens renumbered and some more: it guesses as well as the model itself."""
    path = models.write_llama(model_dir / "drafted.gguf")
    n = models.N_BYTE_VOCAB
    draft = with_tokens(path, model_dir / "renumbered.gguf", [*range(100, n), *range(100)], extra=7)
    with pyggml.load(path, speculative="off", **OPTIONS) as off, pyggml.load(path, draft=draft, **OPTIONS) as on:
        params: dict[str, Any] = {"max_tokens": 40, "ignore_eos": True}
        done = on.generate(LONG, **params, speculative="draft", num_speculative_tokens=4)
        assert done.token_ids == off.generate(LONG, **params).token_ids
        assert done.timings.n_accepted_model > 25


def test_another_vocabulary(model_dir: Path, llm: LLM) -> None:
    path = models.write_llama(model_dir / "drafted.gguf")
    with pytest.raises(pyggml.InvalidParameterError, match="cannot draft for this model: its vocabulary is another"):
        pyggml.load(path, draft=llm.model.path, **OPTIONS)


@pytest.mark.parametrize("name", ["mamba", "jamba"])
def test_drafts_that_cannot_be_cut_back(shelf: device_kinds.Shelf, name: str) -> None:
    with pytest.raises(pyggml.InvalidParameterError, match="cannot draft: its recurrent layers"):
        pyggml.load(models.write_llama(shelf(name).with_name("target.gguf")), draft=shelf(name), **OPTIONS)
    with pytest.raises(pyggml.InvalidParameterError, match=r"a draft model is of no use here: .*recurrent layers"):
        pyggml.load(shelf(name), draft=shelf("llama"), **OPTIONS)


def test_wrong_options(shelf: device_kinds.Shelf, llm: LLM) -> None:
    path = shelf("llama")
    with pytest.raises(pyggml.InvalidParameterError, match="draft_device has no effect without a draft model"):
        pyggml.load(path, draft_device="cpu")
    with pytest.raises(pyggml.ModelNotFoundError):
        pyggml.load(path, draft="no_such_draft.gguf")
    with pytest.raises(pyggml.InvalidParameterError, match='speculative="draft" needs a draft model'):
        pyggml.load(path, speculative="draft")
    with pytest.raises(pyggml.InvalidParameterError, match='speculative="draft" needs a draft model'):
        llm.generate("a", speculative="draft")
    with Model(path) as draft, pytest.raises(pyggml.InvalidParameterError, match="draft must be a path"):
        pyggml.load(path, draft=draft, isolate=True)


def test_engine(shelf: device_kinds.Shelf) -> None:
    """An engine takes over both contexts; neither, if it cannot be made."""
    options: dict[str, Any] = {"n_ctx": 512, "n_seq_max": 2, "kv_unified": True, "n_threads": 1}
    with Model(shelf("llama")) as model:
        context, draft = Context(model, **options), Context(model, **options)
        with pytest.raises(pyggml.InvalidParameterError, match="a context of its own"):
            Engine(context, draft=context, stop_token_ids=())
        with (
            Context(model, n_ctx=512, n_threads=1) as small,
            pytest.raises(pyggml.InvalidParameterError, match="n_seq_max=2"),
        ):
            Engine(context, draft=small, stop_token_ids=())
        with (
            Context(model, **options | {"n_ctx": 256}) as short,
            pytest.raises(pyggml.InvalidParameterError, match="n_ctx=512"),
        ):
            Engine(context, draft=short, stop_token_ids=())
        with Engine(context, draft=draft, speculative="draft", stop_token_ids=()) as engine:
            request = engine.submit(LONG, max_tokens=20, num_speculative_tokens=8)
            assert len(request.read_all()) == 20
            assert request.timings.n_accepted_model > 10
            with pytest.raises(pyggml.ClosedError):
                draft.seq_pos(0)


def test_formats_of_earlier_requests(llm: LLM) -> None:
    """Outputs of the same format are looked up, unless a salt keeps requests apart."""
    params: dict[str, Any] = {"json_schema": FORMATS[3]["json_schema"], "max_tokens": 60, "cache_salt": "formats"}
    params |= {"speculative": "lookup", "num_speculative_tokens": 8}
    first = llm.generate("A person:", **params)
    again = llm.generate("A person:", **params)
    assert again.token_ids == first.token_ids
    assert again.timings.n_accepted_lookup > max(first.timings.n_accepted_lookup, len(first.token_ids) // 2)
    other = llm.generate("A person:", **params | {"cache_salt": "others"})
    assert other.timings.n_accepted_lookup == first.timings.n_accepted_lookup
