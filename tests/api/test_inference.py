"""Inference: the device, a class per family, and clear errors if the file, tokenizer or device does not match."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.checkpoints import family_models, models, tokenizer_files

import pyggml
from pyggml import families, model_loader
from pyggml import inference as inference_module
from pyggml._native.placement import Placement, resolve_placement
from pyggml.gguf import GGUFReader
from pyggml.options import MemoryOptions

CHATML = ("<|im_end|>", "<|endoftext|>", "<|im_start|>")
R1 = ("<｜end▁of▁sentence｜>", "<｜Assistant｜>", "<｜User｜>", "<｜begin▁of▁sentence｜>")

# name -> architecture, special tokens, general.name; and the methods that take it.
FILES: dict[str, tuple[str, tuple[str, ...], str]] = {
    "qwen3": ("qwen3", CHATML, "Qwen3 0.6B"),
    "r1-qwen3": ("qwen3", R1, "DeepSeek R1 0528 Qwen3 8B"),
    "phi3": ("phi3", ("<|endoftext|>", "<|end|>"), "Phi 3.5 Mini Instruct"),
    "phi4-mini": ("phi3", ("<|endoftext|>", "<|end|>"), "Phi 4 Mini Instruct"),
    "phi4": ("phi3", ("<|im_end|>", "<|endoftext|>", "<|im_sep|>"), "Phi 4"),
    "llama2": ("llama", ("</s>", "<s>"), "LLaMA v2"),
    "llama3": ("llama", ("<|eot_id|>", "<|end_of_text|>", "<|start_header_id|>"), "Llama 3.2 1B Instruct"),
    "r1-llama": ("llama", R1, "DeepSeek R1 Distill Llama 8B"),
    "yi": ("llama", (*CHATML, "<|startoftext|>"), "Yi 1.5 6B Chat"),
    "smollm2": ("llama", (*CHATML, "<gh_stars>", "<reponame>"), "SmolLM2 135M Instruct"),
    "mistral": ("llama", ("</s>", "<s>"), "Mistral 7B Instruct v0.3"),
    "unnamed": ("llama", ("</s>", "<s>"), "the best of both"),
    "chatml": ("llama", CHATML, "an unknown chat model"),
    "phi2": ("phi2", ("<|endoftext|>",), "Phi 2"),
    "qwen2": ("qwen2", CHATML, "Qwen2.5 0.5B Instruct"),
    "r1-qwen": ("qwen2", R1, "DeepSeek R1 Distill Qwen 1.5B"),
    "gemma": ("gemma3", ("<end_of_turn>", "<eos>", "<bos>"), "Gemma 3 1b It"),
    "granite": ("granite", ("<|end_of_text|>", "<|start_of_role|>"), "Granite 3.3 2b Instruct"),
    "olmo2": ("olmo2", ("<|endoftext|>", "<|im_end|>"), "OLMo 2 0425 1B Instruct"),
    "smollm3": ("smollm3", ("<|im_end|>", "<|end_of_text|>"), "SmolLM3 3B"),
    "glm4": ("glm4", ("<|endoftext|>", "<|user|>", "<|observation|>"), "GLM 4 9B 0414"),
    "command-r": ("command-r", ("<|END_OF_TURN_TOKEN|>", "<EOS_TOKEN>"), "C4AI Command R V01"),
    "gpt-oss": ("gpt-oss", ("<|return|>", "<|call|>"), "Gpt Oss 20b"),
    "llama4": ("llama4", ("<|eot|>", "<|end_of_text|>", "<|eom|>"), "Llama 4 Scout 17B 16E Instruct"),
    "falcon": ("falcon", ("<|endoftext|>",), "Falcon 7B"),
    "stablelm": ("stablelm", ("<|endoftext|>",), "StableLM 2 1.6B"),
    "foreign": ("qwen3", ("</s>", "<s>"), "Qwen3 with the vocabulary of Llama 2"),
}
TAKES: dict[str, tuple[str, ...]] = {
    "use_qwen3": ("qwen3", "r1-qwen3"),
    "use_phi3": ("phi3", "phi4-mini"),
    "use_phi4": ("phi4", "phi4-mini"),
    "use_llama": ("llama2", "llama3", "r1-llama", "yi", "unnamed", "chatml"),
    "use_llama31": ("llama3",),
    "use_smollm2": ("smollm2", "chatml"),
    "use_mistral": ("mistral", "unnamed"),
    "use_phi": ("phi2",),
    "use_qwen2": ("qwen2", "r1-qwen"),
    "use_gemma": ("gemma",),
    "use_granite": ("granite",),
    "use_olmo2": ("olmo2",),
    "use_smollm3": ("smollm3",),
    "use_glm4": ("glm4",),
    "use_gptoss": ("gpt-oss",),
    "use_llama4": ("llama4",),
    "use_commandr": ("command-r",),
    "use_falcon": ("falcon",),
    "use_stablelm": ("stablelm",),
    "use_yi": ("yi", "chatml"),
    "use_auto": tuple(FILES),
}
CLASSES: dict[str, type[pyggml.LLM]] = {
    "use_qwen3": pyggml.Qwen3,
    "use_phi3": pyggml.Phi3,
    "use_phi4": pyggml.Phi4,
    "use_llama": pyggml.Llama,
    "use_llama31": pyggml.Llama31,
    "use_smollm2": pyggml.SmolLM2,
    "use_mistral": pyggml.Mistral,
    "use_phi": pyggml.Phi,
    "use_qwen2": pyggml.Qwen2,
    "use_gemma": pyggml.Gemma,
    "use_granite": pyggml.Granite,
    "use_olmo2": pyggml.OLMo2,
    "use_smollm3": pyggml.SmolLM3,
    "use_glm4": pyggml.Glm4,
    "use_gptoss": pyggml.GptOss,
    "use_llama4": pyggml.Llama4,
    "use_commandr": pyggml.CommandR,
    "use_falcon": pyggml.Falcon,
    "use_stablelm": pyggml.StableLM,
    "use_yi": pyggml.Yi,
}
CPU = pyggml.Inference.cpu()


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The files, by name."""
    directory = tmp_path_factory.mktemp("inference")
    return {
        name: family_models.write(
            directory / f"{name}.gguf", architecture, family_models.small_vocabulary(*special), name=title
        )
        for name, (architecture, special, title) in FILES.items()
    }


