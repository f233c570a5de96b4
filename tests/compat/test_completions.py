"""Completions: dictionaries and streams with llama-cpp-python's keys."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import pyggml
from pyggml.compat.llama_cpp import Llama, LlamaGrammar, LogitsProcessorList, StoppingCriteriaList
from pyggml.compat.llama_cpp.llama_speculative import LlamaDraftModel, LlamaPromptLookupDecoding

PROMPT = "Once upon a time"
REPEATING = "red blue red blue red"
GREEDY: dict[str, Any] = {"max_tokens": 8, "temperature": 0.0}


def text_of(chunks: Any) -> str:
    return "".join(chunk["choices"][0]["text"] for chunk in chunks)


def test_dictionary(llama: Llama) -> None:
    found = llama(PROMPT, **GREEDY)
    assert list(found) == ["id", "object", "created", "model", "choices", "usage"]
    assert found["id"].startswith("cmpl-")
    assert found["model"] == llama.model_path
    (choice,) = found["choices"]
    expected = llama.llm.generate(PROMPT, max_tokens=8, repetition_guard=False)
    assert choice == {"text": expected.text, "index": 0, "logprobs": None, "finish_reason": "length"}
    assert found["usage"] == {"prompt_tokens": 5, "completion_tokens": 8, "total_tokens": 13}


def test_stream_has_a_chunk_for_each_token(llama: Llama) -> None:
    chunks = list(llama.create_completion(PROMPT, stream=True, **GREEDY))
    assert len(chunks) == 8 + 1
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert text_of(chunks) == llama(PROMPT, **GREEDY)["choices"][0]["text"]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * 8 + ["length"]
    assert "usage" not in chunks[-1]


def test_tokens_within_characters_share_a_chunk(llama: Llama) -> None:
    grammar = LlamaGrammar.from_string('root ::= "Übergröße 漢字!"')
    chunks = list(llama("A", max_tokens=40, stream=True, grammar=grammar))
    assert text_of(chunks) == "Übergröße 漢字!"
    assert 1 < len(chunks) <= 17  # characters, and the end


def test_stop_strings(llama: Llama) -> None:
    found = llama(PROMPT, max_tokens=40, temperature=0, stop=["little", ","])
    assert (found["choices"][0]["text"], found["choices"][0]["finish_reason"]) == ("", "stop")
    assert text_of(llama(PROMPT, max_tokens=40, temperature=0, stop=" was", stream=True)) == ", there"


def test_echo_and_name(llama: Llama) -> None:
    found = llama(PROMPT, echo=True, model="mine", **GREEDY)
    assert found["choices"][0]["text"].startswith(f"{PROMPT}, there")
    assert found["model"] == "mine"
    ids = llama(llama.tokenize(PROMPT.encode()), echo=True, **GREEDY)
    assert ids["choices"] == found["choices"]


def test_suffix_without_tokens_for_gaps_is_appended(llama: Llama) -> None:
    assert llama(PROMPT, suffix=" The end.", **GREEDY)["choices"][0]["text"].endswith(" The end.")
    assert text_of(llama(PROMPT, suffix=" The end.", stream=True, **GREEDY)).endswith(" The end.")


def test_logprobs(llama: Llama) -> None:
    found = llama(PROMPT, logprobs=2, **GREEDY)["choices"][0]["logprobs"]
    assert list(found) == ["tokens", "text_offset", "token_logprobs", "top_logprobs"]
    assert found["tokens"][:2] == [",", " there"]
    assert found["text_offset"][:3] == [len(PROMPT), len(PROMPT) + 1, len(PROMPT) + 7]
    assert len(found["top_logprobs"][0]) == 2
    assert found["top_logprobs"][0][","] == found["token_logprobs"][0] <= 0
    without = llama(PROMPT, logprobs=0, **GREEDY)["choices"][0]["logprobs"]
    assert [list(top) for top in without["top_logprobs"]] == [[token] for token in found["tokens"]]


def test_logprobs_with_echo_begin_with_the_prompt(llama: Llama) -> None:
    found = llama(PROMPT, logprobs=1, echo=True, **GREEDY)["choices"][0]["logprobs"]
    assert found["tokens"][:5] == ["Once", " upon", " a", " time", ","]
    assert (found["token_logprobs"][0], found["top_logprobs"][0], found["text_offset"][0]) == (None, None, 0)
    assert found["token_logprobs"][1] > -1
    assert len(found["tokens"]) == 4 + 8


def test_streamed_logprobs_add_up(llama: Llama) -> None:
    chunks = [chunk["choices"][0]["logprobs"] for chunk in llama(PROMPT, logprobs=2, stream=True, **GREEDY)]
    whole = llama(PROMPT, logprobs=2, **GREEDY)["choices"][0]["logprobs"]
    assert {name: [value for chunk in chunks if chunk for value in chunk[name]] for name in whole} == whole


def test_seeds(llama: Llama) -> None:
    def sampled(**options: Any) -> str:
        text: str = llama(PROMPT, max_tokens=20, temperature=1.5, top_k=0, **options)["choices"][0]["text"]
        return text

    assert sampled(seed=1) == sampled(seed=1) != sampled(seed=2)
    llama.set_seed(7)
    first = [sampled(), sampled()]
    llama.set_seed(7)
    assert [sampled(), sampled()] == first
    assert first[0] != first[1]


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": -1.0},
        {"mirostat_mode": 1},
        {"mirostat_mode": 2, "mirostat_tau": 3.0},
        {"typical_p": 0.5, "min_p": 0.2, "top_p": 0.5, "top_k": 5},
        {"frequency_penalty": 1.0},
        {"logit_bias": {"14": 5.0}},
    ],
)
def test_engine_and_loop_choose_the_same_tokens(llama: Llama, options: dict[str, Any]) -> None:
    """With criteria, Python's loop samples. Only the engine's penalties consider the prompt."""
    prompt = "x" if "frequency_penalty" in options else PROMPT
    given = {"max_tokens": 16, "seed": 3, "temperature": 1.0, **options}
    expected = llama(prompt, **given)["choices"]
    assert llama(prompt, stopping_criteria=lambda _ids, _scores: False, **given)["choices"] == expected
    same = LogitsProcessorList([lambda _, scores: scores])
    assert llama(prompt, logits_processor=same, **given)["choices"] == expected


def test_logits_processors(llama: Llama) -> None:
    seen: list[int] = []

    def only_dots(input_ids: Any, scores: Any) -> Any:
        seen.append(len(input_ids))
        scores[:] = -float("inf")
        scores[llama.tokenize(b".", add_bos=False)[0]] = 0
        return scores

    found = llama(PROMPT, max_tokens=3, logits_processor=LogitsProcessorList([only_dots]))
    assert found["choices"][0]["text"] == "..."
    assert seen == [5, 6, 7]
    assert text_of(llama(PROMPT, max_tokens=3, logits_processor=[only_dots], stream=True)) == "..."


def test_stopping_criteria(llama: Llama) -> None:
    criteria = StoppingCriteriaList([lambda input_ids, logits: len(input_ids) >= 9 and len(logits) == llama.n_vocab()])
    found = llama(PROMPT, max_tokens=30, temperature=0, stopping_criteria=criteria)
    assert found["choices"][0]["finish_reason"] == "stop"
    assert found["usage"]["completion_tokens"] == 4


def test_loop_reports_what_the_engine_reports(llama: Llama) -> None:
    options = {"max_tokens": 30, "temperature": 0, "logprobs": 2, "echo": True, "stop": ["called"]}
    whole, by_loop = llama(PROMPT, **options), llama(PROMPT, stopping_criteria=lambda _ids, _scores: False, **options)
    assert by_loop["usage"] == whole["usage"]
    mine, theirs = by_loop["choices"][0], whole["choices"][0]
    found, expected = mine.pop("logprobs"), theirs.pop("logprobs")
    assert mine == theirs
    assert found["tokens"] == expected["tokens"]
    assert found["token_logprobs"][1:] == pytest.approx(expected["token_logprobs"][1:], abs=0.01)
    assert [list(top) for top in found["top_logprobs"][1:]] == [list(top) for top in expected["top_logprobs"][1:]]


def test_grammar(llama: Llama) -> None:
    grammar = LlamaGrammar.from_string('root ::= " yes" | " no"')
    assert llama("Is it?", grammar=grammar)["choices"][0]["text"] in (" yes", " no")
    with pytest.raises(pyggml.InvalidParameterError, match=r"LlamaGrammar\.from_string"):
        llama("Is it?", grammar='root ::= "yes"')
    with pytest.raises(pyggml.GrammarError):
        llama("Is it?", grammar=LlamaGrammar.from_string("root := yes"))


def test_limits(llama: Llama) -> None:
    assert llama("x", max_tokens=None, temperature=1.0, stop=["."])["usage"]["completion_tokens"] > 0
    with pytest.raises(ValueError, match=r"Requested tokens \(\d+\) exceed context window of 1024"):
        llama("word " * 1200)
    with pytest.raises(pyggml.EmptyPromptError):
        llama([])


def test_unknown_parameters(llama: Llama) -> None:
    with pytest.raises(pyggml.UnknownParameterError, match=r"create_completion\(\) .*'temprature': .*'temperature'"):
        llama(PROMPT, temprature=0)
    with pytest.warns(UserWarning, match="tfs_z=0.5 has no effect"):
        llama(PROMPT, max_tokens=1, tfs_z=0.5)


def test_threads_are_batched(llama: Llama) -> None:
    expected = llama(PROMPT, **GREEDY)["choices"]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: llama(PROMPT, **GREEDY)["choices"], range(16)))
    assert found == [expected] * 16


def test_interleaved_streams_of_the_loop(llama: Llama) -> None:
    options: dict[str, Any] = {"stream": True, "stopping_criteria": lambda _ids, _scores: False, **GREEDY}
    pairs = list(zip(llama(PROMPT, **options), llama("The cat", **options), strict=True))
    assert text_of(pair[0] for pair in pairs) == llama(PROMPT, **GREEDY)["choices"][0]["text"]
    assert text_of(pair[1] for pair in pairs) == llama("The cat", **GREEDY)["choices"][0]["text"]


def test_prompt_lookup_is_the_engines(llama: Llama, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LlamaPromptLookupDecoding, "__call__", lambda *_: pytest.fail("called"))
    with Llama(llama.model_path, n_threads=1, n_ctx=256, draft_model=LlamaPromptLookupDecoding()) as drafting:
        for options in (GREEDY, {"max_tokens": 20, "seed": 2}):
            assert drafting(REPEATING, **options)["choices"] == llama(REPEATING, **options)["choices"]
        chat: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 10, "temperature": 0}
        answer = drafting.create_chat_completion(**chat)
        assert answer["choices"] == llama.create_chat_completion(**chat)["choices"]


def test_draft_model_changes_nothing_but_the_steps(llama: Llama) -> None:
    class Twice(LlamaDraftModel):
        """Guesses that the last two tokens come again."""

        n_calls = 0

        def __call__(self, input_ids: Any, /, **_: Any) -> Any:
            self.n_calls += 1
            return input_ids[-2:]

    draft_model = Twice()
    with Llama(llama.model_path, n_threads=1, n_ctx=256, draft_model=draft_model) as drafting:
        for options in (GREEDY, {"max_tokens": 20, "seed": 2}):
            assert drafting(REPEATING, **options)["choices"] == llama(REPEATING, **options)["choices"]
        chat = [{"role": "user", "content": "What colour is the sky?"}]
        found = drafting.create_chat_completion(chat, max_tokens=10, temperature=0)
        assert found["choices"] == llama.create_chat_completion(chat, max_tokens=10, temperature=0)["choices"]
    assert draft_model.n_calls > 3
