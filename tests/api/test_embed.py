"""Embeddings and reranking, against the same networks computed in numpy."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from support import demo_questions
from support.checkpoints import models

import pyggml
from pyggml import Context
from pyggml.gguf import GGUFReader

Floats = npt.NDArray[Any]

TEXTS = [
    "hello world",
    "a quite different sentence about dogs, cats and everything else that lives in a house",
    "dogs",
    "The little dog was happy.",
    "words " * 90,
]
# The engine keeps halves of attention in 16 bits and looks GELU up in a table.
CLOSE: dict[str, Any] = {"rtol": 0, "atol": 8e-3}
TEMPLATE = "<|im_end|>Query: {query}\nDocument: {document}<|endoftext|>"


class NumpyBert:
    """The encoder of arXiv:1810.04805, from a GGUF file's weights."""

    def __init__(self, path: Path) -> None:
        with GGUFReader(path) as reader:
            self.weights = {name: np.array(reader.tensor(name), np.float64) for name in reader.tensors}

    def tokens(self, token_ids: list[int]) -> Floats:
        """The embeddings of the tokens: (n, n_embd)."""
        weights = self.weights
        x = weights["token_embd.weight"][token_ids] + weights["token_types.weight"][0]
        x = self._norm("token_embd_norm", x + weights["position_embd.weight"][: len(token_ids)])
        for i in range(models.N_LAYER):
            attended = self._linear(f"blk.{i}.attn_output", self._attention(i, x))
            x = self._norm(f"blk.{i}.attn_output_norm", x + attended)
            inner = self._linear(f"blk.{i}.ffn_up", x)
            inner = 0.5 * inner * (1 + np.tanh(np.sqrt(2 / np.pi) * (inner + 0.044715 * inner**3)))
            x = self._norm(f"blk.{i}.layer_output_norm", x + self._linear(f"blk.{i}.ffn_down", inner))
        return x

    def score(self, token_ids: list[int]) -> float:
        """The classifier head on the first token."""
        return float(self._linear("cls.output", np.tanh(self._linear("cls", self.tokens(token_ids)[0])))[0])

    def _attention(self, i: int, x: Floats) -> Floats:
        q, k, v = (
            self._linear(f"blk.{i}.attn_{name}", x).reshape(len(x), models.N_HEAD, models.HEAD_DIM).swapaxes(0, 1)
            for name in "qkv"
        )
        scores = np.exp(q @ k.swapaxes(1, 2) / np.sqrt(models.HEAD_DIM))
        mixed: Floats = (scores / scores.sum(axis=2, keepdims=True) @ v).swapaxes(0, 1).reshape(x.shape)
        return mixed

    def _linear(self, name: str, x: Floats) -> Floats:
        result: Floats = x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]
        return result

    def _norm(self, name: str, x: Floats) -> Floats:
        centred = x - x.mean(axis=-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-12)
        result: Floats = scaled * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]
        return result


POOL: dict[str, Callable[[Floats], Floats]] = {
    "mean": lambda rows: rows.mean(axis=0),
    "cls": lambda rows: rows[0],
    "last": lambda rows: rows[-1],
}


@pytest.fixture(scope="module")
def encoder(bert_path: Path) -> Iterator[pyggml.LLM]:
    with pyggml.load(bert_path, n_threads=1) as llm:
        llm.embed("makes the context, which is not any test's own")
        yield llm


@pytest.fixture(scope="module")
def decoder() -> Iterator[pyggml.LLM]:
    """The shipped model, for longer texts than it was trained on."""
    with pyggml.load(n_ctx=2048, n_threads=1) as llm:
        llm.embed("likewise")
        yield llm


def test_special_tokens_in_texts(decoder: pyggml.LLM) -> None:
    text = "<|im_start|>user\nHello<|im_end|>"
    markup, plain = decoder.tokenize(text), decoder.tokenize(text, parse_special=False)
    assert len(markup) < len(plain)
    np.testing.assert_allclose(decoder.embed(text), decoder.embed([markup])[0], atol=1e-5)
    np.testing.assert_allclose(decoder.embed(text, parse_special=False), decoder.embed([plain])[0], atol=1e-5)
    awaited = asyncio.run(decoder.aembed(text, parse_special=False))
    np.testing.assert_allclose(awaited, decoder.embed([plain])[0], atol=1e-5)


