"""Sampler: each of the engine's samplers does what its paper says, and bad input is refused."""

from __future__ import annotations

import gc
import math
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from support.checkpoints import models

from pyggml import errors
from pyggml._native.context import Context
from pyggml._native.model import Model
from pyggml._native.sampler import Candidates, Sampler

Array = npt.NDArray[np.float32]

# Probabilities of ten tokens, and logits that give them.
PROBS = np.array([0.30, 0.20, 0.15, 0.10, 0.08, 0.07, 0.04, 0.03, 0.02, 0.01], np.float32)
SHUFFLED = np.array([7, 2, 9, 0, 5, 3, 8, 1, 6, 4])
LOGITS = np.log(PROBS)[SHUFFLED] + 3

YES_NO = 'root ::= "yes" | "no"'


def left(candidates: Candidates) -> dict[int, float]:
    """Rank of each surviving token (0 is the likeliest) -> its logit."""
    finite = np.isfinite(candidates.logits)
    ranks = SHUFFLED[candidates.token_ids[finite]]
    return dict(sorted(zip(ranks.tolist(), candidates.logits[finite].tolist(), strict=True)))


def survivors(sampler: Sampler, logits: Array = LOGITS) -> list[int]:
    with sampler:
        return list(left(sampler.apply(logits)))


def chosen(sampler: Sampler, n: int, logits: Array = LOGITS) -> list[int]:
    """Ranks of ``n`` tokens chosen one after another."""
    ranks = []
    for _ in range(n):
        candidates = sampler.apply(logits)
        assert candidates.selected is not None
        token_id = int(candidates.token_ids[candidates.selected])
        sampler.accept(token_id)
        ranks.append(int(SHUFFLED[token_id]))
    return ranks


class TestChoosing:
    """Samplers that select a token."""

    def test_greedy(self) -> None:
        with Sampler().greedy() as sampler:
            assert chosen(sampler, 3) == [0, 0, 0]

    def test_dist_follows_the_probabilities(self) -> None:
        with Sampler().dist(seed=1) as sampler:
            counts = np.bincount(chosen(sampler, 20_000), minlength=10) / 20_000
        assert np.abs(counts - PROBS).max() < 0.015

    def test_seeds(self) -> None:
        with Sampler().dist(7) as a, Sampler().dist(7) as b, Sampler().dist(8) as c:
            first = chosen(a, 50)
            assert chosen(b, 50) == first
            assert chosen(c, 50) != first
            assert chosen(a, 50) != first
            a.reset()
            assert chosen(a, 50) == first
            assert (a.seed, c.seed) == (7, 8)
        with Sampler().dist() as free, Sampler().greedy() as none:
            assert free.seed is not None
            assert none.seed is None

    @pytest.mark.parametrize("seed", [-1, 2**32 - 1, 2**40, 1.5, True, "1"])
    def test_seeds_out_of_range(self, seed: Any) -> None:
        with Sampler() as sampler, pytest.raises(errors.InvalidParameterError, match="seed"):
            sampler.dist(seed)

    @pytest.mark.parametrize("version", [1, 2])
    def test_mirostat_aims_at_a_surprise(self, tiny: Model, version: int) -> None:
        def mean_surprise(tau: float) -> float:
            sampler = Sampler(tiny)
            with sampler.mirostat(tau, 0.1, seed=3) if version == 1 else sampler.mirostat_v2(tau, 0.1, seed=3):
                return float(-np.log2(PROBS[chosen(sampler, 2000)]).mean())

        low, high = mean_surprise(0.5), mean_surprise(2.8)
        assert low < 1.9 < high

    def test_adaptive_p_aims_at_a_probability(self) -> None:
        def mean_probability(target: float) -> float:
            with Sampler().adaptive_p(target, decay=0.9, seed=5) as sampler:
                return float(PROBS[chosen(sampler, 2000)].mean())

        assert mean_probability(0.3) > 0.22 > 0.12 > mean_probability(0.05)
        with Sampler().adaptive_p(-1, seed=5) as off:
            counts = np.bincount(chosen(off, 5000), minlength=10) / 5000
        assert np.abs(counts - PROBS).max() < 0.03


