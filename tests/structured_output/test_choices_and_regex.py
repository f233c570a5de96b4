"""One of several texts, or a text that matches a regular expression, as the output."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pyggml
from pyggml.schema.grammar import grammar_of_regex

LABELS = ["positive", "negative", 'neither "one"']
QUESTION = [{"role": "user", "content": "Is that good?"}]


@pytest.fixture(scope="module")
def llm() -> Iterator[pyggml.LLM]:
    with pyggml.load(n_ctx=4096, n_parallel=4, n_threads=1) as llm:
        yield llm


def test_choices_through_every_method(llm: pyggml.LLM) -> None:
    params: dict[str, Any] = {"choices": LABELS, "temperature": 1.5, "seed": 3}
    outputs = [
        llm.generate("It is", **params).text,
        "".join(chunk.text for chunk in llm.stream("It is", **params)),
        *(done.text for done in llm.generate_batch(["It is", "He is"], **params)),
        *(done.text for done in llm.generate_n("It is", 3, **params)),
        asyncio.run(llm.agenerate("It is", **params)).text,
        llm.chat(QUESTION, **params).message.content,
        "".join(chunk.content for chunk in llm.stream_chat(QUESTION, **params)),
    ]
    assert set(outputs) <= set(LABELS)


@pytest.mark.parametrize(
    "regex",
    [
        r"\d{3}-\d{4}",
        "^(yes|no)$",
        "a|bb",
        r"^x+$|^y$",
        "[^a-z]{2}",
        r"(?!1)\d{2}",
        '["\\\\\n]{3}',
        "é+😀",
        "a{0,3}",
        "(?i)yes",
        r"\ba+\b",
    ],
)
def test_the_whole_output_matches(llm: pyggml.LLM, regex: str) -> None:
    done = llm.generate_n("Number:", 6, regex=regex, temperature=1.5, seed=0, max_tokens=60)
    finished = [each.text for each in done if each.finish_reason == "stop"]
    assert finished
    assert all(re.fullmatch(regex, text) for text in finished)


@pytest.mark.parametrize("regex", ["(", r"(a)\1", "a(?=b)", "$a", "[b-a]"])
def test_regex_that_is_refused(regex: str) -> None:
    with pytest.raises(pyggml.GrammarError, match="regex"):
        grammar_of_regex(regex)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"choices": []}, "choices must be a sequence of at least one string"),
        ({"choices": "yes"}, "choices must be a sequence"),
        ({"choices": ["a", 1]}, "each of choices must be text"),
        ({"choices": ["a"], "regex": "a"}, "choices and regex were both given"),
        ({"choices": ["a"], "response_format": {"type": "json_object"}}, "response_format and choices"),
        ({"regex": 3}, "regex must be text"),
        ({"regex": re.compile("a")}, r"regex must be text, not Pattern: pass its \.pattern"),
        (
            {"grammar": Path("a.gbnf")},
            r"grammar must be text, not .*Path: files are not read here, so pass path\.read_",
        ),
        ({"grammar": "a.gbnf"}, r"grammar is 'a\.gbnf', which looks like a file: .* Path\('a\.gbnf'\)\.read_text\(\)"),
        ({"json_schema": "C:/a b/cat.json"}, "json_schema is 'C:/a b/cat.json', which looks like a file"),
        ({"regex": "a", "ignore_eos": True}, "ignore_eos does not work with regex"),
    ],
)
def test_invalid_formats(given: dict[str, Any], message: str) -> None:
    with pytest.raises(pyggml.InvalidParameterError, match=message):
        pyggml.SamplingParams(**given)


def test_probabilities_of_labels(llm: pyggml.LLM) -> None:
    """After the mask, they add up to 1 over the labels; raw ones are the model's own."""
    labels = ["A", "B", "C"]
    both = [
        llm.generate("The answer is", choices=labels, logprobs=10, logprobs_mode=mode)
        for mode in ("processed_logprobs", "raw_logprobs")
    ]
    processed, raw = (done.logprobs[0] for done in both if done.logprobs)
    assert [done.text for done in both] == [both[0].text] * 2
    named = {llm.tokenizer.piece(each.token_id).decode(): math.exp(each.logprob) for each in processed.top}
    assert named.keys() == set(labels)
    assert sum(named.values()) == pytest.approx(1, abs=1e-5)
    assert len(raw.top) == 10
    assert raw.logprob < processed.logprob
    row = llm.logits("The answer is")[-1]
    ids = [each.token_id for each in processed.top]
    expected = row[ids] - math.log(sum(math.exp(row[each]) for each in ids))
    assert [each.logprob for each in processed.top] == pytest.approx(expected.tolist(), abs=1e-4)
