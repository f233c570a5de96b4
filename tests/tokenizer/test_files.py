"""Tokenizer files: where they are searched, invalid ones, and those of other models."""

from __future__ import annotations

import base64
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.checkpoints import models, tokenizer_files
from tokenizers import Tokenizer as Engine

import pyggml
from pyggml import LLM, Tokenizer, TokenizerError, TokenizerNotFoundError, open_tokenizer
from pyggml._native.model import Model
from pyggml._native.vocab import TokenType
from pyggml.errors import InferError, InvalidParameterError
from pyggml.tokenizer import sentencepiece
from pyggml.tokenizer.sentencepiece import Algorithm, Piece, SentencePieceModel

Content = dict[str, Any]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """With the tokenizer.json of the byte vocabulary."""
    return tokenizer_files.write_json(tmp_path / "tokenizer", models.byte_vocabulary()).parent


@pytest.fixture
def refused(directory: Path, tiny: Model) -> Callable[[Callable[[Content], object]], str]:
    """The message with which a changed tokenizer.json is refused."""

    def refused(change: Callable[[Content], object]) -> str:
        path = directory / "tokenizer.json"
        content = json.loads(path.read_text())
        change(content)
        path.write_text(json.dumps(content))
        with pytest.raises(TokenizerError) as caught:
            open_tokenizer(path, tiny)
        assert str(path) in str(caught.value)
        return str(caught.value)

    return refused


def spm_model() -> SentencePieceModel:
    return tokenizer_files.sentencepiece_model(models.real_vocabulary("llama-spm"))


class TestFinding:
    def test_json_comes_first(self, directory: Path, tiny: Model) -> None:
        (directory / "tokenizer.model").write_bytes(b"not read")
        paths: list[str | Path] = [directory, str(directory), directory / "tokenizer.json"]
        for path in paths:
            assert open_tokenizer(path, tiny).encode("the") == [models.BOS, models.THE]

    def test_any_name_will_do(self, directory: Path, tiny: Model) -> None:
        other = directory / "my tokenizer é"
        (directory / "tokenizer.json").rename(other)
        assert open_tokenizer(other, tiny).encode("the") == [models.BOS, models.THE]

    @pytest.mark.parametrize("name", ["missing", "missing/tokenizer.json"])
    def test_nothing_there(self, tmp_path: Path, tiny: Model, name: str) -> None:
        with pytest.raises(TokenizerNotFoundError, match="missing") as caught:
            open_tokenizer(tmp_path / name, tiny)
        assert isinstance(caught.value, (FileNotFoundError, TokenizerError, InferError))
        assert isinstance(caught.value, FileNotFoundError)

    def test_an_empty_directory(self, tmp_path: Path, tiny: Model) -> None:
        with pytest.raises(TokenizerNotFoundError, match=r"no tokenizer\.json or tokenizer\.model in"):
            open_tokenizer(tmp_path, tiny)

    @pytest.mark.parametrize(
        ("name", "words"),
        [
            ("tekken.json", "Mistral"),
            ("qwen.tiktoken", "tiktoken"),
            ("vocab.json", "save_pretrained"),
            ("vocab.txt", "save_pretrained"),
        ],
    )
    def test_formats_that_do_not_do(self, tmp_path: Path, tiny: Model, name: str, words: str) -> None:
        (tmp_path / name).write_text("{}")
        with pytest.raises(TokenizerError, match=words) as caught:
            open_tokenizer(tmp_path, tiny)
        assert name in str(caught.value)
        assert "tokenizer.json" in str(caught.value)

    @pytest.mark.parametrize(
        ("data", "words"),
        [
            (b'{"config": {}, "vocab": []}', "Mistral"),
            (b'{"a": 0, "b": 1}', "a list of ids, which does not say"),
            (base64.b64encode(b"the") + b" 0\n" + base64.b64encode(b"a") + b" 1\n", "tiktoken"),
            (b"", "neither a tokenizer.json nor SentencePiece's tokenizer.model: .* no pieces"),
            (b"{", "not JSON"),
            (b"[" * 100_000, "not JSON"),
            (b"[]", "holds a list; an object"),
            (b'{"model": "x"}', 'no "model"'),
            (b"\xff\xfe\x00", "SentencePiece"),
            (b"GGUF" + bytes(64), "SentencePiece"),
        ],
    )
    def test_files_that_are_something_else(self, tmp_path: Path, tiny: Model, data: bytes, words: str) -> None:
        path = tmp_path / "tokenizer.json"
        path.write_bytes(data)
        with pytest.raises(TokenizerError, match=words) as caught:
            open_tokenizer(path, tiny)
        assert str(path) in str(caught.value)

    @pytest.mark.parametrize("path", [5, ["a"]])
    def test_no_path(self, tiny: Model, path: Any) -> None:
        with pytest.raises(InvalidParameterError, match="path"):
            open_tokenizer(path, tiny)

    def test_a_path_that_cannot_be(self, tiny: Model) -> None:
        with pytest.raises(TokenizerError):
            open_tokenizer("a\0b", tiny)
        with pytest.raises(TokenizerError):
            open_tokenizer("x" * 5000, tiny)

    @pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may read everything")
    def test_a_file_that_may_not_be_read(self, directory: Path, tiny: Model) -> None:
        (directory / "tokenizer.json").chmod(0)
        with pytest.raises(TokenizerError, match="cannot be read"):
            open_tokenizer(directory, tiny)

    def test_through_the_llm(self, tmp_path: Path, tiny_path: Path) -> None:
        with Model(tiny_path) as model, pytest.raises(TokenizerNotFoundError):
            LLM(model, tokenizer=tmp_path)
        for path in [tmp_path, tmp_path / "missing"]:
            with pytest.raises(TokenizerNotFoundError, match="there is no tokenizer"):
                pyggml.load(tiny_path, tokenizer=path)
        for impossible in ["a\0b", "x" * 5000]:
            with pytest.raises(TokenizerError, match="cannot be read"):
                pyggml.load(tiny_path, tokenizer=impossible)