class TestSortingOut:
    """Samplers that drop tokens."""

    def test_top_k(self) -> None:
        assert survivors(Sampler().top_k(3)) == [0, 1, 2]
        assert survivors(Sampler().top_k(0)) == list(range(10))
        assert survivors(Sampler().top_k(100)) == list(range(10))

    def test_top_p(self) -> None:
        assert survivors(Sampler().top_p(0.6)) == [0, 1, 2]
        assert survivors(Sampler().top_p(0.0)) == [0]
        assert survivors(Sampler().top_p(0.0, min_keep=4)) == [0, 1, 2, 3]
        assert survivors(Sampler().top_p(1.0)) == list(range(10))

    def test_min_p(self) -> None:
        assert survivors(Sampler().min_p(0.3)) == [0, 1, 2, 3]
        assert survivors(Sampler().min_p(1.0)) == [0]
        assert survivors(Sampler().min_p(1.0, min_keep=3)) == [0, 1, 2]
        assert survivors(Sampler().min_p(0.0)) == list(range(10))

    def test_typical_prefers_the_expected_surprise(self) -> None:
        surprise = -np.log(PROBS)
        order = np.argsort(np.abs(surprise - (PROBS * surprise).sum()))
        assert survivors(Sampler().typical(0.3)) == sorted(order[: len(survivors(Sampler().typical(0.3)))].tolist())
        assert 0 not in survivors(Sampler().typical(0.1))
        assert survivors(Sampler().typical(1.0)) == list(range(10))

    def test_top_n_sigma(self) -> None:
        kept = np.flatnonzero(np.log(PROBS) >= np.log(PROBS).max() - np.log(PROBS).std()).tolist()
        assert survivors(Sampler().top_n_sigma(1.0)) == kept
        assert survivors(Sampler().top_n_sigma(0.0)) == list(range(10))

    def test_xtc_excludes_top_choices(self) -> None:
        assert survivors(Sampler().xtc(1.0, 0.12, seed=1)) == [2, 3, 4, 5, 6, 7, 8, 9]
        assert survivors(Sampler().xtc(0.0, 0.12, seed=1)) == list(range(10))
        assert survivors(Sampler().xtc(1.0, 0.6, seed=1)) == list(range(10))
        with Sampler().xtc(0.5, 0.12, seed=1) as sampler:
            excluded = sum(0 not in left(sampler.apply(LOGITS)) for _ in range(400))
        assert 150 < excluded < 250

    def test_infill_prefers_to_end(self, tiny: Model) -> None:
        logits = np.full(models.N_BYTE_VOCAB, -20, np.float32)
        logits[[models.EOS, ord("a"), ord("b")]] = [2.0, 1.9, 1.8]
        with Sampler(tiny).top_k(10).infill() as sampler:
            assert set(sampler.apply(logits).token_ids.tolist()) <= {models.EOS, models.EOT}
        logits[[models.EOS, models.EOT]] = -20
        logits[[ord("t"), models.TH]] = [2.5, 2.4]  # "t" begins "th": merged into the likelier
        with Sampler(tiny).top_k(10).infill() as sampler:
            assert sampler.apply(logits).token_ids.tolist() == [ord("t")]


