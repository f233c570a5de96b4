"""Options are declared once: signatures, docs and command-line options are made of the declarations, or agree."""

from __future__ import annotations

import inspect
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.paths import ROOT

import pyggml
from pyggml import _pyggml, lib
from pyggml._core.fields import CACHE_TYPES, Field, fields_of, shared
from pyggml._native import context_options
from pyggml.chat.request import chat_request
from pyggml.generation import request_options
from pyggml.memory.estimate import estimate
from pyggml.options import EstimateOptions, LoadOptions, MemoryOptions
from pyggml.sampling import Grammar, SamplingParams

CHAT_METHODS = (pyggml.LLM.chat, pyggml.LLM.stream_chat, pyggml.LLM.achat, pyggml.LLM.astream_chat)


# --- a made-up option -------------------------------------------------------------------------------------------

# Runs in a copy of the package that has one line more, and its line of help.
MADE_UP = """
import sys

sys.meta_path = [each for each in sys.meta_path if each.__module__.startswith("_frozen_importlib")]  # no editable one
sys.path[:0] = [sys.argv[1], sys.argv[2]]
import inspect
from click.testing import CliRunner
import make_keywords
import pyggml, pyggml.context, pyggml.memory.planner
from pyggml.cli.program import program

assert pyggml.__file__.startswith(sys.argv[1])

# In the C structs that the planner and the context are given.
seen = []
for module in (pyggml._native.context, pyggml.memory.planner):
    def native(options, place=module.__name__, make=module.native_options):
        struct = make(options)
        seen.append((place, struct.swa_full))
        return struct
    module.native_options = native

def told(use):
    seen.clear()
    use()
    return set(seen)

both = {("pyggml._native.context", True), ("pyggml.memory.planner", True)}
assert told(lambda: pyggml.load(swa_full=True).close()) == both
assert told(lambda: pyggml.LLM(None, swa_full=True).close()) == both
assert told(lambda: pyggml.Inference.cpu().use_auto(None, swa_full=True).close()) == both
assert told(lambda: pyggml.load().close()) == {(place, False) for place, _ in both}
assert told(lambda: pyggml.inspect().estimate(swa_full=True)) == {("pyggml.memory.planner", True)}
assert pyggml.inspect().estimate(swa_full=True).swa_full is True

# In the signatures, and in what type checkers read.
for function in (pyggml.load, pyggml.LLM, pyggml.memory.estimate.estimate):
    parameter = inspect.signature(function).parameters["swa_full"]
    assert (parameter.annotation, parameter.default) == (bool, False), function
load, estimate = make_keywords.page().split("class ")[1:3]
assert "    swa_full: bool\\n" in load and "    swa_full: bool\\n" in estimate

# In the command.
def command(*arguments):
    done = CliRunner().invoke(program, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output

for name in ("generate", "chat", "inspect"):
    assert "--swa-full" in command(name, "--help")
assert "Windows keep everything." in command("generate", "--help")
assert told(lambda: command("generate", "x", "--swa-full", "--max-tokens", "1")) == both
"""


