"""Vocab: upstream's real vocabularies with upstream's own test vectors, and edge cases."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.checkpoints import models

from pyggml import errors, lib
from pyggml._native.model import Model
from pyggml._native.vocab import Vocab

NAMES = sorted(
    path.name.removeprefix("ggml-vocab-").removesuffix(".gguf.inp")
    for path in models.VOCABULARIES.glob("ggml-vocab-*.gguf.inp")
)
PLAIN_TEXTS = ["Hello, world!", "Grüße aus Köln – 3,14 €", "おはよう 🦙🚀", "  two  spaces\tand\n\nlines"]


def file_of(name: str) -> Path:
    return models.VOCABULARIES / f"ggml-vocab-{name}.gguf"


def plain_texts(vocab: Vocab) -> list[str]:
    """Texts that the vocabulary keeps as they are: WordPiece folds case, accents and spaces."""
    return ["hello world"] if vocab.type == "wpm" else PLAIN_TEXTS


@pytest.fixture(scope="module", params=NAMES)
def real(request: pytest.FixtureRequest) -> Iterator[tuple[str, Vocab]]:
    """Each of upstream's vocabularies that has test vectors."""
    with Model(file_of(request.param), vocab_only=True) as model:
        yield request.param, model.vocab


def test_there_are_vocabularies() -> None:
    assert {"llama-spm", "llama-bpe", "phi-3", "qwen2", "gpt-2", "bert-bge"} <= set(NAMES)


@pytest.mark.slow_except("bert-bge", "deepseek-coder")
def test_detokenize_inverts_tokenize(real: tuple[str, Vocab]) -> None:
    _, vocab = real
    for text in plain_texts(vocab):
        whole = " " + text if vocab.type == "wpm" else text
        assert vocab.detokenize(vocab.tokenize(text)) == whole
        assert vocab.detokenize(vocab.tokenize(text, add_special=False)) == whole


@pytest.mark.slow_except(every=8)
def test_pieces_join_to_the_text(real: tuple[str, Vocab]) -> None:
    _, vocab = real
    for text in plain_texts(vocab):
        joined = b"".join(map(vocab.piece, vocab.tokenize(text, add_special=False))).decode()
        assert joined in (text, " " + text)  # some put a space in front of every text


@pytest.mark.slow_except("bert-bge", "gpt-2", "llama-spm", "qwen2")
def test_special_tokens_are_text_unless_parsed(real: tuple[str, Vocab]) -> None:
    name, vocab = real
    end = vocab.sep if name == "bert-bge" else vocab.eos
    assert end is not None
    text = vocab.text(end)
    assert end in vocab.tokenize(text, add_special=False)
    assert end not in vocab.tokenize(text, add_special=False, parse_special=False)
    assert vocab.detokenize([end], unparse_special=False) == ""
    assert vocab.detokenize([end], remove_special=False) == text
    assert vocab.piece(end) == b""
    assert vocab.piece(end, special=True) == text.encode()


@pytest.mark.slow_except("bert-bge", "deepseek-coder", "llama-spm")
def test_end_of_generation_tokens(real: tuple[str, Vocab]) -> None:
    _, vocab = real
    assert vocab.eog_ids == tuple(i for i in range(vocab.n_tokens) if lib.llama_vocab_is_eog(vocab.handle, i))
    assert vocab.eos is None or vocab.eos in vocab.eog_ids
    assert vocab.eog_ids
    for token_id in vocab.eog_ids:
        assert vocab.is_eog(token_id)
    assert not vocab.is_eog(vocab.tokenize("a", add_special=False)[0])


@pytest.mark.slow_except("bert-bge", "deepseek-coder", "llama-spm")
def test_what_only_parse_special_reads(real: tuple[str, Vocab]) -> None:
    _, vocab = real
    for token_id in vocab.special_ids[:20]:
        text = vocab.text(token_id)
        if text:
            assert token_id in vocab.tokenize(text, add_special=False)
            assert token_id not in vocab.tokenize(text, add_special=False, parse_special=False)
    assert set(vocab.special_ids) >= {i for i in range(vocab.n_tokens) if lib.llama_vocab_is_control(vocab.handle, i)}