@pytest.fixture
def phi3(paths: dict[str, Path]) -> Iterator[pyggml.Phi3]:
    with CPU.use_phi3(paths["phi3"], n_threads=1) as model:
        yield model


def _use(method: str) -> Callable[..., pyggml.LLM]:
    use: Callable[..., pyggml.LLM] = getattr(CPU, method)
    return use


# --- families ------------------------------------------------------------------------------------------------


@pytest.mark.slow_except(every=8)
@pytest.mark.parametrize(("method", "name"), [(method, name) for method, names in TAKES.items() for name in names])
def test_takes_its_own(method: str, name: str, paths: dict[str, Path]) -> None:
    with _use(method)(paths[name], n_threads=1, n_ctx=64) as model:
        assert isinstance(model, CLASSES.get(method, pyggml.LLM))
        stop_id = next(iter(model.stop_tokens))
        done = model.generate("Once", max_tokens=4, logit_bias={stop_id: 1e6})
        assert (done.finish_reason, done.stop_reason, done.text) == ("stop", stop_id, "")
        assert asyncio.run(model.forward("Once", 3)) == model.generate("Once", max_tokens=3).text


@pytest.mark.slow_except("use_qwen3", "use_phi3", "use_phi4")
@pytest.mark.parametrize("method", CLASSES)
def test_refuses_all_others(method: str, paths: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_loader, "Model", None)  # nothing is loaded to find that out
    for name in FILES.keys() - set(TAKES[method]) - {"foreign", "chatml"}:
        with pytest.raises(pyggml.ArchitectureMismatchError) as caught:
            _use(method)(paths[name])
        message = str(caught.value)
        architecture = FILES[name][0]
        kind = CLASSES[method]
        assert message.startswith(f"{kind.__name__} and {method}() are for {kind.families[0].title}")  # type: ignore[attr-defined]
        assert f"{name}.gguf is " in message
        assert f"its architecture is {architecture!r}" in message
        for called, right in re.findall(r"(\w+) and (use_\w+)\(\) are for those", message):
            assert name in TAKES[right]
            assert CLASSES[right].__name__ == called
        assert message.endswith("load() and use_auto() load any model")


