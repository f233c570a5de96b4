"""Grammars in the engine: accepted output, lazy triggers, and cost."""

from __future__ import annotations

import json
import math
import re
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyggml
from pyggml import Grammar

STORY = "Once upon a time"
THREE = 'root ::= "yes" | "no" | "maybe so"'


@pytest.fixture(scope="module")
def llm() -> Iterator[pyggml.LLM]:
    with pyggml.load(n_parallel=8, n_threads=1) as llm:
        yield llm


@pytest.fixture
def tiny_llm(tiny_path: Path) -> Iterator[pyggml.LLM]:
    with pyggml.load(tiny_path, n_ctx=512, n_threads=1) as llm:
        yield llm


def test_another_root(llm: pyggml.LLM) -> None:
    grammar = Grammar('start ::= "a" other\nother ::= "b"\nroot ::= "c"', root="start")
    assert llm.generate(STORY, grammar=grammar).text == "ab"
    with pytest.raises(pyggml.GrammarError, match='no rule "end"'):
        llm.generate(STORY, grammar=Grammar("root ::= [a]", root="end"))


def test_a_grammar_that_begins_in_the_prompt(llm: pyggml.LLM) -> None:
    grammar = Grammar('root ::= "<turn>" ("yes" | "no")', prefix="<turn>y")
    assert llm.generate(STORY, grammar=grammar).text == "es"
    with pytest.raises(pyggml.GrammarError, match="does not match its prefix"):
        llm.generate(STORY, grammar=Grammar('root ::= "a"', prefix="b"))
    with pytest.raises(pyggml.InvalidParameterError, match="a lazy grammar"):
        Grammar('root ::= "a"', prefix="a", lazy=True, trigger_patterns=["a"])


@pytest.mark.parametrize("count", ["{5,2}", "{ 5 , 2 }", "{5,\n2}", "{18446744073709551615,0}"])
def test_a_repetition_that_cannot_be(llm: pyggml.LLM, count: str) -> None:
    with pytest.raises(pyggml.GrammarError, match="line 2, column 13: a repetition's maximum is less"):
        llm.generate(STORY, grammar=f'# {{5,2}}\nroot ::= "a"{count}')


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"text": 5}, "grammar must be text"),
        ({"text": b"root ::= []"}, "grammar must be text, not bytes"),
        ({"text": "a\0"}, "NUL"),
        ({"text": "", "root": None}, "root must be text"),
        ({"text": "", "lazy": True}, "lazy=True needs trigger_patterns"),
        ({"text": "", "trigger_tokens": [1]}, "triggers need lazy=True"),
        ({"text": "", "lazy": True, "trigger_patterns": "ab"}, "sequence of regular expressions"),
        ({"text": "", "lazy": True, "trigger_tokens": ["a"]}, "trigger_tokens must be integers"),
    ],
)
def test_arguments(arguments: Any, said: str) -> None:
    with pytest.raises(pyggml.InvalidParameterError, match=said):
        Grammar(**arguments)


def test_wrong_triggers(llm: pyggml.LLM) -> None:
    with pytest.raises(pyggml.GrammarError, match="not a valid regular expression"):
        llm.generate(STORY, grammar=Grammar(THREE, lazy=True, trigger_patterns=["(a"]))
    with pytest.raises(pyggml.InvalidParameterError, match="outside the vocabulary"):
        llm.generate(STORY, grammar=Grammar(THREE, lazy=True, trigger_tokens=[10**6]))


# --- lazy grammars --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", ["the", "(th)e", r"th[e]", r"^[\s\S]*?(the)[\s\S]*$"])
def test_a_lazy_grammar_begins_with_its_trigger(llm: pyggml.LLM, pattern: str) -> None:
    grammar = Grammar('root ::= "the" [a-z]{0,3} " purple" " unicorn"', lazy=True, trigger_patterns=[pattern])
    text = llm.generate(STORY, grammar=grammar, max_tokens=200).text
    free = llm.generate(STORY, max_tokens=200).text
    before, _, after = text.partition("the")
    assert before
    assert free.startswith(before + "the")
    assert re.fullmatch("[a-z]{0,3} purple unicorn", after)


def test_a_lazy_grammar_begins_with_a_token(llm: pyggml.LLM) -> None:
    free = llm.generate(STORY, max_tokens=30)
    trigger = free.token_ids[10]
    piece = llm.tokenizer.piece(trigger).decode()
    grammar = Grammar(f'root ::= "{piece}" "!!"', lazy=True, trigger_tokens=[trigger])
    text = llm.generate(STORY, grammar=grammar, max_tokens=60).text
    assert text.endswith(piece + "!!")
    assert free.text.startswith(text[: -len(piece + "!!")])