class TestWrongTokenizers:
    """Messages name what differs, on both sides, and the way out."""

    def test_one_token_differs(self, refused: Callable[[Callable[[Content], object]], str]) -> None:
        def swap(content: Content) -> None:
            vocab = content["model"]["vocab"]
            vocab["a"], vocab["b"] = vocab["b"], vocab["a"]

        message = refused(swap)
        assert "reads id 97 as 'b', the model as 'a'" in message
        assert "none for the one in the model's file" in message

    @pytest.mark.slow
    def test_another_model(self, tokenizer_dir: Callable[[str], Path]) -> None:
        pairs = [("qwen2", "gpt-2"), ("gpt-2", "qwen2"), ("llama-spm", "gpt-2"), ("phi-3", "llama-spm")]
        for theirs, ours in pairs:
            with (
                Model(models.VOCABULARIES / f"ggml-vocab-{ours}.gguf", vocab_only=True) as model,
                pytest.raises(TokenizerError, match="is not this model's tokenizer: it"),
            ):
                open_tokenizer(tokenizer_dir(theirs), model)

    def test_more_tokens_than_the_model(self, refused: Callable[[Callable[[Content], object]], str]) -> None:
        message = refused(lambda content: content["model"]["vocab"].update({"zz": 300}))
        assert "ids up to 300 ('zz'), but the model has 261 tokens" in message

    def test_fewer_tokens_than_the_model(self, refused: Callable[[Callable[[Content], object]], str]) -> None:
        def shorten(content: Content) -> None:
            content["model"]["merges"].pop()
            del content["model"]["vocab"]["the"]

        assert "not id 260, which is 'the' in the model" in refused(shorten)

    def test_a_stop_token_is_missing(self, refused: Callable[[Callable[[Content], object]], str]) -> None:
        def drop(content: Content) -> None:
            content["added_tokens"] = [t for t in content["added_tokens"] if t["id"] != models.EOT]
            del content["model"]["vocab"]["<|im_end|>"]

        assert "not id 257, which is '<|im_end|>' in the model and ends a generation" in refused(drop)

    def test_a_stop_token_is_called_otherwise(self, refused: Callable[[Callable[[Content], object]], str]) -> None:
        def rename(content: Content) -> None:
            content["added_tokens"][1]["content"] = "<|end|>"
            vocab = content["model"]["vocab"]
            vocab["<|end|>"] = vocab.pop("<|im_end|>")

        assert "reads id 257 as '<|end|>', the model as '<|im_end|>'" in refused(rename)

    def test_what_fills_a_model_up_is_no_mismatch(self, tmp_path: Path, directory: Path) -> None:
        vocabulary = models.byte_vocabulary()
        vocabulary["tokenizer.ggml.tokens"] += ["[PAD261]", "[PAD262]"]  # type: ignore[operator]
        types: Any = vocabulary["tokenizer.ggml.token_type"]
        vocabulary["tokenizer.ggml.token_type"] = np.array([*types, 5, 4], np.int32)
        with Model(models.write_llama(tmp_path / "m.gguf", vocabulary), vocab_only=True) as model:
            tokenizer = open_tokenizer(directory, model)
            assert tokenizer.encode("the") == [models.BOS, models.THE]
            assert [tokenizer.piece(i) for i in (261, 262)] == [Tokenizer(model.vocab).piece(i) for i in (261, 262)]


