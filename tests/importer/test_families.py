"""Families: each model is recognised, and its stop tokens are exactly the right ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.checkpoints import family_models, models
from support.checkpoints.family_models import CASES, LAYOUTS, Case

import pyggml
from pyggml import families
from pyggml._native.model import Model
from pyggml.families import llama2, mistral
from pyggml.gguf import GGUFReader

# Texts of tokens that are ends in some model, or look like a piece of one.
LOOKALIKES = [
    "</s>",
    "<s>",
    "</",
    "<|",
    "|>",
    ">",
    "end",
    "Ġend",
    "▁end",
    "_end",
    "<eos>",
    "<bos>",
    "<|im_start|>",
    "\n",
]
# What the engine takes for the end of a text where a file names none, whatever these ids stand for.
ASSUMED_ENDS = [2, 11]
FORCED = 1e6
# Loading a model of each case takes a minute.
sample = pytest.mark.slow_except("gemma 2", "llama 2", "mistral", "mixtral", "olmo 2", "phi 3", "tinyllama", "yi")


@pytest.fixture(scope="module", params=list(CASES))
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Case, pyggml.LLM]]:
    """The model of each case, loaded."""
    case = CASES[request.param]
    path = family_models.write_case(tmp_path_factory.mktemp("family") / "model.gguf", case)
    with pyggml.load(path, n_ctx=256, n_parallel=2, n_threads=1) as llm:
        path.unlink()  # dozens of megabytes each; what is loaded stays
        yield case, llm


# --- every family ------------------------------------------------------------------------------------------


@sample
def test_is_found_with_its_stop_tokens(made: tuple[Case, pyggml.LLM]) -> None:
    case, llm = made
    assert llm.family.name == case.family
    assert tuple(llm.stop_tokens.values()) == case.stop
    assert all(llm.model.vocab.find(text) == token_id for token_id, text in llm.stop_tokens.items())


@sample
def test_ends_at_each_stop_token(made: tuple[Case, pyggml.LLM]) -> None:
    _, llm = made
    prompt = llm.tokenize("Once upon a time")
    for token_id, text in llm.stop_tokens.items():
        at_once = llm.generate(prompt, max_tokens=8, logit_bias={token_id: FORCED})
        assert (at_once.finish_reason, at_once.stop_reason) == ("stop", token_id), text
        assert (at_once.text, at_once.token_ids) == ("", [])
        later = llm.generate(prompt, max_tokens=8, logit_bias={token_id: FORCED}, grammar='root ::= "abc"')
        assert (later.finish_reason, later.stop_reason, later.text) == ("stop", token_id, "abc"), text


@sample
def test_ends_at_a_stop_token_after_some_text(made: tuple[Case, pyggml.LLM]) -> None:
    _, llm = made
    prompt, (letter,) = llm.tokenize("Once upon a time"), llm.tokenize("x", add_special=False)[-1:]
    for token_id, text in llm.stop_tokens.items():
        # Each letter makes the next one less likely, until after the third one the stop token is likelier.
        bias = {letter: FORCED, token_id: FORCED - 5_000}
        chunks = list(llm.stream(prompt, max_tokens=20, logit_bias=bias, frequency_penalty=2_000.0))
        assert (chunks[-1].finish_reason, chunks[-1].stop_reason) == ("stop", token_id), text
        assert [i for chunk in chunks for i in chunk.token_ids] == [letter] * 3
        assert "".join(chunk.text for chunk in chunks).replace(" ", "") == "xxx"


@sample
def test_ends_at_no_other_token(made: tuple[Case, pyggml.LLM]) -> None:
    _, llm = made
    prompt = llm.tokenize("Once upon a time")
    for token_id in _others(llm):
        done = llm.generate(prompt, max_tokens=2, logit_bias={token_id: FORCED})
        text = llm.model.vocab.text(token_id)
        assert (done.finish_reason, done.token_ids) == ("length", [token_id] * 2), text


@sample
def test_ends_at_no_stop_token_spelled_out(made: tuple[Case, pyggml.LLM]) -> None:
    _, llm = made
    for text in llm.stop_tokens.values():
        said = f"a{text}b"
        done = llm.generate("Say it:", max_tokens=64, grammar=f'root ::= "{said}"')
        assert (done.finish_reason, done.text) == ("stop", said)


def _others(llm: pyggml.LLM) -> list[int]:
    """Tokens that must not end anything: some at random, and those that look like ends or are spelled like them."""
    vocab = llm.model.vocab
    random = np.random.default_rng(0).integers(vocab.n_tokens, size=8).tolist()
    looks = [vocab.find(text) for text in LOOKALIKES]
    spelled = [i for text in llm.stop_tokens.values() for i in llm.tokenize(text, add_special=False)]
    ids = {*random, *ASSUMED_ENDS, *spelled, *(i for i in looks if i is not None)}
    return sorted(ids - set(llm.stop_tokens))


# --- what ends, and what only looks like it ------------------------------------------------------------------


def _vocabulary(text: str, kind: int, **named: int) -> dict[str, object]:
    """The byte vocabulary without its ends, and with one token of a text and type in the place of "the"."""
    vocabulary = models.byte_vocabulary()
    tokens, types = vocabulary["tokenizer.ggml.tokens"], vocabulary["tokenizer.ggml.token_type"]
    assert isinstance(tokens, list)
    assert isinstance(types, np.ndarray)
    tokens[models.EOS], tokens[models.EOT], tokens[models.THE] = "<a>", "<b>", text
    types[models.THE] = kind
    vocabulary["tokenizer.ggml.merges"] = ["t h"]
    for key in ("eos", "eot"):
        del vocabulary[f"tokenizer.ggml.{key}_token_id"]
    return vocabulary | {f"tokenizer.ggml.{key}_token_id": token_id for key, token_id in named.items()}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("</s>", family_models.CONTROL),
        ("</s>", family_models.USER_DEFINED),
        ("<|im_end|>", family_models.CONTROL),
        ("<|im_end|>", family_models.USER_DEFINED),
        ("<|im_end|>", family_models.NORMAL),  # a mistake of conversions, and no real text contains it
        ("<end_of_turn>", family_models.NORMAL),
    ],
)
def test_counts_as_an_end(text: str, kind: int, tmp_path: Path) -> None:
    path = models.write_llama(tmp_path / "model.gguf", _vocabulary(text, kind))
    with pyggml.load(path, n_threads=1) as llm:
        assert llm.stop_tokens == {models.THE: text}
        done = llm.generate("a", max_tokens=4, logit_bias={models.THE: FORCED})
        assert (done.finish_reason, done.text) == ("stop", "")


def test_markup_is_no_end_unless_the_file_says_so(tmp_path: Path) -> None:
    plain = _vocabulary("</s>", family_models.NORMAL, eos=models.EOS)
    with pyggml.load(models.write_llama(tmp_path / "plain.gguf", plain), n_threads=1) as llm:
        assert llm.stop_tokens == {models.EOS: "<a>"}
        done = llm.generate("a", max_tokens=3, logit_bias={models.THE: FORCED})
        assert (done.finish_reason, done.text) == ("length", "</s></s></s>")
        assert "".join(c.text for c in llm.stream("a", max_tokens=2, logit_bias={models.THE: FORCED})) == "</s></s>"
        assert llm.detokenize([ord("a"), models.THE]) == "a</s>"
    named = _vocabulary("</s>", family_models.NORMAL, eos=models.THE)
    with pyggml.load(models.write_llama(tmp_path / "named.gguf", named), n_threads=1) as llm:
        assert llm.stop_tokens == {models.THE: "</s>"}


def test_a_grammar_ends_also_where_the_engine_offers_markup(tmp_path: Path) -> None:
    vocabulary = _vocabulary("</s>", family_models.NORMAL, eos=models.EOS)
    with pyggml.load(models.write_llama(tmp_path / "model.gguf", vocabulary), n_threads=1) as llm:
        done = llm.generate("a", max_tokens=20, grammar='root ::= "abc"', logit_bias={models.THE: FORCED})
        assert (done.finish_reason, done.text) == ("stop", "abc")


def test_html_is_text_to_gemma(tmp_path: Path) -> None:
    vocabulary = _vocabulary("</s>", family_models.USER_DEFINED, eos=models.EOS)
    tokens = vocabulary["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    tokens[models.EOS], tokens[models.EOT] = "<eos>", "<end_of_turn>"
    path = family_models.write(tmp_path / "model.gguf", "gemma3", vocabulary)
    with pyggml.load(path, n_threads=1) as llm:
        assert llm.stop_tokens == {models.EOT: "<end_of_turn>", models.EOS: "<eos>"}
        done = llm.generate("a", max_tokens=2, logit_bias={models.THE: FORCED})
        assert (done.finish_reason, done.text) == ("length", "</s></s>")


def test_the_engines_guess_of_an_end_does_not_count(tmp_path: Path) -> None:
    path = models.write_llama(tmp_path / "model.gguf", _vocabulary("<|im_end|>", family_models.CONTROL))
    with pyggml.load(path, n_threads=1) as llm:
        assert 11 in llm.model.vocab.eog_ids  # what eos is in the vocabulary of another model
        assert 11 not in llm.stop_tokens


def test_no_end_at_all_is_refused(tmp_path: Path) -> None:
    path = models.write_llama(tmp_path / "endless.gguf", _vocabulary("</s>", family_models.NORMAL))
    with pytest.raises(pyggml.TokenizerError, match=r"endless\.gguf has no token to stop at.*eos_token_id"):
        pyggml.load(path)


def test_no_vocabulary_has_no_end(tmp_path: Path) -> None:
    metadata = models.metadata_of(models.write_llama(tmp_path / "model.gguf"))
    metadata = {key: value for key, value in metadata.items() if not key.startswith("tokenizer.")}
    metadata |= {"tokenizer.ggml.model": "no_vocab", "llama.vocab_size": models.N_BYTE_VOCAB}
    path = models.write(tmp_path / "none.gguf", metadata, models.llama_weights())
    with pytest.raises(pyggml.TokenizerError, match="no token to stop at"):
        pyggml.load(path)


def test_the_tokens_looked_for_are_named(tmp_path: Path) -> None:
    path = models.write_llama(tmp_path / "endless.gguf", _vocabulary("</s>", family_models.NORMAL))
    with (
        Model(path, vocab_only=True) as model,
        pytest.raises(pyggml.TokenizerError, match=r"'</s>' as a special token"),
    ):
        families.stop_tokens(model, llama2.FAMILY)


@sample
def test_ignoring_the_end_goes_on(made: tuple[Case, pyggml.LLM]) -> None:
    _, llm = made
    bias = dict.fromkeys(llm.stop_tokens, FORCED)
    done = llm.generate("Once", max_tokens=4, ignore_eos=True, logit_bias=bias)
    assert done.finish_reason == "length"
    assert not set(done.token_ids) & set(llm.stop_tokens)


@pytest.mark.slow
def test_the_callers_stop_tokens_come_to_the_models(made: tuple[Case, pyggml.LLM]) -> None:
    _, llm = made
    other = _others(llm)[0]
    done = llm.generate("Once", max_tokens=4, stop_token_ids=[other], logit_bias={other: FORCED})
    assert (done.finish_reason, done.stop_reason) == ("stop", other)


# --- tied embeddings -----------------------------------------------------------------------------------------


@pytest.mark.slow_except("llama", "mixtral", "mistral3", "phi3", "qwen2")
@pytest.mark.parametrize("layout", [name for name, layout in LAYOUTS.items() if layout.output == "optional"])
def test_tied_embeddings_load(layout: str, tmp_path: Path) -> None:
    architecture = "llama" if layout == "mixtral" else layout
    rows = []
    for tied in (True, False):
        path = tmp_path / f"{tied}.gguf"
        family_models.write(path, architecture, models.byte_vocabulary(), layout=layout, tied=tied)
        with GGUFReader(path) as reader:
            assert ("output.weight" in reader.tensors) is not tied
        with pyggml.load(path, n_threads=1) as llm:
            rows.append(llm.logits("Once upon a time"))
    np.testing.assert_array_equal(rows[0], rows[1])


@pytest.mark.parametrize("architecture", [name for name, layout in LAYOUTS.items() if layout.output == "required"])
def test_the_engine_says_where_it_wants_output_weights(architecture: str, tmp_path: Path) -> None:
    path = family_models.write(tmp_path / "model.gguf", architecture, models.byte_vocabulary())
    with GGUFReader(path) as reader:
        metadata = dict(reader.metadata)
        weights = {name: reader.dequantized(name) for name in reader.tensors if name != "output.weight"}
    models.write(path, metadata, weights)
    with pytest.raises(pyggml.ModelLoadError, match=r"output\.weight"):
        pyggml.load(path)


# --- which family, by a file's metadata ----------------------------------------------------------------------


def _metadata(
    architecture: str, *special: str, template: str = "", name: str = "", **facts: object
) -> dict[str, object]:
    tokens = ["a", "b", *special]
    return {
        "general.architecture": architecture,
        "general.name": name,
        "tokenizer.ggml.tokens": tuple(tokens),
        "tokenizer.ggml.token_type": np.array([1, 1, *[3] * len(special)], np.int32),
        "tokenizer.chat_template": template,
        **facts,
    }


MISTRAL_TEMPLATE = "{{ bos_token }}[INST] {{ messages[0].content }} [/INST]"
LLAMA2_TEMPLATE = "[INST] <<SYS>>{{ messages[0].content }}<</SYS>> [/INST]"


@pytest.mark.parametrize(
    ("metadata", "family"),
    [
        (_metadata("llama", "</s>"), "llama2"),
        (_metadata("llama", "</s>", template=MISTRAL_TEMPLATE), "mistral"),
        (_metadata("llama", "</s>", template=LLAMA2_TEMPLATE), "llama2"),
        (_metadata("llama", "</s>", template=MISTRAL_TEMPLATE, name="CodeLlama-7b-Instruct"), "llama2"),
        (_metadata("llama", "</s>", "<|im_end|>", name="OpenHermes-2.5-Mistral-7B"), "mistral"),
        (_metadata("llama", "</s>", "<|im_end|>", name="Nous-Hermes-Llama2-13b"), "llama2"),
        (_metadata("llama", "</s>", "[INST]", "[/INST]"), "mistral"),
        (_metadata("mistral3", "</s>"), "mistral"),
        (_metadata("llama", "<|eot_id|>", "<|end_of_text|>"), "llama3"),
        (_metadata("llama", "<|eot_id|>", "<|im_end|>", name="Hermes-3-Llama-3.1-8B"), "llama3"),
        (_metadata("llama", "<|eot_id|>", name="a Mistral in name only"), "llama3"),
        (
            _metadata("llama", "<｜end▁of▁sentence｜>", "<｜Assistant｜>", "<|eot_id|>", name="DeepSeek R1 Distill"),
            None,
        ),
        (_metadata("llama", "<|im_end|>", "<|endoftext|>", name="SmolLM2 360M Instruct"), "smollm2"),
        (_metadata("llama", "<|im_end|>", "<|endoftext|>", "<|startoftext|>"), "yi"),
        (_metadata("llama", "<|im_end|>", "<|endoftext|>", name="Yiddish-7B"), "generic"),
        (_metadata("llama", "<|im_end|>", "<|endoftext|>"), "generic"),
        (_metadata("llama", "<|endoftext|>", name="Falcon3-7B-Instruct"), "generic"),
        (_metadata("phi3", "<|end|>", "<|endoftext|>", name="Phi 3.5 Mini Instruct"), "phi3"),
        (_metadata("phi3", "<|end|>", "<|endoftext|>", name="Phi 4 Mini Instruct"), "phi4-mini"),
        (_metadata("phi3", "<|im_end|>", "<|endoftext|>", name="Phi 4 Mini is my favourite"), "phi4"),
        (_metadata("phimoe", "<|end|>"), "phi3"),
        (_metadata("qwen2", "<|im_end|>", "<|endoftext|>", "</s>"), "qwen2"),
        (_metadata("qwen2", "</s>"), "generic"),
        (_metadata("qwen3moe", "<|im_end|>", "<|endoftext|>"), "qwen3"),
        (_metadata("qwen3next", "<|im_end|>", "<|endoftext|>"), "qwen3"),
        (_metadata("gpt-oss", "<|return|>", "<|call|>"), "gpt-oss"),
        (_metadata("gpt-oss", "</s>"), "generic"),
        (_metadata("llama4", "<|eot|>", "<|end_of_text|>", "<|eom|>"), "llama4"),
        (_metadata("llama4", "<|eot_id|>"), "generic"),
        (_metadata("gemma", "<end_of_turn>", "<eos>"), "gemma"),
        (_metadata("granite", "<|end_of_text|>", name="Granite 3.3 8b Instruct"), "granite"),
        (_metadata("granite", "<|endoftext|>", name="PowerLM 3b"), "generic"),
        (_metadata("smollm3", "<|im_end|>", "<|end_of_text|>"), "smollm3"),
        (_metadata("olmo2", "<|endoftext|>", "<|im_end|>"), "olmo2"),
        (_metadata("glm4", "<|endoftext|>", "<|user|>", "<|observation|>"), "glm4"),
        (_metadata("chatglm", "<|endoftext|>", "<|user|>", "<|observation|>"), "glm4"),
        (_metadata("chatglm", "</s>", name="ChatGLM3 6B"), "generic"),
        (_metadata("command-r", "<|END_OF_TURN_TOKEN|>", "<EOS_TOKEN>"), "command-r"),
        (_metadata("cohere2", "<|END_OF_TURN_TOKEN|>", "<EOS_TOKEN>"), "command-r"),
        (_metadata("gemma4", "<turn|>", "<eos>"), "generic"),
        (_metadata("gemma-embedding", "<end_of_turn>", "<eos>"), "gemma"),
        (_metadata("bert", "[CLS]", "[SEP]"), "bert"),
        (_metadata("bert", "[CLS]", "[SEP]", name="distilbert-base"), "distilbert"),
        (_metadata("bert", "<s>", "</s>", "<mask>", name="bge-m3"), "xlm-roberta"),
        (_metadata("bert", "<s>", "</s>", "<mask>", name="all-distilroberta-v1"), "roberta"),
        (_metadata("modern-bert", "[CLS]", "[SEP]"), "modernbert"),
        (_metadata("mamba", "<|endoftext|>"), "generic"),
        ({"general.architecture": "llama"}, "generic"),
        ({}, "generic"),
    ],
)
def test_family_of_metadata(metadata: Mapping[str, object], family: str | None) -> None:
    assert families.of_gguf(metadata).family.name == (family or "deepseek-r1-distill-llama")


def test_plain_text_is_no_token_of_a_family() -> None:
    plain: dict[str, Any] = _metadata("llama", "</s>")
    plain["tokenizer.ggml.token_type"][:] = family_models.NORMAL
    assert families.of_gguf(plain).family.name == "generic"
    assert families.of_gguf(plain | {"tokenizer.ggml.eos_token_id": 2}).family.name == "llama2"
    del plain["tokenizer.ggml.token_type"]
    assert families.of_gguf(plain).family.name == "generic"


def test_reasons_and_rivals() -> None:
    match = families.of_gguf(_metadata("llama", "</s>"))
    assert (match.family, match.rivals) == (llama2.FAMILY, (mistral.FAMILY,))
    match = families.of_gguf(_metadata("llama", "</s>", name="Mixtral 8x7B"))
    assert match.rivals == ()
    assert match.reasons == ("its architecture is 'llama'", "its name says 'mixtral'", "its vocabulary has '</s>'")
    assert families.of_gguf(_metadata("mamba")).reasons == ("its architecture is 'mamba'",)


@pytest.mark.slow
def test_a_file_and_its_loaded_model_agree(tmp_path: Path) -> None:
    for case in (CASES["phi 4"], CASES["yi"], CASES["llama 2"], CASES["gemma 2"]):
        path = family_models.write_case(tmp_path / "model.gguf", case)
        with Model(path, vocab_only=True) as model, GGUFReader(path) as reader:
            assert families.of_gguf(reader.metadata) == families.of_model(model)


# --- which family, by a config.json --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "family"),
    [
        ({"model_type": "llama", "vocab_size": 32000}, "llama2"),
        ({"model_type": "llama", "vocab_size": 128256}, "llama3"),
        ({"model_type": "LLaMA", "vocab_size": 49152}, "smollm2"),
        ({"model_type": "llama", "vocab_size": 64000}, "yi"),
        ({"model_type": "Yi"}, "yi"),
        ({"model_type": "llama", "_name_or_path": "HuggingFaceTB/SmolLM2-135M"}, "smollm2"),
        ({"model_type": "mistral"}, "mistral"),
        ({"model_type": "mixtral"}, "mistral"),
        ({"model_type": "ministral3"}, "mistral"),
        ({"model_type": "mistral3", "text_config": {"vocab_size": 131072}}, "mistral"),
        ({"model_type": "phi"}, "phi2"),
        ({"model_type": "phi-msft"}, "phi2"),
        ({"model_type": "phi3", "vocab_size": 32064}, "phi3"),
        ({"model_type": "phi3", "vocab_size": 200064}, "phi4-mini"),
        ({"model_type": "phi3", "vocab_size": 100352}, "phi4"),
        ({"model_type": "phimoe"}, "phi3"),
        ({"model_type": "qwen2"}, "qwen2"),
        ({"model_type": "Qwen2-MoE"}, "qwen2"),
        ({"model_type": "qwen3"}, "qwen3"),
        ({"model_type": "qwen3_moe"}, "qwen3"),
        ({"model_type": "qwen3_next"}, "qwen3"),
        ({"model_type": "gpt_oss"}, "gpt-oss"),
        ({"model_type": "llama4"}, "llama4"),
        ({"model_type": "llama4_text"}, "llama4"),
        ({"architectures": ["Llama4ForConditionalGeneration"]}, "llama4"),
        ({"model_type": "gemma"}, "gemma"),
        ({"model_type": "gemma2"}, "gemma"),
        ({"model_type": "granite"}, "granite"),
        ({"model_type": "olmo2"}, "olmo2"),
        ({"model_type": "olmo3"}, "olmo2"),
        ({"model_type": "smollm3"}, "smollm3"),
        ({"model_type": "ministral"}, "mistral"),
        ({"model_type": "glm"}, "glm4"),
        ({"model_type": "glm4"}, "glm4"),
        ({"model_type": "cohere"}, "command-r"),
        ({"model_type": "cohere2"}, "command-r"),
        ({"model_type": "gemma3_text"}, "gemma"),
        ({"model_type": "GEMMA-3.TEXT"}, "gemma"),
        ({"model_type": "falcon"}, "falcon"),
        ({"model_type": "RefinedWebModel"}, "falcon"),
        ({"model_type": "stablelm_epoch"}, "stablelm"),
        ({"model_type": "stablelm"}, "stablelm"),
        ({"architectures": ["Qwen3ForCausalLM"]}, "qwen3"),
        ({"architectures": ["phi_for_causal_lm"]}, "phi2"),
        ({"model_type": "custom", "architectures": ["SomethingElse", "FalconForCausalLM"]}, "falcon"),
        ({"model_type": "qwen3", "architectures": ["FalconForCausalLM"]}, "qwen3"),
        ({"model_type": "bert", "architectures": ["BertForMaskedLM"]}, "bert"),
        ({"model_type": "bert", "_name_or_path": "jinaai/jina-embeddings-v2-base-en"}, "jina"),
        ({"model_type": "xlm-roberta"}, "xlm-roberta"),
        ({"model_type": "distilbert"}, "distilbert"),
        ({"model_type": "modernbert"}, "modernbert"),
        ({"model_type": "mpnet", "architectures": ["MPNetModel"]}, "generic"),
        ({"model_type": None, "architectures": None}, "generic"),
        ({"model_type": ["llama"], "architectures": "LlamaForCausalLM"}, "generic"),
        ({}, "generic"),
    ],
)
def test_family_of_config(config: Mapping[str, object], family: str) -> None:
    assert families.of_config(config).family.name == family


def test_the_tokenizer_tells_apart_what_the_config_does_not() -> None:
    config = {"model_type": "llama", "vocab_size": 128256}
    r1 = {"<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<|eot_id|>"}
    assert families.of_config(config, r1).family.name == "deepseek-r1-distill-llama"
    assert families.of_config(config, {"<|eot_id|>", "<|end_of_text|>"}).family.name == "llama3"
    assert families.of_config(config, {"</s>"}).family.name == "llama2"
    assert families.of_config({"model_type": "qwen2"}, r1).family.name == "deepseek-r1-distill-qwen"


def test_a_config_must_be_a_mapping() -> None:
    with pytest.raises(pyggml.InvalidParameterError, match="list"):
        families.of_config([])  # type: ignore[arg-type]


# --- the declarations ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", families.FAMILIES, ids=lambda family: family.name)
def test_declarations_hold_together(family: pyggml.Family) -> None:
    assert family.architectures
    assert family.model_types
    assert family.hf_architectures
    assert set(family.required_tokens) & set(family.stop_tokens)  # so that one of the family always has an end
    assert not set(family.text_tokens) & set(family.stop_tokens)
    assert all(name == name.lower() and not set(name) & set("-_.") for name in family.signs.names)
    assert family.is_encoder or any(case.family == family.name for case in CASES.values())


@pytest.mark.slow
def test_names_are_unique() -> None:
    names = [family.name for family in (*families.FAMILIES, families.GENERIC)]
    assert len(set(names)) == len(names)
