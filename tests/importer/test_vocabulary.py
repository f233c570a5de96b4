"""Import of Hugging Face tokenizers: the engine splits texts into the same tokens."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.checkpoints import models, tokenizer_files
from support.checkpoints import small_tokenizers as small
from tokenizers import Tokenizer

from pyggml import Model, TokenizerError, TokenizerNotFoundError
from pyggml.gguf import GGUFWriter
from pyggml.importer.vocabulary import Vocabulary, pre_tokenizers, read_vocabulary
from pyggml.importer.vocabulary.regex_spelling import canonical
from pyggml.importer.vocabulary.special_tokens import ENGINE_PLAIN, ENGINE_SPECIAL
from pyggml.tokenizer.hugging_face import open_tokenizer

CONFIG = {"eos_token_id": 0}
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)

Json = dict[str, Any]


def write(directory: Path, tokenizer: Mapping[str, Any] | None = None, **files: object) -> Path:
    """A Hugging Face directory; what is not JSON is written as it is."""
    directory.mkdir(parents=True, exist_ok=True)
    named = {} if tokenizer is None else {"tokenizer.json": tokenizer}
    for name, content in {**named, **{name.replace("__", "."): content for name, content in files.items()}}.items():
        path = directory / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return directory


def loaded(vocabulary: Vocabulary, path: Path) -> Model:
    """The vocabulary as the engine reads it."""
    with GGUFWriter(path) as writer:
        writer.set("general.architecture", "llama")
        for key, value in vocabulary.metadata.items():
            writer.set(key, value)
    return Model(path, vocab_only=True)


def differing(vocabulary: Vocabulary, directory: Path, n_texts: int) -> list[str]:
    """Texts that the engine cuts otherwise than the tokenizer in a directory, with special tokens and without."""
    as_tokens = Tokenizer.from_file(str(directory / "tokenizer.json"))
    as_text = Tokenizer.from_file(str(directory / "tokenizer.json"))
    as_text.encode_special_tokens = True
    specials = [token.content for token in as_tokens.get_added_tokens_decoder().values()][:50]
    with loaded(vocabulary, directory / "vocabulary.gguf") as model:
        return [
            text
            for text in small.texts(n_texts, specials)
            if model.vocab.tokenize(text, True, True) != as_tokens.encode(text).ids
            or model.vocab.tokenize(text, False, False) != as_text.encode(text, add_special_tokens=False).ids
        ]


# --- vocabularies of real models ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["llama-spm", "gpt-2", *(pytest.param(name, marks=pytest.mark.slow) for name in ("llama-bpe", "qwen2"))]
)
def test_real_vocabularies_come_back_and_cut_alike(tmp_path: Path, name: str) -> None:
    original = models.real_vocabulary(name)
    tokenizer_files.write_json(tmp_path, original)
    ids = {f"{part}_token_id": original.get(f"tokenizer.ggml.{part}_token_id", 1) for part in ("bos", "eos")}
    vocabulary = read_vocabulary(tmp_path, {key: int(str(value)) for key, value in ids.items()})
    for key in ("model", "pre", "bos_token_id", "eos_token_id"):
        assert vocabulary.metadata[f"tokenizer.ggml.{key}"] == original[f"tokenizer.ggml.{key}"]
    assert vocabulary.metadata["tokenizer.ggml.tokens"] == list(_texts(original["tokenizer.ggml.tokens"]))
    different = differing(vocabulary, tmp_path, 200)
    if name == "qwen2":  # `</s>` is text in it, as HTML has it
        assert vocabulary.difference == "the engine always treats '</s>' as special"
        assert all("</s>" in text for text in different)
    else:
        assert vocabulary.difference is None
        assert different == []


def _texts(value: object) -> tuple[str, ...]:
    assert isinstance(value, tuple)
    return value


# --- pre-tokenizers -------------------------------------------------------------------------------------------

_GPT2 = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
_CL100K = small.LLAMA3.replace(r"\p{L}\p{N}]?", r"\p{N}\p{Letter}]?").replace(r"[\r\n]*", r"[\n\r]*")
_DIGITS = {"type": "Digits", "individual_digits": True}

PRE_TOKENIZERS = {
    "GPT-2, Phi-2": (_GPT2, {}, "gpt-2"),
    "Llama 3": (small.words(small.LLAMA3), {"ignore_merges": True}, "llama-bpe"),
    "Llama 3's, spelled otherwise": (small.words(_CL100K), {"ignore_merges": True}, "llama-bpe"),
    "Phi-4": (small.sequence(small.split(small.LLAMA3, "Removed", True), small.bytes_only()), {}, "dbrx"),
    "Qwen, StableLM 2": (small.words(small.QWEN2), {}, "qwen2"),
    "SmolLM2": (small.sequence(_DIGITS, _GPT2), {}, "starcoder"),
    "DeepSeek V3": (
        small.sequence(
            small.split(r"\p{N}{1,3}"),
            small.split(r"[一-龥぀-ゟ゠-ヿ]+"),
            small.split(
                r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+"
                r"[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
            ),
            small.bytes_only(),
        ),
        {},
        "deepseek-v3",
    ),
}


@pytest.mark.slow_except("GPT-2, Phi-2", "Llama 3")
@pytest.mark.parametrize("name", PRE_TOKENIZERS)
def test_a_pre_tokenizer_is_recognised_by_what_it_does(tmp_path: Path, name: str) -> None:
    pre_tokenizer, options, expected = PRE_TOKENIZERS[name]
    tokenizer = small.byte_level(pre_tokenizer, ("<|endoftext|>", "<|im_end|>"))
    tokenizer["model"] |= options
    vocabulary = read_vocabulary(write(tmp_path, tokenizer), CONFIG)
    assert vocabulary.metadata["tokenizer.ggml.pre"] == expected
    assert vocabulary.difference is None
    assert differing(vocabulary, tmp_path, 500) == []


@pytest.mark.slow_except("gpt-2-True", "starcoder-True")
@pytest.mark.parametrize("entry", pre_tokenizers._KNOWN, ids=lambda entry: f"{entry.name}-{entry.difference is None}")
def test_the_engine_cuts_as_the_table_says(tmp_path: Path, entry: pre_tokenizers._PreTokenizer) -> None:
    """Each name stands for these expressions, exactly where nothing else is noted."""
    steps = [step.removeprefix("bytes:") for step in entry.steps]
    at = next((i for i, step in enumerate(entry.steps) if step.startswith("bytes:")), len(steps))
    parts = [*map(small.split, steps[:at]), small.bytes_only(), *map(small.split, steps[at:])]
    tokenizer = small.byte_level(small.sequence(*parts))
    tokenizer["model"]["ignore_merges"] = entry.ignores_merges
    vocabulary = read_vocabulary(write(tmp_path, tokenizer), CONFIG)
    assert vocabulary.metadata["tokenizer.ggml.pre"] == entry.name
    assert (vocabulary.difference is None) == (entry.difference is None)
    if entry.difference is None:
        assert differing(vocabulary, tmp_path, 300) == []


@pytest.mark.slow_except(every=3)
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"normalizer": {"type": "NFC"}}, "the engine does not normalise text (NFC)"),
        ({"pre_tokenizer": small.words(r"\w+|\W")}, r"the engine does not support its pre-tokenizer: \w+|\W"),
        ({"pre_tokenizer": {**_GPT2, "add_prefix_space": True}}, "pre-tokenizer: ByteLevel(add_prefix_space) then 's|"),
        (
            {"pre_tokenizer": small.sequence(small.split(small.LLAMA3, "MergedWithNext"), small.bytes_only())},
            "MergedWithNext",
        ),
        (
            {"pre_tokenizer": small.sequence(small.split(r"\p{L}+", "Removed", True), small.bytes_only())},
            "Removed, inverted",
        ),
    ],
)
def test_what_the_engine_cannot_do_is_left_to_the_tokenizer(tmp_path: Path, changes: Json, reason: str) -> None:
    vocabulary = read_vocabulary(write(tmp_path, small.byte_level(_GPT2) | changes), CONFIG)
    assert reason in str(vocabulary.difference)
    assert differing(vocabulary, tmp_path, 500) != []
    with loaded(vocabulary, tmp_path / "decodes.gguf") as model:
        text = "Straße, naïve 中文 e\u0301"
        ids = Tokenizer.from_file(str(tmp_path / "tokenizer.json")).encode(text).ids
        if "normalizer" not in changes and "Removed" not in reason and "prefix" not in reason:
            assert model.vocab.detokenize(ids) == text


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (r"(?i:'s|'t)|x", r"'[sS]|'[Tt]|x"),
        (r"(?:(?:'s|'t))|x", r"'s|'t|x"),
        (r"[\r\n\p{L}]", "[\\p{Letter}\n\r]"),
        (r"\p{N}{1}|[\p{N}]|a{0,1}", r"[\p{N}]|\p{N}|a?"),
        (r"[\u4e00-\x{9fa5}]", "[一-龥]"),
        (r"\s*[\r\n]|\s+(?!\S)|\s+", r"\s*[\r\n]+|\s+(?!\S)"),
        (r"[\-\/]", r"[/-]"),
        (r"\P{L}", r"\p{^L}"),
    ],
)
def test_spellings_of_one_expression_are_equal(one: str, other: str) -> None:
    assert canonical(one) == canonical(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (r"[\r\n]", r"[\r]"),
        (r"[^a]", r"[a]"),
        (r"a+", r"a++"),
        (r"(?:a|b)c", r"a|bc"),
        (r"\n", r"\\n"),
        (r"(?i:a)b", r"(?i:ab)"),
        (r"\p{N}{1,3}", r"\p{N}{3}"),
        (r"\s+", r"\s+(?!\S)"),
        (r"(?=a)", r"(?!a)"),
        (r"[a-c]", r"[ac\-]"),
    ],
)
def test_different_expressions_are_not(one: str, other: str) -> None:
    assert canonical(one) != canonical(other)


@pytest.mark.parametrize(
    "expression", ["(", "a)", "[", "[a[b]]", "(?<n>a)", "+a", "(" * 5000, "a" * 30_000, "\\", r"\p{"]
)
def test_an_expression_that_is_not_understood_stays_as_it_is(expression: str) -> None:
    assert canonical(expression) == expression


# --- SentencePiece --------------------------------------------------------------------------------------------


def sentencepiece_json(**changes: object) -> Json:
    """Llama 2's vocabulary, short of most of its tokens: a thousand pieces, and what all of them are made of."""
    return _sentencepiece_json() | changes