def test_a_lazy_grammar_that_is_never_woken(llm: pyggml.LLM) -> None:
    grammar = Grammar(THREE, lazy=True, trigger_patterns=["NEVER"])
    assert llm.generate(STORY, grammar=grammar, max_tokens=40).text == llm.generate(STORY, max_tokens=40).text


def test_a_lazy_grammar_that_does_not_match_its_trigger(llm: pyggml.LLM) -> None:
    with pytest.raises(pyggml.GrammarError, match="triggered the lazy grammar does not match it"):
        llm.generate(STORY, grammar=Grammar(THREE, lazy=True, trigger_patterns=["[a-z]"]), max_tokens=40)


@pytest.mark.parametrize("pattern", ["(.*)*(.*)*(.*)*x", "(" * 60 + "[a-z ,.]" + ")" * 60 + "*!!x"])
def test_a_trigger_pattern_that_could_be_matched_in_many_ways(llm: pyggml.LLM, pattern: str) -> None:
    """The engine's thread tried one after the other, beyond every `timeout_s`, and recursed for each."""
    bias = {i: -math.inf for i in range(llm.model.vocab.n_tokens) if b"x" in llm.tokenizer.piece(i)}
    grammar = Grammar('root ::= "x"', lazy=True, trigger_patterns=[pattern])
    done = llm.generate(STORY, grammar=grammar, logit_bias=bias, max_tokens=60)
    assert len(done.token_ids) > 20


def test_a_lazy_grammar_over_a_long_text(llm: pyggml.LLM) -> None:
    """std::regex recurses for each character of a match."""
    bias = {i: -math.inf for i in range(llm.model.vocab.n_tokens) if b"z" in llm.tokenizer.piece(i)}
    grammar = Grammar('root ::= "z"', lazy=True, trigger_patterns=[r"^[\s\S]*(z)$"])
    done = llm.generate(STORY, grammar=grammar, logit_bias=bias, max_tokens=400, ignore_eos=False, temperature=0.5)
    assert done.text


# --- compiled once --------------------------------------------------------------------------------------------


def test_a_grammar_is_compiled_once(tiny_llm: pyggml.LLM) -> None:
    assert tiny_llm.stats().n_grammars == 0
    for _ in range(3):
        tiny_llm.generate(STORY, grammar=THREE)
        tiny_llm.generate(STORY, grammar=Grammar(THREE))
    assert tiny_llm.stats().n_grammars == 1
    schema = {"type": "object", "properties": {"a": {"type": "integer", "maximum": 3, "minimum": 0}}}
    for form in (schema, json.dumps(schema), schema):
        tiny_llm.generate(STORY, json_schema=form)
    assert tiny_llm.stats().n_grammars == 2
    with pytest.raises(pyggml.GrammarError):
        tiny_llm.generate(STORY, grammar="root ::= (")
    assert tiny_llm.stats().n_grammars == 2


def test_the_cache_is_bounded_and_goes_on_working(tiny_llm: pyggml.LLM) -> None:
    for i in range(150):
        assert tiny_llm.generate(STORY, grammar=f'root ::= "{i}"').text == str(i)
    assert tiny_llm.stats().n_grammars == 150
    tiny_llm.generate(STORY, grammar='root ::= "149"')
    assert tiny_llm.stats().n_grammars == 150
    tiny_llm.generate(STORY, grammar='root ::= "0"')
    assert tiny_llm.stats().n_grammars == 151


def test_many_threads_share_a_grammar(llm: pyggml.LLM) -> None:
    before = llm.stats().n_grammars
    grammar = 'root ::= "[" ([0-9]{1,3} ",")* [0-9] "]"  # shared'
    texts: list[str] = []

    def work(i: int) -> None:
        texts.append(llm.generate(STORY, grammar=grammar, temperature=1.0, seed=i, max_tokens=300).text)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(texts) == 32
    assert len(set(texts)) > 5
    for text in texts:
        assert set(text) <= set("[],0123456789")
    assert llm.stats().n_grammars == before + 1


# --- what comes out -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_distribution_is_that_of_what_is_allowed(tiny_llm: pyggml.LLM) -> None:
    """First token: the model's own probabilities, renormalised over the tokens that the grammar allows."""
    letters = [ord(c) for c in "abcdefghijkt"]
    n = 4000
    counts: Counter[int] = Counter()
    params = pyggml.SamplingParams(grammar="root ::= [a-kt]", temperature=10.0, max_tokens=1)
    for done in tiny_llm.generate_batch(["x"] * n, params):
        counts[done.token_ids[0]] += 1
    logits = tiny_llm.logits("x")[-1][letters].astype(np.float64) / 10.0
    expected = np.exp(logits - logits.max())
    expected *= n / expected.sum()
    seen = np.array([counts[i] for i in letters], np.float64)
    assert sum(counts.values()) == seen.sum() == n
    chi2 = float(((seen - expected) ** 2 / expected).sum())
    assert chi2 < 35  # 11 degrees of freedom: once in 5,000 by chance, and the seeds are new each time