def test_the_message_names_both_sides_and_the_way_out(paths: dict[str, Path]) -> None:
    with pytest.raises(ValueError, match="Qwen3") as caught:
        CPU.use_qwen3(paths["llama3"])
    assert str(caught.value) == (
        "Qwen3 and use_qwen3() are for Qwen3, DeepSeek-R1-0528-Qwen3, and llama3.gguf is Llama 3, 3.1, 3.2 or 3.3: its "
        "architecture is 'llama', its name says 'llama 3', its vocabulary has '<|eot_id|>'; "
        "Llama31 and use_llama31() are for those; load() and use_auto() load any model"
    )
    with pytest.raises(pyggml.ArchitectureMismatchError, match=re.escape(str(caught.value))):
        pyggml.Qwen3(paths["llama3"])


def test_the_right_architecture_with_a_foreign_vocabulary(paths: dict[str, Path]) -> None:
    with pytest.raises(pyggml.TokenizerError, match=r"foreign\.gguf.*'qwen3'.*'<\|im_end\|>' or '<\|endoftext\|>'"):
        CPU.use_qwen3(paths["foreign"])
    with pytest.raises(pyggml.ArchitectureMismatchError, match=r"of no known family.*'qwen3'"):
        CPU.use_llama(paths["foreign"])


@pytest.mark.parametrize(
    ("method", "architecture", "stop", "family"),
    [
        ("use_phi3", "phi3", "<|endoftext|>", "phi3"),
        ("use_phi4", "phi3", "<|endoftext|>", "phi4"),
        ("use_phi4", "phi3", "<|im_end|>", "phi4"),
        ("use_llama31", "llama", "<|end_of_text|>", "llama3"),
        ("use_llama31", "llama", "<|eot_id|>", "llama3"),
        ("use_qwen3", "qwen3", "<|endoftext|>", "qwen3"),
    ],
)
def test_one_stop_token_of_a_family_is_enough(
    method: str, architecture: str, stop: str, family: str, tmp_path: Path
) -> None:
    vocabulary = family_models.small_vocabulary(stop)
    with _use(method)(family_models.write(tmp_path / "model.gguf", architecture, vocabulary), n_ctx=64) as model:
        assert (model.family.name, [*model.stop_tokens.values()]) == (family, [stop])
        assert type(model) is CLASSES[method]


def test_qwen_1_is_refused_by_name(paths: dict[str, Path], tmp_path: Path) -> None:
    with GGUFReader(paths["qwen2"]) as reader:
        match = families.of_gguf({**reader.metadata, "general.architecture": "qwen"})
    assert match.family.title == "Qwen 1"
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen", "architectures": ["QWenLMHeadModel"]}))
    with pytest.raises(pyggml.UnsupportedArchitectureError, match=r"Qwen 1 .* Use Qwen1\.5 or later, or a GGUF file"):
        CPU.use_qwen2(tmp_path)


def test_use_auto_finds_the_class(paths: dict[str, Path]) -> None:
    expected = {"qwen3": pyggml.Qwen3, "phi4-mini": pyggml.Phi3, "llama3": pyggml.Llama31, "yi": pyggml.Yi}
    for name, kind in {**expected, "falcon": pyggml.Falcon, "foreign": pyggml.LLM}.items():
        with CPU.use_auto(paths[name], n_threads=1) as model:
            assert type(model) is kind