def _sentencepiece_json() -> Json:
    vocabulary = models.real_vocabulary("llama-spm")
    texts, scores = _texts(vocabulary["tokenizer.ggml.tokens"]), list(vocabulary["tokenizer.ggml.scores"])  # type: ignore[call-overload]
    types = list(vocabulary["tokenizer.ggml.token_type"])  # type: ignore[call-overload]
    kept = [i for i, text in enumerate(texts) if i < 1500 or len(text) == 1 or set(text) == {small.SPACE}]
    return tokenizer_files.tokenizer_json(
        {
            **vocabulary,
            "tokenizer.ggml.tokens": [texts[i] for i in kept],
            "tokenizer.ggml.scores": [float(scores[i]) for i in kept],
            "tokenizer.ggml.token_type": [int(types[i]) for i in kept],
        }
    )


def test_sentencepiece_from_json_alone(tmp_path: Path) -> None:
    tokenizer = sentencepiece_json()
    vocabulary = read_vocabulary(write(tmp_path, tokenizer), {"eos_token_id": 2})
    metadata = vocabulary.metadata
    assert vocabulary.difference is None
    assert metadata["tokenizer.ggml.model"] == "llama"
    assert metadata["tokenizer.ggml.add_space_prefix"] is True
    types: Any = metadata["tokenizer.ggml.token_type"]
    assert [types[0], types[1], types[2], types[3], types[258], types[259]] == [2, 3, 3, BYTE, BYTE, NORMAL]
    scores: Any = metadata["tokenizer.ggml.scores"]
    ids = tokenizer["model"]["vocab"]
    first: dict[str, int] = {}
    for rank, (left, right) in enumerate(tokenizer["model"]["merges"]):
        first.setdefault(left + right, rank)
    assert all(scores[ids[text]] == -rank for text, rank in first.items())
    assert differing(vocabulary, tmp_path, 1000) == []


