"""llama-cpp-python's own tests, examples and chat formats, from its source distribution, on pyggml.

The source distribution is downloaded, never built, and nothing of it is installed.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib
import importlib.util
import inspect
import itertools
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from llama_cpp import llama_chat_format

from pyggml.compat._llama.formats import TEXT_FORMATS

VERSION = "0.3.36"
SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
CACHE = Path("build/clients/llama-cpp-python").resolve()
HERE = Path(__file__).resolve().parent

#: Their tests that fail here, and why. All others pass.
FAILING = {
    "test_real_model": "uses private classes and the token ids of Qwen 3.5",
    "test_real_llama": "compares with the text of Qwen 3.5",
    "test_real_llama_repeated_prompt_cache": "compares with the text of Qwen 3.5",
    **{
        f"test_ram_cache_exact_prompt_hit_matches_fresh[{case}]": "LlamaRAMCache has no effect: the engine caches"
        for case in (
            "llama_cpp_transformer_model_path-False-False",
            "llama_cpp_recurrent_model_path-True-False",
            "llama_cpp_hybrid_model_path-False-True",
        )
    },
}

#: Module -> their public functions and classes that are not here. docs/how-to/use-llama-cpp-python-code.md says why.
LEFT_OUT: dict[str, set[str]] = {
    "llama": set(),
    "llama_cache": set(),
    "llama_speculative": set(),
    "llama_tokenizer": set(),
    "llama_types": set(),
    "llama_grammar": {"BuiltinRule", "SchemaConverter"},  # parts of their compiler of schemas
    "llama_chat_format": {
        "chatml_function_calling",
        "format",
        "format_open_orca",
        "format_openbuddy",
        "format_snoozy",
        "functionary_chat_handler",
        "functionary_v1_v2_chat_handler",
        "guess_chat_format_from_gguf_metadata",
    },
}


@pytest.fixture(scope="session")
def tree() -> Path:
    """The unpacked source distribution."""
    name = f"llama_cpp_python-{VERSION}"
    archive, unpacked = CACHE / f"{name}.tar.gz", CACHE / name
    if not archive.exists():
        download = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", ":all:", "--dest", str(CACHE)]
        subprocess.run([*download, f"llama-cpp-python=={VERSION}"], check=True)
    assert hashlib.sha256(archive.read_bytes()).hexdigest() == SHA256
    if not unpacked.exists():
        with tarfile.open(archive) as packed:
            vocabularies = f"{name}/vendor/llama.cpp/models/"
            wanted = [each for each in packed if "/vendor/" not in each.name or each.name.startswith(vocabularies)]
            for member in wanted:
                member.name = member.name.replace(name, f"{name}.part", 1)
            packed.extractall(CACHE, members=wanted)
        (CACHE / f"{name}.part").rename(unpacked)
    return unpacked


def test_their_tests(tree: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    env = os.environ | {"PYTHONPATH": os.pathsep.join([os.environ["PYTHONPATH"], str(HERE), str(HERE.parents[1])])}
    options = ["-p", "upstream_plugin", "-p", "no:cacheprovider", "--rootdir", ".", "--junitxml", str(report)]
    run = subprocess.run([sys.executable, "-m", "pytest", *options, "tests"], cwd=tree, env=env, check=False)
    assert run.returncode in (0, 1)
    cases = ET.parse(report).getroot().iter("testcase")
    failed = {case.get("name"): case.find("failure") is not None or case.find("error") is not None for case in cases}
    assert len(failed) == 26
    assert {name for name, has_failed in failed.items() if has_failed} == set(FAILING)


@pytest.mark.parametrize("module", LEFT_OUT)
def test_functions_and_classes_are_theirs(tree: Path, module: str) -> None:
    ours = importlib.import_module(f"llama_cpp.{module}")
    missing = {each.name for each in definitions(tree, module) if not hasattr(ours, each.name)}
    assert missing == LEFT_OUT[module]


@pytest.mark.parametrize("module", LEFT_OUT)
def test_parameters_and_defaults_are_theirs(tree: Path, module: str) -> None:
    """Public methods, and defaults that are literals. Theirs for ``stop`` is [], which means the same as None."""
    ours = importlib.import_module(f"llama_cpp.{module}")
    for theirs in definitions(tree, module):
        if isinstance(theirs, ast.FunctionDef) or theirs.name in LEFT_OUT[module] or "Handler" in theirs.name:
            continue
        for method in (each for each in theirs.body if isinstance(each, ast.FunctionDef)):
            if method.name.startswith("_") and method.name not in ("__init__", "__call__"):
                continue
            found = inspect.getattr_static(getattr(ours, theirs.name), method.name)
            if isinstance(found, property):
                continue
            # The parameters of Llama.__call__ are those of create_completion, as keywords.
            name = "create_completion" if (theirs.name, method.name) == ("Llama", "__call__") else method.name
            parameters = inspect.signature(getattr(getattr(ours, theirs.name), name)).parameters
            for parameter, default in literal_defaults(method):
                where = (theirs.name, name, parameter)
                assert parameter in parameters or "kwargs" in parameters, where
                if default is not inspect.Parameter.empty and parameter in parameters:
                    assert parameters[parameter].default == default or default == [], where


def definitions(tree: Path, module: str) -> list[Any]:
    """The public functions and classes of a module of theirs."""
    content = ast.parse((tree / "llama_cpp" / f"{module}.py").read_text(encoding="utf-8")).body
    return [each for each in content if isinstance(each, (ast.FunctionDef, ast.ClassDef)) and each.name[0] != "_"]


def literal_defaults(method: ast.FunctionDef) -> list[tuple[str, Any]]:
    """The parameters of a method with their defaults; empty: none, or none that is a literal."""
    arguments = method.args
    positional = [*arguments.posonlyargs, *arguments.args]
    padding: list[Any] = [None] * (len(positional) - len(arguments.defaults))
    pairs = [*zip(positional, [*padding, *arguments.defaults], strict=True)]
    pairs += zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return [(each.arg, literal(default)) for each, default in pairs if each.arg not in ("self", "cls")]


def literal(default: ast.expr | None) -> Any:
    try:
        return inspect.Parameter.empty if default is None else ast.literal_eval(default)
    except ValueError:
        return inspect.Parameter.empty


@pytest.mark.parametrize("example", ["inference", "streaming", "embedding", "infill"])
def test_their_examples(tree: Path, smollm2_path: str, example: str) -> None:
    file = tree / "examples" / "high_level_api" / f"high_level_api_{example}.py"
    program = (
        f"import pyggml.compat, runpy; pyggml.compat.install(); runpy.run_path({str(file)!r}, run_name='__main__')"
    )
    # In another folder than the checkout, whose package has no compiled module unless it was built there.
    command = [sys.executable, "-c", program, "-m", smollm2_path]
    run = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=True, timeout=250)
    if example == "inference":
        (choice,) = json.loads(run.stdout)["choices"]
        assert choice["text"].startswith("Question: What are the names of the planets in the solar system? Answer: ")
    elif example == "streaming":
        assert run.stdout.count('"text_completion"') > 2
    elif example == "embedding":
        assert run.stdout.startswith("{'object': 'list'")
    else:
        assert "def add(" in run.stdout


def load(tree: Path, module: str) -> ModuleType:
    """A module of theirs, as a submodule of llama_cpp."""
    spec = importlib.util.spec_from_file_location(f"llama_cpp.{module}", tree / "llama_cpp" / f"{module}.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    if module.startswith("_"):
        sys.modules[spec.name] = made
    spec.loader.exec_module(made)
    return made


@functools.cache
def conversations() -> list[list[dict[str, Any]]]:
    """Conversations of all shapes, with and without a system message."""
    turns = [("user", "Hello?"), ("assistant", "Yes."), ("user", "A {b} c\n d"), ("assistant", "")]
    systems: list[list[tuple[str, str]]] = [[], [("system", "Be brief.")]]
    found = [[*system, *turns[:n]] for system, n in itertools.product(systems, range(len(turns) + 1))]
    return [[{"role": role, "content": text} for role, text in conversation] for conversation in found]


def test_chat_formats_are_theirs(tree: Path) -> None:
    load(tree, "_utils")
    ours = dict(llama_chat_format.LlamaChatCompletionHandlerRegistry._chat_handlers)
    try:
        llama_chat_format.LlamaChatCompletionHandlerRegistry._chat_handlers.clear()
        theirs = load(tree, "llama_chat_format")
    finally:
        llama_chat_format.LlamaChatCompletionHandlerRegistry._chat_handlers.update(ours)
    names = {
        "llama-2": "format_llama2",
        "llama-3": "format_llama3",
        "baichuan-2": "format_baichuan2",
        "vicuna": "format",
    }
    assert len(TEXT_FORMATS) > 15
    for name in (*TEXT_FORMATS, "llama-2", "mistral-instruct", "saiga"):
        their_name = names.get(name, f"format_{name.replace('-', '_')}")
        our_name = "format_vicuna" if name == "vicuna" else their_name
        for messages in conversations():
            their, our = getattr(theirs, their_name)(messages), getattr(llama_chat_format, our_name)(messages)
            assert (our.prompt, our.stop) == (their.prompt, their.stop), (name, messages)
