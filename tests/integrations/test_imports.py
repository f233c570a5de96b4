"""Frameworks and the modules for them are imported only when they are used."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.paths import ROOT

# Module -> the framework that it imports, and what installs that.
FRAMEWORKS = {
    "dspy": ("dspy", "dspy"),
    "guidance": ("guidance", "guidance"),
    "haystack": ("haystack", "haystack-ai"),
    "langchain": ("langchain_core", "langchain-core"),
    "litellm": ("litellm", "litellm"),
    "llama_index": ("llama_index", "llama-index-core"),
    "llm": ("llm", "llm"),
    "lm_eval": ("lm_eval", "lm-eval"),
    "outlines": ("outlines", "outlines"),
    "pydantic_ai": ("pydantic_ai", "pydantic-ai-slim"),
}


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.strip()


def test_every_module_is_in_the_table() -> None:
    modules = {path.stem for path in (ROOT / "pyggml" / "integrations").glob("[!_]*.py")}
    assert modules == {*FRAMEWORKS, "sentence_transformers"}


def test_importing_the_package_costs_little() -> None:
    """It imports a few of the standard library's modules, none of its own parts and no other package."""
    program = (
        "import sys; before = set(sys.modules); import pyggml; new = set(sys.modules) - before; "
        "print(sorted({name.partition('.')[0] for name in new} - sys.stdlib_module_names), "
        "sorted(name for name in new if name.count('.') == 1 and name.startswith('pyggml.')))"
    )
    assert run(program) == "['pyggml'] ['pyggml._core', 'pyggml._version']"


def test_the_package_imports_no_integration() -> None:
    used = "pyggml.load, pyggml.SamplingParams, pyggml.system, pyggml.options"
    program = f"import sys, pyggml; {used}; print([name for name in sys.modules if 'integrations' in name])"
    assert run(program) == "[]"


def test_the_package_of_integrations_imports_no_framework() -> None:
    names = [framework for framework, _ in FRAMEWORKS.values()] + ["torch", "sentence_transformers"]
    program = (
        "import sys, pyggml.integrations, pyggml.integrations.sentence_transformers; "
        f"print([name for name in {names} if name in sys.modules])"
    )
    assert run(program) == "[]"


@pytest.mark.parametrize("module", FRAMEWORKS)
def test_a_missing_framework_names_the_command_that_installs_it(module: str) -> None:
    framework, package = FRAMEWORKS[module]
    program = (
        f"import sys; sys.modules[{framework!r}] = None\n"
        "import pyggml\n"
        "try:\n"
        f"    import pyggml.integrations.{module}\n"
        "except ImportError as error:\n"
        "    print(isinstance(error, pyggml.MissingPackageError), error)\n"
    )
    assert run(program) == f"True {framework} is not installed: pip install {package}"