def test_what_was_asked_for_decides_where_nothing_tells(paths: dict[str, Path]) -> None:
    with CPU.use_mistral(paths["unnamed"], n_threads=1) as mistral, CPU.use_llama(paths["unnamed"]) as llama:
        assert (mistral.family.name, llama.family.name) == ("mistral", "llama2")


def test_a_llama_with_chatml_is_of_no_family_that_nothing_names(paths: dict[str, Path]) -> None:
    """Its special tokens are Yi's and SmolLM2's, and those of many others."""
    with pyggml.Llama(paths["chatml"], n_threads=1) as llama, pyggml.SmolLM2(paths["chatml"]) as smollm2:
        assert (llama.family.name, smollm2.family.name) == ("generic", "smollm2")
        assert [*llama.stop_tokens.values()] == ["<|im_end|>", "<|endoftext|>"]
    assert pyggml.inspect(paths["chatml"]).family == "generic"


def test_the_classes_also_check_a_model_that_is_loaded(paths: dict[str, Path]) -> None:
    with pyggml.Model(paths["llama2"]) as model:
        with pytest.raises(pyggml.ArchitectureMismatchError, match="use_llama"):
            pyggml.Qwen3(model)
        with pyggml.Llama(model, n_threads=1) as llm:
            assert llm.family.name == "llama2"


# --- the classes themselves ------------------------------------------------------------------------------------


@pytest.mark.slow_except(every=2)
@pytest.mark.parametrize(("method", "name"), [(method, TAKES[method][0]) for method in CLASSES])
def test_a_class_takes_a_path_as_its_method_does(method: str, name: str, paths: dict[str, Path]) -> None:
    with CLASSES[method](str(paths[name]), n_threads=1, n_ctx=64) as model:
        assert type(model) is CLASSES[method]
        assert model.n_ctx == 64
        assert model.generate("Once", max_tokens=2).token_ids


@pytest.mark.parametrize("method", CLASSES)
def test_a_class_refuses_other_families_before_it_loads(
    method: str, paths: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_loader, "Model", None)
    other, title = ("falcon", "Falcon") if method != "use_falcon" else ("granite", "Granite")
    with pytest.raises(pyggml.ArchitectureMismatchError, match=rf"{other}\.gguf is {title}"):
        CLASSES[method](paths[other])


def test_a_class_takes_a_tokenizer_and_a_device(paths: dict[str, Path], hugging_face: Path) -> None:
    own = pyggml.Phi3(paths["phi3"], n_threads=1)
    with own, pyggml.Phi3(paths["phi3"], hugging_face, device="cpu", n_threads=1) as model:
        assert type(model.tokenizer) is not type(own.tokenizer)
        assert model.tokenize("the <|end|> of it") == own.tokenize("the <|end|> of it")
    with pytest.raises(pyggml.DeviceError):
        pyggml.Phi3(paths["phi3"], device="cuda:99")


def test_llm_is_load(paths: dict[str, Path], tmp_path: Path) -> None:
    with pyggml.LLM(paths["qwen3"], n_threads=1) as llm, pyggml.load(paths["qwen3"], n_threads=1) as loaded:
        assert type(llm) is type(loaded) is pyggml.LLM
        assert llm.generate("Once", max_tokens=5).token_ids == loaded.generate("Once", max_tokens=5).token_ids
    with pyggml.LLM() as shipped:
        assert shipped.model.path == str(pyggml.source.SHIPPED_MODEL)
    with pytest.raises(pyggml.ModelNotFoundError):
        pyggml.LLM(tmp_path / "nothing.gguf")
    with pytest.raises(pyggml.InvalidParameterError, match="not int"):
        pyggml.LLM(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options", [{"device": "cpu"}, {"n_gpu_layers": 3}, {"progress": print}, {"n_ctx": "auto"}], ids=str
)
def test_what_is_decided_before_a_model_is_opened(paths: dict[str, Path], options: dict[str, Any]) -> None:
    with pyggml.Model(paths["qwen3"]) as model:
        with pytest.raises(pyggml.InvalidParameterError, match="open"):
            pyggml.Qwen3(model, **options)
        with pyggml.load(model, n_threads=1) as llm:  # which is still open
            assert llm.model is model


