"""The engine's real vocabularies on upstream's own test vectors: the engine's way, and Hugging Face's."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.checkpoints import models

from pyggml import Tokenizer, open_tokenizer
from pyggml._native.model import Model

SEPARATOR = "\n__ggml_vocab_test__\n"


def file_of(name: str) -> Path:
    return models.VOCABULARIES / f"ggml-vocab-{name}.gguf"


def texts_of(name: str) -> list[str]:
    return Path(f"{file_of(name)}.inp").read_bytes().decode().removesuffix(SEPARATOR).split(SEPARATOR)


def vectors_of(name: str) -> list[tuple[str, list[int]]]:
    lines = Path(f"{file_of(name)}.out").read_text("utf-8").splitlines()
    return list(zip(texts_of(name), ([int(i) for i in line.split()] for line in lines), strict=True))


NAMES = sorted(path.stem.removeprefix("ggml-vocab-") for path in models.VOCABULARIES.glob("ggml-vocab-*.gguf"))
WITH_VECTORS = [name for name in NAMES if Path(f"{file_of(name)}.inp").exists()]
# One of each kind, the small ones: opening the others takes seconds.
QUICK = {"bert-bge", "deepseek-coder", "gpt-2", "llama-spm"}
ALL_TEXTS = sorted({text for name in WITH_VECTORS for text in texts_of(name)})

# Where the two sides part, on texts that are in no vocabulary's own vectors, and which side does it.
DEVIATIONS = {
    # Hugging Face gives up on words of more than 100 characters, as BERT's own code does; the engine does not.
    ("bert-bge", "à" * 101),
    # U+061D is punctuation, but not in the older tables that Hugging Face has for BERT.
    ("bert-bge", "ر\u061dر"),
    # A vertical tab is a control character to Hugging Face, and vanishes; to the engine it is space between two words.
    ("bert-bge", "ia\v123"),
    # U+0489 encloses a letter. Hugging Face takes only marks off that take no space; the engine takes all.
    ("bert-bge", "И\u0489"),
    # Falcon has no token for that byte. Hugging Face drops it before it joins what is left, the engine afterwards.
    ("falcon", "\n\v\t"),
    # U+0678 becomes two characters by this model's normalisation. Hugging Face looks clusters of characters up as one,
    # and the mark behind it, U+06E0, gets lost; SentencePiece and the engine keep it.
    ("nomic-bert-moe", "\u0678\u06e0"),
}


def slow_but_for_some(name: str, *values: str) -> object:
    """A set of parameters that begins with the name of a vocabulary."""
    return pytest.param(name, *values, marks=() if name in QUICK else pytest.mark.slow)


@pytest.fixture(scope="module", params=[slow_but_for_some(name) for name in NAMES])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def model(name: str) -> Iterator[Model]:
    with Model(file_of(name), vocab_only=True) as model:
        yield model


@pytest.fixture(scope="module")
def hugging_face(name: str, model: Model, tokenizer_dir: Callable[[str], Path]) -> Tokenizer:
    return open_tokenizer(tokenizer_dir(name), model)


def test_the_vectors_are_there() -> None:
    assert {"llama-spm", "llama-bpe", "phi-3", "qwen2", "qwen35", "gpt-2", "gemma-4", "bert-bge"} <= set(WITH_VECTORS)
    assert set(NAMES) >= QUICK
    assert len(WITH_VECTORS) == len(list(models.VOCABULARIES.glob("*.inp"))) >= 15
    for name in WITH_VECTORS:
        assert len(vectors_of(name)) > 30


@pytest.mark.slow_except("llama-spm")
def test_vectors(name: str, model: Model, hugging_face: Tokenizer) -> None:
    if name not in WITH_VECTORS:
        pytest.skip("upstream has no vectors for it; test_both_agree_on_all_vectors_inputs has it")
    own = Tokenizer(model.vocab)
    for text, ids in vectors_of(name):
        assert model.vocab.tokenize(text, add_special=False) == ids, text
        assert own.encode(text, add_special=False) == ids, text
        assert hugging_face.encode(text, add_special=False) == ids, text


@pytest.mark.slow_except(every=4)
@pytest.mark.parametrize("parse_special", [False, True])
@pytest.mark.parametrize("add_special", [False, True])
def test_both_agree_on_all_vectors_inputs(
    name: str, model: Model, hugging_face: Tokenizer, add_special: bool, parse_special: bool
) -> None:
    for text in ALL_TEXTS:
        if name == "bert-bge" and max(map(len, text.split(" ")), default=0) > 100:
            continue  # see DEVIATIONS
        theirs = hugging_face.encode(text, add_special=add_special, parse_special=parse_special)
        assert theirs == model.vocab.tokenize(text, add_special, parse_special), text


@pytest.mark.slow_except("gpt-2", "llama-spm", "phi-3")
def test_both_agree_on_random_text(model: Model, hugging_face: Tokenizer) -> None:
    own = Tokenizer(model.vocab)
    for text in random_texts(300):
        assert hugging_face.encode(text, add_special=False) == own.encode(text, add_special=False), text


@pytest.mark.slow
@pytest.mark.parametrize(("name", "text"), [slow_but_for_some(*each) for each in sorted(DEVIATIONS)], indirect=["name"])
def test_deviations_are_still_there(model: Model, hugging_face: Tokenizer, text: str) -> None:
    assert hugging_face.encode(text, add_special=False) != model.vocab.tokenize(text, add_special=False)


def random_texts(n: int) -> list[str]:
    """Short mixtures of scripts, digits, spaces and emoji; the same ones each time."""
    draw = random.Random(4)
    scripts = [(0x20, 0x7F), (0x09, 0x0B), (0xA0, 0x250), (0x400, 0x480), (0x3040, 0x3100), (0x4E00, 0x9FFF)]
    pieces = [
        "'s",
        "'LL",
        "  ",
        " \n ",
        "123",
        "٣٤",
        "👩‍👩‍👧‍👦",
        "🏳️‍🌈",
        "e\u0301",
        "...",
        "=>",
        "\t\t",
        "</s>",
        "<|im_end|>",
    ]

    def piece() -> str:
        if draw.random() < 0.4:
            return draw.choice(pieces)
        low, high = draw.choice(scripts)
        return "".join(chr(draw.randrange(low, high)) for _ in range(draw.randrange(1, 8)))

    return ["".join(piece() for _ in range(draw.randrange(1, 10))) for _ in range(n)]