def test_truncating_samplers_come_after_the_grammar(tiny_llm: pyggml.LLM) -> None:
    """top_k counts what is allowed, however unlikely it is to the model."""
    letters = [ord(c) for c in "abcdefghijkt"]
    logits = tiny_llm.logits("x")[-1][letters]
    best = {letters[i] for i in np.argsort(-logits)[:2]}
    params = pyggml.SamplingParams(grammar="root ::= [a-kt]", temperature=50.0, top_k=2, max_tokens=1)
    seen = {done.token_ids[0] for done in tiny_llm.generate_batch(["x"] * 60, params)}
    assert seen == best


def test_greedy_takes_the_likeliest_that_is_allowed(tiny_llm: pyggml.LLM) -> None:
    letters = [ord(c) for c in "abcdefghijkt"]
    logits = tiny_llm.logits("x")[-1][letters]
    assert tiny_llm.generate("x", grammar="root ::= [a-kt]", max_tokens=1).token_ids == [letters[int(logits.argmax())]]


def test_it_ends_where_the_grammar_is_complete_and_nowhere_else(tiny_llm: pyggml.LLM) -> None:
    eos = next(iter(tiny_llm.stop_tokens))
    eager: Any = {"logit_bias": {eos: 1000.0}}
    assert tiny_llm.generate("x", grammar='root ::= "abc" [d-e]?', **eager).text == "abc"
    done = tiny_llm.generate("x", grammar='root ::= "abc" [d-e]{2}', max_tokens=20, **eager)
    assert (done.text[:3], len(done.text), done.finish_reason) == ("abc", 5, "stop")
    cut = tiny_llm.generate("x", grammar='root ::= "abc" [d-e]{2}', max_tokens=4, **eager)
    assert (len(cut.text), cut.finish_reason) == (4, "length")


def test_stop_tokens_of_the_caller_end_it_only_where_it_is_complete(tiny_llm: pyggml.LLM) -> None:
    done = tiny_llm.generate(
        "x", grammar='root ::= "ab" [c-z]* "."', stop_token_ids=[ord("q")], logit_bias={ord("q"): 100.0}, max_tokens=50
    )
    assert "q" not in done.text


def test_special_tokens_do_not_pass_for_text(tiny_llm: pyggml.LLM) -> None:
    """They would be left out of the text, and so break what the grammar promised."""
    bos = tiny_llm.model.vocab.bos
    assert bos is not None
    done = tiny_llm.generate("x", grammar="root ::= [a-z<>]{5}", logit_bias={bos: 100.0}, max_tokens=20)
    assert len(done.text) == 5
    named = tiny_llm.generate("x", grammar=f'root ::= <[{bos}]> "ok"', max_tokens=20)
    assert named.token_ids[0] == bos
    assert named.text == "ok"


def test_only_utf8_comes_out(tiny_llm: pyggml.LLM) -> None:
    """The tiny model's tokens are single bytes, and any of them may come next."""
    for seed in range(20):
        done = tiny_llm.generate("x", grammar="root ::= [^a]{20}", temperature=5.0, seed=seed, max_tokens=100)
        data = b"".join(map(tiny_llm.tokenizer.piece, done.token_ids))
        assert len(data.decode()) == 20
        assert done.finish_reason == "stop"


def test_where_no_token_can_go_on(tiny_llm: pyggml.LLM) -> None:
    eos_only = 'root ::= "a" <[99999]>'  # a token that is not in the vocabulary
    with pytest.raises(pyggml.GrammarError, match="no token in the vocabulary can come next"):
        tiny_llm.generate("x", grammar=eos_only, max_tokens=5)
    assert tiny_llm.generate("x", max_tokens=2).token_ids


def test_a_short_grammar_that_would_hold_up_everybody(tiny_llm: pyggml.LLM) -> None:
    with pytest.raises(pyggml.GrammarError, match="less ambiguous"):
        tiny_llm.generate("x", grammar='root ::= ("a"?){900} ("a"?){900} ("a"?){900} "b"', max_tokens=30)


def test_an_ambiguous_grammar(tiny_llm: pyggml.LLM) -> None:
    grammar = 'root ::= a a a a\na ::= ("x" | "x" "x" | [a-z])+\n'
    done = tiny_llm.generate("x", grammar=grammar, temperature=1.0, seed=1, max_tokens=100)
    assert set(done.text) <= set("abcdefghijklmnopqrstuvwxyz")