@pytest.fixture(scope="module")
def with_made_up_option(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a copy of the package whose options have one field more."""
    folder = tmp_path_factory.mktemp("made-up")
    compiled = Path(_pyggml.__file__)
    ignored = shutil.ignore_patterns("__pycache__", "*.so")
    shutil.copytree(Path(pyggml.__file__).parent, folder / "pyggml", ignore=ignored)
    (folder / "pyggml" / compiled.name).symlink_to(compiled)
    options = folder / "pyggml" / "options" / "load.py"
    text = options.read_text()
    field, line = '    cache_type: CacheType = "f16"\n', "        cache_type: element type of the KV cache.\n"
    assert text.count(field) == text.count(line) == 1
    text = text.replace(field, field + "    swa_full: bool = False\n")
    options.write_text(text.replace(line, line + "        swa_full: windows keep everything.\n"))
    return folder


@pytest.mark.slow
def test_a_made_up_option_reaches_everything(with_made_up_option: Path) -> None:
    arguments = [str(with_made_up_option), str(ROOT / "tools")]
    done = subprocess.run([sys.executable, "-c", MADE_UP, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_type_checkers_know_a_made_up_option(with_made_up_option: Path) -> None:
    """Without anything written for it: they derive the signatures from the declaration."""
    program = "import pyggml\npyggml.load(swa_full=True)\npyggml.LLM(swa_full='no')\n"
    (with_made_up_option / "program.py").write_text(program)
    command = [sys.executable, "-m", "mypy", "--follow-imports=silent", "--python-version=3.10", "program.py"]
    done = subprocess.run(command, cwd=with_made_up_option, capture_output=True, text=True, check=False)
    errors = [line for line in done.stdout.splitlines() if line.startswith("program.py")]
    assert len(errors) == 1, done.stdout + done.stderr
    assert errors[0].startswith('program.py:3: error: Argument "swa_full" to "LLM" has incompatible type "str"')


# --- the same facts in C ------------------------------------------------------------------------------------------


# --- signatures and docs ----------------------------------------------------------------------------------------


def test_signatures_are_made_of_the_declarations() -> None:
    for function, cls in ((pyggml.load, LoadOptions), (pyggml.LLM, LoadOptions), (estimate, EstimateOptions)):
        parameters = inspect.signature(function).parameters
        assert {name: each.default for name, each in parameters.items()} == {
            name: field.default for name, field in fields_of(cls).items()
        }
        assert "Field(" not in str(inspect.signature(function))
    assert "Field(" not in str(inspect.signature(SamplingParams))
    assert [*inspect.signature(pyggml.Context).parameters] == ["model", *fields_of(context_options.ContextOptions)]


def test_chat_methods_take_the_same() -> None:
    signatures = [inspect.signature(method) for method in CHAT_METHODS]
    _, *expected = inspect.signature(chat_request).parameters.values()
    others = [[each for each in signature.parameters.values() if each.name != "n"] for signature in signatures]
    assert all(parameters[1:] == expected for parameters in others)
    assert all(next(iter(each.parameters)) == "self" for each in signatures)
    whole = "ChatCompletion | list[ChatCompletion]"
    returns = [whole, "ChatStream", whole, "AsyncChatStream"]
    assert [each.return_annotation for each in signatures] == returns
    assert [inspect.iscoroutinefunction(method) for method in CHAT_METHODS] == [False, False, True, False]


def documented(function: Callable[..., Any]) -> dict[str, str]:
    """Parameter -> what the section "Args" of a docstring says about it."""
    section = inspect.getdoc(function).partition("\nArgs:\n")[2].partition("\n\n")[0]  # type: ignore[union-attr]
    found = re.findall(r"^    \**(\w+): (.*(?:\n {8}.*)*)", section, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in found}


@pytest.mark.parametrize("function", [pyggml.load, estimate, pyggml.Context.__init__, pyggml.LLM.chat])
def test_every_parameter_is_explained(function: Callable[..., Any]) -> None:
    parameters = [name for name in inspect.signature(function).parameters if name != "self"]
    assert [*documented(function)] == parameters


@pytest.mark.parametrize(("function", "cls"), [(pyggml.load, LoadOptions), (estimate, EstimateOptions)])
def test_explanations_begin_as_the_commands_have_them(function: Callable[..., Any], cls: type) -> None:
    texts = documented(function)
    for name, field in fields_of(cls).items():
        assert texts[name].startswith(re.split(r"(?<=\w)\.(?= |$)", field.help)[0]), name


@pytest.mark.parametrize("cls", [LoadOptions, EstimateOptions, SamplingParams])
def test_every_field_has_help(cls: type) -> None:
    assert [name for name, field in fields_of(cls).items() if not field.help] == []


def test_the_types_of_keywords_are_current(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import make_keywords

    assert make_keywords.PAGE.read_text() == make_keywords.page(), "run python tools/make_keywords.py"


# --- what C says --------------------------------------------------------------------------------------------------


def test_defaults_in_c_are_the_same() -> None:
    requests, params = lib.pyg_request_default_options(), SamplingParams()
    assert requests.max_tokens == params.max_tokens
    assert requests.timeout_s < 0
    assert pyggml.ffi.string(requests.sampling.grammar_root).decode() == Grammar("x").root
    assert requests.sampling.adaptive_target < 0
    assert requests.sampling.reasoning_budget < 0
    assert len(request_options._SAMPLING_NUMBERS) > 20
    for name in {*request_options._SAMPLING_NUMBERS} - {"seed", "adaptive_target", "reasoning_budget"}:
        assert getattr(requests.sampling, name) == pytest.approx(getattr(params, name)), name
    contexts = lib.pyg_context_default_options()
    ours = context_options.native_options(context_options.ContextOptions())
    for name in dir(contexts):
        assert getattr(contexts, name) == getattr(ours, name), name


def test_limits_in_c_are_the_same() -> None:
    assert fields_of(LoadOptions)["n_threads"].high == lib.GGML_MAX_N_THREADS
    assert fields_of(LoadOptions)["n_parallel"].high == lib.llama_max_parallel_sequences()
    assert all(name in context_options._CACHE_TYPES for name in CACHE_TYPES)


def test_what_a_context_and_load_share_has_the_same_default() -> None:
    context = context_options.ContextOptions()
    common = shared(LoadOptions(), context_options.ContextOptions)
    assert {"n_batch", "n_ubatch", "cache_type", "n_threads"} < common.keys()
    for name in common.keys() - {"n_ctx", "kv_unified"}:  # an engine divides its context itself
        assert getattr(context, name) == common[name], name


# --- values ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"n_parallel": 0}, "n_parallel must be between 1 and 256, not 0"),
        ({"n_parallel": True}, "n_parallel must be an integer"),
        ({"n_ctx": "all"}, "n_ctx must be an integer"),
        ({"n_parallel": 9, "n_batch": 8}, "n_batch must be at least n_parallel"),
        ({"cache_type": "f17"}, "cache_type must be one of 'f32', 'f16'"),
        ({"cache_type": None}, "cache_type must be one of"),
        ({"queue_full": "drop"}, "queue_full must be one of 'raise', 'wait', not 'drop'"),
        ({"max_queue": 0}, "max_queue"),
        ({"n_threads": 513}, "n_threads must be between 1 and 512"),
    ],
    ids=str,
)
def test_bad_values_are_refused_before_anything_is_looked_for(options: dict[str, Any], said: str) -> None:
    for use in (pyggml.load, pyggml.LLM, LoadOptions):
        with pytest.raises(pyggml.InvalidParameterError, match=re.escape(said)):
            use("no-such-file.gguf", **options)


def test_bad_values_are_shown_in_a_line_however_long_they_are() -> None:
    with pytest.raises(pyggml.InvalidParameterError, match="not an integer with thousands of digits"):
        pyggml.SamplingParams(max_tokens=10**5000)
    for bad in ({"top_k": "x" * 10**6}, {"stop": ["x" * 10**6, ""]}, {"response_format": {"type": "x" * 10**6}}):
        with pytest.raises(pyggml.InvalidParameterError) as caught:
            pyggml.SamplingParams(**bad)
        assert len(str(caught.value)) < 400


def test_options_are_keywords() -> None:
    with pytest.raises(TypeError):
        pyggml.load("model.gguf", None, "cpu")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="n_cxt"):
        pyggml.LLM(n_cxt=512)  # type: ignore[call-arg]


def test_values_come_out_in_their_types() -> None:
    options = MemoryOptions(n_ctx="auto", n_gpu_layers=None)
    assert (options.n_ctx, options.n_gpu_layers) == ("auto", None)
    assert LoadOptions(prefix_cache=0).prefix_cache is False  # type: ignore[arg-type]
    assert type(SamplingParams(temperature=1).temperature) is float
    with pytest.raises(pyggml.InvalidParameterError, match="repeat_penalty must be a finite number above 0"):
        SamplingParams(repeat_penalty=0)


@pytest.mark.slow
def test_numbers_may_have_no_bounds() -> None:
    assert Field(name="n", types=(int,)).checked(-(2**70)) == -(2**70)


def test_words_in_any_case() -> None:
    given: Any = {"type_k": "Q8_0", "split_mode": "None"}
    options = MemoryOptions(**given)
    assert (options.type_k, options.split_mode) == ("q8_0", "none")
    for value in ("GGML_TYPE_Q8_0", 8):
        wrong: Any = {"type_k": value}
        with pytest.raises(pyggml.InvalidParameterError, match="the number 8, is 'q8_0' here"):
            MemoryOptions(**wrong)