def test_without_the_space_in_front(tmp_path: Path) -> None:
    """Gemma's form: nothing in front, and a pre-tokenizer for spaces that there are none of any more."""
    normalizer = {"type": "Replace", "pattern": {"String": " "}, "content": small.SPACE}
    pre_tokenizer = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
    tokenizer = sentencepiece_json(normalizer=normalizer, pre_tokenizer=pre_tokenizer)
    vocabulary = read_vocabulary(write(tmp_path, tokenizer), {"eos_token_id": 2})
    assert vocabulary.difference is None
    assert vocabulary.metadata["tokenizer.ggml.add_space_prefix"] is False
    assert differing(vocabulary, tmp_path, 1000) == []


@pytest.mark.slow_except(every=3)
@pytest.mark.parametrize(
    ("scheme", "reason"),
    [
        ("first", "a space is prepended to the beginning of a text only, not after special tokens"),
        ("always", "no space is prepended to a text that begins with one"),
        ("never", None),
    ],
)
def test_metaspace(tmp_path: Path, scheme: str, reason: str | None) -> None:
    """Llama's tokenizer as transformers 5 writes it."""
    step = {"type": "Metaspace", "replacement": small.SPACE, "prepend_scheme": scheme, "split": False}
    tokenizer = sentencepiece_json(normalizer=None, pre_tokenizer=step)
    vocabulary = read_vocabulary(write(tmp_path, tokenizer), {"eos_token_id": 2})
    assert vocabulary.difference == reason
    assert (differing(vocabulary, tmp_path, 500) == []) == (reason is None)


def test_merges_that_are_not_sentencepieces_own(tmp_path: Path) -> None:
    """SentencePiece would also make the token of the other two parts that there are."""
    tokenizer = small.metaspace()
    ids = tokenizer["model"]["vocab"]
    for text in ("q", "x", "z", "qx", "xz", "qxz"):
        ids.setdefault(text, len(ids))
    tokenizer["model"]["merges"] += [["x", "z"], ["q", "x"], ["qx", "z"]]
    vocabulary = read_vocabulary(write(tmp_path, tokenizer), {"eos_token_id": 2})
    assert vocabulary.difference == "the engine would join 'q' and 'xz'"
    with loaded(vocabulary, tmp_path / "v.gguf") as model:
        assert model.vocab.tokenize("qxz", False) == [ids["qxz"]]
    assert Tokenizer.from_file(str(tmp_path / "tokenizer.json")).encode("qxz").ids == [ids["q"], ids["xz"]]