def test_the_shipped_model_needs_no_path() -> None:
    with CPU.use_auto(None, n_threads=1) as model:
        assert asyncio.run(model.forward("Once upon a time", 10))


def test_every_class_has_its_method_and_is_exported() -> None:
    assert {kind.factory: kind for kind in inference_module.CLASSES.values()} == CLASSES
    for method, kind in CLASSES.items():
        signature = inspect.signature(getattr(pyggml.Inference, method))
        assert [*signature.parameters] == ["self", "model_path", "tokenizer_path", "load_options"]
        assert signature.return_annotation == kind.__name__
        assert getattr(pyggml, kind.__name__) is kind
        assert kind.__doc__


def test_other_spellings_are_the_same_class_and_method(paths: dict[str, Path]) -> None:
    assert pyggml.SmolLm2 is pyggml.SmolLM2
    assert "SmolLm2" in pyggml.__all__
    with CPU.use_smolm2(paths["smollm2"], n_threads=1) as model:
        assert type(model) is pyggml.SmolLM2
        assert type(model).__name__ == "SmolLM2"


def test_load_options_are_those_of_load() -> None:
    parameters = set(inspect.signature(pyggml.load).parameters) - {"source", "tokenizer", "device"}
    assert set(inference_module._LOAD_KEYWORDS) == parameters


# --- errors other than the family ------------------------------------------------------------------------------


def test_options_reach_the_model(paths: dict[str, Path]) -> None:
    with CPU.use_phi3(paths["phi3"], n_ctx=100, n_parallel=2, n_threads=1) as model:
        assert (model.n_ctx, model.n_parallel) == (100, 2)


@pytest.mark.parametrize(
    ("option", "answer"),
    [("n_cxt", "did you mean 'n_ctx'"), ("device", "Inference.cpu"), ("tokenizer", "tokenizer_path")],
)
def test_unknown_options(option: str, answer: str, paths: dict[str, Path]) -> None:
    with pytest.raises(pyggml.UnknownParameterError, match=f"no parameter '{option}'.*{answer}"):
        CPU.use_phi3(paths["phi3"], **{option: "cpu"})  # type: ignore[arg-type]


def test_missing_model(tmp_path: Path) -> None:
    for method in TAKES:
        with pytest.raises(pyggml.ModelNotFoundError, match="nothing-here"):
            _use(method)(tmp_path / "nothing-here.gguf")


def test_what_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "text.gguf").write_text("no model at all")
    for method in TAKES:
        with pytest.raises(pyggml.ModelLoadError, match=r"text\.gguf"):
            _use(method)(tmp_path / "text.gguf")


def test_a_file_without_an_architecture(tmp_path: Path) -> None:
    path = models.write(tmp_path / "part.gguf", {"general.name": "the second part of a model"}, {})
    for method in TAKES:
        with pytest.raises(pyggml.UnsupportedArchitectureError, match=r"part\.gguf"):
            _use(method)(path)


def test_empty_prompts(phi3: pyggml.Phi3) -> None:
    with pytest.raises(pyggml.EmptyPromptError):
        asyncio.run(phi3.forward("", 3))
    with pytest.raises(pyggml.EmptyPromptError):
        phi3.generate([])
    assert phi3.generate("Once", max_tokens=2).token_ids


# --- tokenizers ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hugging_face(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the tokenizer of the Phi-3 file."""
    directory = tmp_path_factory.mktemp("tokenizer")
    tokenizer_files.write_json(directory, family_models.small_vocabulary(*FILES["phi3"][1]))
    return directory


