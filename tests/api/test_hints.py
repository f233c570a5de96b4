"""Hints for names of other libraries: the error message says which name pyggml has instead."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import inspect
import pickle
import re
from collections.abc import Callable, Iterator, Mapping
from configparser import ConfigParser
from typing import Any
from unittest.mock import create_autospec

import pytest
from support.paths import DATA

import pyggml
from pyggml._core.hints import HintedPackage, hint_groups, hints
from pyggml.options import LoadOptions, fields_of
from pyggml.sampling import SamplingParams

MESSAGE = {"role": "user", "content": "Hello!"}
IMAGE = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]}


@pytest.fixture(scope="module")
def llm() -> Iterator[pyggml.LLM]:
    with pyggml.load(n_ctx=256, n_parallel=2) as llm:
        yield llm


# --- parameters ------------------------------------------------------------------------------------------------

PARAMETERS = [
    ("temp", "it is 'temperature' here (0 always picks the likeliest token; higher values vary more)"),
    ("temprature", "did you mean 'temperature' (0 always"),
    ("max_new_tokens", "it is 'max_tokens' here (maximum number of tokens to generate)"),
    ("max_token", "did you mean 'max_tokens'"),
    ("max_length", "'max_tokens'"),
    ("num_predict", "'max_tokens'"),
    ("repetition_penalty", "'repeat_penalty'"),
    ("stream", "stream(prompt) and stream_chat(messages)"),
    ("streamer", "stream(prompt)"),
    ("n", "generate_n(prompt, 3)"),
    ("num_return_sequences", "chat(messages, n=3)"),
    ("best_of", "generate_n(prompt, 3)"),
    ("echo", "prompt + completion.text"),
    ("do_sample", "temperature=0 picks the most likely token"),
    ("num_ctx", "when the model is loaded"),
    ("top_a", "min_p"),
    ("logits_processors", "'logits_processor'"),
    ("thinking_budget", "'reasoning_budget'"),
    ("suffix", "llm.infill(prefix, suffix)"),
    ("stopping_criteria", "stop_token_ids"),
    ("functions", "tools=[...]"),
    ("sampling_params", "'params'"),
    ("nonsense", "; help(pyggml.SamplingParams) lists them"),
]


def test_every_way_to_generate_answers_unknown_parameters(llm: Any) -> None:
    def awaited(method: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **options: asyncio.run(method(*args, **options))

    ways: list[Callable[..., Any]] = [
        SamplingParams,
        lambda **options: llm.generate("a", **options),
        lambda **options: llm.generate("a", SamplingParams(), **options),
        lambda **options: llm.stream("a", **options),
        lambda **options: llm.astream("a", **options),
        lambda **options: awaited(llm.agenerate)("a", **options),
        lambda **options: llm.generate_batch(["a"], **options),
        lambda **options: llm.generate_n("a", 2, **options),
        lambda **options: llm.chat([MESSAGE], **options),
        lambda **options: awaited(llm.achat)([MESSAGE], **options),
    ]
    for way in ways:
        with pytest.raises(pyggml.UnknownParameterError, match="no parameter 'temp': it is 'temperature' here"):
            way(temp=1)


@pytest.mark.parametrize(("name", "answer"), PARAMETERS, ids=lambda value: value if value.isidentifier() else "")
def test_sampling_parameters_of_others(name: str, answer: str) -> None:
    with pytest.raises(pyggml.UnknownParameterError, match=re.escape(answer)) as caught:
        SamplingParams(**{name: 1})  # type: ignore[arg-type]
    assert str(caught.value).startswith(f"there is no parameter {name!r}")
    assert isinstance(caught.value, pyggml.InvalidParameterError)
    assert isinstance(caught.value, TypeError)
    assert len(str(caught.value)) < 250


def test_all_unknown_parameters_are_answered(llm: Any) -> None:
    with pytest.raises(pyggml.UnknownParameterError, match=r"'max_tokens' here.*no parameter 'stream'"):
        llm.generate("a", max_new_tokens=1, top_k=3, stream=True)


def test_chats_own_parameters_are_near_too(llm: Any) -> None:
    with pytest.raises(pyggml.UnknownParameterError, match="did you mean 'tool_choice'"):
        llm.chat([MESSAGE], tool_choise="none")
    with pytest.raises(pyggml.InvalidParameterError, match=re.escape("chat(messages, params=...)")):
        llm.chat([MESSAGE], SamplingParams())


@pytest.mark.parametrize(
    ("params", "answer"), [(20, "max_tokens=100"), ({"top_k": 1}, r"write \*\* before it"), ("a", "not str")]
)
def test_what_is_no_params(llm: Any, params: Any, answer: str) -> None:
    with pytest.raises(pyggml.InvalidParameterError, match=f"params must be SamplingParams, .*{answer}"):
        llm.generate("a", params)


@pytest.mark.parametrize(
    "name", sorted(fields_of(LoadOptions).keys() - {"source", "tokenizer", "progress", "chat_template", "speculative"})
)
def test_an_option_of_load_is_not_one_of_a_call(llm: Any, name: str) -> None:
    with pytest.raises(pyggml.UnknownParameterError, match=rf"no parameter '{name}': it is set when .* option of load"):
        llm.chat([MESSAGE], **{name: 1})


@pytest.mark.parametrize("kind", [pyggml.load, pyggml.LLM, pyggml.Qwen3, LoadOptions])
@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("model_path", "it is 'source' here (a model's file"),
        ("modle", "did you mean 'source'"),
        ("max_model_len", "it is 'n_ctx' here"),
        ("n_gpu_layer", "did you mean 'n_gpu_layers' (number of layers on the GPU"),
        ("gpu_layers", "it is 'n_gpu_layers' here"),
        ("verbose", "logging"),
        ("chat_format", "chat_template"),
        ("embedding", "embed(texts)"),
        ("seed", "generate"),
        ("torch_dtype", "pyggml.quantize"),
        ("repo_id", "hf:org/repo"),
        ("trust_remote_code", "nothing to trust"),
        ("nonsense", "; help(pyggml.load) lists them"),
    ],
)
def test_options_of_others_for_loading(kind: Callable[..., object], name: str, answer: str) -> None:
    with pytest.raises(pyggml.UnknownParameterError, match=re.escape(answer)) as caught:
        kind(**{name: "model.gguf"})
    assert str(caught.value).startswith(f"there is no parameter {name!r}")


# --- prompts and messages ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "answer"),
    [
        (["a", "b"], "generate_batch"),
        ([[1, 2], [3]], "generate_batch"),
        ([MESSAGE], "chat"),
        (MESSAGE, "chat"),
        (pyggml.ChatMessage("user", "a"), "chat"),
        (b"a", "text or token ids, not bytes"),
        (None, "text or token ids, not None"),
        (3, "text or token ids, not int"),
        (0.5, "text or token ids, not float"),
        ({"input_ids": [1]}, "text or token ids, not dict"),
        ((word for word in "abc"), "text or token ids, not generator"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_prompts_of_another_kind(llm: Any, prompt: Any, answer: str) -> None:
    ways: list[Callable[..., Any]] = [
        llm.generate,
        llm.stream,
        llm.astream,
        lambda prompt: asyncio.run(llm.agenerate(prompt)),
        lambda prompt: llm.generate_n(prompt, 2),
    ]
    if prompt != [MESSAGE]:
        ways.append(lambda prompt: llm.generate_batch([prompt]))
    for way in ways:
        with pytest.raises(pyggml.InvalidParameterError, match=f"the prompt .*{answer}"):
            way(prompt)


@pytest.mark.parametrize(
    ("messages", "answer"),
    [
        ("Hello!", "chat([{'role': 'user', 'content': text}])"),
        (MESSAGE, "put a single one in a list"),
        (["Hello!"], "messages[0] must be a ChatMessage or {'role': ..., 'content': ...}, not str"),
        ([IMAGE], "messages[0].content[0] must be a text part, {'type': 'text', 'text': ...}, not 'image_url': models"),
        ([{"role": "human", "content": "a"}], "roles are system, developer, user"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_messages_of_another_kind(llm: Any, messages: Any, answer: str) -> None:
    for way in (llm.chat, llm.stream_chat, llm.astream_chat, llm.apply_chat_template):
        with pytest.raises(pyggml.InvalidParameterError, match=re.escape(answer)):
            way(messages)


def test_transformers_way_to_apply_a_template(llm: Any) -> None:
    with pytest.raises(pyggml.UnknownParameterError, match=re.escape("'tokenize': the result is a text: llm.tokenize")):
        llm.apply_chat_template([MESSAGE], tokenize=True)
    plain = llm.apply_chat_template([MESSAGE])
    assert plain == llm.apply_chat_template([MESSAGE], tokenize=False, continue_final_message=False)
    assert llm.apply_chat_template([MESSAGE], chat_template="{{ mood }}", mood="calm") == "calm"


@pytest.mark.parametrize("use", [pyggml.load, pyggml.Model, pyggml.find_device, pyggml.Backend])
def test_a_device_without_a_name(use: Callable[..., object]) -> None:
    arguments = [pyggml.SHIPPED_MODEL] if use in (pyggml.load, pyggml.Model) else []
    with pytest.raises(pyggml.InvalidParameterError, match='device is empty: "auto" lets pyggml choose'):
        use(*arguments, **{"name" if use is pyggml.find_device else "device": ""})


def test_what_is_shown_says_what_is_closed() -> None:
    llm = pyggml.load(n_ctx=256, n_parallel=1)
    engine = llm._engine
    request = engine.submit([5, 6], max_tokens=3, ignore_eos=True)
    assert repr(request) == "Request(running, 0 tokens read)"
    request.read_all()
    assert repr(request) == "Request(length, 3 tokens read)"
    stream = llm.stream("a", max_tokens=3)
    assert repr(stream) == "Stream(running, 0 tokens read)"
    stream.finish()
    assert repr(stream) == "Stream(length, 3 tokens read)"
    assert repr(llm.astream("a")) == "AsyncStream(not started)"
    for each in (llm, llm.model, engine):
        assert "closed" not in repr(each)
    waiting = [engine.submit([5, 6], max_tokens=200, ignore_eos=True) for _ in range(50)]
    llm.close()
    for each in (llm, llm.model, engine):
        assert repr(each).endswith(", closed)")
    with pytest.raises(pyggml.ClosedError):
        waiting[-1].read_all()
    assert repr(waiting[-1]).startswith("Request(closed, ")


# --- names -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("create_completion", "llm.generate(prompt)"),
        ("create_chat_completion", "llm.chat(messages)"),
        ("complete", "llm.generate(prompt)"),
        ("invoke", "llm.generate(prompt)"),
        ("encode", "llm.tokenize(text)"),
        ("decode", "llm.detokenize(token_ids)"),
        ("from_pretrained", "pyggml.load(source)"),
    ],
)
def test_attributes_of_models_elsewhere(llm: Any, name: str, answer: str) -> None:
    with pytest.raises(AttributeError, match=f"'LLM' object has no attribute '{name}': .*{re.escape(answer)}"):
        getattr(llm, name)
    with pytest.raises(AttributeError, match=f"type object 'Qwen3' has no attribute '{name}': .*{re.escape(answer)}"):
        getattr(pyggml.Qwen3, name)


@pytest.mark.parametrize("name", ["AutoModelForCausalLM", "pipeline", "load_model", "generate", "LlamaGrammar"])
def test_names_of_other_packages(name: str) -> None:
    with pytest.raises(AttributeError, match=f"module 'pyggml' has no attribute '{name}': .*(pyggml|llm)\\."):
        getattr(pyggml, name)


def test_a_model_is_not_called(llm: Any) -> None:
    with pytest.raises(TypeError, match=re.escape("'LLM' object is not callable: llm.generate(prompt)")):
        llm("Once")


def test_openais_path_is_not_called(llm: Any) -> None:
    with pytest.raises(TypeError, match=re.escape("'Completions' object is not callable: llm.chat(messages)")):
        llm.chat.completions(messages=[])


@pytest.mark.slow
def test_results_are_not_dicts(llm: Any) -> None:
    done, answer = llm.generate("a", max_tokens=2), llm.chat([MESSAGE], max_tokens=2)
    chunk, piece = next(llm.stream("a", max_tokens=2)), next(llm.stream_chat([MESSAGE], max_tokens=2))
    for result, name, said in (
        (done, "choices", ".text is the text"),
        (done, "message", "llm.chat(messages) returns a message"),
        (answer, "choices", ".message.content its text"),
        (answer, "content", ".message.content is the text"),
        (chunk, "choices", ".text is the new text"),
        (piece, "choices", ".content is the new text"),
    ):
        with pytest.raises(AttributeError, match=re.escape(said)):
            getattr(result, name)
        with pytest.raises(TypeError, match="is not a dict: .*" + re.escape(said)):
            result[name]
    for result, key in ((done, "text"), (answer, "message"), (answer.message, "content"), (chunk, "token_ids")):
        with pytest.raises(TypeError, match=f"'{type(result).__name__}' object is not a dict: .{key} is an attribute"):
            result[key]
    with pytest.raises(TypeError, match="not iterable"):
        list(done)
    with pytest.raises(TypeError, match=r"it is one result, and \.text is the text"):
        done[0]


def test_other_names_are_missing_as_ever(llm: Any) -> None:
    done = llm.generate("a", max_tokens=2)
    for owner in (llm, pyggml.LLM, pyggml, done, done.timings):
        for name in ("nonsense", "_repr_svg_", "__array__"):
            assert not hasattr(owner, name)
            with pytest.raises(AttributeError, match=f"has no attribute '{name}'$"):
                getattr(owner, name)
    assert pickle.loads(pickle.dumps(done)) == done


def test_results_are_dataclasses_like_others(llm: Any) -> None:
    """Code that looks attributes up by name finds only those that exist."""
    done, answer = llm.generate("a", max_tokens=2), llm.chat([MESSAGE], max_tokens=2)
    for result in (done, answer, answer.message, next(llm.stream("a", max_tokens=2))):
        assert copy.copy(result) == copy.deepcopy(result) == dataclasses.replace(result) == result
        public = {name for name in vars(result) if not name.startswith("_")}
        assert dataclasses.asdict(result).keys() == public  # tools that convert dataclasses see nothing else
        assert not hasattr(create_autospec(result), "choices")
        assert not isinstance(result, Mapping)
    assert not hasattr(create_autospec(llm), "create_completion")


def test_a_property_says_itself_what_went_wrong() -> None:
    class Scored(pyggml.ChatMessage):
        @property
        def score(self) -> int:
            return len(self.nothing)  # type: ignore[attr-defined]

    with pytest.raises(AttributeError, match="'Scored' object has no attribute 'nothing'"):
        Scored().score  # noqa: B018


def test_dir_lists_public_names() -> None:
    names = [name for name in dir(pyggml) if not name.startswith("__")]
    assert sorted(names) == sorted(name for name in pyggml.__all__ if name != "__version__")
    assert "importlib" not in names


# --- the tables ---------------------------------------------------------------------------------------------------

#: Group of hints -> the object that would have the attributes.
OWNERS = {
    "model": pyggml.LLM,
    "package": pyggml,
    "completion": pyggml.Completion,
    "chunk": pyggml.Chunk,
    "tokenizer": pyggml.Tokenizer,
}


@pytest.mark.parametrize(
    ("group", "parameters"),
    [("sampling", inspect.signature(SamplingParams)), ("loading", inspect.signature(pyggml.load))],
    ids=["sampling", "loading"],
)
def test_hints_lead_to_parameters(group: str, parameters: inspect.Signature) -> None:
    assert hints(group)
    for name, hint in hints(group).items():
        assert name not in parameters.parameters
        assert hint in parameters.parameters or " " in hint, name


@pytest.mark.parametrize("group", ["model", "sampling", "loading"])
def test_every_name_of_other_libraries_is_answered(group: str) -> None:
    """By its own hint, since the name that is closest by spelling may mean something else."""
    table = ConfigParser(delimiters="=")
    table.read(DATA / "habits" / "names.ini", encoding="utf-8")
    chat = inspect.signature(pyggml.LLM.chat).parameters
    ours = {
        "model": {*dir(pyggml.LLM), *vars_of_a_model()},
        "sampling": {*inspect.signature(SamplingParams).parameters, *chat, "prompt"},
        "loading": {*inspect.signature(pyggml.load).parameters},
    }[group]
    for library, names in table[group].items():
        silent = [name for name in names.split() if name not in ours and name not in hints(group)]
        assert not silent, library


@pytest.mark.parametrize("name", OWNERS)
def test_names_with_hints_are_not_attributes(name: str) -> None:
    assert hints(name)
    for other in hints(name):
        is_called = isinstance(getattr(OWNERS[name], other, None), HintedPackage)
        assert other.startswith("__") or is_called or not hasattr(OWNERS[name], other)


def vars_of_a_model() -> list[str]:
    """The attributes that a model gets when it is loaded, as its docstring lists them."""
    return re.findall(r"^    (\w+): ", inspect.getdoc(pyggml.LLM) or "", re.MULTILINE)


def names_in(answer: str) -> Iterator[tuple[object, str]]:
    """The names that an answer mentions, and what has them."""
    for owner, name in re.findall(r"\b(pyggml|llm|Context)\.(\w+)", answer):
        yield {"pyggml": pyggml, "llm": pyggml.LLM, "Context": pyggml.Context}[owner], name
    for method in re.findall(r"(?<![.\w])(?!len\b)(\w+)\(", answer):
        yield (pyggml if method[0].isupper() or method == "load" else pyggml.LLM), method


@pytest.mark.slow_except(every=2)
@pytest.mark.parametrize(
    "group", [name for name in hint_groups() if not re.match("texts|server|alias|option|command", name)]
)
def test_hints_name_what_exists(group: str) -> None:
    set_when_loaded = {"chat", *vars_of_a_model()}
    for name, hint in hints(group).items():
        for owner, mentioned in names_in(hint):
            assert hasattr(owner, mentioned) or mentioned in set_when_loaded or mentioned == "to_dict", (
                name,
                mentioned,
            )
