"""Logits processors: functions of the caller between the logits and the choice of a token."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
import sysconfig
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from support.paths import ROOT

import pyggml

PROMPT = "Once upon a time there was a little"
Ids = npt.NDArray[np.int32]
Logits = npt.NDArray[np.float32]


@pytest.fixture(scope="module")
def llm() -> Iterator[pyggml.LLM]:
    with pyggml.load(n_ctx=4096, n_parallel=8, n_threads=1) as llm:
        yield llm


def ban(*token_ids: int) -> Callable[[Ids, Logits], None]:
    def processor(_ids: Ids, logits: Logits) -> None:
        logits[list(token_ids)] = -np.inf

    return processor


def test_one_that_does_nothing_changes_nothing(llm: pyggml.LLM) -> None:
    options: list[dict[str, Any]] = [
        {},
        {"temperature": 1.2, "seed": 7, "repeat_penalty": 1.2},
        {"json_schema": {"enum": ["yes", "no"]}},
        {"logprobs": 3, "temperature": 0.8, "seed": 1},
        {"logprobs": 2, "logprobs_mode": "processed_logprobs", "temperature": 0.8, "seed": 1, "top_k": 20},
    ]
    for each in options:
        plain = llm.generate(PROMPT, max_tokens=24, **each)
        done = llm.generate(PROMPT, max_tokens=24, logits_processor=lambda _ids, _logits: None, **each)
        assert (done.token_ids, done.logprobs) == (plain.token_ids, plain.logprobs)


def test_banned_tokens_are_those_of_logit_bias(llm: pyggml.LLM) -> None:
    banned = llm.generate(PROMPT, max_tokens=4).token_ids
    expected = llm.generate(PROMPT, max_tokens=24, logit_bias=dict.fromkeys(banned, float("-inf")))
    assert llm.generate(PROMPT, max_tokens=24, logits_processor=ban(*banned)).token_ids == expected.token_ids
    several = [ban(each) for each in banned]
    assert llm.generate(PROMPT, max_tokens=24, logits_processor=several).token_ids == expected.token_ids
    assert not {*expected.token_ids} & {*banned}


def test_arguments(llm: pyggml.LLM) -> None:
    prompt = llm.tokenize(PROMPT)
    seen: list[tuple[list[int], int]] = []

    def processor(ids: Ids, logits: Logits) -> None:
        assert (ids.dtype.name, logits.dtype.name) == ("int32", "float32")
        assert logits.shape == (llm.model.vocab.n_tokens,)
        assert not ids.flags.writeable
        seen.append((ids.tolist(), int(logits.argmax())))

    done = llm.generate(prompt, max_tokens=8, ignore_eos=True, logits_processor=processor)
    assert [ids for ids, _ in seen] == [[*prompt, *done.token_ids[:n]] for n in range(8)]
    assert [likeliest for _, likeliest in seen] == done.token_ids


def test_tokens_after_the_context_was_full() -> None:
    """Older ones are dropped from the arguments, too."""
    lengths: list[int] = []

    def counting(ids: Ids, _logits: Logits) -> int:
        n = min(len(lengths), 100)
        assert ids[len(ids) - n :].tolist() == [10 + each % 100 for each in range(len(lengths) - n, len(lengths))]
        lengths.append(len(ids))
        return 10 + (len(lengths) - 1) % 100

    with pyggml.load(n_ctx=256, n_parallel=1, n_threads=1) as llm:
        options: dict[str, Any] = {"max_tokens": 400, "ignore_eos": True, "overflow": "shift", "n_keep": -1}
        done = llm.generate(PROMPT, logits_processor=counting, **options)
    assert done.token_ids == [10 + n % 100 for n in range(400)]
    assert max(lengths) <= 256


def test_results(llm: pyggml.LLM) -> None:
    """None after changes in place, other logits, or the token; of several, each sees what the one before left."""

    def other(_ids: Ids, logits: Logits) -> Logits:
        row: Logits = (np.arange(len(logits)) == 7).astype(np.float32)
        return row

    assert llm.generate(PROMPT, max_tokens=3, logits_processor=other).token_ids == [7] * 3
    as_row = llm.generate(PROMPT, max_tokens=3, logits_processor=lambda ids, logits: other(ids, logits)[None].tolist())
    assert as_row.token_ids == [7] * 3
    first = next(each for each in range(9) if each not in llm.stop_tokens and each != 7)
    several = [other, ban(7, *llm.stop_tokens)]
    assert llm.generate(PROMPT, max_tokens=3, logits_processor=several).token_ids == [first] * 3
    assert llm.generate(PROMPT, max_tokens=3, logits_processor=lambda ids, _: len(ids)).token_ids == [
        len(llm.tokenize(PROMPT)) + n for n in range(3)
    ]
    assert llm.generate(PROMPT, max_tokens=3, logits_processor=lambda _ids, _logits: np.int64(9)).token_ids == [9] * 3


def test_a_chosen_stop_token_ends_the_text(llm: pyggml.LLM) -> None:
    stop = next(iter(llm.stop_tokens))
    n_prompt = len(llm.tokenize(PROMPT))
    done = llm.generate(PROMPT, logits_processor=lambda ids, _: stop if len(ids) == n_prompt + 2 else None)
    assert (len(done.token_ids), done.finish_reason, done.stop_reason) == (2, "stop", stop)


def only_logprob(done: pyggml.Completion) -> Any:
    assert done.logprobs is not None
    [only] = done.logprobs
    return only


def test_logprobs(llm: pyggml.LLM) -> None:
    """Raw ones are of the model's logits, processed ones of those that the processor left."""
    first = llm.generate(PROMPT, max_tokens=1, logprobs=1).token_ids[0]
    options: dict[str, Any] = {"max_tokens": 1, "logprobs": 2, "logits_processor": ban(first)}
    raw = only_logprob(llm.generate(PROMPT, **options))
    assert raw.top[0].token_id == first != raw.token_id == raw.top[1].token_id
    processed = only_logprob(llm.generate(PROMPT, logprobs_mode="processed_logprobs", **options))
    assert processed.top[0].token_id == processed.token_id == raw.token_id
    chosen = {**options, "logits_processor": lambda _ids, _logits: 5, "logprobs_mode": "processed_logprobs"}
    forced = only_logprob(llm.generate(PROMPT, **chosen))
    also = only_logprob(llm.generate(PROMPT, **{**chosen, "logprobs_mode": "raw_logprobs"}))
    assert (forced.token_id, forced.logprob) == (5, pytest.approx(also.logprob))