@pytest.mark.slow_except("bert-bge")
def test_no_text_of_any_length_is_too_much(real: tuple[str, Vocab]) -> None:
    # Some of upstream's splitters recurse; a run without spaces is their worst case.
    _, vocab = real
    for text in ["a" * 200_000, " " * 200_000, "1" * 100_000, "あ" * 50_000, "!" * 100_000]:
        ids = vocab.tokenize(text, add_special=False)
        assert len(ids) <= len(text.encode()) + 1
        assert ids or (vocab.type, text[0]) == ("wpm", " ")


class TestByteVocabulary:
    """Details on the vocabulary of single bytes, where all is known."""

    @pytest.fixture
    def vocab(self, tiny: Model) -> Vocab:
        return tiny.vocab

    def test_facts(self, vocab: Vocab) -> None:
        assert (vocab.type, vocab.n_tokens, len(vocab)) == ("bpe", models.N_BYTE_VOCAB, models.N_BYTE_VOCAB)
        assert (vocab.bos, vocab.eos, vocab.eot) == (models.BOS, models.EOS, models.EOT)
        assert (vocab.sep, vocab.mask, vocab.fim_pre) == (None, None, None)
        assert (vocab.add_bos, vocab.add_eos) == (True, False)
        assert vocab.eog_ids == (models.EOS, models.EOT)

    def test_tokens(self, vocab: Vocab) -> None:
        assert vocab.text(models.THE) == "the"
        assert vocab.text(ord(" ")) == "Ġ"
        assert vocab.piece(ord(" ")) == b" "
        assert vocab.piece(0xE3) == b"\xe3"
        assert vocab.is_control(models.EOT)
        assert not vocab.is_control(models.THE)
        assert vocab.attr(models.THE) == lib.LLAMA_TOKEN_ATTR_NORMAL
        assert vocab.score(models.THE) == 0.0

    def test_find(self, vocab: Vocab) -> None:
        assert all(vocab.find(vocab.text(token_id)) == token_id for token_id in range(vocab.n_tokens))
        for text in ["", "no such token", "the ", " ", "the\0", "\0"]:
            assert vocab.find(text) is None
        with pytest.raises(errors.InvalidParameterError, match="bytes"):
            vocab.find(b"the")  # type: ignore[arg-type]
        with pytest.raises(errors.InvalidParameterError, match="surrogate"):
            vocab.find("\ud800")

    def test_tokenize(self, vocab: Vocab) -> None:
        assert vocab.tokenize("the bath") == [models.BOS, models.THE, *b" ba", models.TH]
        assert vocab.tokenize("the bath", False) == [models.THE, *b" ba", models.TH]
        assert vocab.tokenize("", add_special=False) == []
        assert vocab.tokenize("a<|im_end|>", add_special=False) == [97, models.EOT]
        assert models.EOT not in vocab.tokenize("a<|im_end|>", parse_special=False)
        assert vocab.around == ([models.BOS], [])

    def test_bytes_and_nuls_go_through(self, vocab: Vocab) -> None:
        assert vocab.tokenize(b"a\0b", add_special=False) == [97, 0, 98]
        assert vocab.tokenize("a\0b", add_special=False) == [97, 0, 98]
        assert vocab.detokenize([97, 0, 98]) == "a\0b"

    def test_detokenize(self, vocab: Vocab) -> None:
        assert vocab.detokenize([]) == ""
        assert vocab.detokenize([0xE3, 0x81]) == "\ufffd"  # half a character
        assert vocab.detokenize([models.BOS, 97]) == "a"
        assert vocab.detokenize([models.BOS, 97, models.EOT]) == "a<|im_end|>"
        assert vocab.detokenize([models.BOS, 97], remove_special=False) == "<s>a"
        assert vocab.detokenize([models.BOS, 97, models.EOT], unparse_special=False) == "a"
        assert vocab.detokenize(np.array([97, 98], np.int32)) == "ab"
        assert vocab.detokenize(np.array([97, 98], np.uint64)) == "ab"
        assert vocab.detokenize([97] * 100_000) == "a" * 100_000

    @pytest.mark.parametrize("bad", [-1, models.N_BYTE_VOCAB, 2**31, -(2**40), 1.0, True, "a", None])
    def test_what_is_no_token(self, vocab: Vocab, bad: Any) -> None:
        for method in (vocab.piece, vocab.text, vocab.score, vocab.attr, vocab.is_eog, vocab.is_control):
            with pytest.raises(errors.InvalidParameterError):
                method(bad)

    @pytest.mark.parametrize(
        ("ids", "words"),
        [
            ([97, -5], r"-5 at index 1"),
            ([97, 98, models.N_BYTE_VOCAB], r"261 at index 2"),
            ([97, 2**31], r"2147483648 at index 1"),
            ([2**70], r"1180591620717411303424 at index 0"),
            ([1.5], "float"),
            ([True], "bool"),
            (["a"], "integers, not text"),
            ([[97]], "shape"),
            (97, "a flat sequence, not int"),
            ([None], "None at index 0"),
        ],
    )
    def test_ids_that_do_not_do(self, vocab: Vocab, ids: object, words: str) -> None:
        with pytest.raises(errors.InvalidParameterError, match=re.escape(words)):
            vocab.detokenize(ids)  # type: ignore[arg-type]

    @pytest.mark.parametrize("text", [None, 5, ["a"], bytearray(b"a")])
    def test_what_is_no_text(self, vocab: Vocab, text: object) -> None:
        with pytest.raises(errors.InvalidParameterError, match="must be str or bytes"):
            vocab.tokenize(text)  # type: ignore[arg-type]

    def test_unpaired_surrogate(self, vocab: Vocab) -> None:
        with pytest.raises(errors.InvalidParameterError, match="surrogate at index 1"):
            vocab.tokenize("a\ud800")