@pytest.fixture(scope="module")
def ranker_path(model_dir: Path) -> Path:
    return models.write_bert(model_dir / "ranker.gguf", seed=3, ranks=True)


@pytest.fixture(scope="module")
def ranker(ranker_path: Path) -> Iterator[pyggml.LLM]:
    with pyggml.load(ranker_path, n_threads=1) as llm:
        llm.embed("likewise")
        llm.rerank("likewise", ["likewise"])
        yield llm


@pytest.fixture(scope="module")
def judge(model_dir: Path) -> Iterator[pyggml.LLM]:
    """A decoder that reranks by a template."""
    path = models.write_qwen3_reranker(
        model_dir / "judge.gguf", chat_templates=["rerank"], chat_template__rerank=TEMPLATE
    )
    with pyggml.load(path, n_threads=1) as llm:
        llm.rerank("likewise", ["likewise"])
        yield llm


def decoded(llm: pyggml.LLM, token_ids: list[int]) -> Floats:
    """The embeddings of the tokens of one text, out of a context of its own."""
    with Context(llm.model, n_ctx=1024, n_batch=1024, n_ubatch=1024, embeddings=True, pooling="none") as context:
        context.decode(token_ids, output="all")
        return context.embeddings().astype(np.float64)


class TestEncoders:
    @pytest.mark.slow_except("None")
    @pytest.mark.parametrize("pooling", [None, "mean", "cls", "last"])
    def test_what_the_network_computes(self, encoder: pyggml.LLM, bert_path: Path, pooling: Any) -> None:
        bert = NumpyBert(bert_path)
        expected = [POOL[pooling or "mean"](bert.tokens(encoder.tokenize(text))) for text in TEXTS]
        vectors = encoder.embed(TEXTS, pooling=pooling)
        assert vectors.shape == (len(TEXTS), models.N_EMBD)
        assert vectors.dtype == np.float32
        np.testing.assert_allclose(vectors, expected, **CLOSE)

    @pytest.mark.slow_except("0-mean")
    @pytest.mark.parametrize(("number", "name"), [(0, "mean"), (1, "mean"), (2, "cls"), (3, "last")])
    def test_pools_as_the_file_says(self, tmp_path: Path, number: int, name: str) -> None:
        path = models.write_bert(tmp_path / "bert.gguf", pooling_type=number)
        with pyggml.load(path, n_threads=1) as llm:
            expected = POOL[name](NumpyBert(path).tokens(llm.tokenize("hello world")))
            np.testing.assert_allclose(llm.embed("hello world"), expected, **CLOSE)

    def test_many_texts_in_their_order(self, encoder: pyggml.LLM) -> None:
        texts = [f"{'word ' * (n * 7 % 60)}number {n}" for n in range(150)]
        vectors = encoder.embed(texts)
        for n in (0, 1, 17, 77, 149):
            np.testing.assert_allclose(vectors[n], encoder.embed(texts[n]), **CLOSE)
        assert len({vector.tobytes() for vector in vectors}) == len(texts)

    def test_as_long_as_it_can_read(self, encoder: pyggml.LLM, bert_path: Path) -> None:
        ids = np.random.default_rng(0).integers(1000, 20_000, models.N_CTX_TRAIN).tolist()
        expected = NumpyBert(bert_path).tokens(ids).mean(axis=0)
        np.testing.assert_allclose(encoder.embed([[101, 102], ids])[1], expected, **CLOSE)
        message = r"texts\[1\] has 513 tokens, but the context holds only 512"
        with pytest.raises(pyggml.ContextOverflowError, match=message):
            encoder.embed([ids, [*ids, 5]])

    def test_of_every_token(self, encoder: pyggml.LLM, bert_path: Path) -> None:
        bert = NumpyBert(bert_path)
        matrices = encoder.embed(TEXTS, pooling="none")
        assert [matrix.shape for matrix in matrices] == [(len(encoder.tokenize(text)), models.N_EMBD) for text in TEXTS]
        for text, matrix in zip(TEXTS, matrices, strict=True):
            np.testing.assert_allclose(matrix, bert.tokens(encoder.tokenize(text)), **CLOSE)
        one = asyncio.run(encoder.aembed(TEXTS[0], pooling="none", normalize=True))
        np.testing.assert_allclose(one, matrices[0] / np.linalg.norm(matrices[0], axis=1, keepdims=True), **CLOSE)

    def test_long_texts_are_cut_before_their_last_special_token(self, encoder: pyggml.LLM) -> None:
        long = "the fish " * 400
        ids = encoder.tokenize(long)
        assert len(ids) > encoder.n_ctx
        for given in (long, ids):
            for limit in (None, 8):
                cut = ids[: (limit or encoder.n_ctx) - 1] + ids[-1:]
                found = encoder.embed([given], truncate=True, max_tokens=limit)
                np.testing.assert_allclose(found, encoder.embed([cut]), **CLOSE)
        with pytest.raises(pyggml.ContextOverflowError, match=r"more than max_tokens=8: .*truncate=True"):
            encoder.embed(long[:90], max_tokens=8)
        with pytest.raises(pyggml.InvalidParameterError, match="max_tokens"):
            encoder.embed(long, max_tokens=encoder.n_ctx + 1)

    @pytest.mark.slow
    def test_of_any_length_that_was_asked_for(self, tmp_path: Path) -> None:
        path = models.write_bert(tmp_path / "bert.gguf", n_positions=700)
        ids = np.random.default_rng(0).integers(1000, 20_000, 600).tolist()
        with pyggml.load(path, n_ctx=600, n_threads=1) as llm:
            np.testing.assert_allclose(llm.embed([ids])[0], NumpyBert(path).tokens(ids).mean(axis=0), **CLOSE)
            with pytest.raises(
                pyggml.ContextOverflowError, match="600: shorten it, pass truncate=True, or load with a larger n_ctx"
            ):
                llm.embed([[*ids, 5]])

    def test_does_not_generate(self, encoder: pyggml.LLM) -> None:
        assert encoder.stop_tokens == {}
        ways: list[Callable[[], object]] = [
            lambda: encoder.generate("hello"),
            lambda: encoder.stream("hello"),
            lambda: encoder.generate_batch(["hello"]),
            lambda: encoder.generate_n("hello", 2),
            lambda: encoder.logits("hello"),
            lambda: asyncio.run(encoder.agenerate("hello")),
            encoder.stats,
        ]
        for way in ways:
            with pytest.raises(pyggml.UnsupportedArchitectureError, match=r"does not generate.*embed"):
                way()