def test_merges_of_one_token_in_different_places(tmp_path: Path) -> None:
    """A score cannot say that one way to make a token comes before another token, and another way after it."""
    tokenizer = small.metaspace()
    ids = tokenizer["model"]["vocab"]
    for text in ("q", "x", "z", "qx", "xz", "qxz", "zz"):
        ids.setdefault(text, len(ids))
    tokenizer["model"]["merges"] += [["q", "x"], ["x", "z"], ["qx", "z"], ["z", "z"], ["q", "xz"]]
    vocabulary = read_vocabulary(write(tmp_path, tokenizer), {"eos_token_id": 2})
    assert vocabulary.difference == "the merges that make 'qxz' are of different ranks"


@pytest.mark.slow
def test_a_tokenizer_model(tmp_path: Path) -> None:
    original = models.real_vocabulary("llama-spm")
    model = tokenizer_files.sentencepiece_model(original)
    write(tmp_path, tokenizer__model=tokenizer_files.sentencepiece_bytes(model))
    vocabulary = read_vocabulary(tmp_path, {"vocab_size": 32_016})
    assert vocabulary.difference is None
    assert vocabulary.metadata["tokenizer.ggml.add_bos_token"] is True
    assert vocabulary.metadata["tokenizer.ggml.bos_token_id"] == 1
    assert vocabulary.metadata["tokenizer.ggml.eos_token_id"] == 2
    assert vocabulary.tokenizer_file == tmp_path / "tokenizer.model"
    models.write(tmp_path / "original.gguf", {"general.architecture": "llama", **original}, {})
    with (
        loaded(vocabulary, tmp_path / "ours.gguf") as ours,
        Model(tmp_path / "original.gguf", vocab_only=True) as theirs,
    ):
        for text in small.texts(300):
            assert ours.vocab.tokenize(text) == theirs.vocab.tokenize(text)


@pytest.mark.slow
def test_tokens_added_beside_a_tokenizer_model(tmp_path: Path) -> None:
    model = tokenizer_files.sentencepiece_model(models.real_vocabulary("llama-spm"))
    write(
        tmp_path,
        tokenizer__model=tokenizer_files.sentencepiece_bytes(model),
        added_tokens__json={"<|im_end|>": 32_000, "<think>": 32_001},
        special_tokens_map__json={"eos_token": {"content": "<|im_end|>"}},
    )
    vocabulary = read_vocabulary(tmp_path, {})
    types: Any = vocabulary.metadata["tokenizer.ggml.token_type"]
    assert list(types[32_000:]) == [CONTROL, USER_DEFINED]
    assert vocabulary.metadata["tokenizer.ggml.eos_token_id"] == 32_000


# --- other kinds ----------------------------------------------------------------------------------------------


@pytest.mark.slow_except("bert-bge-bert")
@pytest.mark.parametrize(("name", "kind"), [("nomic-bert-moe", "t5"), ("bert-bge", "bert")])
def test_unigram_and_word_piece_are_read_and_left_to_their_tokenizers(tmp_path: Path, name: str, kind: str) -> None:
    original = _first_tokens(models.real_vocabulary(name), 5000)
    tokenizer_files.write_json(tmp_path, original)
    write(tmp_path, tokenizer_config__json={"sep_token": "</s>" if kind == "t5" else "[SEP]"})
    vocabulary = read_vocabulary(tmp_path, {})
    assert vocabulary.metadata["tokenizer.ggml.model"] == kind
    assert vocabulary.metadata["tokenizer.ggml.tokens"] == list(_texts(original["tokenizer.ggml.tokens"]))
    assert "in its own way" in str(vocabulary.difference)
    loaded(vocabulary, tmp_path / "vocabulary.gguf").close()


def _first_tokens(vocabulary: models.Metadata, n: int) -> dict[str, object]:
    columns = [f"tokenizer.ggml.{name}" for name in ("tokens", "scores", "token_type")]
    return {key: value[:n] if key in columns else value for key, value in vocabulary.items()}  # type: ignore[index]


# --- where the Hugging Face tokenizer encodes -----------------------------------------------------------------


@pytest.mark.slow
def test_the_tokenizer_that_is_carried_fits_the_vocabulary(tmp_path: Path) -> None:
    step = {"type": "Metaspace", "replacement": small.SPACE, "prepend_scheme": "first", "split": False}
    inexact = {
        "nfc": (small.byte_level(_GPT2, normalizer={"type": "NFC"}), 0),
        "metaspace": (sentencepiece_json(normalizer=None, pre_tokenizer=step), 2),
    }
    for name, (tokenizer, eos) in inexact.items():
        directory = write(tmp_path / name, tokenizer)
        vocabulary = read_vocabulary(directory, {"eos_token_id": eos, "vocab_size": 40_000})
        assert vocabulary.difference is not None
        reference = Tokenizer.from_file(str(directory / "tokenizer.json"))
        with loaded(vocabulary, directory / "v.gguf") as model:
            carried = open_tokenizer(None, model)
            for text in small.texts(300):
                ids = carried.encode(text)
                assert ids == reference.encode(text).ids
                assert carried.decode(ids) == reference.decode(ids)


# --- layouts --------------------------------------------------------------------------------------------------