class TestWeighing:
    """Samplers that change logits."""

    def test_temp(self) -> None:
        with Sampler().temp(0.5) as sampler:
            assert np.allclose(list(left(sampler.apply(LOGITS)).values()), np.sort(LOGITS)[::-1] / 0.5)
        assert survivors(Sampler().temp(0)) == [0]
        assert survivors(Sampler().temp(1e-40)) == [0]
        assert survivors(Sampler().temp(1.0)) == list(range(10))

    def test_temp_ext_depends_on_certainty(self) -> None:
        def spread(logits: Array) -> float:
            with Sampler().temp_ext(1.0, 0.5) as sampler:
                return float(np.ptp(sampler.apply(logits).logits) / np.ptp(logits))

        sure, unsure = np.array([9, 0, 0, 0], np.float32), np.array([1, 0.9, 0.9, 0.9], np.float32)
        assert spread(sure) > 1.9
        assert spread(unsure) < 0.7
        with Sampler().temp_ext(0.5, 0) as fixed:
            assert np.isclose(np.ptp(fixed.apply(LOGITS).logits), np.ptp(LOGITS) / 0.5)

    def test_penalties(self) -> None:
        logits = np.array([2.0, -2.0, 1.0], np.float32)
        with Sampler().penalties(last_n=3, repeat=2.0, frequency=0.25, presence=0.5) as sampler:
            for token_id in (0, 0, 1):
                sampler.accept(token_id)
            assert np.allclose(sampler.apply(logits).logits, [2 / 2 - 2 * 0.25 - 0.5, -2 * 2 - 0.25 - 0.5, 1])
            sampler.accept(2)  # the first 0 is too long ago
            assert np.isclose(sampler.apply(logits).logits[0], 2 / 2 - 0.25 - 0.5)
            sampler.reset()
            assert np.array_equal(sampler.apply(logits).logits, logits)

    def test_dry_breaks_repetitions(self, tiny: Model) -> None:
        logits = np.zeros(models.N_BYTE_VOCAB, np.float32)
        with Sampler(tiny).dry(1.0, base=2.0, allowed_length=2, breakers=["\n"]) as sampler:
            for token_id in b"abcdxabcd"[:-1]:
                sampler.accept(token_id)
            penalised = {int(i): float(v) for i, v in zip(*_below_zero(sampler.apply(logits)), strict=True)}
            assert penalised == {ord("d"): -(2.0 ** (3 - 2))}  # "abc" was followed by "d"
            for token_id in b"d\n":
                sampler.accept(token_id)
            assert not _below_zero(sampler.apply(logits))[0].size

    def test_logit_bias(self) -> None:
        with Sampler().logit_bias({0: 2.5, 3: -math.inf, 9: -1}) as sampler:
            biased = sampler.apply(LOGITS).logits
        assert np.isclose(biased[0], LOGITS[0] + 2.5)
        assert biased[3] == -np.inf
        assert np.isclose(biased[9], LOGITS[9] - 1)
        assert np.array_equal(biased[[1, 2, 4]], LOGITS[[1, 2, 4]])


def _below_zero(candidates: Candidates) -> tuple[Any, Array]:
    below = candidates.logits < 0
    return candidates.token_ids[below], candidates.logits[below]


def test_a_trigger_pattern_that_nests_too_deeply(tiny: Model) -> None:
    """The standard library's compiler recursed for each parenthesis, and overflowed the stack."""
    with Sampler(tiny) as sampler, pytest.raises(errors.GrammarError, match="nested too deeply"):
        sampler.grammar_lazy(YES_NO, trigger_patterns=["(?:" * 100_000 + ")" * 100_000])