class TestDecoders:
    @pytest.mark.slow_except("last")
    @pytest.mark.parametrize("pooling", [None, "mean", "cls", "last"])
    def test_pool_the_hidden_states(self, decoder: pyggml.LLM, pooling: Any) -> None:
        texts = ["Once upon a time", "The dog", "The little dog was happy. " * 20, "The cat sat. " * 150]
        expected = [POOL[pooling or "mean"](decoded(decoder, decoder.tokenize(text))) for text in texts]
        vectors = decoder.embed(texts, pooling=pooling)
        assert vectors.shape == (4, decoder.model.n_embd_out)
        # The weights of the shipped model have 8 bits, and what they are multiplied with is rounded to as many.
        np.testing.assert_allclose(vectors, expected, rtol=0, atol=0.1)
        assert np.abs(vectors).max() > 1
        assert _cosine(vectors, expected).min() > 0.999

    def test_beside_the_engine(self, decoder: pyggml.LLM) -> None:
        alone = decoder.embed(TEXTS)
        vectors: list[npt.NDArray[np.float32]] = []
        threads = [threading.Thread(target=lambda: vectors.append(decoder.embed(TEXTS))) for _ in range(4)]
        for thread in threads:
            thread.start()
        done = decoder.generate_batch(demo_questions.prompts(decoder, 12))
        for thread in threads:
            thread.join()
        assert [completion.text for completion in done] == demo_questions.answers(12)
        assert len(vectors) == 4
        for each in vectors:
            np.testing.assert_array_equal(each, alone)

    def test_a_recurrent_model(self, mamba_path: Path) -> None:
        with pyggml.load(mamba_path, n_threads=1) as llm:
            texts = ["hello world", "x", "something else " * 30]
            vectors = llm.embed(texts, pooling="last")
            for text, vector in zip(texts, vectors, strict=True):
                np.testing.assert_allclose(vector, decoded(llm, llm.tokenize(text))[-1], rtol=0, atol=1e-3)