def test_many_requests_at_once(llm: pyggml.LLM) -> None:
    """Each has its own processor, and some have none; all have one step in common."""
    sizes: list[int] = []
    threads: set[int] = set()

    def counting(_ids: Ids, logits: Logits) -> None:
        threads.add(threading.get_ident())
        sizes.append(len(logits))

    prompts = [f"{PROMPT} {name}" for name in ("dog", "cat", "girl", "boy", "bird", "fish", "bear", "fox")] * 3
    alone = [llm.generate(prompt, max_tokens=16, ignore_eos=True).token_ids for prompt in prompts]
    params = [
        pyggml.SamplingParams(max_tokens=16, ignore_eos=True, logits_processor=(counting,) if index % 2 else None)
        for index in range(len(prompts))
    ]
    done = llm.generate_batch(prompts, params)
    assert [each.token_ids for each in done] == alone
    assert len(sizes) == 16 * len(prompts) // 2
    assert len(threads) == 1
    assert threading.get_ident() not in threads


@pytest.mark.parametrize(
    ("processor", "said"),
    [
        (lambda _ids, _logits: 1 / 0, "raised ZeroDivisionError: division by zero"),
        (lambda _ids, _logits: "no", r"must return \d+ logits, a token id, or None after .*, not str"),
        (lambda _ids, _logits: np.zeros(3), r"not an array of the shape \(3,\)"),
        (lambda _ids, _logits: -5, r"between 0 and \d+, not -5"),
        (lambda _ids, logits: len(logits), r"between 0 and (\d+), not \d+"),
        (lambda _ids, _logits: True, "must be an integer, not True"),
        (lambda _ids, logits: logits.fill(np.nan), "left NaN or .infinity"),
        (lambda _ids, logits: logits.fill(np.inf), "left NaN or .infinity"),
        (lambda _ids, logits: logits.fill(-np.inf), "leave no token"),
        (lambda _ids: None, "raised TypeError"),
        (sys.exit, "raised"),
    ],
)
def test_an_error_ends_that_request_alone(llm: pyggml.LLM, processor: Any, said: str) -> None:
    expected = llm.generate(PROMPT, max_tokens=40, ignore_eos=True).token_ids
    others = [llm.stream(PROMPT, max_tokens=40, ignore_eos=True) for _ in range(3)]
    with pytest.raises(pyggml.InvalidParameterError, match=said):
        llm.generate(PROMPT, max_tokens=40, logits_processor=processor)
    assert [other.finish().token_ids for other in others] == [expected] * 3


