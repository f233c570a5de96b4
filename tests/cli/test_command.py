"""Features of all subcommands: help, errors, exit codes, completion."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.command import called, fails, pyggml

import pyggml as library
from pyggml import cli
from pyggml._version import __version__
from pyggml.cli.program import COMMANDS

PUBLIC_MODULES = {"cache", "hub", "system", "units"}


def test_help_names_every_command() -> None:
    for arguments in ([], ["--help"], ["-h"]):
        done = called(*arguments)
        assert (done.code, done.err) == (0, "")
        assert all(f"  {name} " in done.out for name in COMMANDS)


@pytest.mark.slow_except("--help", "quantize --help")
@pytest.mark.parametrize("arguments", [["--help"], *([name, "--help"] for name in COMMANDS)], ids=" ".join)
def test_help_does_not_import_the_library(arguments: list[str]) -> None:
    program = (
        "import sys; from pyggml.cli import main\n"
        "try: main()\n"
        "finally: print({'numpy', 'pyggml._pyggml', 'rich', 'prompt_toolkit'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


def test_it_uses_public_names_of_the_library() -> None:
    """Of what it asks the package for; import-linter looks after what it imports."""
    public = {*library.__all__, *PUBLIC_MODULES} - {"ffi", "lib"}
    for file in Path(cli.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "pyggml":
                assert node.attr in public, f"{file.name} uses pyggml.{node.attr}"


def test_version() -> None:
    assert pyggml("--version").out == f"pyggml {__version__}\n"


def test_usage_errors_are_one_line_and_exit_with_2() -> None:
    assert "No such command 'nope'" in fails(2, "nope")
    assert fails(2, "genrate").endswith("No such command 'genrate'. Did you mean 'generate'?\n")
    assert "Invalid value for 'SHELL': 'foo'" in fails(2, "completion", "foo")
    assert "'abc' is neither a number nor auto." in fails(2, "generate", "--n-ctx", "abc", "x")
    assert "'abc' is not an integer." in fails(2, "perplexity", "--n-ctx", "abc", "-")
    assert "'abc' is not a number." in fails(2, "generate", "--temperature", "abc", "x")
    assert "--bogus" in fails(2, "--bogus")
    assert fails(2, "completion").startswith("pyggml completion: ")


@pytest.mark.slow_except("generate", "rpc-serve")
@pytest.mark.parametrize("name", COMMANDS)
def test_a_mistake_ends_the_process_as_it_ends_a_call(name: str) -> None:
    """Other tests run most refused command lines in this process, with the same result."""
    arguments = (name, "--bogus")
    assert fails(2, *arguments, by=pyggml) == fails(2, *arguments, by=called)


@pytest.mark.slow
def test_a_failure_ends_the_process_as_it_ends_a_call() -> None:
    for arguments in (("inspect", "missing.gguf"), ("generate", "-m", "missing.gguf", "x"), ("completion", "csh")):
        code = 2 if arguments[0] == "completion" else 1
        assert fails(code, *arguments, by=pyggml) == fails(code, *arguments, by=called)


def test_debug_shows_where_an_error_came_from() -> None:
    assert "Traceback" in pyggml("completion", "csh", "--debug").err


@pytest.mark.parametrize("missing", ["click", "rich", "prompt_toolkit"])
def test_without_the_extra_it_says_how_to_get_it(missing: str) -> None:
    program = f"import sys; sys.modules[{missing!r}] = None; from pyggml.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == f"pyggml: the command needs {missing}: pip install {missing}\n"


def test_without_the_compiled_module_it_says_so(tmp_path: Path) -> None:
    """Python runs this file at every start."""
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['pyggml._pyggml'] = None\n")
    text = fails(1, "bench", by=pyggml, env={"PYTHONPATH": str(tmp_path)})
    assert text.startswith("pyggml: pyggml's compiled module could not be imported. ")


def test_completion_in_bash() -> None:
    assert "_PYGGML_COMPLETE=bash_complete" in pyggml("completion", "bash").out
    words = {"_PYGGML_COMPLETE": "bash_complete", "COMP_WORDS": "pyggml comp", "COMP_CWORD": "1"}
    assert pyggml(env=words).out == "plain,completion\n"


@pytest.mark.slow
def test_a_closed_pipe_is_no_error() -> None:
    command = f"{sys.executable} -m pyggml --help; echo $? >&2"
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(["sh", "-c", command], stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert done.stderr == "1\n"