class TestBrokenTokenizers:
    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (lambda content: content["model"].update(type="Nothing"), "untagged enum"),
            (lambda content: content["model"]["merges"].append(["q", "zzz"]), "out of vocabulary"),
            (lambda content: content["model"].pop("vocab"), "vocab"),
            (lambda content: content["added_tokens"].append({"content": "x"}), "id"),
            (lambda content: content.update(added_tokens=5), "int"),
            (lambda content: content.update(pre_tokenizer={"type": "None"}), "pre_tokenizer|untagged|variant"),
            (lambda content: content.update(decoder={"type": "BPEDecoder", "suffix": "</w>"}), "BPEDecoder"),
            (
                # tokenizers panics over this one, with what is no Exception
                lambda content: content.update(normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
                "charsmap",
            ),
        ],
    )
    def test_says_what_is_wrong(
        self,
        refused: Callable[[Callable[[Content], object]], str],
        change: Callable[[Content], object],
        words: str,
    ) -> None:
        assert any(word in refused(change) for word in words.split("|"))


class TestTokenizerModel:
    """SentencePiece files, written here from the engine's vocabularies."""

    @pytest.mark.slow_except("llama-spm")
    @pytest.mark.parametrize("name", ["llama-spm", "baichuan", "nomic-bert-moe"])
    def test_gives_the_same_ids(self, name: str, tmp_path: Path) -> None:
        sentencepiece = tokenizer_files.sentencepiece_model(models.real_vocabulary(name))
        (tmp_path / "tokenizer.model").write_bytes(tokenizer_files.sentencepiece_bytes(sentencepiece))
        texts = Path(f"{models.VOCABULARIES}/ggml-vocab-llama-spm.gguf.inp").read_text("utf-8")
        with Model(models.VOCABULARIES / f"ggml-vocab-{name}.gguf", vocab_only=True) as model:
            own, theirs = Tokenizer(model.vocab), open_tokenizer(tmp_path, model)
            for text in texts.split("\n__ggml_vocab_test__\n"):
                ids = theirs.encode(text)
                assert ids == own.encode(text)
                assert theirs.decode(ids) == own.decode(ids)
                assert theirs.encode(f"{text}</s>a") == own.encode(f"{text}</s>a")

    def test_what_is_read_is_what_was_written(self) -> None:
        model = SentencePieceModel(
            pieces=(
                Piece("<unk>", 0.0, TokenType.UNKNOWN),
                Piece("<s>", 0.0, TokenType.CONTROL),
                Piece("▁é漢", -1.5, TokenType.NORMAL),
                Piece("<0x41>", -2.0, TokenType.BYTE),
                Piece("a b", -3.0, TokenType.USER_DEFINED),
                Piece("", -4.0, TokenType.UNUSED),
            ),
            algorithm=Algorithm.BPE,
            byte_fallback=True,
            space_is_suffix=True,
            add_dummy_prefix=False,
            remove_extra_whitespaces=False,
            escape_whitespaces=False,
            precompiled_charsmap=b"\0\1\2\xff",
            unk_id=3,
            bos_id=200,
            eos_id=-1,
            pad_id=70_000,
        )
        assert sentencepiece.parse(tokenizer_files.sentencepiece_bytes(model)) == model

    def test_defaults_are_those_of_the_format(self) -> None:
        model = sentencepiece.parse(b"\x0a\x03\x0a\x01a")
        assert model == SentencePieceModel(pieces=(Piece("a", 0.0, TokenType.NORMAL),))

    def test_fields_that_nobody_knows_are_skipped(self) -> None:
        unknown = b"\xf8\x07\x05" + b"\xf9\x07" + bytes(8) + b"\xfa\x07\x02ab" + b"\xfd\x07" + bytes(4)
        assert sentencepiece.parse(unknown + b"\x0a\x03\x0a\x01a" + unknown).pieces[0].text == "a"

    @pytest.mark.parametrize(
        ("data", "words"),
        [
            (b"\x0a", "ends inside a number"),
            (b"\x0a\x05ab", "5 bytes expected, 2 left"),
            (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "bytes expected"),
            (b"\xff" * 12, "more than ten bytes"),
            (b"\x0b", "wire type 3"),
            (b"\x08\x01", "a number stands"),
            (b"\x0a\x03\x0a\x01\xff", "piece 0"),
            (b"\x0a\x05\x0a\x01a\x18\x09", "piece 0: 9 is not a valid TokenType"),
            (b"\x0a\x03\x0a\x01a\x12\x02\x18\x09", "algorithm is 9"),
        ],
    )
    def test_damage(self, data: bytes, words: str) -> None:
        with pytest.raises(TokenizerError, match=words):
            sentencepiece.parse(data)

    def test_no_damage_is_anything_but_an_error(self) -> None:
        good = tokenizer_files.sentencepiece_bytes(
            SentencePieceModel(pieces=tuple(Piece(f"p{i}", -i, TokenType.NORMAL) for i in range(20)))
        )
        draw = random.Random(2)
        for _ in range(3_000):
            data = bytearray(good[: draw.randrange(len(good))] if draw.random() < 0.3 else good)
            for _ in range(draw.randrange(3)):
                if data:
                    data[draw.randrange(len(data))] = draw.randrange(256)
            try:
                model = sentencepiece.parse(bytes(data))
            except TokenizerError:
                continue
            assert all(isinstance(piece.text, str) for piece in model.pieces)

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"algorithm": Algorithm.WORD}, "words"),
            ({"algorithm": Algorithm.CHAR}, "chars"),
            ({"space_is_suffix": True}, "after words"),
            ({"pieces": (Piece("a", 0, TokenType.NORMAL),) * 2, "algorithm": Algorithm.BPE}, "0 and 1 are both 'a'"),
        ],
    )
    def test_models_that_cannot_be_used(self, tmp_path: Path, tiny: Model, changes: dict[str, Any], words: str) -> None:
        options: dict[str, Any] = {"pieces": (Piece("a", 0, TokenType.NORMAL),), **changes}
        path = tmp_path / "tokenizer.model"
        path.write_bytes(tokenizer_files.sentencepiece_bytes(SentencePieceModel(**options)))
        with pytest.raises(TokenizerError, match=words):
            open_tokenizer(path, tiny)

    @pytest.mark.slow
    @pytest.mark.parametrize("adjacent", ["tokenizer_config.json", "added_tokens.json"])
    def test_tokens_added_afterwards(self, tmp_path: Path, adjacent: str) -> None:
        """As in Phi-3: the pieces are Llama's, and the chat tokens are added in another file."""
        vocabulary = models.real_vocabulary("phi-3")
        whole = tokenizer_files.sentencepiece_model(vocabulary)
        llama = spm_model()
        (tmp_path / "tokenizer.model").write_bytes(tokenizer_files.sentencepiece_bytes(llama))
        added = dict(enumerate(whole.pieces[len(llama.pieces) :], len(llama.pieces)))
        with Model(models.VOCABULARIES / "ggml-vocab-phi-3.gguf", vocab_only=True) as model:
            with pytest.raises(TokenizerError, match=r"has 32000 tokens but not id 32000"):
                open_tokenizer(tmp_path, model)
            if adjacent == "added_tokens.json":
                content: Content = {piece.text: i for i, piece in added.items()}
            else:
                decoder = {str(i): {"content": piece.text, "special": True} for i, piece in added.items()}
                content = {"added_tokens_decoder": decoder}
            (tmp_path / adjacent).write_text(json.dumps(content))
            own, theirs = Tokenizer(model.vocab), open_tokenizer(tmp_path, model)
            for special in [False, True]:
                text = "<|user|> Hello <|end|>\n<|assistant|>"
                assert theirs.encode(text, parse_special=special) == own.encode(text, parse_special=special)

    @pytest.mark.slow_except(every=4)
    @pytest.mark.parametrize(
        ("content", "words"),
        [
            ("{", "tokenizer_config.json is not JSON"),
            ('{"added_tokens_decoder": {"40000": {"content": "<x>"}}}', "no token has the id 32000"),
            ('{"added_tokens_decoder": {"x": {}}}', "tokenizer_config.json"),
            ('{"added_tokens_decoder": 5}', "tokenizer_config.json"),
        ],
    )
    def test_a_broken_file_beside_it(self, tmp_path: Path, tiny: Model, content: str, words: str) -> None:
        (tmp_path / "tokenizer.model").write_bytes(tokenizer_files.sentencepiece_bytes(spm_model()))
        (tmp_path / "tokenizer_config.json").write_text(content)
        with pytest.raises(TokenizerError, match=words):
            open_tokenizer(tmp_path, tiny)