def test_the_error_has_its_cause(llm: pyggml.LLM) -> None:
    n_prompt = len(llm.tokenize(PROMPT))

    def failing(ids: Ids, _logits: Logits) -> None:
        if len(ids) == n_prompt + 3:
            raise LookupError("on purpose")

    stream = llm.stream(PROMPT, max_tokens=40, logits_processor=failing)
    with pytest.raises(pyggml.InvalidParameterError, match="LookupError: on purpose") as caught:
        stream.finish()
    assert isinstance(caught.value.__cause__, LookupError)
    request = llm._engine.submit(llm.tokenize(PROMPT), logits_processor=failing)
    with pytest.raises(pyggml.InvalidParameterError, match="on purpose"):
        request.read_all()


def test_a_grammar_and_a_processor(llm: pyggml.LLM) -> None:
    no = llm.tokenize("no", add_special=False)[0]
    done = llm.generate(PROMPT, choices=["yes", "no"], logits_processor=ban(no))
    assert done.text == "yes"
    with pytest.raises(pyggml.GrammarError, match="chose token"):
        llm.generate(PROMPT, choices=["yes", "no"], logits_processor=lambda _ids, _logits: 9)
    with pytest.raises(pyggml.InvalidParameterError, match="chose token 9, which"):
        llm.generate(PROMPT, allowed_token_ids=[5, 6], logits_processor=lambda _ids, _logits: 9)


def test_chats_coroutines_and_several_answers(llm: pyggml.LLM, run: Callable[[Any], Any]) -> None:
    messages = [{"role": "user", "content": "What colour is the sky?"}]
    first = llm.chat(messages, temperature=0, max_tokens=1).token_ids[0]
    assert llm.chat(messages, temperature=0, max_tokens=4, logits_processor=ban(first)).token_ids[0] != first

    async def main() -> list[Any]:
        choosing = [lambda _ids, _logits, n=n: n for n in (5, 6, 7)]
        return await asyncio.gather(*(llm.agenerate(PROMPT, max_tokens=4, logits_processor=f) for f in choosing))

    assert [each.token_ids for each in run(main())] == [[5] * 4, [6] * 4, [7] * 4]
    done = llm.generate_n(PROMPT, 3, max_tokens=4, logits_processor=lambda _ids, _logits: 5)
    assert [each.token_ids for each in done] == [[5] * 4] * 3


def test_calls_that_would_wait_for_themselves_are_refused(own_llm: pyggml.LLM) -> None:
    said = "a logits processor runs while its engine waits for it"
    stream = own_llm.stream(PROMPT, max_tokens=50, ignore_eos=True)
    calls: list[Callable[[], Any]] = [
        lambda: own_llm.generate("Once"),
        lambda: own_llm.logits("Once"),
        own_llm.close,
        own_llm.stats,
        own_llm.reset,
        stream.finish,
    ]
    errors: list[str] = []

    def processor(_ids: Ids, _logits: Logits) -> int:
        for call in calls:
            try:
                call()
            except pyggml.InvalidParameterError as error:
                errors.append(str(error))
        return 5

    assert own_llm.generate(PROMPT, max_tokens=1, logits_processor=processor).token_ids == [5]
    assert [said in error for error in errors] == [True] * len(calls), errors


def test_another_model_in_a_processor(llm: pyggml.LLM, own_llm: pyggml.LLM) -> None:
    """Contrastive decoding, for instance, asks a second model for its logits."""

    def copying(ids: Ids, _logits: Logits) -> Logits:
        row: Logits = own_llm.logits(ids)[-1]
        return row

    done = llm.generate(PROMPT, max_tokens=6, logits_processor=copying)
    assert done.token_ids == llm.generate(PROMPT, max_tokens=6).token_ids


def test_what_a_processor_keeps_stays_valid(own_llm: pyggml.LLM) -> None:
    kept: list[Any] = []
    own_llm.generate(PROMPT, max_tokens=300, ignore_eos=True, logits_processor=lambda *arrays: kept.append(arrays))
    own_llm.close()
    gc.collect()
    assert all(np.isfinite(logits).all() and ids.min() >= 0 for ids, logits in kept)


def test_nothing_is_kept_after_a_request(llm: pyggml.LLM) -> None:
    processor = ban(5)
    reference = weakref.ref(processor)
    stream = llm.stream(PROMPT, max_tokens=500, ignore_eos=True, logits_processor=processor)
    next(stream)
    del stream, processor
    gc.collect()
    llm.generate("Once", max_tokens=4)
    gc.collect()
    assert reference() is None


