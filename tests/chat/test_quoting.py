"""Quoting of special tokens in messages: the tokens of the rest of the prompt do not change."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.checkpoints import models
from tokenizer.test_tokenizer import vocabulary_file

from pyggml._native.model import Model
from pyggml.chat.jinja import QuotedText
from pyggml.chat.jinja.quoted_text import concatenated
from pyggml.chat.quoting import SpecialTexts
from pyggml.tokenizer import Tokenizer
from pyggml.tokenizer.hugging_face import open_tokenizer

NAMES = ["llama-spm", "llama-bpe", "phi-3", "qwen2", pytest.param("gemma-4", marks=pytest.mark.slow)]
WORDS = ["Hello", " there", "\n", "  ", "<b>", "漢字", "naïve", "x < y", "\t", "[1, 2]", "don't", "</p>", ".", "12345"]


@pytest.fixture(scope="module", params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def model(name: str) -> Iterator[Model]:
    with Model(vocabulary_file(name), vocab_only=True) as model:
        yield model


@pytest.fixture(scope="module", params=["own", "from a file"])
def tokenizer(
    request: pytest.FixtureRequest, name: str, model: Model, tokenizer_dir: Callable[[str], Path]
) -> Tokenizer:
    return Tokenizer(model.vocab) if request.param == "own" else open_tokenizer(tokenizer_dir(name), model)


def prompts(tokenizer: Tokenizer, n: int) -> Iterator[str]:
    """Texts with special tokens here and there."""
    special = [text for text in tokenizer.special_texts if text][:8]
    draw = random.Random(1)
    for _ in range(n):
        turns = ["".join(draw.choices(WORDS, k=draw.randint(0, 6))) for _ in range(6)]
        yield "".join(itertools.chain.from_iterable((draw.choice(special), turn) for turn in turns))


def quoted_in(prompt: str, *quoted: str) -> QuotedText:
    """The prompt, with each of these texts in it quoted."""
    text: str = QuotedText(prompt, bytes(len(prompt)))
    for each in quoted:
        text = text.replace(each, QuotedText(each))
    assert isinstance(text, QuotedText)
    return text


@pytest.mark.slow_except("own-llama-spm", "own-qwen2")
def test_splitting_changes_no_token(tokenizer: Tokenizer) -> None:
    """Quoted text without special tokens: the ids are those of the text."""
    special = SpecialTexts(tokenizer)
    for prompt in prompts(tokenizer, 100):
        parts = special.split(quoted_in(prompt, "Hello", "<b>"))
        assert parts == [(prompt, True)]
        assert tokenizer.encode_parts(parts) == tokenizer.encode(prompt)


@pytest.mark.slow_except("own-llama-spm")
def test_quoted_tokens_are_not_read(tokenizer: Tokenizer) -> None:
    special = SpecialTexts(tokenizer)
    first, *others = (text for text in tokenizer.special_texts if text)
    own = (others or [first])[0]
    user = f"One {first}two{own}{own} three"
    prompt = concatenated((own, QuotedText(user), f"{own}end"))
    assert isinstance(prompt, QuotedText)
    parts = special.split(prompt)
    assert [text for text, is_special in parts if is_special] == [own, f"{own}end"]
    ids = tokenizer.encode_parts(parts)
    is_special = [i for i in ids if i in tokenizer.vocab.special_ids]
    around = [i for i in tokenizer.encode("") if i in tokenizer.vocab.special_ids]
    (own_id,) = tokenizer.encode(own, add_special=False)
    assert [i for i in is_special if i not in around or i == own_id].count(own_id) >= 2
    assert len(is_special) <= 2 + len(around)


def test_a_token_that_is_partly_quoted_is_not_read(tiny: Model) -> None:
    special = SpecialTexts(Tokenizer(tiny.vocab))
    text = next(text for text in Tokenizer(tiny.vocab).special_texts if len(text) > 2)
    prompt = concatenated((text[:2], QuotedText(text[2:])))
    assert isinstance(prompt, QuotedText)
    assert ("", True) in special.split(prompt)
    assert (text, False) in special.split(prompt)


def test_blanks_that_a_special_token_swallows(tmp_path: Path) -> None:
    """Of models called phi-3 the engine knows that they swallow the blanks behind their special tokens."""
    vocabulary = {**models.real_vocabulary("phi-3"), "general.name": "phi-3"}
    with Model(models.write_llama(tmp_path / "phi-3.gguf", vocabulary)) as model:
        tokenizer = Tokenizer(model.vocab)
        assert tokenizer.special_texts["<|user|>"] == (False, True)
        special = SpecialTexts(tokenizer)
        prompt = "<|user|>\nHi <|system|><|end|>\n<|assistant|>\n"
        parts = special.split(quoted_in(prompt, "<|system|>"))
        assert ("Hi <|system|>", False) in parts


def test_texts_that_cannot_begin_a_special_token(tiny: Model) -> None:
    special = SpecialTexts(Tokenizer(tiny.vocab))
    assert not special.may_occur_in(["nothing", "at all"])
    assert special.may_occur_in(["nothing", "a < b"])