def test_transformers_4_and_5_say_the_same(tmp_path: Path) -> None:
    tokenizer = small.byte_level(_GPT2, ("<|endoftext|>", "<|im_end|>"))
    added, merges = tokenizer.pop("added_tokens"), tokenizer["model"]["merges"]
    settings = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    older = write(
        tmp_path / "4",
        {**tokenizer, "model": {**tokenizer["model"], "merges": [" ".join(merge) for merge in merges]}},
        tokenizer_config__json={
            "add_prefix_space": False,
            "pad_token": {"__type": "AddedToken", "content": "<|endoftext|>"},
            "added_tokens_decoder": {str(token["id"]): token for token in added},
            "chat_template": [{"name": "default", "template": "{{ 1 }}"}, {"name": "tool_use", "template": "{{ 2 }}"}],
        },
        special_tokens_map__json={"eos_token": {"content": "<|im_end|>", "lstrip": False}},
        generation_config__json={"eos_token_id": [1, 0]},
    )
    newer = write(
        tmp_path / "5",
        {**tokenizer, "added_tokens": added},
        tokenizer_config__json=settings,
        chat_template__jinja="{{ 1 }}",
        generation_config__json={"eos_token_id": [1, 0]},
    )
    write(newer / "additional_chat_templates", tool_use__jinja="{{ 2 }}")
    one, other = read_vocabulary(older, {}), read_vocabulary(newer, {})
    assert {key: str(value) for key, value in one.metadata.items()} == {
        key: str(value) for key, value in other.metadata.items()
    }
    assert one.end_ids == other.end_ids == (0, 1)
    metadata = other.metadata
    assert metadata["tokenizer.chat_template"] == "{{ 1 }}"
    assert metadata["tokenizer.chat_templates"] == ["tool_use"]
    assert metadata["tokenizer.chat_template.tool_use"] == "{{ 2 }}"
    assert metadata["tokenizer.ggml.eos_token_id"] == metadata["tokenizer.ggml.eot_token_id"] == 1
    assert metadata["tokenizer.ggml.padding_token_id"] == 0


def test_a_processors_template_counts_before_the_settings(tmp_path: Path) -> None:
    write(
        tmp_path,
        small.byte_level(_GPT2),
        chat_template__json={"chat_template": "newer"},
        tokenizer_config__json={"chat_template": "older"},
    )
    assert read_vocabulary(tmp_path, CONFIG).metadata["tokenizer.chat_template"] == "newer"


def test_the_tokenizers_settings_count_before_the_models(tmp_path: Path) -> None:
    tokenizer = small.byte_level(_GPT2, ("<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<s>"))
    write(
        tmp_path,
        tokenizer,
        tokenizer_config__json={"eos_token": "<|eot_id|>", "bos_token": None},
        generation_config__json={"eos_token_id": [0, 2], "bos_token_id": 3, "pad_token_id": -1},
    )
    vocabulary = read_vocabulary(tmp_path, {"eos_token_id": 0, "bos_token_id": 0, "pad_token_id": 0})
    found = {key: value for key, value in vocabulary.metadata.items() if key.endswith("token_id")}
    assert found == {
        "tokenizer.ggml.bos_token_id": 3,
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.eot_token_id": 1,
        "tokenizer.ggml.eom_token_id": 2,
        "tokenizer.ggml.padding_token_id": 0,
    }
    assert vocabulary.end_ids == (0, 1, 2)


def test_ids_that_nobody_chose_name_nothing(tmp_path: Path) -> None:
    """Of a config's own ids, 1 and 2, neither begins or ends a text of this vocabulary: they are `!` and `"`."""
    write(tmp_path, small.byte_level(_GPT2), tokenizer_config__json={"eos_token": "<|endoftext|>"})
    stale = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 7}
    for copied in ({}, {"_from_model_config": True, **stale}):
        write(tmp_path, generation_config__json=copied)
        vocabulary = read_vocabulary(tmp_path, stale)
        ids = {key: value for key, value in vocabulary.metadata.items() if key.endswith("token_id")}
        assert ids == {"tokenizer.ggml.bos_token_id": 0, "tokenizer.ggml.eos_token_id": 0}
        assert vocabulary.end_ids == (0,)
        assert differing(vocabulary, tmp_path, 50) == []


def test_an_end_that_is_plain_text_stays_plain_text(tmp_path: Path) -> None:
    write(tmp_path, small.byte_level(_GPT2), generation_config__json={"eos_token_id": [0, 2]})
    vocabulary = read_vocabulary(tmp_path, {})
    types: Any = vocabulary.metadata["tokenizer.ggml.token_type"]
    assert vocabulary.end_ids == (0, 2)
    assert list(types[:3]) == [CONTROL, NORMAL, NORMAL]


def template(before: list[str], after: list[str]) -> Json:
    def part(text: str) -> Json:
        return {"SpecialToken": {"id": text, "type_id": 0}}

    return {
        "type": "TemplateProcessing",
        "single": [*map(part, before), {"Sequence": {"id": "A", "type_id": 0}}, *map(part, after)],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {
            text: {"id": text, "ids": [i], "tokens": [text]} for i, text in enumerate(["<|endoftext|>", "<s>"])
        },
    }