@pytest.mark.parametrize("name", ["", "tokenizer.json"])
def test_a_tokenizer_beside_the_model(name: str, paths: dict[str, Path], hugging_face: Path) -> None:
    with CPU.use_phi3(paths["phi3"], hugging_face / name, n_threads=1) as theirs, CPU.use_phi3(paths["phi3"]) as own:
        assert theirs.stop_tokens == own.stop_tokens
        assert theirs.tokenize("the <|end|> of it") == own.tokenize("the <|end|> of it")
        stop_id = theirs.tokenize("<|end|>")[-1]
        done = theirs.generate("Once", max_tokens=4, logit_bias={stop_id: 1e6})
        assert (done.finish_reason, done.stop_reason, done.text) == ("stop", stop_id, "")


@pytest.mark.parametrize("name", ["nothing", "nothing/tokenizer.json"])
def test_missing_tokenizer(name: str, paths: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_loader, "Model", None)  # nothing is loaded to find that out
    with pytest.raises(pyggml.TokenizerNotFoundError, match="nothing"):
        CPU.use_phi3(paths["phi3"], tmp_path / name)
    with pytest.raises(FileNotFoundError):
        pyggml.load(paths["phi3"], tokenizer=tmp_path / name)


def test_directory_without_a_tokenizer(paths: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(pyggml.TokenizerNotFoundError, match=r"tokenizer\.json"):
        CPU.use_phi3(paths["phi3"], tmp_path)


def _change(vocabulary: dict[str, Any], change: str) -> dict[str, Any]:
    tokens, types = list(vocabulary["tokenizer.ggml.tokens"]), [*vocabulary["tokenizer.ggml.token_type"]]
    if change == "other stop token":
        tokens[tokens.index("<|end|>")] = "<|im_end|>"
    elif change == "no stop token":
        del tokens[-1], types[-1]
    elif change == "larger":
        tokens, types = [*tokens, "<|more|>"], [*types, family_models.CONTROL]
    elif change == "other piece":
        a, b = tokens.index("a"), tokens.index("b")
        tokens[a], tokens[b] = "b", "a"
    return vocabulary | {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": np.array(types, np.int32)}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("other stop token", r"<\|im_end\|>.*<\|end\|>"),
        ("no stop token", r"<\|end\|>.*ends a generation"),
        ("larger", r"<\|more\|>.*259 tokens"),
        ("other piece", r"id \d+ as 'b', the model as 'a'"),
    ],
)
def test_the_wrong_tokenizer(change: str, said: str, paths: dict[str, Path], tmp_path: Path) -> None:
    wrong = _change(family_models.small_vocabulary(*FILES["phi3"][1]), change)
    path = tokenizer_files.write_json(tmp_path, wrong)
    with pytest.raises(pyggml.TokenizerError, match=said) as caught:
        CPU.use_phi3(paths["phi3"], path)
    assert str(path) in str(caught.value)


@pytest.mark.slow
def test_another_models_tokenizer(paths: dict[str, Path], tmp_path: Path) -> None:
    path = tokenizer_files.write_json(tmp_path, models.real_vocabulary("gpt-2"))
    with pytest.raises(pyggml.TokenizerError, match="not this model's tokenizer"):
        CPU.use_phi3(paths["phi3"], path)