def test_a_vocabulary_that_lacks_what_it_asks_for(tmp_path: Path) -> None:
    vocabulary = {**models.real_vocabulary("bert-bge")}
    del vocabulary["tokenizer.ggml.seperator_token_id"]
    with Model(models.write_llama(tmp_path / "m.gguf", vocabulary), vocab_only=True) as model:
        if model.vocab.sep is None:
            with pytest.raises(errors.TokenizerError, match="SEP"):
                model.vocab.tokenize("a")
        assert model.vocab.tokenize("hello", add_special=False)


def test_a_model_without_vocabulary(tmp_path: Path) -> None:
    path = models.write_llama(tmp_path / "m.gguf")
    metadata = {k: v for k, v in models.metadata_of(path).items() if not k.startswith("tokenizer.")}
    metadata |= {"tokenizer.ggml.model": "no_vocab", "llama.vocab_size": models.N_BYTE_VOCAB}
    path = models.write(tmp_path / "none.gguf", metadata, models.llama_weights())
    with Model(path) as model:
        assert model.vocab.type == "none"
        assert model.vocab.n_tokens == models.N_BYTE_VOCAB
        assert model.vocab.eog_ids == ()
        assert model.vocab.special_ids == ()
        assert model.vocab.find("a") is None
        for call in (
            lambda: model.vocab.tokenize("a"),
            lambda: model.vocab.detokenize([1]),
            lambda: model.vocab.piece(1),
            lambda: model.vocab.text(1),
        ):
            with pytest.raises(errors.TokenizerError, match="has no vocabulary"):
                call()


@pytest.mark.slow
def test_many_threads_tokenize_at_once(tiny: Model) -> None:
    text = "the quick brown fox " * 200
    expected = tiny.vocab.tokenize(text)
    with ThreadPoolExecutor(8) as pool:
        assert all(ids == expected for ids in pool.map(tiny.vocab.tokenize, [text] * 64))