@pytest.mark.slow_except(every=3)
@pytest.mark.parametrize(
    ("processor", "settings", "begins", "ends"),
    [
        (None, {}, False, False),
        (small.bytes_only(), {}, False, False),
        (template(["<s>"], []), {}, True, False),
        (template(["<s>"], ["<|endoftext|>"]), {}, True, True),
        ({"type": "Sequence", "processors": [small.bytes_only(), template(["<s>"], [])]}, {}, True, False),
        (template(["<s>"], []), {"add_bos_token": False}, False, False),
        (None, {"add_bos_token": True, "bos_token": "<s>"}, True, False),
        (None, {"tokenizer_class": "LlamaTokenizerFast", "bos_token": "<s>"}, True, False),
        (None, {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "add_bos_token": False}, False, False),
        (None, {"tokenizer_class": "GPT2Tokenizer", "bos_token": "<s>"}, False, False),
        (
            {"type": "RobertaProcessing", "cls": ["<s>", 1], "sep": ["<|endoftext|>", 0]},
            {},
            True,
            True,
        ),
    ],
)
def test_what_goes_around_a_text(
    tmp_path: Path, processor: Json | None, settings: Json, begins: bool, ends: bool
) -> None:
    tokenizer = small.byte_level(_GPT2, ("<|endoftext|>", "<s>"), post_processor=processor)
    vocabulary = read_vocabulary(write(tmp_path, tokenizer, tokenizer_config__json=settings), CONFIG)
    assert vocabulary.metadata["tokenizer.ggml.add_bos_token"] is begins
    assert vocabulary.metadata["tokenizer.ggml.add_eos_token"] is ends
    with loaded(vocabulary, tmp_path / "v.gguf") as model:
        inner = model.vocab.tokenize("text", add_special=False)
        assert model.vocab.tokenize("text") == [1] * begins + inner + [0] * ends


# --- the embedding --------------------------------------------------------------------------------------------


def test_rows_without_a_token_get_an_unused_one(tmp_path: Path) -> None:
    tokenizer = small.byte_level(_GPT2, ("<|endoftext|>",))
    n = max(tokenizer["model"]["vocab"].values()) + 1
    tokenizer["added_tokens"] += [
        {**tokenizer["added_tokens"][0], "id": n + 1, "content": f"[PAD{n}]", "special": False}
    ]
    vocabulary = read_vocabulary(write(tmp_path, tokenizer), {**CONFIG, "vocab_size": n + 4})
    tokens: Any = vocabulary.metadata["tokenizer.ggml.tokens"]
    types: Any = vocabulary.metadata["tokenizer.ggml.token_type"]
    assert vocabulary.n_tokens == len(tokens) == len(set(tokens)) == n + 4
    assert tokens[n:] == [f"[[PAD{n}]]", f"[PAD{n}]", f"[PAD{n + 2}]", f"[PAD{n + 3}]"]
    assert list(types[n:]) == [UNUSED, USER_DEFINED, UNUSED, UNUSED]
    assert vocabulary.notes == ("3 rows of the model's embedding have no token and were given unused ones",)
    loaded(vocabulary, tmp_path / "v.gguf").close()


def test_added_tokens_beyond_the_embedding_are_left_out(tmp_path: Path) -> None:
    tokenizer = small.byte_level(_GPT2, ("<|endoftext|>",))
    n = max(tokenizer["model"]["vocab"].values()) + 1
    tokenizer["added_tokens"] += [{**tokenizer["added_tokens"][0], "id": n, "content": "<image>", "rstrip": True}]
    vocabulary = read_vocabulary(write(tmp_path, tokenizer), {**CONFIG, "vocab_size": n})
    assert vocabulary.n_tokens == n
    assert vocabulary.notes == ("1 added tokens have no row in the model's embedding and were left out: '<image>'",)
    assert vocabulary.difference is None


# --- tokens that are looked for -------------------------------------------------------------------------------


def test_kinds_of_added_tokens(tmp_path: Path) -> None:
    tokenizer = small.byte_level(_GPT2, ("<|endoftext|>", "<think>", "<|im_start|>"))
    tokenizer["added_tokens"][1]["special"] = False
    vocabulary = read_vocabulary(write(tmp_path, tokenizer), CONFIG)
    types: Any = vocabulary.metadata["tokenizer.ggml.token_type"]
    assert list(types[:4]) == [CONTROL, USER_DEFINED, CONTROL, NORMAL]
    assert vocabulary.difference is None
    assert differing(vocabulary, tmp_path, 300) == []


@pytest.mark.parametrize(
    ("names", "changes", "reason"),
    [
        (
            ("<|end|>",),
            {"rstrip": True},
            "added tokens with rules that the engine does not support (rstrip: '<|end|>')",
        ),
        (("|>b",), {}, "added tokens that can overlap in a text: '<|endoftext|>' and '|>b'"),
        (("</s>",), {"special": False}, "the engine always treats '</s>' as special"),
        (("<|channel|>",), {}, "the engine always treats '<|channel|>' as text"),
    ],
)
def test_added_tokens_that_the_engine_finds_elsewhere(
    tmp_path: Path, names: tuple[str, ...], changes: Json, reason: str
) -> None:
    tokenizer = small.byte_level(_GPT2, ("<|endoftext|>", *names))
    for token in tokenizer["added_tokens"][1:]:
        token |= changes
    assert read_vocabulary(write(tmp_path, tokenizer), CONFIG).difference == reason