class TestEncodersOfT5:
    def test_alone(self, tmp_path: Path) -> None:
        with pyggml.load(models.write_t5(tmp_path / "t5.gguf", decoder=False), n_threads=1) as llm:
            texts = ["hello", "something else"]
            vectors = llm.embed(texts)
            for text, vector in zip(texts, vectors, strict=True):
                with Context(llm.model, n_ctx=512, n_ubatch=512, embeddings=True, pooling="none") as context:
                    context.encode(llm.tokenize(text))
                    np.testing.assert_allclose(vector, context.embeddings().mean(axis=0), **CLOSE)
            with pytest.raises(pyggml.UnsupportedArchitectureError, match="does not generate"):
                llm.generate("hello")

    def test_with_a_decoder_it_does_neither(self, tmp_path: Path) -> None:
        with pyggml.load(models.write_t5(tmp_path / "t5.gguf"), n_threads=1) as llm:
            for way in (lambda: llm.embed("hello"), lambda: llm.rerank("a", ["b"]), lambda: llm.generate("hello")):
                with pytest.raises(pyggml.UnsupportedArchitectureError, match="t5"):
                    way()


class TestEmbed:
    def test_a_str_makes_a_vector(self, encoder: pyggml.LLM) -> None:
        one = encoder.embed("hello world")
        assert one.shape == (models.N_EMBD,)
        np.testing.assert_array_equal(one, asyncio.run(encoder.aembed("hello world")))
        token_ids = encoder.tokenize("hello world")
        for texts in (["hello world"], [token_ids], [np.array(token_ids)]):
            np.testing.assert_array_equal(one[np.newaxis], encoder.embed(texts))

    def test_no_texts_make_no_rows(self, encoder: pyggml.LLM) -> None:
        assert encoder.embed([]).shape == (0, models.N_EMBD)

    def test_normalized(self, encoder: pyggml.LLM) -> None:
        vectors, unit = encoder.embed(TEXTS), encoder.embed(TEXTS, normalize=True)
        np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1, rtol=1e-6)
        np.testing.assert_allclose(unit, vectors / np.linalg.norm(vectors, axis=1, keepdims=True), rtol=1e-5)
        assert unit.dtype == np.float32

    def test_in_coroutines(self, encoder: pyggml.LLM) -> None:
        async def main() -> list[npt.NDArray[np.float32]]:
            return await asyncio.gather(*(encoder.aembed(text, normalize=True) for text in TEXTS * 3))

        for row, expected in zip(asyncio.run(main()), encoder.embed(TEXTS, normalize=True).tolist() * 3, strict=True):
            np.testing.assert_allclose(row, expected, rtol=0, atol=2e-3)

    @pytest.mark.slow
    def test_a_cancelled_task_gives_it_up(self, encoder: pyggml.LLM) -> None:
        async def main() -> None:
            task = asyncio.create_task(encoder.aembed(["word " * 400] * 2000))
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.wait_for(encoder.aembed("hello"), 60)  # in the same line, so the other is over

        asyncio.run(main())

    @pytest.mark.parametrize(
        ("texts", "error", "message"),
        [
            (5, pyggml.InvalidParameterError, "texts must be"),
            (b"bytes", pyggml.InvalidParameterError, "texts must be"),
            ([5, 6], pyggml.InvalidParameterError, r"texts\[0\] must be"),
            ([[5], [6, -1]], pyggml.InvalidParameterError, r"token id -1 at index 1 of texts\[1\]"),
            ([[30_522]], pyggml.InvalidParameterError, "0 to 30521"),
            (["fine", []], pyggml.EmptyPromptError, r"texts\[1\]"),
            (["fine", "no\0"], pyggml.InvalidParameterError, "NUL"),
        ],
    )
    def test_what_cannot_be(self, encoder: pyggml.LLM, texts: Any, error: type[Exception], message: str) -> None:
        with pytest.raises(error, match=message):
            encoder.embed(texts)

    @pytest.mark.parametrize("pooling", ["rank", "median", 3])
    def test_no_such_pooling(self, encoder: pyggml.LLM, pooling: Any) -> None:
        names = "'cls', 'last', 'mean', 'max', 'mean_sqrt_len', 'weighted_mean', 'none'"
        with pytest.raises(pyggml.InvalidParameterError, match=f"pooling must be one of {names}"):
            encoder.embed("hello", pooling=pooling)

    def test_closed(self, bert_path: Path) -> None:
        llm = pyggml.load(bert_path, n_threads=1)
        llm.embed("hello")
        asyncio.run(llm.aembed("hello"))
        llm.close()
        llm.close()
        with pytest.raises(pyggml.ClosedError):
            llm.embed("hello")
        with pytest.raises(pyggml.ClosedError):
            asyncio.run(llm.aembed("hello"))

    def test_closing_waits_for_a_pass_in_flight(self, bert_path: Path) -> None:
        llm = pyggml.load(bert_path, n_threads=1)
        errors: list[Exception] = []

        def work() -> None:
            try:
                llm.embed(["word " * 400] * 5000)
            except pyggml.ClosedError as error:
                errors.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        threading.Event().wait(0.2)
        llm.close()
        thread.join()
        assert len(errors) == 1

    def test_no_room(self, encoder: pyggml.LLM, monkeypatch: pytest.MonkeyPatch) -> None:
        with pyggml.load(encoder.model.path, n_threads=1) as llm:
            monkeypatch.setattr(
                "pyggml.generation.embedding.encoder.BATCH_TOKENS", 2**22
            )  # the attention of so many has no room
            with pytest.raises(pyggml.OutOfMemoryError) as caught:
                llm.embed("hello")
            assert caught.value.required_bytes > caught.value.available_bytes