def test_garbage_that_is_collected_in_a_processor() -> None:
    """An engine in a cycle, freed by the thread of another engine, or by its own."""
    program = """
import gc, pyggml
gc.disable()
with pyggml.load(n_ctx=512, n_threads=1) as other:
    llm = pyggml.load(n_ctx=512, n_threads=1)
    def processor(ids, logits):
        gc.collect()
    llm.cycle = [llm, llm.stream("Once", max_tokens=400, ignore_eos=True, logits_processor=processor)]
    next(llm.cycle[1])
    del llm
    print(len(other.generate("Once", max_tokens=20, ignore_eos=True, logits_processor=processor).token_ids))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "20"), done.stderr


def test_the_interpreter_ends_while_a_processor_runs() -> None:
    program = """
import time, pyggml
llm = pyggml.load(n_ctx=1024, n_threads=1)
def slow(ids, logits):
    time.sleep(0.01)
streams = [llm.stream("Once", max_tokens=-1, ignore_eos=True, logits_processor=slow) for _ in range(3)]
next(streams[0])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_an_isolated_engine_refuses_it() -> None:
    with pyggml.load(n_ctx=512, isolate=True) as llm:
        with pytest.raises(pyggml.InvalidParameterError, match="logits_processor does not work with isolate=True"):
            llm.generate("Once", logits_processor=ban(5))
        assert llm.generate("Once", max_tokens=2).text


def test_wrong_values(llm: pyggml.LLM) -> None:
    values: tuple[Any, ...] = (5, "f", [ban(5), None], {"a": 1})
    for wrong in values:
        with pytest.raises(pyggml.InvalidParameterError, match="logits_processor must be a function"):
            llm.generate("Once", logits_processor=wrong)


def test_processors_of_batches(llm: pyggml.LLM) -> None:
    """As those of transformers and Outlines, here with numpy."""

    class Ban:
        def __call__(self, input_ids: Any, scores: Any) -> Any:
            assert (input_ids.dtype, input_ids.shape[0], scores.shape[0]) == (np.int64, 1, 1)
            scores = scores.copy()
            scores[:, banned] = -np.inf
            return scores

    banned = llm.generate(PROMPT, max_tokens=4).token_ids
    expected = llm.generate(PROMPT, max_tokens=12, logits_processor=ban(*banned))
    adapted = pyggml.BatchedLogitsProcessor(Ban(), tensors="numpy")
    assert llm.generate(PROMPT, max_tokens=12, logits_processor=adapted).token_ids == expected.token_ids
    with pytest.raises(pyggml.InvalidParameterError, match="must be callable"):
        pyggml.BatchedLogitsProcessor(5)  # type: ignore[arg-type]
    with pytest.raises(pyggml.InvalidParameterError, match="tensors"):
        pyggml.BatchedLogitsProcessor(Ban(), tensors="jax")  # type: ignore[arg-type]


#: With processors of transformers in the engine, and the same tokens greedily from the logits of each prefix.
WITH_TRANSFORMERS = """
import json
import torch
from transformers import LogitsProcessorList, NoRepeatNGramLogitsProcessor, RepetitionPenaltyLogitsProcessor

processors = LogitsProcessorList([NoRepeatNGramLogitsProcessor(2), RepetitionPenaltyLogitsProcessor(1.3)])
adapted = pyggml.BatchedLogitsProcessor(processors)
with pyggml.load(n_ctx=512, cache_type="f32") as llm:
    done = llm.generate("Once", max_tokens=40, ignore_eos=True, logits_processor=adapted)
    ids, expected = llm.tokenize("Once"), []
    for _ in range(40):
        row = torch.from_numpy(llm.logits(ids)[-1:])
        row[:, list(llm.stop_tokens)] = -float("inf")
        ids.append(int(processors(torch.tensor([ids]), row).argmax()))
    print(json.dumps([done.token_ids, ids[-40:]]))
"""


@pytest.mark.slow
@pytest.mark.skipif(
    "TRANSFORMERS_PYTHON" not in os.environ,
    reason="needs transformers and torch: set TRANSFORMERS_PYTHON to an interpreter of this version that has both",
)
def test_processors_of_transformers() -> None:
    paths = [str(ROOT), sysconfig.get_path("purelib")]
    program = f"import sys\nsys.path += {paths!r}\nimport pyggml\n{WITH_TRANSFORMERS}"
    command = [os.environ["TRANSFORMERS_PYTHON"], "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found, expected = json.loads(done.stdout.splitlines()[-1])
    assert found == expected