def test_runs_of_spaces_as_added_tokens_are_found_alike(tmp_path: Path) -> None:
    tokenizer = small.byte_level(_GPT2, ("<|endoftext|>", *(" " * n for n in (2, 3, 5, 9))))
    for token in tokenizer["added_tokens"][1:]:
        token["special"] = False
    vocabulary = read_vocabulary(write(tmp_path, tokenizer), CONFIG)
    assert vocabulary.difference is None
    assert differing(vocabulary, tmp_path, 500) == []


def test_the_engines_own_list_of_special_texts() -> None:
    source = (models.VOCABULARIES.parent / "src" / "llama-vocab.cpp").read_text("utf-8")
    by_text = set(re.findall(r't\.first == "([^"]+)"', source))
    assert by_text == ENGINE_SPECIAL | ENGINE_PLAIN


# --- broken files ---------------------------------------------------------------------------------------------


def _with(*path: object, value: object) -> Callable[[Json], None]:
    def change(content: Json) -> None:
        inner: Any = content
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = value

    return change


def _without(*path: object) -> Callable[[Json], None]:
    def change(content: Json) -> None:
        inner: Any = content
        for key in path[:-1]:
            inner = inner[key]
        del inner[path[-1]]

    return change


BROKEN: dict[str, tuple[Callable[[Json], None], str]] = {
    "no model": (_without("model"), 'it has no "model"'),
    "another kind": (_with("model", "type", value="Odd"), "this kind of tokenizer is not supported: 'Odd'"),
    "another kind, at length": (
        _with("model", "type", value="Odd" * 100_000),
        "kind of tokenizer is not supported: 'Odd",
    ),
    "no vocab": (_without("model", "vocab"), "an object was expected, not None"),
    "vocab is a list": (_with("model", "vocab", value=[1]), r"an object was expected, not \[1\]"),
    "empty vocab": (_with("model", value={"type": "BPE", "vocab": {}, "merges": []}), "the vocabulary is empty"),
    "id is text": (_with("model", "vocab", "a", value="7"), "'a' has the id '7'; ids are integers from 0 to 4194303"),
    "id is true": (_with("model", "vocab", "a", value=True), "'a' has the id True"),
    "negative id": (_with("model", "vocab", "a", value=-1), "'a' has the id -1"),
    "huge id": (_with("model", "vocab", "a", value=10**30), "'a' has the id 10"),
    "id twice": (_with("model", "vocab", "a", value=5), "has the id 5, which belongs to"),
    "hole": (_with("model", "vocab", "a", value=5000), "no token has the id \\d+, although ids go up to 5000"),
    "no merges": (_without("model", "merges"), "a list of at most \\d+ merges was expected, not None"),
    "merge of three": (_with("model", "merges", 3, value="a b c"), r'"merges"\]\[3\]: two tokens were expected'),
    "merge of numbers": (_with("model", "merges", 0, value=[1, 2]), r'"merges"\]\[0\]: two tokens were expected'),
    "merge of nothing": (
        _with("model", "merges", 0, value=["a", "QQ"]),
        r"\[0\]: 'a', 'QQ' or their concatenation is not in",
    ),
    "dropout": (
        _with("model", "dropout", value=0.1),
        r'"dropout"\] is 0.1, so that the same text has other ids each time',
    ),
    "added are no list": (_with("added_tokens", value=3), '"added_tokens": a list was expected'),
    "added has no text": (
        _with("added_tokens", 0, value={"id": 3}),
        r'"added_tokens"\[0\]: an object with a "content"',
    ),
    "added is a number": (_with("added_tokens", 0, value=3), r'"added_tokens"\[0\]: an object with a "content"'),
    "added has no id": (_without("added_tokens", 0, "id"), "has the id None"),
    "added elsewhere": (_with("added_tokens", 0, "id", value=7), "has the id 7, which belongs to"),
    "added with NUL": (_with("added_tokens", 0, value={"id": 9999, "content": "a\0b"}), "holds a NUL"),
    "added with half a character": (
        _with("added_tokens", 0, value={"id": 9999, "content": "\ud800"}),
        "holds a lone surrogate",
    ),
    "added without text": (_with("added_tokens", 0, value={"id": 9999, "content": ""}), "a token has an empty text"),
    "pre-tokenizer": (_with("pre_tokenizer", value=[1]), "an object was expected, not"),
    "no steps": (_with("pre_tokenizer", value={"type": "Sequence"}), "a list was expected, not None"),
    "pattern": (
        _with("pre_tokenizer", value={"type": "Sequence", "pretokenizers": [{"type": "Split"}]}),
        "the pattern of a Split is None",
    ),
    "unknown around": (_with("post_processor", value={"type": "Odd"}), "the type 'Odd' is not supported"),
    "two before": (_with("post_processor", value=template(["<s>", "<s>"], [])), "the engine can add one token on each"),
    "around is no token": (
        _with("post_processor", value=template(["<s>"], [])),
        "the post-processor adds '<s>', which is not in the vocabulary",
    ),
    "odd template": (
        _with("post_processor", value={"type": "TemplateProcessing", "single": [3]}),
        "a token or the text",
    ),
}


