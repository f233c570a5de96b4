"""inspect() of GGUF files: all facts of valid ones, and the errors of broken ones."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.checkpoints import family_models, handmade_gguf, models, tokenizer_files

import pyggml
from pyggml import ModelReport, families, lib, quant
from pyggml._native.metadata_check import ROPE_TYPES
from pyggml.errors import InvalidParameterError, ModelLoadError, ModelNotFoundError
from pyggml.gguf import GGMLType, GGUFReader, GGUFWriter


def codes(report: ModelReport) -> list[str]:
    return [problem.code for problem in report.problems]


# --- good files -------------------------------------------------------------------------------------------------


def slow_if_large(vocabulary: str) -> list[pytest.MarkDecorator]:
    """Marks for what reads a vocabulary and does little else: those above three megabytes take seconds."""
    is_large = (models.VOCABULARIES / f"ggml-vocab-{vocabulary}.gguf").stat().st_size > 3_000_000
    return [pytest.mark.slow] if is_large else []


@pytest.mark.slow_except("mistral")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name == "qwen 3" else slow_if_large(case.vocabulary))
        for name, case in family_models.CASES.items()
    ],
)
def test_a_family_is_told_and_nothing_is_wrong(tmp_path: Path, name: str) -> None:
    case = family_models.CASES[name]
    path = family_models.write_case(tmp_path / "model.gguf", case)
    report = pyggml.inspect(path)
    assert report.problems == ()
    assert report.family == case.family
    assert report.vocabulary is not None
    assert tuple(report.vocabulary.stop_tokens.values()) == case.stop
    assert (report.plan.loads, report.plan.refusal) == (True, None)
    with pyggml.Inference.cpu().use_auto(path) as model:
        assert model.stop_tokens == report.vocabulary.stop_tokens
        assert type(model).__name__ == report.plan.python_class
        assert model.n_ctx == report.plan.n_ctx
        assert (model.model.n_params, model.model.n_layer) == (report.n_params, report.n_layer)
        assert (model.model.n_head, model.model.n_head_kv) == (report.n_head, report.n_head_kv)


OTHERS: dict[str, Callable[[Path], Path]] = {
    "llama": models.write_llama,
    "mamba": models.write_mamba,
    "jamba": models.write_jamba,
    "gemma 2": models.write_gemma2,
    "bert": models.write_bert,
    "reranker": lambda path: models.write_bert(path, ranks=True),
    "qwen 3 reranker": models.write_qwen3_reranker,
    "t5": models.write_t5,
    "t5 encoder": lambda path: models.write_t5(path, decoder=False),
}


@pytest.mark.slow_except(every=2)
@pytest.mark.parametrize("name", OTHERS)
def test_other_kinds_of_models_are_good_as_well(tmp_path: Path, name: str) -> None:
    report = pyggml.inspect(OTHERS[name](tmp_path / "model.gguf"))
    assert report.problems == ()
    with pyggml.load(report.path, n_threads=1) as llm:
        assert llm.n_ctx == report.plan.n_ctx
        assert llm.stop_tokens == (report.vocabulary.stop_tokens if llm.stop_tokens and report.vocabulary else {})


@pytest.mark.slow_except("baichuan")
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=name, marks=slow_if_large(name))
        for path in sorted(models.VOCABULARIES.glob("*.gguf"))
        for name in [path.stem.removeprefix("ggml-vocab-")]
    ],
)
def test_of_a_vocabulary_alone_only_the_weights_are_missing(path: Path) -> None:
    report = pyggml.inspect(path)
    assert codes(report) == ["no-tensors"]
    assert report.vocabulary is not None
    with pyggml.Model(path, vocab_only=True) as model:
        assert report.vocabulary.n_tokens == model.vocab.n_tokens
        assert report.vocabulary.type == model.vocab.type
        assert {part: token.id for part, token in report.vocabulary.special.items()} == {
            part: getattr(model.vocab, part) for part in report.vocabulary.special
        }


TEMPLATES = sorted((models.VOCABULARIES / "templates").glob("*.jinja"))


@pytest.mark.slow_except(every=11)
@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.stem)
def test_templates_of_known_models_render(tmp_path: Path, template: Path) -> None:
    text = template.read_text(encoding="utf-8")
    path = models.write_llama(tmp_path / "model.gguf", models.byte_vocabulary() | {"tokenizer.chat_template": text})
    report = pyggml.inspect(path)
    assert report.problems == ()
    assert report.chat_template is not None


def test_the_shipped_model() -> None:
    report = pyggml.inspect()
    assert report.problems == ()
    assert report.ok
    assert (report.format, report.architecture, report.variant) == ("gguf", "llama", "")
    assert report.quantization.name == "Q8_0"
    assert 8.5 <= report.quantization.bits_per_weight <= 8.6
    assert [share.name for share in report.types] == ["Q8_0", "F32"]
    assert not report.layers_differ
    assert (
        sum(share.n_bytes for share in report.types) == sum(share.n_bytes for share in report.parts) == report.n_bytes
    )
    assert sum(share.n_params for share in report.types) == report.n_params
    assert report.tied_embeddings
    assert report.chat_template is not None
    assert report.chat_template.supports.system
    assert report.vocabulary is not None
    with pyggml.load(n_threads=1) as llm:
        assert report.vocabulary.stop_tokens == llm.stop_tokens


def test_a_report_is_json() -> None:
    told = json.loads(json.dumps(pyggml.inspect().to_dict(), allow_nan=False))
    assert told["n_layer"] == 5
    assert told["rope"]["base"] == 10_000
    assert told["files"][0]["n_tensors"] == told["n_tensors"]
    assert told["vocabulary"]["stop_tokens"]["0"] == "<|endoftext|>"
    assert told["ok"] is True


def test_a_report_reads_well() -> None:
    text = str(pyggml.inspect())
    assert text.startswith("pyggml demo\n  file  ")
    for part in ("architecture llama", "3.48 million", "Q8_0, 8.52 bits", "layers     5, 256 wide", "<|im_end|> (2)"):
        assert part in text, text
    for part in ("context    1,024 tokens", "\n\nTypes\n  Q8_0  100%  3.69 MB\n", "context   1,024 tokens by default"):
        assert part in text, text
    assert text.endswith("\n\nNo problems found.")


# --- what there is to say ---------------------------------------------------------------------------------------


def test_sizes_that_differ_by_layer(tmp_path: Path) -> None:
    report = pyggml.inspect(models.write_gemma2(tmp_path / "model.gguf", sliding_window=16))
    assert report.sliding_window == 16
    assert report.per_layer["sliding_window"] == (16, 0)
    assert "n_head" not in report.per_layer


def test_types_that_differ_by_layer(tmp_path: Path) -> None:
    path = models.write_llama(tmp_path / "model.gguf")
    with GGUFReader(path) as reader, GGUFWriter(tmp_path / "mixed.gguf") as writer:
        for key, value in reader.metadata.items():
            writer.set(key, value)
        for info in reader.tensors.values():
            is_half = info.name == "blk.1.attn_q.weight"
            writer.add_tensor(info.name, info.shape, GGMLType.F16 if is_half else info.type)
        for info in reader.tensors.values():
            data = reader.tensor(info.name)
            is_half = info.name == "blk.1.attn_q.weight"
            writer.write_tensor(info.name, data.astype(np.float16) if is_half else data)
    report = pyggml.inspect(tmp_path / "mixed.gguf")
    assert report.layers_differ
    assert report.layers[0].types.keys() == {"F32"}
    assert report.layers[1].types == {"F32": report.layers[1].n_bytes - 64 * 64 * 2, "F16": 64 * 64 * 2}


def test_rotations(tmp_path: Path) -> None:
    path = models.write_llama(
        tmp_path / "model.gguf",
        rope__scaling__type="yarn",
        rope__scaling__factor=4.0,
        rope__scaling__original_context_length=128,
    )
    report = pyggml.inspect(path)
    assert (report.rope.type, report.rope.scaling, report.rope.factor) == ("norm", "yarn", 4.0)
    assert (report.rope.n_ctx_original, report.n_ctx_train, report.rope.n_dims) == (128, 512, 32)
    assert pyggml.inspect(models.write_mamba(tmp_path / "mamba.gguf")).rope.type == "none"


def test_factors_of_llama_3(tmp_path: Path) -> None:
    weights = models.llama_weights() | {"rope_freqs.weight": np.linspace(1, 8, 16, dtype=np.float32)}
    report = pyggml.inspect(models.write(tmp_path / "model.gguf", metadata(tmp_path), weights))
    assert report.problems == ()
    assert (report.rope.scaling, report.rope.factor) == ("llama3", 8.0)


def test_experts(tmp_path: Path) -> None:
    report = pyggml.inspect(family_models.write_case(tmp_path / "model.gguf", family_models.CASES["mixtral"]))
    assert (report.n_expert, report.n_expert_used) == (family_models.N_EXPERT, 2)
    assert report.parts[1].name == "experts"


def test_a_split_set_is_one_model(tmp_path: Path) -> None:
    paths = split(tmp_path)
    report, whole = pyggml.inspect(paths[0]), pyggml.inspect(tmp_path / "whole.gguf")
    assert report.problems == ()
    assert [file.path.name for file in report.files] == [path.name for path in paths]
    assert (report.n_params, report.n_bytes, report.types) == (whole.n_params, whole.n_bytes, whole.types)
    with pyggml.load(paths[0], n_threads=1) as llm:
        assert llm.model.n_params == report.n_params


def test_weights_are_not_read(tmp_path: Path) -> None:
    """A file of 100 GB, of which nothing but the header is on the disk."""
    n_layer, n_embd, n_kv, n_ff = 64, 8192, 1024, 204_800
    sizes = {"block_count": n_layer, "embedding_length": n_embd, "feed_forward_length": n_ff}
    sizes |= {"attention.head_count": 64, "attention.head_count_kv": 8, "rope.dimension_count": 128}
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (models.N_BYTE_VOCAB, n_embd),
        "output_norm.weight": (n_embd,),
    }
    for i in range(n_layer):
        shapes |= {f"blk.{i}.{name}_norm.weight": (n_embd,) for name in ("attn", "ffn")}
        shapes |= {f"blk.{i}.attn_{name}.weight": (n_embd, n_embd) for name in ("q", "output")}
        shapes |= {f"blk.{i}.attn_{name}.weight": (n_kv, n_embd) for name in "kv"}
        shapes |= {f"blk.{i}.ffn_{name}.weight": (n_ff, n_embd) for name in ("gate", "up")}
        shapes[f"blk.{i}.ffn_down.weight"] = (n_embd, n_ff)
    path = tmp_path / "huge.gguf"
    writer = GGUFWriter(path)
    for key, value in {**metadata(tmp_path), **{f"llama.{name}": size for name, size in sizes.items()}}.items():
        writer.set(key, value)
    n_bytes = 0
    for name, shape in shapes.items():
        type = GGMLType.F32 if len(shape) == 1 else GGMLType.Q2_K
        writer.add_tensor(name, shape, type)
        n_bytes += quant.nbytes(type, shape)
    writer.finish_without_data()
    assert n_bytes > 100 * 10**9
    report = pyggml.inspect(path)
    assert report.problems == ()
    assert report.n_bytes == n_bytes
    assert path.stat().st_blocks * 512 < 2**20


# --- broken files -----------------------------------------------------------------------------------------------


def metadata(directory: Path) -> dict[str, Any]:
    """Of a good Llama."""
    return models.metadata_of(models.write_llama(directory / "good.gguf"))


Change = Callable[[dict[str, Any], models.Weights], object]


def retitled(head: dict[str, Any], name: str, text: str) -> None:
    tokens = list(head["tokenizer.ggml.tokens"])
    tokens[tokens.index(name)] = text
    head["tokenizer.ggml.tokens"] = tokens


def without_ends(head: dict[str, Any], _weights: models.Weights) -> None:
    for key in ("eos", "eot", "bos"):
        head.pop(f"tokenizer.ggml.{key}_token_id")
    retitled(head, "<|endoftext|>", "<one>")
    retitled(head, "<|im_end|>", "<two>")
    head["tokenizer.ggml.token_type"] = np.ones(models.N_BYTE_VOCAB, np.int32)


def with_template(text: str) -> Change:
    return lambda head, _weights: head.update({"tokenizer.chat_template": text})


BROKEN: dict[str, tuple[Change, str, str, bool]] = {
    # what is done to a good file, what is found, what the message names, and whether it loads all the same
    "missing tensor": (lambda _, w: w.pop("blk.1.attn_q.weight"), "missing-tensor", "'blk.1.attn_q.weight'", False),
    "missing layer": (
        lambda _, w: [w.pop(name) for name in list(w) if name.startswith("blk.1.")],
        "missing-tensor",
        "9 tensors missing: 'blk.1.attn_norm.weight'",
        False,
    ),
    "missing embedding": (lambda _, w: w.pop("token_embd.weight"), "missing-tensor", "'token_embd.weight'", False),
    "unknown tensor": (
        lambda _, w: w.update({"blk.0.twist.weight": np.ones(3, np.float32)}),
        "unknown-tensor",
        "1 tensor too many for such a model: 'blk.0.twist.weight'",
        False,
    ),
    "layer too many": (
        lambda h, _: h.update({"llama.block_count": 1}),
        "unknown-tensor",
        "9 tensors too many for such a model: 'blk.1.",
        False,
    ),
    "wrong shape": (
        lambda _, w: w.update({"blk.0.ffn_up.weight": np.ones((95, 64), np.float32)}),
        "wrong-shape",
        "'blk.0.ffn_up.weight' is (95, 64), but the metadata implies (96, 64)",
        False,
    ),
    "wrong sizes": (
        lambda h, _: h.update({"llama.feed_forward_length": 128}),
        "wrong-shape",
        "6 tensors of a wrong shape",
        False,
    ),
    "more tokens than rows": (
        lambda h, _: h.update(models.byte_vocabulary("<new>")),
        "tokenizer-disagrees",
        "the vocabulary has 262 tokens, but 'token_embd.weight' has 261 rows",
        False,
    ),
    "fewer tokens than rows": (
        lambda _, w: w.update({"token_embd.weight": np.ones((300, 64), np.float32)}),
        "tokenizer-disagrees",
        "has 300 rows",
        False,
    ),
    "eos beyond the vocabulary": (
        lambda h, _: h.update({"tokenizer.ggml.eos_token_id": 5000}),
        "bad-token-id",
        "tokenizer.ggml.eos_token_id is 5000, but the vocabulary has only 261 tokens",
        True,
    ),
    "types of too few tokens": (
        lambda h, _: h.update({"tokenizer.ggml.token_type": np.ones(7, np.int32)}),
        "broken-vocabulary",
        "toktypes (7 < 261)",
        False,
    ),
    "a token twice": (lambda h, _: retitled(h, "the", "th"), "broken-vocabulary", "vocabulary", False),
    "unknown pre-tokenizer": (
        lambda h, _: h.update({"tokenizer.ggml.pre": "origami"}),
        "broken-vocabulary",
        "origami",
        False,
    ),
    "unknown tokenizer": (
        lambda h, _: h.update({"tokenizer.ggml.model": "abacus"}),
        "broken-vocabulary",
        "abacus",
        False,
    ),
    "no stop token": (without_ends, "no-stop-token", "no token to stop at", False),
    "template that cannot be read": (with_template("{% for m in %}"), "template-unreadable", "Unexpected token", True),
    "template without an end": (with_template("{% if messages %}hello"), "template-unreadable", "never closed", True),
    "template that fails": (
        with_template("{{ raise_exception('never') }}"),
        "template-fails",
        "a user's message",
        True,
    ),
    "template that fails with a system message": (
        with_template(
            "{% for m in messages %}{% if m.role == 'system' %}{% if m.content == 'Be brief.' %}"
            "{{ raise_exception('too brief') }}{% endif %}{% endif %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
        ),
        "template-fails",
        "too brief",
        True,
    ),
    "template that loses what is said": (
        with_template("{% for m in messages %}{{ m.role }}{% endfor %}"),
        "template-fails",
        "not in the prompt",
        True,
    ),
    "unknown architecture": (
        lambda h, _: h.update({"general.architecture": "gpt9"}),
        "unknown-architecture",
        "gpt9",
        False,
    ),
    "no architecture": (lambda h, _: h.pop("general.architecture"), "unknown-architecture", "unknown", False),
    "no sizes": (lambda h, _: h.pop("llama.embedding_length"), "broken-metadata", "llama.embedding_length", False),
    "absurd sizes": (lambda h, _: h.update({"llama.block_count": 10**6}), "broken-metadata", "n_layer", False),
    "no weights": (lambda _, w: w.clear(), "no-tensors", "no weights", False),
}


@pytest.mark.slow_except(every=3)
@pytest.mark.parametrize("name", BROKEN)
def test_what_is_wrong_is_found(tmp_path: Path, name: str) -> None:
    change, code, message, loads = BROKEN[name]
    head, weights = metadata(tmp_path), models.llama_weights()
    change(head, weights)
    path = models.write(tmp_path / "broken.gguf", head, weights)
    report = pyggml.inspect(path)
    assert codes(report) == [code]
    assert message in report.problems[0].message
    assert report.plan.loads == loads
    assert report.ok is False
    assert report.files[0].n_tensors == len(weights)
    if loads:
        with pyggml.load(path, n_threads=1) as llm:
            assert llm.generate("a", max_tokens=2).token_ids
    else:
        with pytest.raises(pyggml.InferError):
            pyggml.load(path)


def test_several_things_are_found_at_once(tmp_path: Path) -> None:
    head, weights = metadata(tmp_path), models.llama_weights()
    del weights["blk.0.attn_k.weight"], weights["blk.1.ffn_norm.weight"]
    weights["blk.0.ffn_up.weight"] = np.ones((1, 64), np.float32)
    weights["blk.5.attn_k.weight"] = np.ones((1, 64), np.float32)
    head |= {"tokenizer.chat_template": "{% for m in %}", "tokenizer.ggml.padding_token_id": 9999}
    report = pyggml.inspect(models.write(tmp_path / "broken.gguf", head, weights))
    assert sorted(codes(report)) == [
        "bad-token-id",
        "missing-tensor",
        "template-unreadable",
        "unknown-tensor",
        "wrong-shape",
    ]
    assert [problem.severity for problem in report.problems] == ["error"] * 4 + ["warning"]
    assert report.plan.refusal == report.problems[0].message


def test_a_file_cut_short_is_described_all_the_same(tmp_path: Path) -> None:
    path = models.write_llama(tmp_path / "model.gguf")
    whole = pyggml.inspect(path)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 1000)
    report = pyggml.inspect(path)
    assert codes(report) == ["truncated"]
    assert "download it again" in report.problems[0].message
    assert (report.n_params, report.vocabulary, report.rope) == (whole.n_params, whole.vocabulary, whole.rope)
    with pytest.raises(ModelLoadError):
        pyggml.load(path)


def split(directory: Path) -> list[Path]:
    """A Llama in three files, and as one."""
    whole = models.write_llama(directory / "whole.gguf")
    head, weights = models.metadata_of(whole), models.llama_weights()
    names = [list(weights)[i::3] for i in range(3)]
    paths = []
    for i, part in enumerate(names):
        paths.append(directory / f"model-{i + 1:05d}-of-00003.gguf")
        with GGUFWriter(paths[-1]) as writer:
            for key, value in (head if i == 0 else {}).items():
                writer.set(key, value)
            writer.set("split.no", np.uint16(i))
            writer.set("split.count", np.uint16(3))
            writer.set("split.tensors.count", np.int32(len(weights)))
            for name in part:
                writer.add_tensor(name, weights[name].shape, GGMLType.F32)
            for name in part:
                writer.write_tensor(name, weights[name])
    return paths


def test_a_file_of_a_split_set_is_missing(tmp_path: Path) -> None:
    paths = split(tmp_path)
    paths[1].unlink()
    report = pyggml.inspect(paths[0])
    assert codes(report) == ["missing-file", "missing-tensor"]
    assert paths[1].name in report.problems[0].message


def test_a_file_of_a_split_set_is_broken(tmp_path: Path) -> None:
    paths = split(tmp_path)
    paths[2].write_bytes(b"GGUF")
    assert codes(pyggml.inspect(paths[0])) == ["broken-file", "missing-tensor"]


def test_not_the_first_of_a_split_set(tmp_path: Path) -> None:
    paths = split(tmp_path)
    report = pyggml.inspect(paths[1])
    assert codes(report) == ["not-first-file"]
    assert paths[0].name in report.problems[0].message
    assert report.n_params == pyggml.inspect(paths[0]).n_params
    with pytest.raises(ModelLoadError):
        pyggml.load(paths[1])


def test_a_split_set_under_other_names(tmp_path: Path) -> None:
    paths = split(tmp_path)
    renamed = paths[0].rename(tmp_path / "first.gguf")
    assert "wrong-file-name" in codes(pyggml.inspect(renamed))
    with pytest.raises(ModelLoadError):
        pyggml.load(renamed)


def test_somebody_elses_tokenizer_beside_the_file(tmp_path: Path) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    for directory in (own, other):
        directory.mkdir()
        models.write_llama(directory / "model.gguf")
    tokenizer_files.write_json(own, models.byte_vocabulary())
    assert pyggml.inspect(own / "model.gguf").problems == ()
    tokenizer_files.write_json(other, models.byte_vocabulary("<a>", words=["cat", "dog"]))
    report = pyggml.inspect(other / "model.gguf")
    assert codes(report) == ["neighbour-tokenizer"]
    assert report.ok
    models.write_llama(other / "another.gguf")  # whose tokenizer it may be
    assert pyggml.inspect(other / "model.gguf").problems == ()


@pytest.mark.parametrize(
    "content",
    [b"", b"GGUF", b"no model at all" * 10, handmade_gguf.file(n_pairs=10**9), handmade_gguf.file(version=1)],
    ids=["empty", "short", "text", "pairs", "version"],
)
def test_what_has_no_header_is_no_model(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.gguf").write_bytes(content)
    with pytest.raises(ModelLoadError):
        pyggml.inspect(tmp_path / "model.gguf")


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError):
        pyggml.inspect(tmp_path / "model.gguf")
    with pytest.raises(InvalidParameterError):
        pyggml.inspect(7)  # type: ignore[arg-type]
    with pytest.raises(ModelLoadError):
        pyggml.inspect(tmp_path)


def test_any_bytes_get_a_report_or_an_error(tmp_path: Path) -> None:
    """Whatever a header is damaged to, the process lives, and says something."""
    good = models.write_llama(tmp_path / "good.gguf").read_bytes()
    random = np.random.default_rng(0)
    path = tmp_path / "damaged.gguf"
    for _ in range(60):
        damaged = bytearray(good[:9000])
        for place in random.integers(0, len(damaged), 4):
            damaged[place] = random.integers(0, 256)
        path.write_bytes(bytes(damaged) + good[9000:])
        with contextlib.suppress(ModelLoadError):
            json.dumps(pyggml.inspect(path).to_dict())


# --- variants ---------------------------------------------------------------------------------------------------

PUBLISHED: dict[str, tuple[str, dict[str, object], str]] = {
    # name: the family, sizes as they were published, the variant
    "TinyLlama-1.1B-Chat-v1.0": ("llama2", {}, "TinyLlama"),
    "Llama-2-7b-chat-hf": ("llama2", {}, "Llama 2"),
    "LLaMA v2": ("llama2", {}, "Llama 2"),
    "CodeLlama-7b-Instruct": ("llama2", {}, "Code Llama"),
    "Meta-Llama-3-8B-Instruct": ("llama3", {}, "Llama 3"),
    "Meta-Llama-3.1-8B-Instruct": ("llama3", {}, "Llama 3.1"),
    "Llama 3.2 1B Instruct": ("llama3", {}, "Llama 3.2"),
    "Llama-3.3-70B-Instruct": ("llama3", {}, "Llama 3.3"),
    "my fine tune": ("llama3", {"n_embd": 2048, "n_ctx": 131072}, "Llama 3.2"),
    "another": ("llama3", {"n_embd": 4096, "n_ctx": 8192}, "Llama 3"),
    "one more": ("llama3", {"n_embd": 4096, "n_ctx": 131072}, "Llama 3.1"),
    "SmolLM2-135M-Instruct": ("smollm2", {}, "SmolLM2"),
    "SmolLM 360M": ("smollm2", {}, "SmolLM"),
    "Phi-3-mini-4k-instruct": ("phi3", {}, "Phi-3-mini"),
    "Phi-3.5-mini-instruct": ("phi3", {}, "Phi-3.5-mini"),
    "Phi-4-mini-instruct": ("phi4-mini", {}, "Phi-4-mini"),
    "phi-4": ("phi4", {}, "Phi-4"),
    "phi-2": ("phi2", {}, "Phi-2"),
    "phi-1_5": ("phi2", {}, "Phi-1.5"),
    "Qwen1.5-0.5B-Chat": ("qwen2", {}, "Qwen1.5"),
    "Qwen2-7B-Instruct": ("qwen2", {}, "Qwen2"),
    "Qwen2.5-7B-Instruct": ("qwen2", {}, "Qwen2.5"),
    "Qwen3-0.6B": ("qwen3", {}, "Qwen3"),
    "Qwen3-30B-A3B-Instruct-2507": ("qwen3", {}, "Qwen3 mixture of experts"),
    "Qwen3-Next-80B-A3B-Instruct": ("qwen3", {}, "Qwen3-Next"),
    "Qwen3-Coder-30B-A3B-Instruct": ("qwen3", {"architecture": "qwen3moe"}, "Qwen3-Coder"),
    "gpt-oss-20b": ("gpt-oss", {}, "gpt-oss-20b"),
    "a safeguard": ("gpt-oss", {"n_layer": 36}, "gpt-oss-120b"),
    "Llama-4-Scout-17B-16E-Instruct": ("llama4", {}, "Llama 4 Scout"),
    "Llama-4-Maverick-17B-128E-Instruct": ("llama4", {}, "Llama 4 Maverick"),
    "a llama that sees": ("llama4", {"n_expert": 16}, "Llama 4 Scout"),
    "Mistral-7B-Instruct-v0.2": ("mistral", {}, "Mistral 7B"),
    "Mixtral-8x7B-v0.1": ("mistral", {}, "Mixtral"),
    "Mistral-Nemo-Instruct-2407": ("mistral", {}, "Mistral Nemo"),
    "Mistral-Small-3.1-24B-Instruct-2503": ("mistral", {}, "Mistral Small"),
    "Ministral-8B-Instruct-2410": ("mistral", {}, "Ministral"),
    "Ministral-3-3B-Instruct-2512": ("mistral", {}, "Ministral 3"),
    "SmolLM3-3B": ("smollm3", {}, "SmolLM3"),
    "granite-3.3-2b-instruct": ("granite", {}, "Granite 3.3"),
    "OLMo-2-0425-1B-Instruct": ("olmo2", {}, "OLMo 2 1B"),
    "Olmo-3-7B-Instruct": ("olmo2", {}, "OLMo 3"),
    "glm-4-9b-chat-hf": ("glm4", {}, "GLM-4-9B"),
    "GLM-4-9B-0414": ("glm4", {}, "GLM-4-0414"),
    "GLM-Z1-9B-0414": ("glm4", {}, "GLM-Z1"),
    "c4ai-command-r-v01": ("command-r", {}, "Command-R"),
    "c4ai-command-r-plus-08-2024": ("command-r", {}, "Command-R+"),
    "c4ai-command-r7b-12-2024": ("command-r", {}, "Command-R7B"),
    "c4ai-command-a-03-2025": ("command-r", {}, "Command A"),
    "aya-expanse-8b": ("command-r", {}, "Aya Expanse"),
    "a gemma that hears": ("gemma", {"architecture": "gemma3n"}, "Gemma 3n"),
    "a gemma": ("gemma", {"architecture": "gemma3"}, "Gemma 3"),
    "another gemma": ("gemma", {"architecture": "gemma2"}, "Gemma 2"),
    "Yi-1.5-9B-Chat": ("yi", {}, "Yi-1.5"),
    "Yi-6B": ("yi", {}, "Yi"),
    "stablelm-2-1_6b": ("stablelm", {}, "StableLM 2"),
    "DeepSeek-R1-Distill-Llama-8B": ("deepseek-r1-distill-llama", {}, "DeepSeek-R1-Distill-Llama"),
    "no name": ("falcon", {}, "Falcon"),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_variants(name: str) -> None:
    family, sizes, variant = PUBLISHED[name]
    known = {each.name: each for each in families.FAMILIES}
    assert families.variant_of(known[family], [name], "", sizes).title == variant


def test_a_variant_has_a_kind(tmp_path: Path) -> None:
    """Also when it is quantised, unless it has a more specific one."""
    r1 = ("<｜end▁of▁sentence｜>", "<｜Assistant｜>", "<｜User｜>", "<｜begin▁of▁sentence｜>")
    for name, special, kind, quantised in (
        ("Llama 3.2 1B", ("<|eot_id|>",), "meta", "quantised"),
        ("TinyLlama 1.1B", ("</s>",), "tiny", "tiny"),
        ("Vicuna 7B", ("</s>",), "", "quantised"),
        ("DeepSeek R1 Distill Llama 8B", r1, "distilled", "distilled"),
    ):
        vocabulary = family_models.small_vocabulary(*special)
        path = family_models.write(tmp_path / "model.gguf", "llama", vocabulary, name=name)
        pyggml.quantize(path, tmp_path / "small.gguf", "q8_0")
        assert pyggml.inspect(path).variant_kind == kind
        report = pyggml.inspect(tmp_path / "small.gguf")
        assert report.variant_kind == quantised
        assert f"{report.variant} ({quantised}), architecture llama" in str(report)


@pytest.mark.slow
def test_rope_types_have_names() -> None:
    """None of the engine's is left out."""
    assert {getattr(lib, name) for name in dir(lib) if name.startswith("LLAMA_ROPE_TYPE_")} == set(ROPE_TYPES)
