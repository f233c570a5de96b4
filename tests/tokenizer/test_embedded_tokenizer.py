"""GGUF files that carry the checkpoint's ``tokenizer.json``: its use, preservation, and errors."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import quantizer
from support.checkpoints import made_tokenizers, models, tokenizer_files
from support.checkpoints.hf_llama import HFLlama
from tokenizers import Tokenizer as Engine

import pyggml
from pyggml import LLM, Tokenizer, TokenizerError, open_tokenizer
from pyggml._native.model import TOKENIZER_JSON, Model
from pyggml.gguf import GGUFReader
from pyggml.tokenizer import files

Json = dict[str, Any]

# What the carried tokenizer does and the engine's does not: each capital becomes small, so that "THE" is one token.
LOWERED = "THE"


def lowering() -> Json:
    return tokenizer_files.tokenizer_json(models.byte_vocabulary()) | {"normalizer": {"type": "Lowercase"}}


def carrying(path: Path, carried: object) -> Path:
    """A small Llama whose file carries this; what is no text is written as JSON."""
    text = carried if isinstance(carried, str) else json.dumps(carried)
    return models.write_llama(path, {**models.byte_vocabulary(), TOKENIZER_JSON: text})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return carrying(tmp_path / "carries.gguf", lowering())


def test_everything_that_takes_text_uses_it(path: Path) -> None:
    reference = Engine.from_str(json.dumps(lowering()))
    with pyggml.load(path, n_threads=1) as llm:
        assert llm.tokenize(LOWERED) == [models.BOS, models.THE]
        assert llm.tokenize(LOWERED, add_special=False) == reference.encode(LOWERED, add_special_tokens=False).ids
        assert llm.detokenize([models.BOS, models.THE]) == "the"
        assert llm.generate(LOWERED, max_tokens=1).prompt_tokens == 2
        prompts = [llm.chat([{"role": "user", "content": text}], max_tokens=1) for text in (LOWERED, "the")]
        assert prompts[0].prompt_tokens == prompts[1].prompt_tokens == len(llm.tokenize("user: the\n"))
        assert np.array_equal(llm.embed([LOWERED]), llm.embed(["the"]))
        text = llm.generate(LOWERED, max_tokens=16, ignore_eos=True).text
        end = text[3:5]
        assert llm.generate(LOWERED, max_tokens=16, ignore_eos=True, stop=[end]).text == text[: text.index(end)]


def test_a_model_opened_by_hand(path: Path) -> None:
    with Model(path, vocab_only=True) as model:
        assert open_tokenizer(None, model).encode(LOWERED) == [models.BOS, models.THE]
        assert Tokenizer(model.vocab).encode(LOWERED) == [models.BOS, *LOWERED.encode()]
        assert model.vocab.tokenize(LOWERED) == [models.BOS, *LOWERED.encode()]
        assert json.loads(model.tokenizer_json or b"") == lowering()
        assert TOKENIZER_JSON not in model.metadata
        assert model.metadata["general.architecture"] == "llama"
    with Model(path) as model, LLM(model, n_threads=1) as llm:
        assert llm.tokenize(LOWERED) == [models.BOS, models.THE]


def test_a_file_without_one(tiny: Model) -> None:
    assert tiny.tokenizer_json is None
    assert type(open_tokenizer(None, tiny)) is Tokenizer
    assert tiny.vocab.texts() == [tiny.vocab.text(i) for i in range(tiny.vocab.n_tokens)]


def test_a_tokenizer_of_the_callers_comes_first(path: Path, tmp_path: Path) -> None:
    plain = tokenizer_files.write_json(tmp_path / "plain", models.byte_vocabulary())
    for source in (path, carrying(tmp_path / "broken.gguf", "{")):
        with pyggml.load(source, tokenizer=plain, n_threads=1) as llm:
            assert llm.tokenize(LOWERED) == [models.BOS, *LOWERED.encode()]


def test_smaller_and_split_files_keep_it(path: Path, tmp_path: Path) -> None:
    split = quantizer.write_split(path, tmp_path / "split", 2)
    pyggml.quantize(path, tmp_path / "q8_0.gguf", "q8_0", n_threads=1)
    pyggml.quantize(split, tmp_path / "joined.gguf", "q8_0", n_threads=1)
    for source in (split, tmp_path / "q8_0.gguf", tmp_path / "joined.gguf"):
        with pyggml.load(source, n_threads=1) as llm:
            assert llm.tokenize(LOWERED) == [models.BOS, models.THE]
    with GGUFReader(path) as before, GGUFReader(tmp_path / "q8_0.gguf") as after:
        assert before.metadata[TOKENIZER_JSON] == after.metadata[TOKENIZER_JSON]


def test_perplexity_is_of_its_tokens(path: Path) -> None:
    text = "the cat " * 40
    capitals = pyggml.perplexity(path, text.upper(), n_ctx=64)
    assert capitals == pyggml.perplexity(path, text, n_ctx=64)


def test_a_report_says_where_the_tokenizer_is(path: Path, tiny_path: Path) -> None:
    report = pyggml.inspect(path)
    assert report.problems == ()
    assert report.vocabulary is not None
    assert report.vocabulary.tokenizer == TOKENIZER_JSON
    assert TOKENIZER_JSON not in report.metadata
    assert f"the checkpoint's own, in the file ({TOKENIZER_JSON})" in str(report)
    plain = pyggml.inspect(tiny_path).vocabulary
    assert plain is not None
    assert plain.tokenizer == "engine"


# --- what is written --------------------------------------------------------------------------------------------


def test_tokens_beyond_the_embedding_are_left_out(tmp_path: Path) -> None:
    made = made_tokenizers.made("NFC")
    n = made.n_tokens
    made.reference["added_tokens"].append({**made.reference["added_tokens"][0], "id": n, "content": "<|beyond|>"})
    checkpoint = HFLlama(n_vocab=n)
    checkpoint.config.pop("eos_token_id")
    report = pyggml.convert(made.write(checkpoint.write(tmp_path / "hf")), tmp_path / "model.gguf")
    assert any("'<|beyond|>'" in note for note in report.notes)
    with pyggml.load(tmp_path / "model.gguf", n_threads=1) as llm:
        assert max(llm.tokenize("a<|beyond|>b")) < n
        assert llm.tokenize("e\u0301", add_special=False) == llm.tokenize("\u00e9", add_special=False)


def test_one_that_will_not_open_is_noticed_before_the_weights_are_converted(tmp_path: Path) -> None:
    made = made_tokenizers.made("NFC")
    made.reference["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Unheard-of"}]}
    checkpoint = HFLlama(n_vocab=900)
    checkpoint.config.pop("eos_token_id")
    directory = made.write(checkpoint.write(tmp_path / "hf"))
    with pytest.raises(TokenizerError, match=r"hf/tokenizer\.json: "):
        pyggml.convert(directory, tmp_path / "model.gguf", progress=lambda _: pytest.fail("began to convert"))
    assert not (tmp_path / "model.gguf").exists()


# --- names from which the engine guesses which tokens swallow blanks -----------------------------------------------


@pytest.mark.parametrize("name", ["my-phi-3-qwen", "Phi3"])
def test_a_name_does_not_keep_a_model_from_loading(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine looks for Phi-3's tokens in every model of such a name, and gives up without them."""
    monkeypatch.setenv("PYGGML_CACHE", str(tmp_path / "cache"))
    directory = HFLlama().write(tmp_path / name)
    assert pyggml.inspect(directory).problems == ()
    with pyggml.load(directory, n_threads=1) as llm:
        ids = llm.tokenize("a<|im_end|>  b", add_special=False)
        assert ids == [97, models.EOT, 32, 32, 98]