class TestGrammar:
    """Chains that follow a grammar."""

    def test_only_what_the_grammar_allows(self, tiny: Model, context: Context) -> None:
        with Sampler(tiny).grammar(YES_NO).greedy() as sampler:
            text = generate(sampler, context)
        assert text in ("yes", "no")

    @pytest.mark.parametrize(
        ("grammar", "words"),
        [
            ("", "root"),
            ("root ::= ", None),
            ('root ::= "a', "line 1"),
            ('root ::= "a" )', "line 1"),
            ('root ::= "a"\nother ::= [a-', "line 2"),
            ("root ::= nothing", "nothing"),
            ('other ::= "a"', 'no rule "root"'),
            ('root ::= root "a"', "left recursion"),
            ("this is no grammar", "line 1"),
            ("root ::= " + "(" * 100_000, "nested"),
            ('root ::= "a"{1000000000}', None),
            ("root ::= <[99999999]>", None),
            ('root ::= "a\0"', "NUL"),
        ],
    )
    def test_broken_grammars(self, tiny: Model, grammar: str, words: str | None, capfd: Any) -> None:
        kind = errors.InvalidParameterError if "\0" in grammar else errors.GrammarError
        with Sampler(tiny) as sampler:
            if grammar in ("root ::= ", "root ::= <[99999999]>"):  # these are grammars, if odd ones
                sampler.grammar(grammar)
                return
            with pytest.raises(kind, match=words):
                sampler.grammar(grammar)
            assert len(sampler) == 0
            sampler.grammar(YES_NO)
        assert capfd.readouterr() == ("", "")  # upstream's own parser would print

    @pytest.mark.slow
    def test_a_long_name_of_a_token(self) -> None:
        """It is tokenized, which for this vocabulary recurses with the length of a word."""
        path = models.VOCABULARIES / "ggml-vocab-deepseek-llm.gguf"
        with Model(path, vocab_only=True) as model, Sampler(model) as sampler:
            with pytest.raises(errors.GrammarError, match="invalid token"):
                sampler.grammar("root ::= <" + "a" * 200_000 + ">")
            assert len(sampler) == 0

    def test_other_roots(self, tiny: Model, context: Context) -> None:
        with Sampler(tiny).grammar('a ::= "x" b\nb ::= "y"', root="a").greedy() as sampler:
            assert generate(sampler, context) == "xy"
        with Sampler(tiny) as sampler, pytest.raises(errors.GrammarError, match='no rule "c"'):
            sampler.grammar(YES_NO, root="c")

    def test_a_token_against_the_grammar_is_refused(self, tiny: Model) -> None:
        with Sampler(tiny).grammar(YES_NO) as sampler:
            for bad in (ord("x"), models.EOS):
                with pytest.raises(errors.InvalidParameterError, match=f"does not allow token {bad}"):
                    sampler.accept(bad)
            for token_id in b"yes":
                sampler.accept(token_id)
            sampler.accept(models.EOS)
            sampler.reset()
            sampler.accept(ord("n"))

    def test_a_clone_goes_its_own_way(self, tiny: Model) -> None:
        with Sampler(tiny).grammar(YES_NO) as sampler:
            sampler.accept(ord("y"))
            with sampler.clone() as clone:
                clone.accept(ord("e"))
                with pytest.raises(errors.InvalidParameterError):
                    sampler.accept(ord("s"))
                clone.accept(ord("s"))

    def test_lazy_grammar_sleeps_until_its_trigger(self, tiny: Model) -> None:
        tokens = Sampler(tiny).grammar_lazy(YES_NO, trigger_tokens=[ord("y")])
        pattern = Sampler(tiny).grammar_lazy(YES_NO, trigger_patterns=[r"[\s\S]*?(y)[\s\S]*"])
        for sampler in (tokens, pattern):
            with sampler:
                for token_id in b"whatever comes, ":
                    sampler.accept(token_id)
                sampler.accept(ord("y"))
                with pytest.raises(errors.InvalidParameterError, match="does not allow"):
                    sampler.accept(ord("x"))
                sampler.accept(ord("e"))

    def test_lazy_grammar_over_a_long_text(self, tiny: Model) -> None:
        # The standard library's regular expressions recurse for each character of a match.
        def accept() -> None:
            with Sampler(tiny).grammar_lazy(YES_NO, trigger_patterns=[r"[\s\S]*?(yy)[\s\S]*"]) as sampler:
                for _ in range(300):
                    sampler.accept(models.THE)
                with sampler.clone() as clone:
                    clone.accept(models.THE)
                done.set()

        done = threading.Event()
        before = threading.stack_size(256 * 1024)  # where 900 characters are too many
        try:
            thread = threading.Thread(target=accept)
            thread.start()
        finally:
            threading.stack_size(before)
        thread.join()
        assert done.is_set()

    @pytest.mark.parametrize("pattern", ["(.*)*(.*)*(.*)*x", "(" * 60 + "[a-z ]" + ")" * 60 + "*!!x"])
    def test_a_trigger_pattern_that_could_be_matched_in_many_ways(self, tiny: Model, pattern: str) -> None:
        """The calling thread tried one after the other, for seconds after ten tokens."""
        with Sampler(tiny).grammar_lazy(YES_NO, trigger_patterns=[pattern]) as sampler:
            for _ in range(200):
                sampler.accept(ord("a"))

    @pytest.mark.parametrize("pattern", [r"(a)\1", "(?=.*b)a"])
    def test_a_trigger_pattern_that_takes_more_than_linear_time(self, tiny: Model, pattern: str) -> None:
        with Sampler(tiny) as sampler, pytest.raises(errors.GrammarError):
            sampler.grammar_lazy(YES_NO, trigger_patterns=[pattern])

    def test_a_trigger_within_a_text(self, tiny: Model) -> None:
        """A pattern is looked for, as in requests; it need not match all of the text."""
        with Sampler(tiny).grammar_lazy(YES_NO, trigger_patterns=["is (y)"]) as sampler:
            for token_id in b"it is y":
                sampler.accept(token_id)
            with pytest.raises(errors.InvalidParameterError, match="does not allow"):
                sampler.accept(ord("x"))
            for token_id in b"es":
                sampler.accept(token_id)
            sampler.accept(models.EOS)

    def test_a_grammar_that_can_be_read_in_many_ways(self, tiny: Model) -> None:
        """Upstream keeps every one of them, and their number doubles with each character here."""
        with Sampler(tiny).grammar('root ::= "a" root "b" | "a" root "c" | ""') as sampler:
            with pytest.raises(errors.GrammarError, match="in more than 20000 ways"):
                deque(map(sampler.accept, b"a" * 60))
            sampler.reset()
            for token_id in b"aabc":
                sampler.accept(token_id)

    def test_a_lazy_grammar_that_is_woken_by_what_it_rejects(self, tiny: Model) -> None:
        with Sampler(tiny).grammar_lazy(YES_NO, trigger_tokens=[ord("q")]).greedy() as sampler:
            with pytest.raises(errors.EngineError, match="cannot continue"):
                sampler.accept(ord("q"))
            for call in (lambda: sampler.accept(ord("y")), lambda: sampler.apply([0.0] * 10)):
                with pytest.raises(errors.EngineError, match="reset the sampler"):
                    call()
            sampler.reset()
            sampler.accept(ord("a"))

    @pytest.mark.parametrize(
        ("arguments", "kind"),
        [
            ({}, errors.InvalidParameterError),
            ({"trigger_patterns": ["("]}, errors.GrammarError),
            ({"trigger_patterns": ["a\0"]}, errors.InvalidParameterError),
            ({"trigger_tokens": [models.N_BYTE_VOCAB]}, errors.InvalidParameterError),
            ({"trigger_tokens": ["y"]}, errors.InvalidParameterError),
        ],
    )
    def test_triggers_that_do_not_do(self, tiny: Model, arguments: Any, kind: type[Exception]) -> None:
        with Sampler(tiny) as sampler, pytest.raises(kind):
            sampler.grammar_lazy(YES_NO, **arguments)