@pytest.mark.slow_except(every=6)
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_tokenizer_is_named_with_the_place(tmp_path: Path, name: str) -> None:
    change, message = BROKEN[name]
    tokenizer = small.byte_level(small.sequence(_GPT2))
    change(tokenizer)
    with pytest.raises(TokenizerError, match=message) as caught:
        read_vocabulary(write(tmp_path, tokenizer), CONFIG)
    assert "tokenizer.json" in str(caught.value)
    assert len(str(caught.value)) < 1000  # whatever a file has


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "neither a tokenizer.json nor SentencePiece's"),
        (b"{", "is not JSON"),
        (b'{"\xff": 1}', "is not UTF-8"),
        (b"[]", "an object was expected"),
        (b'{"model": {}, "model": {}}', "duplicate key 'model'"),
        (b'{"model":' * 100_000, "is not JSON"),
        (b'{"model": {"vocab": {"a": ' + b"9" * 10_000 + b"}}}", "is not JSON|cannot be read"),
    ],
)
def test_broken_json(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(TokenizerError, match=message) as caught:
        read_vocabulary(write(tmp_path, tokenizer__json=data), CONFIG)
    assert "tokenizer.json" in str(caught.value)


@pytest.mark.slow_except(every=2)
@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"tokenizer_config__json": "x"}, "tokenizer_config.json is not JSON"),
        ({"tokenizer_config__json": {"added_tokens_decoder": []}}, '"added_tokens_decoder": an object was expected'),
        ({"tokenizer_config__json": {"added_tokens_decoder": {"x": {"content": "y"}}}}, "'y' has the id 'x'"),
        ({"tokenizer_config__json": {"chat_template": 7}}, 'tokenizer_config.json: "chat_template": named texts'),
        ({"tokenizer_config__json": {"chat_template": "\ud800"}}, "'default' holds a NUL or a lone surrogate"),
        ({"added_tokens__json": {"y": 1.5}}, "added_tokens.json: 'y' has the id 1.5"),
        (
            {"generation_config__json": {"eos_token_id": ["x"]}},
            'generation_config.json: "eos_token_id" must be an integer',
        ),
        ({"chat_template__jinja": b"\xff"}, "chat_template.jinja is not UTF-8"),
    ],
)
def test_broken_files_beside_the_tokenizer(tmp_path: Path, files: Json, message: str) -> None:
    with pytest.raises(TokenizerError, match=re.escape(message)):
        read_vocabulary(write(tmp_path, small.byte_level(_GPT2), **files), CONFIG)


def test_a_carried_tokenizer_with_half_a_character(tmp_path: Path) -> None:
    tokenizer = small.byte_level(_GPT2) | {"pre_tokenizer": small.words("\ud800|.")}
    with pytest.raises(TokenizerError, match=r"tokenizer\.json cannot be written into the GGUF file: .*surrogates"):
        read_vocabulary(write(tmp_path, tokenizer), CONFIG)


@pytest.mark.parametrize(
    ("size", "message"), [(0, "1 to"), (2**40, "1 to"), (True, "1 to"), ("7", "1 to"), (300, "300 tok")]
)
def test_an_embedding_that_cannot_be(tmp_path: Path, size: object, message: str) -> None:
    with pytest.raises(TokenizerError, match=message):
        read_vocabulary(write(tmp_path, small.byte_level(_GPT2)), {**CONFIG, "vocab_size": size})


def test_no_end_of_text(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="names the token that ends a text: looked for eos_token in"):
        read_vocabulary(write(tmp_path, small.byte_level(_GPT2)), {})


def test_no_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(TokenizerNotFoundError, match=r"there is no tokenizer.json or tokenizer.model in"):
        read_vocabulary(tmp_path, {})
    write(tmp_path, vocab__json={"a": 1}, tekken__json={})
    with pytest.raises(TokenizerNotFoundError, match=r"; .*tekken.json is in Mistral's own format"):
        read_vocabulary(tmp_path, {})


def test_links_in_a_circle_and_directories(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").symlink_to("tokenizer.json")
    with pytest.raises(TokenizerError, match=r"tokenizer.json (cannot be read|is not a file)"):
        read_vocabulary(tmp_path, {})
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "tokenizer.json").mkdir()
    with pytest.raises(TokenizerError, match=r"tokenizer.json is not a file"):
        read_vocabulary(tmp_path, {})


@pytest.mark.slow
def test_a_damaged_tokenizer_model(tmp_path: Path) -> None:
    data = tokenizer_files.sentencepiece_bytes(tokenizer_files.sentencepiece_model(models.real_vocabulary("llama-spm")))
    for broken in itertools.chain([b"", b"\xff" * 100], (data[:n] for n in (1, 1000, len(data) - 1))):
        with pytest.raises(TokenizerError, match=r"tokenizer\.model"):
            read_vocabulary(write(tmp_path, tokenizer__model=broken), {})