@pytest.mark.slow_except("True")
@pytest.mark.parametrize("swallows", [False, True])
def test_the_tokenizer_says_which_tokens_swallow_blanks(swallows: bool, tmp_path: Path) -> None:
    made = made_tokenizers.made("Phi-3")
    for token in made.reference["added_tokens"]:
        token["rstrip"] = swallows and token["content"] == "<|user|>"
    checkpoint = HFLlama(n_vocab=made.n_tokens)
    checkpoint.config.pop("eos_token_id")
    pyggml.convert(made.write(checkpoint.write(tmp_path / "Phi-3-mini")), tmp_path / "model.gguf")
    reference = made.opened()
    with pyggml.load(tmp_path / "model.gguf", n_threads=1) as llm:
        assert llm.metadata["general.name"] == ("Phi-3-mini" if swallows else "Phi 3-mini")
        for text in ("<|user|>  \n a", "<|end|>  a", "</s>  a", "<s>  a"):
            assert llm.tokenize(text, add_special=False) == reference.encode(text, add_special_tokens=False).ids


# --- what is wrong with one -------------------------------------------------------------------------------------


def changed(change: Callable[[Json], object]) -> Json:
    content = lowering()
    change(content)
    return content


def nested(depth: int) -> list[Any]:
    return [nested(depth - 1)] if depth else []