class TestRerank:
    QUERY = "what do dogs eat?"

    def test_what_the_head_computes(self, ranker: pyggml.LLM, ranker_path: Path) -> None:
        bert = NumpyBert(ranker_path)
        vocab = ranker.model.vocab
        assert (vocab.bos, vocab.sep) == (101, 102)
        query = ranker.tokenize(self.QUERY, add_special=False)
        pairs = [[101, *query, 102, *ranker.tokenize(text, add_special=False), 102] for text in TEXTS]
        assert pairs[0] == self._written(ranker, TEXTS[0])
        scores = ranker.rerank(self.QUERY, TEXTS)
        assert scores.shape == (len(TEXTS),)
        assert scores.dtype == np.float32
        np.testing.assert_allclose(scores, [bert.score(pair) for pair in pairs], **CLOSE)
        assert len(set(scores.tolist())) == len(TEXTS)

    def _written(self, llm: pyggml.LLM, document: str) -> list[int]:
        """Tokenise the query and a document as one pair, in the format that BERT was trained on."""
        return llm.tokenize(self.QUERY) + llm.tokenize(document)[1:]

    def test_normalized(self, ranker: pyggml.LLM) -> None:
        scores = ranker.rerank(self.QUERY, TEXTS).astype(np.float64)
        np.testing.assert_allclose(
            ranker.rerank(self.QUERY, TEXTS, normalize=True), 1 / (1 + np.exp(-scores)), rtol=1e-5
        )

    def test_by_a_template(self, judge: pyggml.LLM) -> None:
        query, documents = "what?", ["this", "something else " * 10]
        for score, document in zip(judge.rerank(query, documents), documents, strict=True):
            text = TEMPLATE.replace("{query}", query).replace("{document}", document)
            assert score == pytest.approx(self._yes(judge, judge.tokenize(text, parse_special=True)), abs=2e-3)
        assert judge.model.n_cls_out == 2

    @pytest.mark.slow_except("flags0-before0-between0-after0", "flags2-before2-between2-after2")
    @pytest.mark.parametrize(
        ("flags", "before", "between", "after"),
        [
            ({}, [models.BOS], [], []),
            ({"add_eos_token": True}, [models.BOS], [models.EOS], [models.EOS]),
            (
                {"add_eos_token": True, "add_sep_token": True, "seperator_token_id": models.EOT},
                [models.BOS],
                [models.EOS, models.EOT],
                [models.EOS],
            ),
            ({"add_bos_token": False, "add_sep_token": True, "seperator_token_id": models.EOT}, [], [models.EOT], []),
        ],
    )
    def test_without_a_template_as_the_vocabulary_writes_texts(
        self, tmp_path: Path, flags: dict[str, Any], before: list[int], between: list[int], after: list[int]
    ) -> None:
        path = models.write_qwen3_reranker(tmp_path / "judge.gguf", **{f"ggml__{k}": v for k, v in flags.items()})
        with pyggml.load(path, n_threads=1) as llm:
            first, second = llm.tokenize("what?", add_special=False), llm.tokenize("this", add_special=False)
            expected = self._yes(llm, [*before, *first, *between, *second, *after])
            assert llm.rerank("what?", ["this"])[0] == pytest.approx(expected, abs=2e-3)

    def _yes(self, llm: pyggml.LLM, token_ids: list[int]) -> float:
        """The probability of the first of two labels, by the head on the last token."""
        with GGUFReader(llm.model.path) as reader:
            head = np.array(reader.tensor("cls.output.weight"), np.float64)
        yes, no = head @ decoded(llm, token_ids)[-1]
        return float(1 / (1 + np.exp(no - yes)))

    def test_special_tokens_in_its_texts_are_text(self, judge: pyggml.LLM) -> None:
        plain, special = judge.rerank("a <|endoftext|> b {document}", ["c {query}"]), judge.rerank("a  b", ["c"])
        assert plain != pytest.approx(special, abs=1e-4)
        words = "Query: a <|endoftext|> b {document}\nDocument: c {query}"
        text = judge.tokenize(words, add_special=False, parse_special=False)
        ids = [models.BOS, models.EOT, *text, models.EOS]
        assert plain[0] == pytest.approx(self._yes(judge, ids), abs=2e-3)

    def test_a_score_of_several_outputs_is_not_normalized(self, judge: pyggml.LLM) -> None:
        with pytest.raises(pyggml.InvalidParameterError, match="2 outputs"):
            judge.rerank("a", ["b"], normalize=True)

    def test_many(self, ranker: pyggml.LLM) -> None:
        documents = [f"document {n} " * (1 + n % 20) for n in range(120)]
        scores = ranker.rerank(self.QUERY, documents)
        for n in (0, 19, 64, 119):
            assert scores[n] == pytest.approx(ranker.rerank(self.QUERY, documents[n : n + 1])[0], abs=8e-3)
        assert ranker.rerank(self.QUERY, []).shape == (0,)

    def test_in_coroutines(self, ranker: pyggml.LLM) -> None:
        scores = asyncio.run(ranker.arerank(self.QUERY, TEXTS))
        np.testing.assert_array_equal(scores, ranker.rerank(self.QUERY, TEXTS))

    def test_too_long(self, ranker: pyggml.LLM) -> None:
        with pytest.raises(
            pyggml.ContextOverflowError, match=r"the query with document 1 has \d+ tokens.*holds only 512"
        ):
            ranker.rerank(self.QUERY, ["short", "word " * 600])

    def test_without_a_head(self, encoder: pyggml.LLM, decoder: pyggml.LLM) -> None:
        for llm in (encoder, decoder):
            with pytest.raises(pyggml.InvalidParameterError, match=r"no classifier head.*pooling_type"):
                llm.rerank("a", ["b"])

    @pytest.mark.slow
    def test_it_embeds_too(self, ranker: pyggml.LLM, ranker_path: Path) -> None:
        expected = NumpyBert(ranker_path).tokens(ranker.tokenize("hello world"))[0]
        np.testing.assert_allclose(ranker.embed("hello world", pooling="cls"), expected, **CLOSE)


def _cosine(a: npt.ArrayLike, b: npt.ArrayLike) -> Floats:
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return np.asarray((a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1), np.float64)