def generate(sampler: Sampler, context: Context) -> str:
    vocab = context.model.vocab
    context.decode([models.BOS])
    ids: list[int] = []
    while True:
        token_id = sampler.sample(context)
        if vocab.is_eog(token_id):
            return vocab.detokenize(ids)
        ids.append(token_id)
        context.decode([token_id])


NEGATIVE: list[tuple[str, Callable[[Sampler], Sampler]]] = [
    ("top_k", lambda s: s.top_k(-1)),
    ("top_k", lambda s: s.top_k(1.5)),  # type: ignore[arg-type]
    ("top_p", lambda s: s.top_p(-0.1)),
    ("top_p", lambda s: s.top_p(1.1)),
    ("top_p", lambda s: s.top_p(math.nan)),
    ("top_p", lambda s: s.top_p("0.5")),  # type: ignore[arg-type]
    ("top_p", lambda s: s.top_p(0.5, min_keep=-1)),
    ("min_p", lambda s: s.min_p(math.nan)),
    ("min_p", lambda s: s.min_p(2)),
    ("typical", lambda s: s.typical(math.nan)),
    ("typical", lambda s: s.typical(-1)),
    ("temp", lambda s: s.temp(math.nan)),
    ("temp", lambda s: s.temp(-0.5)),
    ("temp", lambda s: s.temp(math.inf)),
    ("temp", lambda s: s.temp(1e300)),
    ("temp", lambda s: s.temp(True)),
    ("temp_ext", lambda s: s.temp_ext(1, -1)),
    ("temp_ext", lambda s: s.temp_ext(1, 1, math.nan)),
    ("xtc", lambda s: s.xtc(1.5, 0.1)),
    ("xtc", lambda s: s.xtc(0.5, math.nan)),
    ("top_n_sigma", lambda s: s.top_n_sigma(math.nan)),
    ("top_n_sigma", lambda s: s.top_n_sigma(-1)),
    ("mirostat", lambda s: s.mirostat(tau=-1)),
    ("mirostat", lambda s: s.mirostat(eta=math.nan)),
    ("mirostat", lambda s: s.mirostat(m=0)),
    ("mirostat_v2", lambda s: s.mirostat_v2(tau=math.inf)),
    ("penalties", lambda s: s.penalties(last_n=-1)),
    ("penalties", lambda s: s.penalties(last_n=2**31 - 1)),
    ("penalties", lambda s: s.penalties(repeat=0)),
    ("penalties", lambda s: s.penalties(repeat=math.nan)),
    ("penalties", lambda s: s.penalties(frequency=math.inf)),
    ("penalties", lambda s: s.penalties(presence=math.nan)),
    ("dry", lambda s: s.dry(-1)),
    ("dry", lambda s: s.dry(math.nan)),
    ("dry", lambda s: s.dry(1, base=0.5)),
    ("dry", lambda s: s.dry(1, allowed_length=-1)),
    ("dry", lambda s: s.dry(1, last_n=2**30)),
    ("dry", lambda s: s.dry(1, breakers=[""])),
    ("dry", lambda s: s.dry(1, breakers=["x" * 41])),
    ("dry", lambda s: s.dry(1, breakers=["\0"])),
    ("adaptive_p", lambda s: s.adaptive_p(math.nan)),
    ("adaptive_p", lambda s: s.adaptive_p(1.5)),
    ("adaptive_p", lambda s: s.adaptive_p(0.5, decay=1.0)),
    ("logit_bias", lambda s: s.logit_bias({models.N_BYTE_VOCAB: 1.0})),
    ("logit_bias", lambda s: s.logit_bias({-1: 1.0})),
    ("logit_bias", lambda s: s.logit_bias({1: math.nan})),
    ("logit_bias", lambda s: s.logit_bias({1: math.inf})),
    ("logit_bias", lambda s: s.logit_bias({1: "a"})),  # type: ignore[dict-item]
    ("logit_bias", lambda s: s.logit_bias({"a": 1.0})),  # type: ignore[dict-item]
]