def test_what_users_defined_is_found_as_it_is_written() -> None:
    """Gemma's files define runs of spaces, spelled with the sign for a space."""
    characters = "▁abc"
    pieces = [
        Piece("<unk>", 0, TokenType.UNKNOWN),
        Piece("▁▁", 0, TokenType.USER_DEFINED),
        *(Piece(character, -i, TokenType.NORMAL) for i, character in enumerate(characters)),
        Piece("▁a", -9, TokenType.NORMAL),
    ]
    model = SentencePieceModel(
        tuple(pieces), Algorithm.BPE, add_dummy_prefix=False, remove_extra_whitespaces=False, bos_id=-1, eos_id=-1
    )
    content = pyggml.tokenizer.tokenizer_json.from_sentencepiece(model)
    assert Engine.from_str(json.dumps(content)).encode("a   a").ids == [3, 1, 6]


def test_spaces_are_cleaned_up_where_the_model_says_so() -> None:
    pieces = (Piece("<unk>", 0, TokenType.UNKNOWN), *(Piece(c, -1, TokenType.NORMAL) for c in ("▁", "a", "▁a")))
    content = pyggml.tokenizer.tokenizer_json.from_sentencepiece(SentencePieceModel(pieces, Algorithm.UNIGRAM))
    engine = Engine.from_str(json.dumps(content))
    assert engine.encode("  a   a ").tokens == ["▁a", "▁a"]
    assert engine.encode("").ids == []
