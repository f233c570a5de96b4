"""The interface of tokenizers, with the model's own vocabulary and with a tokenizer file of Hugging Face."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support.checkpoints import models, tokenizer_files
from tokenizers import Tokenizer as Engine

import pyggml
from pyggml import LLM, Tokenizer, lib, open_tokenizer
from pyggml._native.model import Model
from pyggml.errors import ClosedError, InvalidParameterError, TokenizerError
from pyggml.tokenizer import StreamDecoder
from pyggml.tokenizer.token_bytes import bytes_of_tokens

# Of every kind: byte-level, byte-level with words kept whole, SentencePiece with bytes for the rest, unigrams.
KINDS = ["gpt-2", "llama-bpe", "llama-spm", "phi-3", "nomic-bert-moe"]
# Those that can spell any text, and give it back as it was.
LOSSLESS = ["gpt-2", "llama-bpe", "llama-spm", "phi-3"]

TORTURE = (
    "  two leading spaces, def f(x):\n\treturn x**2 + 3.14159e-7  # 1234567890\r\n"
    "👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪 ☝🏽 e\u0301 a\u0308\u0323 ก็ न\u093f क्षि 한국어 \u1112\u1161\u11ab 漢字かな交じり文 𠀀𠮷 "
    "עברית العربية \u202eabc\u202c \u200b\ufeff Ωμέγα … ½ ﬁ Ĳ <|im_end|> </s> [INST] <0x41> Ġg Ċ\n\n\n   "
    + "".join(map(chr, range(1, 256)))
    + "trailing   "
)


def demo_vocabulary() -> models.Metadata:
    metadata = models.metadata_of(Path(pyggml.__file__).parent / "assets" / "pyggml-demo-q8_0.gguf")
    return {key: value for key, value in metadata.items() if key.startswith("tokenizer.")}


def vocabulary_file(name: str) -> Path:
    return models.VOCABULARIES / f"ggml-vocab-{name}.gguf"


def stream(tokenizer: Tokenizer, token_ids: list[int]) -> list[str]:
    """The texts of chunks of one token each."""
    decoder = StreamDecoder(tokenizer)
    return [*(decoder.feed([token_id]) for token_id in token_ids), decoder.feed([], last=True)]


@pytest.fixture(scope="module", params=KINDS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def model(name: str) -> Iterator[Model]:
    with Model(vocabulary_file(name), vocab_only=True) as model:
        yield model


@pytest.fixture(scope="module")
def file(name: str, tokenizer_dir: Callable[[str], Path]) -> Path:
    return tokenizer_dir(name) / "tokenizer.json"


@pytest.fixture(scope="module")
def theirs(model: Model, file: Path) -> Tokenizer:
    return open_tokenizer(file, model)


@pytest.fixture(scope="module", params=["own", "theirs"])
def tokenizer(request: pytest.FixtureRequest, model: Model, theirs: Tokenizer) -> Tokenizer:
    return theirs if request.param == "theirs" else Tokenizer(model.vocab)


class TestRealVocabularies:
    @pytest.mark.slow_except("gpt-2-theirs", "llama-spm-own", "phi-3-own")
    def test_decode_inverts_encode(self, name: str, tokenizer: Tokenizer) -> None:
        texts = ["", "a", "a b, c", "Grüße 漢字"]
        if name in LOSSLESS:  # the others normalise what they read
            texts += [TORTURE, " ", " a", "  a ", "\n", "e\u0301", *(chr(c) for c in range(1, 256))]
        for text in texts:
            assert tokenizer.decode(tokenizer.encode(text)) == text
            assert tokenizer.decode(tokenizer.encode(text, parse_special=False)) == text

    @pytest.mark.slow_except(every=12)
    def test_decode_writes_the_markup_that_encode_reads(self, name: str, tokenizer: Tokenizer) -> None:
        vocab = tokenizer.vocab
        before, after = vocab.around
        for special in [i for i in vocab.special_ids if vocab.text(i) and i not in before + after][:20]:
            mark = vocab.text(special)
            ids = tokenizer.encode(f"{mark}Hello {mark}{mark}")
            assert ids.count(special) == 3
            assert tokenizer.decode(ids) == tokenizer.decode(ids, remove_special=False).removeprefix(
                "".join(map(vocab.text, before))
            ).removesuffix("".join(map(vocab.text, after))).removeprefix("" if name in LOSSLESS else " ")
            is_text = tokenizer.piece(special) != b""  # to this model: it ends the texts of others
            assert (mark in tokenizer.decode(ids, unparse_special=False)) == is_text
            if name not in LOSSLESS or tokenizer.special_texts[mark] != (False, False):
                continue  # blanks next to the token are lost
            for text in (f"{mark}a{mark} b\n{mark}  c{mark}", f"a {mark}\n", mark, f" {mark}{mark} a"):
                assert tokenizer.decode(tokenizer.encode(text)) == text
                assert tokenizer.decode(tokenizer.encode(text, parse_special=False)) == text

    @pytest.mark.slow_except("gpt-2-own-True", "gpt-2-theirs-False", "llama-spm-own-False")
    @pytest.mark.parametrize("parse_special", [False, True])
    def test_chunks_join_to_what_decode_gives(self, name: str, tokenizer: Tokenizer, parse_special: bool) -> None:
        ids = tokenizer.encode(TORTURE, parse_special=parse_special)
        chunks = stream(tokenizer, ids)
        text, whole = "".join(chunks), tokenizer.decode(ids, unparse_special=False)
        assert text in (whole, " " + whole)
        assert text.count("\ufffd") == 0
        n_waits = sum(not chunk and tokenizer.piece(i) != b"" for i, chunk in zip(ids, chunks, strict=False))
        assert n_waits > 10 or name not in LOSSLESS  # tokens that end inside a character

    @pytest.mark.slow_except("own-gpt-2")
    def test_a_stream_goes_on_where_the_prompt_ends(self, tokenizer: Tokenizer) -> None:
        ids = tokenizer.encode(TORTURE)
        whole = tokenizer.decode(ids, unparse_special=False)
        n_whole_characters = 0
        for cut in range(1, len(ids)):
            prompt = tokenizer.decode(ids[:cut], unparse_special=False)
            if prompt.endswith("\ufffd") or not prompt:
                continue  # inside a character, or nothing yet that the space could have been in front of
            n_whole_characters += 1
            assert prompt + "".join(stream(tokenizer, ids[cut:])) == whole
        assert n_whole_characters > 100

    @pytest.mark.slow_except("theirs-gpt-2")
    def test_any_ids_make_a_text(self, tokenizer: Tokenizer, theirs: Tokenizer) -> None:
        draw = random.Random(9)
        vocab = tokenizer.vocab
        byte_tokens = [i for i in range(vocab.n_tokens) if len(vocab.piece(i)) == 1]
        for ids in (
            [draw.randrange(vocab.n_tokens) for _ in range(2_000)],
            [draw.choice(byte_tokens) for _ in range(2_000)],
            byte_tokens,
        ):
            expected = b"".join(map(vocab.piece, ids)).decode(errors="replace")
            assert "".join(stream(tokenizer, ids)) == expected
            assert [theirs.piece(i) for i in ids] == [vocab.piece(i) for i in ids]

    @pytest.mark.slow_except("llama-spm", "phi-3")
    def test_hugging_face_decodes_alike(self, theirs: Tokenizer, file: Path) -> None:
        engine = Engine.from_file(str(file))
        for text in [TORTURE, "  a", "é", "hello 👩‍👩‍👧‍👦"]:
            ids = theirs.encode(text)
            assert theirs.decode(ids, unparse_special=False) == engine.decode(ids, skip_special_tokens=True)

    @pytest.mark.slow_except("gpt-2-own", "gpt-2-theirs")
    def test_hugging_face_reads_special_tokens_by_default_too(
        self, name: str, tokenizer: Tokenizer, file: Path
    ) -> None:
        engine, special = Engine.from_file(str(file)), tokenizer.special_texts
        for mark in [text for text in special if text and special[text] == (False, False)][-3:]:
            text = f"{mark}user\nHello{mark}\n  {mark}assistant\n"
            ids = tokenizer.encode(text, add_special=False)
            assert ids == engine.encode(text, add_special_tokens=False).ids
            if name in ("gpt-2", "llama-bpe"):  # SentencePiece's spaces behind special tokens are left in by theirs
                whole = tokenizer.decode(ids, remove_special=False)
                assert whole == text == engine.decode(ids, skip_special_tokens=False)

    @pytest.mark.slow_except("own-gpt-2", "theirs-gpt-2", "theirs-llama-spm")
    def test_no_special_token_comes_out_of_text(self, tokenizer: Tokenizer) -> None:
        vocab = tokenizer.vocab
        special = [i for i in range(vocab.n_tokens) if vocab.is_control(i)]
        assert special
        for i in special:
            text = f"x{vocab.text(i)} {vocab.text(i)}y{vocab.text(i)}"
            ids = tokenizer.encode(text, add_special=False, parse_special=False)
            assert not set(ids) & set(special), text
            parsed = tokenizer.encode(text, add_special=False)
            assert parsed.count(i) == 3, text
            # Some a file calls text, and the engine special since they end other models: they are shown.
            is_text = vocab.attr(i) & (lib.LLAMA_TOKEN_ATTR_NORMAL | lib.LLAMA_TOKEN_ATTR_USER_DEFINED)
            assert tokenizer.piece(i) == (vocab.text(i).encode() if is_text else b"")

    @pytest.mark.slow_except("gpt-2", "llama-spm", "phi-3")
    def test_both_give_the_same_ids(self, name: str, model: Model, theirs: Tokenizer) -> None:
        text = f"▁a▁ {TORTURE}" if name in LOSSLESS else TORTURE.encode("ascii", "ignore").decode()
        own = Tokenizer(model.vocab)
        for parse_special in [False, True]:
            for add_special in [False, True]:
                options = {"add_special": add_special, "parse_special": parse_special}
                assert theirs.encode(text, **options) == own.encode(text, **options)

    @pytest.mark.slow_except("llama-bpe", "llama-spm")
    def test_no_text_is_too_long(self, theirs: Tokenizer) -> None:
        for text in ["a" * 100_000, "1" * 50_000, "あ" * 20_000, "!" * 50_000]:
            assert theirs.decode(theirs.encode(text)) == text


@pytest.mark.slow
def test_word_pieces(tokenizer_dir: Callable[[str], Path]) -> None:
    with Model(vocabulary_file("bert-bge"), vocab_only=True) as model:
        own, theirs = Tokenizer(model.vocab), open_tokenizer(tokenizer_dir("bert-bge"), model)
        ids = own.encode("Unbelievable embeddings")
        assert theirs.encode("Unbelievable embeddings") == ids
        assert (ids[0], ids[-1]) == (model.vocab.bos, model.vocab.sep)
        assert own.encode("[CLS] a [SEP]") == theirs.encode("[CLS] a [SEP]") == own.encode("a")
        assert own.decode(ids) == theirs.decode(ids) == "unbelievable embeddings"
        masked = own.encode("paris is the [MASK] of france")
        assert own.decode(masked) == theirs.decode(masked) == "paris is the [MASK] of france"
        assert own.decode(masked, remove_special=False) == "[CLS] paris is the [MASK] of france [SEP]"
        assert "".join(stream(theirs, ids)) == " unbelievable embeddings"


@pytest.mark.slow
def test_words_that_end_other_models(tokenizer_dir: Callable[[str], Path]) -> None:
    """The engine takes Qwen 2's word ``</s>`` for the end of a turn; Hugging Face's tokenizer does not even find it."""
    with Model(vocabulary_file("qwen2"), vocab_only=True) as model:
        own, theirs = Tokenizer(model.vocab), open_tokenizer(tokenizer_dir("qwen2"), model)
        engine = Engine.from_file(str(tokenizer_dir("qwen2") / "tokenizer.json"))
        assert "</s>" not in own.special_texts
        assert own.special_texts == theirs.special_texts
        for text in ["</s>", "a</s>b", "<s>gone</s> <|im_end|>\n</s><|im_start|>user", "<|im_end|><|im_end|></s>"]:
            expected = engine.encode(text, add_special_tokens=False).ids
            assert own.encode(text, add_special=False) == theirs.encode(text, add_special=False) == expected
            assert own.decode(expected) == text


class TestAroundText:
    """BOS and EOS, on the vocabulary of single bytes."""

    @pytest.fixture
    def make(self, tmp_path: Path) -> Callable[..., list[Tokenizer]]:
        """Both kinds of tokenizer for a byte vocabulary with these ``tokenizer.ggml.*`` keys; models that live on."""

        def make(**keys: object) -> list[Tokenizer]:
            vocabulary = models.byte_vocabulary() | {f"tokenizer.ggml.{key}": value for key, value in keys.items()}
            model = Model(models.write_llama(tmp_path / "m.gguf", vocabulary), vocab_only=True)
            # The file adds BOS itself, whatever the model says: its word does not count.
            file = tokenizer_files.write_json(tmp_path, {**vocabulary, "tokenizer.ggml.add_bos_token": True})
            assert Engine.from_file(str(file)).encode("a").ids == [vocabulary["tokenizer.ggml.bos_token_id"], ord("a")]
            return [Tokenizer(model.vocab), open_tokenizer(file, model)]

        return make

    def test_bos_once(self, make: Callable[..., list[Tokenizer]]) -> None:
        for tokenizer in make(add_bos_token=True):
            assert tokenizer.encode("the") == [models.BOS, models.THE]
            assert tokenizer.encode("the", add_special=False) == [models.THE]
            assert tokenizer.encode("<s>the") == [models.BOS, models.THE]
            assert tokenizer.encode("<s>the", add_special=False) == [models.BOS, models.THE]
            assert tokenizer.encode("<s>the", parse_special=False) == [models.BOS, *b"<s>", models.THE]
            assert tokenizer.encode("<s>") == [models.BOS]
            assert tokenizer.encode("") == [models.BOS]
            assert tokenizer.decode([models.BOS, models.THE]) == "the"
            assert tokenizer.decode([models.BOS, models.THE], remove_special=False) == "<s>the"
            assert tokenizer.decode([models.BOS, models.BOS]) == "<s>"
            assert tokenizer.decode([]) == ""

    def test_no_bos(self, make: Callable[..., list[Tokenizer]]) -> None:
        for tokenizer in make(add_bos_token=False):
            assert tokenizer.encode("the") == [models.THE]
            assert tokenizer.encode("<s>the") == [models.BOS, models.THE]
            assert tokenizer.decode([models.BOS, models.THE]) == "<s>the"

    def test_eos_once(self, make: Callable[..., list[Tokenizer]]) -> None:
        for tokenizer in make(add_bos_token=True, add_eos_token=True):
            whole = [models.BOS, models.THE, models.EOS]
            assert tokenizer.encode("the") == whole
            for text in ["<s>the", "the<|endoftext|>", "<s>the<|endoftext|>"]:
                assert tokenizer.encode(text) == whole
            assert tokenizer.encode("") == [models.BOS, models.EOS]
            assert tokenizer.decode(whole) == "the"
            assert tokenizer.decode(whole[1:]) == "the"
            assert tokenizer.decode(whole, remove_special=False) == "<s>the<|endoftext|>"

    def test_one_token_that_is_both(self, make: Callable[..., list[Tokenizer]]) -> None:
        for tokenizer in make(add_bos_token=True, add_eos_token=True, bos_token_id=models.EOS):
            whole = [models.EOS, models.THE, models.EOS]
            assert tokenizer.encode("the") == whole
            assert tokenizer.encode("<|endoftext|>the") == whole
            assert tokenizer.encode("<|endoftext|>") == [models.EOS, models.EOS]
            assert tokenizer.decode(whole) == "the"
            assert tokenizer.decode([models.EOS]) == ""

    @pytest.mark.parametrize("add_bos", [False, True])
    @pytest.mark.parametrize("opening", ["", "{{ bos_token }}"])
    def test_templates(self, tmp_path: Path, add_bos: bool, opening: str) -> None:
        vocabulary = models.byte_vocabulary() | {
            "tokenizer.ggml.add_bos_token": add_bos,
            "tokenizer.chat_template": opening + models.BYTE_CHAT_TEMPLATE,
        }
        path = models.write_llama(tmp_path / "m.gguf", vocabulary)
        for tokenizer in [None, tokenizer_files.write_json(tmp_path, vocabulary)]:
            with LLM(Model(path), tokenizer=tokenizer, n_threads=1) as llm:
                prompt = llm.apply_chat_template([{"role": "user", "content": "the"}])
                ids = llm.tokenize(prompt)
            assert ids.count(models.BOS) == ids[:1].count(models.BOS) == int(add_bos or bool(opening))


class TestAgreement:
    """With the model about which tokens are special."""

    def tokenizers(self, tmp_path: Path, changes: Callable[[dict[str, Any]], object]) -> tuple[Tokenizer, Tokenizer]:
        vocabulary = models.byte_vocabulary()
        model = Model(models.write_llama(tmp_path / "m.gguf", vocabulary), vocab_only=True)
        content = tokenizer_files.tokenizer_json(vocabulary)
        changes(content)
        (tmp_path / "tokenizer.json").write_text(json.dumps(content))
        return Tokenizer(model.vocab), open_tokenizer(tmp_path, model)

    def test_the_model_decides_what_is_special(self, tmp_path: Path) -> None:
        def call_nothing_special(content: dict[str, Any]) -> None:
            for token in content["added_tokens"]:
                token["special"] = False

        own, theirs = self.tokenizers(tmp_path, call_nothing_special)
        assert models.EOT not in theirs.encode("a<|im_end|>", parse_special=False)
        assert theirs.encode("a<|im_end|>", parse_special=False) == own.encode("a<|im_end|>", parse_special=False)
        assert theirs.encode("a<|im_end|>") == own.encode("a<|im_end|>") == [models.BOS, ord("a"), models.EOT]
        assert theirs.piece(models.EOT) == b""

    def test_nothing_is_cut_short_or_filled_up(self, tmp_path: Path) -> None:
        def limit(content: dict[str, Any]) -> None:
            content["truncation"] = {
                "direction": "Right",
                "max_length": 3,
                "strategy": "LongestFirst",
                "stride": 0,
            }
            content["padding"] = {
                "strategy": {"Fixed": 50},
                "direction": "Right",
                "pad_to_multiple_of": None,
                "pad_id": models.EOS,
                "pad_type_id": 0,
                "pad_token": "<|endoftext|>",
            }

        own, theirs = self.tokenizers(tmp_path, limit)
        assert theirs.encode("a text") == own.encode("a text")

    def test_merges_cannot_make_a_special_token(self, tmp_path: Path) -> None:
        vocabulary = models.byte_vocabulary()
        vocabulary["tokenizer.ggml.token_type"][models.THE] = 3  # type: ignore[index]  # control
        with Model(models.write_llama(tmp_path / "m.gguf", vocabulary), vocab_only=True) as model:
            theirs = open_tokenizer(tokenizer_files.write_json(tmp_path, vocabulary), model)
            assert theirs.encode("the", add_special=False, parse_special=False) == [models.TH, ord("e")]
            assert theirs.encode("the", add_special=False) == [models.THE]

    def test_older_files_spell_merges_as_one_text(self, tmp_path: Path) -> None:
        def join(content: dict[str, Any]) -> None:
            content["model"]["merges"] = [" ".join(merge) for merge in content["model"]["merges"]]

        own, theirs = self.tokenizers(tmp_path, join)
        assert theirs.encode("the bath") == own.encode("the bath")


@pytest.mark.parametrize(
    ("decoder", "tokens", "joined"),
    [
        ({"type": "ByteLevel"}, ["Ġthe", "Ċ", "Ã", "©", "<a b>"], " the\n\xe9<a b>".encode()),
        ({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"}, ["▁a", "b", "▁c"], b" ab c"),
        ({"type": "WordPiece", "prefix": "##", "cleanup": True}, ["a", "##b", "c"], b" ab c"),
        (
            {
                "type": "Sequence",
                "decoders": [
                    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                    {"type": "ByteFallback"},
                    {"type": "Fuse"},
                    {"type": "Strip", "content": " ", "start": 1, "stop": 0},
                ],
            },
            ["▁a", "<0xC3>", "<0xA9>", "<0xZZ>", "▁"],
            " a\xe9<0xZZ> ".encode(),
        ),
        (None, ["a", "b"], b" a b"),
    ],
)
def test_decoders(decoder: dict[str, Any] | None, tokens: list[str], joined: bytes) -> None:
    assert b"".join(map(bytes_of_tokens(decoder), tokens)) == joined


@pytest.mark.parametrize(
    "decoder",
    [
        {"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": True},
        {"type": "Replace", "pattern": {"Regex": "a+"}, "content": "b"},
        {"type": "Sequence", "decoders": [{"type": "BPEDecoder", "suffix": "</w>"}]},
    ],
)
def test_decoders_that_need_the_whole_text(decoder: dict[str, Any]) -> None:
    with pytest.raises(TokenizerError, match="token by token"):
        bytes_of_tokens(decoder)


class TestSharing:
    @pytest.mark.slow
    def test_many_threads_one_tokenizer(self, tokenizer_dir: Callable[[str], Path]) -> None:
        with Model(vocabulary_file("llama-spm"), vocab_only=True) as model:
            own, theirs = Tokenizer(model.vocab), open_tokenizer(tokenizer_dir("llama-spm"), model)
            texts = [f"{TORTURE[i : i + 50]}</s>{i}" for i in range(0, 300, 3)]
            expected = {
                (text, special): own.encode(text, parse_special=special) for text in texts for special in [False, True]
            }

            def work(seed: int) -> None:
                order = list(expected)
                random.Random(seed).shuffle(order)
                for text, special in order:
                    ids = theirs.encode(text, parse_special=special)
                    assert ids == expected[text, special]
                    assert theirs.decode(ids) == own.decode(ids)

            with ThreadPoolExecutor(8) as pool:
                list(pool.map(work, range(16)))

    def test_a_closed_model(self, tiny_path: Path, tmp_path: Path) -> None:
        file = tokenizer_files.write_json(tmp_path, models.byte_vocabulary())
        model = Model(tiny_path, vocab_only=True)
        tokenizer = open_tokenizer(file, model)
        model.close()
        with pytest.raises(ClosedError):
            tokenizer.encode("a")
        with pytest.raises(ClosedError):
            tokenizer.decode([97])
        with pytest.raises(ClosedError):
            open_tokenizer(file, model)


@pytest.mark.parametrize("bad", [None, 5, b"a", ["a"]])
def test_what_is_no_text(tiny: Model, tmp_path: Path, bad: Any) -> None:
    theirs = open_tokenizer(tokenizer_files.write_json(tmp_path, models.byte_vocabulary()), tiny)
    for tokenizer in [Tokenizer(tiny.vocab), theirs]:
        with pytest.raises(InvalidParameterError, match="must be a string"):
            tokenizer.encode(bad)
        with pytest.raises(InvalidParameterError, match="NUL character at index 1"):
            tokenizer.encode("a\0b")
        with pytest.raises(InvalidParameterError, match="surrogate at index 1"):
            tokenizer.encode("a\ud800")
        for ids in ([models.N_BYTE_VOCAB], [-1], [2**31], ["a"], [1.5]):
            with pytest.raises(InvalidParameterError):
                tokenizer.decode(ids)  # type: ignore[arg-type]


class TestInTheLLM:
    """A tokenizer of the same vocabulary changes nothing that comes out."""

    PROMPTS = ("Once upon a time", "  Tell me: 2+2 = é 👩‍👩‍👧‍👦", "</s><|im_end|>", "\n")

    def texts(self, llm: LLM, **options: Any) -> list[tuple[str, list[int], int]]:
        found = []
        for prompt in self.PROMPTS:
            completion = llm.generate(prompt, **options)
            with llm.stream(prompt, **options) as chunks:
                assert "".join(chunk.text for chunk in chunks) == completion.text
            assert completion.text == "".join(stream(llm.tokenizer, completion.token_ids))
            found.append((completion.text, completion.token_ids, completion.prompt_tokens))
        return found

    def test_the_shipped_model(self, tmp_path: Path) -> None:
        path = Path(pyggml.__file__).parent / "assets" / "pyggml-demo-q8_0.gguf"
        tokenizer_files.write_json(tmp_path, demo_vocabulary())
        options: dict[str, Any] = {"n_parallel": 1, "prefix_cache": False, "n_threads": 1}
        with LLM(Model(path), **options) as llm:
            expected = self.texts(llm, max_tokens=60)
        with pyggml.load(tokenizer=tmp_path, **options) as llm:
            assert type(llm.tokenizer) is not Tokenizer
            assert self.texts(llm, max_tokens=60) == expected
        assert any(text.strip() for text, *_ in expected)

    @pytest.mark.slow
    def test_noise_of_a_real_vocabulary(self, tmp_path: Path, tokenizer_dir: Callable[[str], Path]) -> None:
        path = models.write_llama(tmp_path / "m.gguf", models.real_vocabulary("llama-spm"))
        alone: dict[str, Any] = {"n_parallel": 1, "prefix_cache": False, "n_threads": 1}
        options: dict[str, Any] = {"max_tokens": 50, "temperature": 2.0, "seed": 3, "ignore_eos": True}
        with LLM(Model(path), **alone) as llm:
            expected = self.texts(llm, **options)
        with LLM(Model(path), tokenizer=tokenizer_dir("llama-spm"), **alone) as llm:
            assert self.texts(llm, **options) == expected

    def test_ready_tokenizers(self, tiny_path: Path, tmp_path: Path) -> None:
        file = tokenizer_files.write_json(tmp_path, models.byte_vocabulary())
        model = Model(tiny_path)
        ours = open_tokenizer(file, model)
        with LLM(model, tokenizer=ours, n_threads=1) as llm:
            assert llm.tokenizer is ours
        with LLM(Model(tiny_path), tokenizer=Engine.from_file(str(file)), n_threads=1) as llm:
            assert llm.tokenize("the") == [models.BOS, models.THE]
            assert llm.detokenize([models.BOS, models.THE]) == "the"
        with Model(tiny_path) as model:
            with pytest.raises(InvalidParameterError, match="another model"):
                LLM(model, tokenizer=ours)
            with pytest.raises(InvalidParameterError, match="path or a tokenizer, not int"):
                LLM(model, tokenizer=5)  # type: ignore[arg-type]


@pytest.mark.slow
def test_importing_pyggml_leaves_tokenizers_alone() -> None:
    code = "import sys, pyggml; pyggml.load().close(); assert 'tokenizers' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