@pytest.mark.parametrize(("name", "add"), NEGATIVE, ids=[f"{i}-{name}" for i, (name, _) in enumerate(NEGATIVE)])
def test_arguments_out_of_range(tiny: Model, name: str, add: Callable[[Sampler], Sampler]) -> None:
    del name
    with Sampler(tiny) as sampler:
        with pytest.raises(errors.InvalidParameterError):
            add(sampler)
        assert len(sampler) == 0


@pytest.mark.parametrize(
    "add",
    [
        lambda s: s.grammar(YES_NO),
        lambda s: s.grammar_lazy(YES_NO, trigger_tokens=[1]),
        lambda s: s.mirostat(),
        lambda s: s.dry(1.0),
        lambda s: s.infill(),
    ],
)
def test_what_needs_a_vocabulary(add: Callable[[Sampler], Sampler]) -> None:
    with Sampler() as sampler, pytest.raises(errors.InvalidParameterError, match="needs a vocabulary"):
        add(sampler)


class TestChain:
    """The chain as a whole."""

    def test_names_in_order(self, tiny: Model) -> None:
        with Sampler(tiny).penalties(repeat=1.1).top_k(40).top_p(1.0).temp(0.8).dist(1) as sampler:
            assert sampler.names == ["penalties", "top-k", "?top-p", "temp", "dist"]
            assert len(sampler) == 5
            sampler.remove(1)
            assert sampler.names == ["penalties", "?top-p", "temp", "dist"]
            assert repr(sampler) == "Sampler(penalties -> ?top-p -> temp -> dist)"
            for index in (4, -1, 2**31 - 1):
                with pytest.raises(errors.InvalidParameterError):
                    sampler.remove(index)

    def test_every_sampler_has_a_name(self, tiny: Model) -> None:
        with every_sampler(tiny) as sampler:
            assert sampler.names == [
                "logit-bias", "penalties", "dry", "top-n-sigma", "top-k", "typical", "top-p", "min-p", "xtc",
                "temp", "temp-ext", "grammar", "grammar", "infill", "greedy", "dist", "mirostat", "mirostat-v2",
                "adaptive-p",
            ]  # fmt: skip
            logits = np.zeros(models.N_BYTE_VOCAB, np.float32)
            logits[ord("y")] = 5
            candidates = sampler.apply(logits)
            assert candidates.token_ids[candidates.selected or 0] == ord("y")
            with sampler.clone() as clone:
                assert clone.names == sampler.names
                sampler.accept(ord("y"))
                clone.accept(ord("y"))
                clone.reset()

    def test_a_clone_continues_the_random_numbers(self) -> None:
        with Sampler().dist(3) as sampler:
            chosen(sampler, 10)
            with sampler.clone() as clone:
                assert chosen(clone, 30) == chosen(sampler, 30)

    def test_a_clone_after_an_unaccepted_choice(self) -> None:
        with Sampler().adaptive_p(0.5, seed=1) as sampler:
            candidates = sampler.apply(LOGITS)
            with sampler.clone() as clone:
                clone.accept(int(candidates.token_ids[candidates.selected or 0]))
                chosen(clone, 5)

    def test_apply_takes_any_tokens(self, tiny: Model) -> None:
        with Sampler(tiny).top_k(2) as sampler:
            candidates = sampler.apply([1.0, 3.0, 2.0], token_ids=[100, 50, 7])
            assert candidates.token_ids.tolist() == [50, 7]
            assert candidates.selected is None
            for ids in ([1, 2], [1, 2, models.N_BYTE_VOCAB], [1, 2, -1], [1.0, 2.0, 3.0]):
                with pytest.raises(errors.InvalidParameterError):
                    sampler.apply([1.0, 3.0, 2.0], token_ids=ids)
            given = np.array([5, 6, 7], np.int32)
            sampler.apply([1.0, 3.0, 2.0], token_ids=given)
            assert given.tolist() == [5, 6, 7]

    @pytest.mark.parametrize("logits", [[], [math.nan], [0.0, math.inf], [[0.0]], ["a"], [None], [True], 1.0])
    def test_apply_wants_numbers(self, logits: Any) -> None:
        with Sampler().greedy() as sampler, pytest.raises(errors.InvalidParameterError):
            sampler.apply(logits)

    def test_probabilities_come_along(self) -> None:
        with Sampler().top_k(4).dist(1) as sampler:
            candidates = sampler.apply(LOGITS)
        assert np.isclose(candidates.probs.sum(), 1)
        assert np.allclose(candidates.probs, PROBS[:4] / PROBS[:4].sum(), atol=1e-5)

    def test_tokens_that_are_none(self, tiny: Model) -> None:
        with Sampler(tiny) as sampler, Sampler() as free:
            for bad in (-1, models.N_BYTE_VOCAB, 1.0, "a", True):
                with pytest.raises(errors.InvalidParameterError):
                    sampler.accept(bad)  # type: ignore[arg-type]
            with pytest.raises(errors.InvalidParameterError):
                free.accept(-1)
            free.accept(10**6)

    def test_use_after_close(self, tiny: Model, context: Context) -> None:
        sampler = Sampler(tiny).greedy()
        sampler.close()
        sampler.close()
        context.decode([1])
        for call in (
            sampler.greedy,
            sampler.reset,
            sampler.clone,
            lambda: sampler.sample(context),
            lambda: sampler.accept(1),
            lambda: sampler.apply([1.0]),
            lambda: sampler.names,
            lambda: sampler.seed,
            lambda: sampler.remove(0),
            lambda: len(sampler),
        ):
            with pytest.raises(errors.ClosedError):
                call()

    def test_a_chain_outlives_its_model(self, tiny_path: Any) -> None:
        with Model(tiny_path) as model:
            sampler = Sampler(model).grammar(YES_NO).greedy()
        del model
        gc.collect()
        with sampler:
            sampler.accept(ord("n"))

    def test_a_closed_model_makes_no_chain(self, tiny_path: Any) -> None:
        with Model(tiny_path) as model:
            pass
        with pytest.raises(errors.ClosedError):
            Sampler(model)
        with pytest.raises(errors.InvalidParameterError):
            Sampler("model")  # type: ignore[arg-type]