def swapped(content: Json) -> None:
    vocab = content["model"]["vocab"]
    vocab["a"], vocab["b"] = vocab["b"], vocab["a"]


BROKEN = {
    "nothing": ("", "is not JSON"),
    "no JSON": ("{", "is not JSON"),
    "a number": ("5", "holds a number; an object was expected"),
    "too deep": ('{"model":' * 50_000, "is not JSON"),
    "deeper than tokenizers reads": (changed(lambda content: content.update(a=nested(200))), TOKENIZER_JSON),
    "a key twice": ('{"model": {}, "model": {}}', "duplicate key"),
    "no model": ({"version": "1.0"}, 'it has no "model"'),
    "nothing in it": ({"model": {}}, TOKENIZER_JSON),
    "no vocabulary": (changed(lambda content: content["model"].pop("vocab")), TOKENIZER_JSON),
    "a list of tokens": (changed(lambda content: content["model"].update(vocab=[])), TOKENIZER_JSON),
    "no list of added tokens": (changed(lambda content: content.update(added_tokens=5)), TOKENIZER_JSON),
    "added tokens without ids": (
        changed(lambda content: content.update(added_tokens=[{"content": "a"}])),
        TOKENIZER_JSON,
    ),
    "another model's": (changed(swapped), "reads id 97 as 'b', the model as 'a'"),
    "an unknown decoder": (
        changed(lambda content: content.update(decoder={"type": "BPEDecoder", "suffix": "</w>"})),
        "'BPEDecoder' cannot be used token by token",
    ),
    "half a decoder": (changed(lambda content: content.update(decoder={"type": "Sequence"})), "PyDecoder"),
    "a character map that makes tokenizers panic": (
        changed(lambda content: content.update(normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"})),
        "charsmap",
    ),
}


@pytest.mark.slow_except(every=2)
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_one_is_named(name: str, tmp_path: Path) -> None:
    carried, words = BROKEN[name]
    path = carrying(tmp_path / "broken.gguf", carried)
    with pytest.raises(TokenizerError, match=words) as caught:
        pyggml.load(path)
    assert f"{path}: {TOKENIZER_JSON}" in str(caught.value)
    assert "pass another tokenizer as tokenizer=" in str(caught.value)
    assert [problem.code for problem in pyggml.inspect(path).problems] == ["broken-tokenizer"]
    with Model(path) as model, LLM(model, Tokenizer(model.vocab), n_threads=1) as llm:  # the way out
        assert llm.tokenize("the") == [models.BOS, models.THE]


def test_size_has_a_limit(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_BYTES", 1000)
    with pytest.raises(TokenizerError, match=r"huggingface\.json has \d+ bytes; pyggml reads at most 1000"):
        pyggml.load(path)


@pytest.mark.slow
def test_no_damage_is_anything_but_an_error(tmp_path: Path) -> None:
    """The tokenizer opens and encodes, or says why not; the process lives on."""
    draw = random.Random(3)
    good = json.dumps(lowering())
    n_opened, messages = 0, []
    for _ in range(60):
        text = list(good)
        for _ in range(draw.randint(1, 4)):
            text[draw.randrange(len(text))] = draw.choice('{}[]",:0-9aeln\\')
        path = carrying(tmp_path / "damaged.gguf", "".join(text))
        with Model(path, vocab_only=True) as model:
            try:
                n_opened += bool(open_tokenizer(None, model).encode("the quick 中"))
            except TokenizerError as error:
                messages.append(str(error))
    assert n_opened > 0
    assert messages
    assert all(TOKENIZER_JSON in message for message in messages)
