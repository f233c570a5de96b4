"""LLM on the shipped model: what most users touch."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import demo_questions

import pyggml
from pyggml import SamplingParams
from pyggml.chat.request import chat_request

STORY = "Once upon a time"
SKY = "What colour is the sky?"


@pytest.fixture(scope="module")
def llm() -> Iterator[pyggml.LLM]:
    """The shipped model, shared by the tests of this file."""
    with pyggml.load(n_threads=1) as llm:
        yield llm


@pytest.fixture
def own_llm() -> Iterator[pyggml.LLM]:
    """A shipped model that the test may close."""
    with pyggml.load(n_threads=1) as llm:
        yield llm


def test_greedy_is_repeatable_after_other_prompts(llm: pyggml.LLM) -> None:
    first = llm.generate(STORY, max_tokens=60)
    llm.generate("The dog", max_tokens=20, temperature=1.0)
    again = llm.generate(STORY, max_tokens=60)
    assert first.text == again.text
    assert first.token_ids == again.token_ids
    assert len(first.token_ids) > 20


@pytest.mark.slow
def test_greedy_is_the_same_in_a_new_process(llm: pyggml.LLM) -> None:
    code = f"import pyggml; print(repr(pyggml.load().generate({STORY!r}, max_tokens=60).text))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == repr(llm.generate(STORY, max_tokens=60).text)


def test_repr_says_which_model(llm: pyggml.LLM) -> None:
    about = f"{llm.model.desc}, {llm.family.name}, n_ctx={llm.n_ctx}, n_parallel={llm.n_parallel}, {llm.where}"
    assert repr(llm) == f"LLM({llm.source!r}: {about})"
    assert llm.source == llm.model.path


def test_completion_says_what_happened(llm: pyggml.LLM) -> None:
    completion = llm.generate(STORY, max_tokens=5)
    assert completion.finish_reason == "length"
    assert completion.stop_reason == "max_tokens"
    assert len(completion.token_ids) == 5
    assert completion.prompt_tokens == len(llm.tokenize(STORY))
    assert completion.timings.generated_tokens == 5
    assert completion.timings.prompt_tokens == completion.prompt_tokens
    assert completion.timings.computed_tokens == completion.prompt_tokens - completion.cached_tokens
    assert completion.timings.prefill_s > 0
    assert completion.timings.decode_s > 0


def test_a_story_ends_by_itself(llm: pyggml.LLM) -> None:
    completion = llm.generate(STORY, max_tokens=400)
    assert completion.finish_reason == "stop"
    assert completion.stop_reason in llm.stop_tokens
    assert not any(text in completion.text for text in llm.stop_tokens.values())


def test_no_limit_ends_with_the_context(tiny_path: Path) -> None:
    with pyggml.load(tiny_path, n_ctx=64) as small:
        done = small.generate("Once", max_tokens=-1, ignore_eos=True)
        assert (done.finish_reason, done.stop_reason) == ("length", "context")


def test_max_tokens_zero_only_reads_the_prompt(llm: pyggml.LLM) -> None:
    completion = llm.generate(STORY, max_tokens=0)
    assert (completion.text, completion.token_ids, completion.stop_reason) == ("", [], "max_tokens")


def test_generation_ends_at_the_end_of_the_context() -> None:
    with pyggml.load(n_ctx=32) as llm:
        completion = llm.generate(STORY, ignore_eos=True, max_tokens=1000)
        assert (completion.finish_reason, completion.stop_reason) == ("length", "context")
        with llm.stream(STORY, ignore_eos=True, max_tokens=1000) as stream:
            assert [*stream][-1].stop_reason == "context"
        exact = llm.generate(STORY, ignore_eos=True, max_tokens=len(completion.token_ids))
        assert (exact.token_ids, exact.stop_reason) == (completion.token_ids, "max_tokens")
        # The last token is sampled from a full context and needs no cell of its own.
        assert completion.prompt_tokens + len(completion.token_ids) == 32 + 1


def test_stream_joins_to_the_whole(llm: pyggml.LLM) -> None:
    whole = llm.generate(STORY, max_tokens=80)
    stream = llm.stream(STORY, max_tokens=80)
    chunks = list(stream)
    assert "".join(chunk.text for chunk in chunks) == whole.text
    assert [token for chunk in chunks for token in chunk.token_ids] == whole.token_ids
    assert all(chunk.finish_reason is None for chunk in chunks[:-1])
    assert chunks[-1].finish_reason == whole.finish_reason
    assert stream.completion.text == whole.text


def test_stream_is_valid_utf8_at_every_chunk(llm: pyggml.LLM) -> None:
    """Random bytes: a biased sampler that produces pieces of characters in every possible way."""
    byte_tokens = [i for i in range(llm.model.vocab.n_tokens) if len(llm.tokenizer.piece(i)) == 1]
    high = [i for i in byte_tokens if llm.tokenizer.piece(i)[0] >= 0x80]
    assert len(high) == 128
    bias = dict.fromkeys(high, 30.0)
    for seed in range(5):
        stream = llm.stream(STORY, temperature=5.0, seed=seed, logit_bias=bias, max_tokens=200, ignore_eos=True)
        texts = [chunk.text for chunk in stream]
        expected = b"".join(map(llm.tokenizer.piece, stream.completion.token_ids)).decode("utf-8", "replace")
        assert "".join(texts) == expected == stream.completion.text
        for text in texts:
            text.encode("utf-8")


@pytest.mark.slow_except("1")
@pytest.mark.parametrize("length", [1, 2, 3, 7, 15])
def test_stop_strings_never_leak(llm: pyggml.LLM, length: int) -> None:
    full = llm.generate(STORY, max_tokens=60).text
    for start in range(5, len(full) - length, 11):
        stop = full[start : start + length]
        cut = full.index(stop)
        stream = llm.stream(STORY, max_tokens=60, stop=stop)
        shown = ""
        for chunk in stream:
            shown += chunk.text
            assert full[:cut].startswith(shown), "a part of the stop string was shown"
        assert shown == full[:cut]
        assert stream.completion.finish_reason == "stop"
        assert stream.completion.stop_reason == stop
        assert llm.generate(STORY, max_tokens=60, stop=stop).text == full[:cut]


def test_a_stop_string_that_does_not_come_changes_nothing(llm: pyggml.LLM) -> None:
    full = llm.generate(STORY, max_tokens=60)
    almost = full.text[-6:] + "\x01"
    assert llm.generate(STORY, max_tokens=60, stop=[almost, "\x02"]).text == full.text


def test_stop_token_ids(llm: pyggml.LLM) -> None:
    full = llm.generate(STORY, max_tokens=60)
    stop = full.token_ids[10]
    completion = llm.generate(STORY, max_tokens=60, stop_token_ids=[stop])
    assert completion.token_ids == full.token_ids[: full.token_ids.index(stop)]
    assert completion.finish_reason == "stop"
    assert completion.stop_reason == stop


def test_ignore_eos_goes_on(llm: pyggml.LLM) -> None:
    n = len(llm.generate(STORY, max_tokens=400).token_ids) + 20
    completion = llm.generate(STORY, max_tokens=n, ignore_eos=True)
    assert len(completion.token_ids) == n
    assert not set(completion.token_ids) & set(llm.stop_tokens)


def test_token_ids_are_a_prompt_too(llm: pyggml.LLM) -> None:
    ids = llm.tokenize(STORY)
    expected = llm.generate(STORY, max_tokens=10).text
    assert llm.generate(ids, max_tokens=10).text == expected
    assert llm.generate(np.array(ids), max_tokens=10).text == expected


def test_seed_makes_sampling_repeatable(llm: pyggml.LLM) -> None:
    texts = [llm.generate(STORY, temperature=1.5, seed=7, max_tokens=40).text for _ in range(2)]
    assert texts[0] == texts[1]
    assert len({llm.generate(STORY, temperature=1.5, max_tokens=40).text for _ in range(5)}) > 1


def test_sampling_reaches_the_engine(llm: pyggml.LLM) -> None:
    greedy = llm.generate(STORY, max_tokens=30).token_ids
    assert llm.generate(STORY, max_tokens=30, temperature=2.0, top_k=1).token_ids == greedy
    assert llm.generate(STORY, max_tokens=30, temperature=2.0, top_p=1e-6).token_ids == greedy
    assert llm.generate(STORY, max_tokens=30, temperature=2.0, min_p=1.0).token_ids == greedy
    first = greedy[0]
    assert llm.generate(STORY, max_tokens=1, logit_bias={first: float("-inf")}).token_ids[0] != first
    penalised = llm.generate(STORY, max_tokens=60, repeat_penalty=50.0, penalty_last_n=64, ignore_eos=True)
    assert len(set(penalised.token_ids)) > len(set(llm.generate(STORY, max_tokens=60).token_ids[:60])) * 0.9


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("grammar", [None, "root ::= [a-z]+"])
def test_biases_that_leave_no_token_are_an_error(llm: pyggml.LLM, temperature: float, grammar: str | None) -> None:
    nothing = dict.fromkeys(range(len(llm.model.vocab)), float("-inf"))
    with pytest.raises(pyggml.InferError, match="leave no token"):
        llm.generate(STORY, max_tokens=1, logit_bias=nothing, temperature=temperature, grammar=grammar)
    assert llm.generate(STORY, max_tokens=1).token_ids


def test_grammar_holds(llm: pyggml.LLM) -> None:
    completion = llm.generate(STORY, grammar='root ::= "yes" | "no"', max_tokens=20)
    assert completion.text in ("yes", "no")
    assert completion.finish_reason == "stop"


def test_json_schema_holds(llm: pyggml.LLM) -> None:
    schema = {
        "type": "object",
        "properties": {"legs": {"type": "integer"}, "tame": {"type": "boolean"}},
        "required": ["legs", "tame"],
    }
    completion = llm.generate(STORY, json_schema=schema, max_tokens=200, temperature=0.5, seed=1)
    if completion.finish_reason == "stop":
        answer = json.loads(completion.text)
        assert isinstance(answer["legs"], int)
        assert isinstance(answer["tame"], bool)
    else:
        assert completion.finish_reason == "length"


@pytest.mark.slow
def test_logits_equal_those_of_a_token_by_token_decode(llm: pyggml.LLM) -> None:
    ids = llm.tokenize(STORY + " there was a little dog who lived in a red house.")
    logits = llm.logits(ids)
    assert logits.shape == (len(ids), llm.model.vocab.n_tokens)
    assert logits.dtype == np.float32
    with pyggml.Context(llm.model, n_ctx=256) as context:
        for i, token in enumerate(ids):
            context.decode([token])
            one = context.logits()[0]
            assert np.abs(one - logits[i]).max() <= 1e-3 * np.abs(one).max()


def test_logits_of_a_long_prompt_come_in_pieces(llm: pyggml.LLM) -> None:
    ids = (llm.tokenize(STORY) * 200)[:400]
    logits = llm.logits(ids)
    assert logits.shape[0] == 400
    short = llm.logits(ids[:150])
    assert np.abs(short - logits[:150]).max() <= 1e-3 * np.abs(logits).max()


def test_reset_leaves_the_answers_alone(llm: pyggml.LLM) -> None:
    before = llm.generate(STORY, max_tokens=20).text
    llm.reset()
    assert llm.generate(STORY, max_tokens=20).text == before


def test_forward_is_greedy_text(llm: pyggml.LLM) -> None:
    assert asyncio.run(llm.forward(STORY, 20)) == llm.generate(STORY, max_tokens=20).text


def test_forward_returns_the_whole_completion_when_asked(llm: pyggml.LLM) -> None:
    completion = asyncio.run(llm.forward(STORY, 20, completion=True))
    alone = llm.generate(STORY, max_tokens=20)
    assert (completion.text, completion.token_ids, completion.finish_reason) == (
        alone.text,
        alone.token_ids,
        alone.finish_reason,
    )
    assert asyncio.run(llm.forward(llm.tokenize(STORY), 20)) == completion.text


def test_forward_cancels_with_its_task(llm: pyggml.LLM) -> None:
    async def main() -> None:
        task = asyncio.create_task(llm.forward(STORY, 400))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    whole = len(llm.generate(STORY, max_tokens=400).token_ids)
    before = llm.stats().n_generated_tokens
    asyncio.run(main())
    llm.generate(STORY, max_tokens=1)  # returns when the engine has let go of the cancelled one
    assert llm.stats().n_generated_tokens - before < whole


def test_tokenize_and_back(llm: pyggml.LLM) -> None:
    text = "Once, in a small house — 12 + 7 = 19; naïve café, 漢字 and 🙂!\n"
    assert llm.detokenize(llm.tokenize(text)) == text
    assert llm.detokenize(llm.tokenize(text, add_special=False)) == text


class TestRawPrompts:
    """A prompt means what it spells, and ``parse_special=False`` makes text of it."""

    MARKUP = f"<|im_start|>user\n{SKY}<|im_end|>\n<|im_start|>assistant\n"

    def test_it_has_the_ids_of_the_chat(self, llm: pyggml.LLM) -> None:
        messages = [{"role": "user", "content": SKY}]
        ids = llm.tokenize(self.MARKUP)
        assert ids == chat_request(llm, messages).prompt_ids()
        start, end = map(llm.model.vocab.find, ("<|im_start|>", "<|im_end|>"))
        assert [i for i in ids if i in llm.model.vocab.special_ids] == [llm.model.vocab.bos, start, end, start]
        assert llm.detokenize(ids) == self.MARKUP
        text = llm.tokenize(self.MARKUP, parse_special=False)
        assert len(text) > len(ids)
        assert not {start, end} & set(text)
        assert llm.detokenize(text) == self.MARKUP

    def test_the_end_token_is_not_in_a_completions_text(self, llm: pyggml.LLM) -> None:
        completion = llm.generate(self.MARKUP)
        assert completion.text == demo_questions.ANSWERS[SKY]
        assert completion.finish_reason == "stop"
        assert completion.stop_reason == llm.model.vocab.find("<|im_end|>")
        assert llm.detokenize(completion.token_ids) == completion.text

    @pytest.mark.parametrize("parse_special", [True, False])
    def test_every_way_to_generate(self, llm: pyggml.LLM, parse_special: bool) -> None:
        asked: dict[str, Any] = {} if parse_special else {"parse_special": False}
        ids = llm.tokenize(self.MARKUP, **asked)
        expected = (llm.generate(ids, max_tokens=20).text, len(ids))

        async def in_a_loop() -> list[pyggml.Completion]:
            stream = llm.astream(self.MARKUP, max_tokens=20, **asked)
            return [
                await llm.agenerate(self.MARKUP, max_tokens=20, **asked),
                await stream.finish(),
                *await llm.agenerate_batch([self.MARKUP], max_tokens=20, **asked),
                *await llm.agenerate_n(self.MARKUP, 1, max_tokens=20, **asked),
            ]

        completions = [
            llm.generate(self.MARKUP, max_tokens=20, **asked),
            llm.stream(self.MARKUP, max_tokens=20, **asked).finish(),
            *llm.generate_batch([self.MARKUP], max_tokens=20, **asked),
            *llm.generate_n(self.MARKUP, 1, max_tokens=20, **asked),
            *asyncio.run(in_a_loop()),
        ]
        assert {(done.text, done.prompt_tokens) for done in completions} == {expected}
        assert asyncio.run(llm.forward(self.MARKUP, 20, **asked)) == expected[0]
        assert llm.logits(self.MARKUP, **asked).shape[0] == len(ids)

    def test_a_text_says_nothing_about_whether_it_is_trusted(self, llm: pyggml.LLM) -> None:
        wrong: Any = "no"
        for call in (llm.generate, llm.stream, llm.astream, llm.logits, llm.embed, llm.tokenize):
            with pytest.raises(pyggml.InvalidParameterError, match="parse_special must be True or False, not 'no'"):
                call(self.MARKUP, parse_special=wrong)
        with pytest.raises(pyggml.InvalidParameterError, match="parse_special must be True or False"):
            llm.chat([{"role": "user", "content": self.MARKUP}], parse_special=wrong)


def test_chat_template(llm: pyggml.LLM) -> None:
    text = llm.apply_chat_template([{"role": "user", "content": "Hello"}])
    assert "Hello" in text
    assert text != llm.apply_chat_template([{"role": "user", "content": "Hello"}], add_generation_prompt=False)
    own = llm.apply_chat_template([{"role": "user", "content": "Hello"}], chat_template="[{{ messages[0].content }}]")
    assert own == "[Hello]"


def test_threads_may_share_it(llm: pyggml.LLM) -> None:
    with ThreadPoolExecutor(8) as pool:
        texts = list(pool.map(lambda prompt: llm.generate(prompt).text, demo_questions.prompts(llm, 32)))
    assert texts == demo_questions.answers(32)


def test_other_threads_run_while_it_generates(llm: pyggml.LLM) -> None:
    """The GIL is free: a counting thread gets most of the speed it has alone on a second core, or half of one."""

    def count_for(seconds: float) -> int:
        n, end = 0, time.perf_counter() + seconds
        while time.perf_counter() < end:
            n += 1
        return n

    stop = threading.Event()

    def generate() -> None:
        while not stop.is_set():
            llm.generate(STORY, max_tokens=400, ignore_eos=True)

    shares: list[float] = []
    while not shares or (max(shares) <= 0.15 and len(shares) < 20):  # other programs may want the cores
        alone = count_for(0.2)
        stop.clear()
        worker = threading.Thread(target=generate)
        worker.start()
        together = count_for(0.4) / 2
        stop.set()
        worker.join()
        shares.append(together / alone)
    assert max(shares) > 0.15


def test_cancel_from_another_thread(llm: pyggml.LLM) -> None:
    stream = llm.stream(STORY, max_tokens=500, ignore_eos=True)
    first = next(stream)
    assert first.finish_reason is None
    threading.Thread(target=stream.cancel).start()
    rest = list(stream)
    assert rest[-1].finish_reason == "cancelled"
    assert stream.completion.finish_reason == "cancelled"


def test_closing_a_stream_cancels_it(llm: pyggml.LLM) -> None:
    with llm.stream(STORY, max_tokens=500, ignore_eos=True) as stream:
        next(stream)
    assert list(stream) == []
    assert llm.generate(STORY, max_tokens=5).finish_reason == "length"


def test_timeout_ends_with_what_there_is(llm: pyggml.LLM) -> None:
    completion = llm.generate(STORY, max_tokens=10**6, ignore_eos=True, timeout_s=0.0)
    assert completion.finish_reason == "timeout"


def test_a_queued_request_times_out_while_another_runs() -> None:
    with pyggml.load(n_parallel=1, n_threads=1) as llm:
        blocker = llm.stream([5] * 400, max_tokens=100, ignore_eos=True)
        completion = llm.generate(STORY, timeout_s=0.0001)
        assert completion.finish_reason == "timeout"
        assert completion.token_ids == []
        blocker.cancel()


def test_a_prompt_longer_than_a_batch() -> None:
    ids = [5, 6, 7, 8, 9] * 30
    with pyggml.load(n_batch=33, n_ubatch=16, n_threads=1) as pieces, pyggml.load(n_threads=1) as whole:
        expected = whole.generate(ids, max_tokens=8).token_ids
        assert pieces.generate(ids, max_tokens=8).token_ids == expected
        assert np.array_equal(pieces.logits(ids), whole.logits(ids))


def test_a_recurrent_model_generates(mamba_path: Path) -> None:
    with pyggml.load(mamba_path, n_ctx=64, n_threads=1) as llm:
        first = llm.generate("abc", max_tokens=12, ignore_eos=True).token_ids
        llm.generate("something else", max_tokens=5)
        assert llm.generate("abc", max_tokens=12, ignore_eos=True).token_ids == first


def test_stats_count(own_llm: pyggml.LLM) -> None:
    assert own_llm.stats().n_requests == 0
    completion = own_llm.generate(STORY, max_tokens=10, speculative="off")
    stats = own_llm.stats()
    assert stats.n_requests == 1
    assert stats.n_prompt_tokens == completion.prompt_tokens
    assert stats.n_generated_tokens == 10
    assert stats.n_decode_steps == 10  # one for the prompt, and the tenth token is not decoded
    assert (stats.n_queued, stats.n_running) == (0, 0)


def test_progress_is_reported() -> None:
    seen: list[float] = []
    pyggml.load(progress=seen.append).close()
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


@pytest.mark.slow
def test_params_are_reusable_and_overridable(llm: pyggml.LLM) -> None:
    params = SamplingParams(max_tokens=7)
    assert len(llm.generate(STORY, params).token_ids) == 7
    assert len(llm.generate(STORY, params, max_tokens=3).token_ids) == 3