def test_what_is_no_tokenizer(paths: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    for content in ("", "{}", json.dumps({"model": {}}), "no JSON"):
        path.write_text(content)
        with pytest.raises(pyggml.TokenizerError):
            CPU.use_phi3(paths["phi3"], path)


# --- devices -----------------------------------------------------------------------------------------------------

CUDA_DEVICES = [device.name for device in pyggml.devices() if device.name.startswith("CUDA")]


def test_the_device_is_handed_on(paths: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Placement] = []

    class Watched(pyggml.Model):
        def __init__(self, *args: Any, placement: Placement, **options: Any) -> None:
            asked.append(placement)
            super().__init__(*args, placement=placement, **options)

    monkeypatch.setattr(model_loader, "Model", Watched)
    for inference in (pyggml.Inference.cpu(), pyggml.Inference.auto()):
        inference.use_phi3(paths["phi3"], n_threads=1).close()
    assert asked == [resolve_placement(MemoryOptions(device=device)) for device in ("cpu", "auto")]


@pytest.mark.skipif(bool(CUDA_DEVICES), reason="this build and machine have a CUDA device")
def test_no_cuda() -> None:
    with pytest.raises(pyggml.DeviceError, match=r'no device "cuda:0"; this build sees: .*CPU.*; .*NVIDIA'):
        pyggml.Inference.cuda()
    with pytest.raises(pyggml.DeviceError, match="cuda:3"):
        pyggml.Inference.cuda(3)


def test_gpus_of_other_kinds(paths: dict[str, Path]) -> None:
    kinds = {"gpu": pyggml.Inference.gpu, "metal": pyggml.Inference.metal}
    for name, select in kinds.items():
        try:
            pyggml.find_device(name)
        except pyggml.DeviceError:
            with pytest.raises(pyggml.DeviceError, match=f'no device "{name}:0"'):
                select()
        else:
            with select().use_phi3(paths["phi3"]) as model:
                assert model.generate("Once", max_tokens=3).token_ids


@pytest.mark.gpu
@pytest.mark.skipif(not CUDA_DEVICES, reason="needs a CUDA device that the build supports")
def test_cuda(paths: dict[str, Path]) -> None:
    with pyggml.Inference.cuda().use_phi3(paths["phi3"]) as model:
        assert model.generate("Once", max_tokens=3).token_ids
    with pytest.raises(pyggml.DeviceError, match="numbered from 0"):
        pyggml.Inference.cuda(len(CUDA_DEVICES))


@pytest.mark.parametrize("index", [-1, 1.5, "0", True])
def test_no_index_of_a_device(index: Any) -> None:
    with pytest.raises(pyggml.InvalidParameterError, match="the index of a device"):
        pyggml.Inference.cuda(index)


def test_an_unknown_device(paths: dict[str, Path]) -> None:
    with pytest.raises(pyggml.DeviceError, match="vulkan:7"):
        pyggml.Inference("vulkan:7").use_phi3(paths["phi3"])


# --- many callers --------------------------------------------------------------------------------------------------


def test_threads_share_a_model(phi3: pyggml.Phi3) -> None:
    stop_id = next(iter(phi3.stop_tokens))

    def ask(token_id: int) -> tuple[list[int], str, int | str | None]:
        """As many of its own token as its penalty allows, then the end."""
        bias = {token_id: 1e6, stop_id: 1e6 - 2_000.0 * (token_id % 5 + 1) + 1_000.0}
        done = phi3.generate("Once", max_tokens=50, logit_bias=bias, frequency_penalty=2_000.0)
        return done.token_ids, done.finish_reason, done.stop_reason

    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(ask, range(60)))
    assert answers == [([token_id] * (token_id % 5 + 1), "stop", stop_id) for token_id in range(60)]


def test_tasks_and_threads_share_a_model(paths: dict[str, Path]) -> None:
    prompts = [f"Once upon {i} times" for i in range(12)]
    # One at a time and from its beginning each, so that all are the same to the last bit.
    with CPU.use_phi3(paths["phi3"], n_parallel=1, prefix_cache=False, n_threads=1) as model:
        alone = [model.generate(prompt, max_tokens=8).text for prompt in prompts]

        async def together() -> list[str]:
            return await asyncio.gather(*(model.forward(prompt, 8) for prompt in prompts))

        with ThreadPoolExecutor(4) as pool:
            runs = [pool.submit(asyncio.run, together()) for _ in range(2)]
            texts = list(pool.map(lambda prompt: model.generate(prompt, max_tokens=8).text, prompts))
            assert texts == alone
            assert [run.result() for run in runs] == [alone, alone]


@pytest.mark.slow
def test_threads_share_an_inference(paths: dict[str, Path]) -> None:
    inference = pyggml.Inference.cpu()

    def load(name: str) -> str:
        with inference.use_auto(paths[name], n_threads=1, n_ctx=64) as model:
            return model.family.name

    names = ["qwen3", "phi3", "llama2", "gemma"] * 3
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(load, names)) == names