def every_sampler(model: Model) -> Sampler:
    grammar = "root ::= [a-z]*"
    return (
        Sampler(model)
        .logit_bias({1: -1.0})
        .penalties(repeat=1.1)
        .dry(0.8)
        .top_n_sigma(3.0)
        .top_k(50)
        .typical(0.99)
        .top_p(0.99)
        .min_p(0.001)
        .xtc(0.1, 0.4, seed=1)
        .temp(0.9)
        .temp_ext(0.9, 0.1)
        .grammar(grammar)
        .grammar_lazy(grammar, trigger_tokens=[ord("q")])
        .infill()
        .greedy()
        .dist(1)
        .mirostat(seed=1)
        .mirostat_v2(seed=1)
        .adaptive_p(0.5, seed=1)
    )


@pytest.fixture
def context(tiny: Model) -> Iterator[Context]:
    with Context(tiny, n_ctx=256, n_seq_max=4, n_threads=1) as context:
        yield context


class TestSample:
    """Choosing from a context's logits."""

    def test_rows(self, tiny: Model, context: Context) -> None:
        context.decode([1, 2, 3, 4], output=[True, False, True, True])
        best = context.logits().argmax(-1).tolist()
        with Sampler(tiny).greedy() as sampler:
            assert [sampler.sample(context, row) for row in range(3)] == best
            assert [sampler.sample(context, row) for row in (-3, -2, -1)] == best
            for row in (3, -4, 2**31 - 1, -(2**31 - 1)):
                with pytest.raises(errors.EngineError, match="no row"):
                    sampler.sample(context, row)
            with pytest.raises(errors.InvalidParameterError):
                sampler.sample(context, 2**31)

    def test_without_logits(self, tiny: Model, context: Context) -> None:
        with Sampler(tiny).greedy() as sampler:
            with pytest.raises(errors.EngineError, match=r"no row -1 of logits.*left 0"):
                sampler.sample(context)
            context.decode([1], output="none")
            with pytest.raises(errors.EngineError, match="no row"):
                sampler.sample(context)
            context.decode([1])
            sampler.sample(context)

    def test_embeddings_are_no_logits(self, bert: Model) -> None:
        with Context(bert, n_ctx=512, n_threads=1, embeddings=True) as context, Sampler(bert).greedy() as sampler:
            context.decode([101, 102])
            with pytest.raises(errors.EngineError, match="no row"):
                sampler.sample(context)

    def test_a_chain_that_chooses_nothing(self, tiny: Model, context: Context) -> None:
        context.decode([1])
        with Sampler(tiny).top_k(5) as sampler, pytest.raises(errors.EngineError, match="end it with greedy"):
            sampler.sample(context)
        with Sampler(tiny) as sampler, pytest.raises(errors.EngineError, match="end it with greedy"):
            sampler.sample(context)

    @pytest.mark.parametrize("choose", [Sampler.greedy, lambda s: s.dist(1), lambda s: s.mirostat_v2(seed=1)])
    def test_a_chain_that_rules_out_everything(
        self, tiny: Model, context: Context, choose: Callable[[Sampler], Sampler]
    ) -> None:
        context.decode([1])
        nothing = dict.fromkeys(range(models.N_BYTE_VOCAB), -math.inf)
        sampler = choose(Sampler(tiny).logit_bias(nothing))
        with sampler, pytest.raises(errors.EngineError, match="ruled out every token"):
            sampler.sample(context)

    def test_it_accepts_what_it_chose(self, tiny: Model, context: Context) -> None:
        context.decode([1])
        with Sampler(tiny).penalties(last_n=300, presence=1000).greedy() as sampler:
            seen = [sampler.sample(context) for _ in range(100)]
        assert len(set(seen)) == 100

    def test_another_vocabulary(self, bert: Model, context: Context) -> None:
        context.decode([1])
        with Sampler(bert).greedy() as sampler:
            with pytest.raises(errors.InvalidParameterError, match="vocabulary has 30522 tokens, but the context's"):
                sampler.sample(context)
            with pytest.raises(errors.InvalidParameterError, match="a Context was expected"):
                sampler.sample(bert)  # type: ignore[arg-type]

    def test_a_closed_context(self, tiny: Model) -> None:
        context = Context(tiny, n_ctx=256, n_threads=1)
        context.decode([1])
        context.close()
        with Sampler(tiny).greedy() as sampler, pytest.raises(errors.ClosedError):
            sampler.sample(context)

    @pytest.mark.slow
    def test_damaged_weights_are_told(self, tmp_path: Any) -> None:
        weights = models.llama_weights()
        weights["output_norm.weight"][:] = np.nan
        metadata = models.metadata_of(models.write_llama(tmp_path / "m.gguf"))
        broken = models.write(tmp_path / "nan.gguf", metadata, weights)
        with (
            Model(broken) as model,
            Context(model, n_ctx=256, n_threads=1) as context,
            Sampler(model).greedy() as sampler,
        ):
            context.decode([1])
            with pytest.raises(errors.EngineError, match="weights are damaged"):
                sampler.sample(context)
