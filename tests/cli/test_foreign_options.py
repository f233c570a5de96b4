"""Commands and options of other tools: they work, or the error message says what to type."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from support.command import called, fails, pyggml

from pyggml._core.hints import hint_groups, hints
from pyggml._version import __version__
from pyggml.cli.program import COMMANDS, load_command
from pyggml.source import SHIPPED_MODEL

MODEL = str(SHIPPED_MODEL)
OPTIONS = ("-m", MODEL, "-c", 256, "-t", 1)


def text_of(*arguments: object, stdin: str = "") -> str:
    done = called("generate", *OPTIONS, *arguments, stdin=stdin)
    assert done.code == 0, done
    return done.out


# --- commands ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("show model.gguf", "'pyggml inspect model.gguf'"),
        ("list", "'pyggml cache list'"),
        ("ls", "'pyggml cache list'"),
        ("ps", "'pyggml cache list'"),
        ("rm llama3.2", "'pyggml cache rm llama3.2'"),
        ("pull org/repo", "'pyggml cache get hf:org/repo'"),
        ("pull hf:org/repo:q4_k_m", "'pyggml cache get hf:org/repo:q4_k_m'"),
        ("download https://huggingface.co/org/repo", "'pyggml cache get hf:org/repo'"),
        ("pull llama3.2", "'pyggml cache get hf:org/repo'"),
        ("start -m model.gguf", "'pyggml serve -m model.gguf'"),
        ("embeddings hello", "pyggml embed -m MODEL FILE"),
        ("tokenize hello", ".tokenize(TEXT)"),
        ("logs", "/save FILE"),
        ("repl", "'pyggml chat -m MODEL'"),
        ("prompt 'a b'", "'pyggml generate 'a b''"),
        ("create mine -f Modelfile", "pyggml chat -m MODEL --system TEXT"),
        ("llama-cli -m model.gguf", "'pyggml chat -m model.gguf'"),
        ("llama-quantize a.gguf b.gguf q4_0", "'pyggml quantize a.gguf b.gguf q4_0'"),
        ("convert_hf_to_gguf.py dir", "'pyggml convert dir'"),
        ("complete x", "'pyggml completion SHELL'"),
        ("push", "hf upload"),
        ("genrate", "Did you mean 'generate'?"),
        ("nope", "'pyggml --help' lists them"),
        ("model.gguf", "model.gguf is a model, not a command: type 'pyggml chat -m model.gguf'"),
        ("hf:org/repo hello", "type 'pyggml chat -m hf:org/repo hello'"),
        ("org/repo:Q4_K_M", "type 'pyggml chat -m org/repo:Q4_K_M'"),
        ("llama3.2:1b hello", "type 'pyggml chat -m llama3.2:1b hello'"),
        ("'What is red?'", "type 'pyggml chat 'What is red?''"),
        ("-m model.gguf -p hi", "type 'pyggml generate -m model.gguf -p hi'"),
        ("-hf org/repo", "type 'pyggml chat -hf org/repo'"),
    ],
)
def test_a_command_of_another_tool(typed: str, answer: str) -> None:
    assert answer in fails(2, *shlex.split(typed))


def test_run_is_chat() -> None:
    question = "What colour is the sky?\n"
    assert called("run", "-m", MODEL, stdin=question).out == called("chat", "-m", MODEL, stdin=question).out


def test_help_and_version_are_commands_too() -> None:
    assert called("version").out == f"pyggml {__version__}\n"
    assert called("help").out == called("--help").out
    assert called("help", "cache", "clear").out == called("cache", "clear", "--help").out
    assert "No such command 'shwo'" in fails(2, "help", "shwo")


HINTS = {hint for group in hint_groups() if group.startswith(("command", "option")) for hint in hints(group).values()}


@pytest.mark.slow_except(every=2)
@pytest.mark.parametrize("answer", sorted(HINTS))
def test_what_hints_name_exists(answer: str) -> None:
    for command, _, rest in re.findall(r"(?:'|: )pyggml ([a-z][a-z-]*)( ([^']*))?", answer):
        assert command in COMMANDS, answer
        group = load_command(command)
        if isinstance(group, click.Group):
            assert rest.split()[0] in group.commands, answer
    own = {name for command in COMMANDS for name in names_of(command)} | {"--help", "--version"}
    for option in re.findall(r"(?<![\w-])--?[a-z][a-z-]*", answer):
        assert option in own, answer


def names_of(command: str) -> set[str]:
    return {name for param in load_command(command).params for name in (*param.opts, *param.secondary_opts)}


# --- options ----------------------------------------------------------------------------------------------------


def test_a_line_for_llama_cli() -> None:
    own = text_of("Once upon a time", "--max-tokens", 12, "--temperature", 0.8, "--seed", 5, "--top-k", 40)
    line = ["-p", "Once upon a time", "-n", 12, "--temp", 0.8, "-s", 5, "--top-k", 40, "-ngl", 99, "-b", 64, "-ub", 64]
    assert text_of(*line) == own
    assert text_of("--prompt", "Once upon a time", "--predict", 12, "--temp=0.8", "--seed", 5, "--top-k", 40) == own
    words = ["--model", MODEL, "--ctx-size", 256, "--threads", 1, "--gpu-layers", 0, "--n-predict", 12]
    assert called("generate", *words, "-p", "Once upon a time", "--temp", 0.8, "-s", 5, "--top-k", 40).out == own


@pytest.mark.parametrize("command", COMMANDS)
def test_a_letter_means_the_same_everywhere(command: str) -> None:
    """Short options mean the same as in llama-cli and llama-bench."""
    meanings = {
        "-a": "--alias",
        "-m": "--model",
        "-hf": "--hf-repo",
        "-p": "--prompt",
        "-n": "--max-tokens",
        "-f": "--file",
        "-c": "--n-ctx",
        "-t": "--n-threads",
        "-b": "--n-batch",
        "-ub": "--n-ubatch",
        "-ngl": "--n-gpu-layers",
        "-s": "--seed",
        "-sys": "--system",
        "-j": "--json-schema",
        "-l": "--logit-bias",
        "-e": "--escape",
        "-dev": "--device",
        "-md": "--draft",
        "-devd": "--draft-device",
        "-ngld": "--draft-n-gpu-layers",
        "-np": "--n-parallel",
        "-d": "--depth",
        "-r": "--repetitions",
        "-y": "--yes",
        "-sm": "--split-mode",
        "-ts": "--tensor-split",
        "-mg": "--main-gpu",
        "-ncmoe": "--n-cpu-moe",
        "-cmoe": "--cpu-moe",
        "-ot": "--override-tensor",
        "-bs": "--backend-sampling",
        "-ctk": "--type-k",
        "-ctv": "--type-v",
    }
    in_bench = {"-n": "--generate", "-np": "--parallel"}  # lists of numbers, as for llama-bench
    for param in load_command(command).params:
        for letter in (name for name in param.opts if not name.startswith("--") and name.startswith("-")):
            meant = in_bench.get(letter, meanings[letter]) if command == "bench" else meanings[letter]
            assert meant in param.opts, (command, letter)


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("generate -fa x", "-fa: not needed: flash attention is used"),
        ("generate --flash-attn on x", "not needed: flash attention"),
        ("generate -no-cnv -p x", "'pyggml generate' continues the text as it is"),
        ("generate --rope-scale 4 x", "--rope-freq-scale takes its reciprocal"),
        ("generate --mlock x", "the file is mapped"),
        ("generate --color x", "NO_COLOR"),
        ("generate --max-length 5 x", "--max-tokens N counts only what is generated"),
        ("generate -sys 'Be brief.' x", "'pyggml chat --system TEXT'"),
        ("generate -r User: x", "--stop TEXT"),
        ("generate --promt x", "--prompt"),
        ("generate --verbose x", "--stats"),
        ("generate --trust-remote-code x", "no code of a model"),
        ("chat -cnv", "'pyggml chat' talks with the model"),
        ("chat -s Hi", "--system TEXT"),
        ("quantize --allow-requantize a b q8_0", "--requantize"),
        ("quantize --pure a b q8_0", "--tensor-type"),
        ("convert dir --outfile x.gguf", "pyggml convert DIRECTORY OUT"),
        ("convert dir x.gguf -f", "--force replaces OUT"),
        ("perplexity -f text.txt", "pyggml perplexity TEXT"),
        ("imatrix -f text.txt -o out", "pyggml imatrix TEXT OUT"),
        ("bench -ctk q8_0", "--cache-type f16,q8_0"),
        ("inspect -e x", "--estimate"),
    ],
)
def test_an_option_of_another_tool(typed: str, answer: str) -> None:
    assert answer in fails(2, *shlex.split(typed))


def test_only_own_names_are_shown() -> None:
    shown = called("generate", "--help").out
    assert "--temperature" in shown
    assert "--ctx-size" not in shown
    assert "--flash-attn" not in shown
    words = {"_PYGGML_COMPLETE": "bash_complete", "COMP_WORDS": "pyggml generate --temp", "COMP_CWORD": "2"}
    assert pyggml(env=words).out == "plain,--temperature\n"


def test_a_model_may_be_an_argument() -> None:
    assert called("generate", MODEL, "Once upon a time", "-n", 4).out == text_of("-p", "Once upon a time", "-n", 4)
    assert "the prompt is missing: pyggml generate -m x.gguf -p PROMPT" in fails(2, "generate", "x.gguf")
    assert "several models" in fails(2, "generate", "-m", MODEL, MODEL, "Once")
    assert "hf:org/repo" in fails(1, "generate", "org/repo", "Once upon a time")
    assert called("inspect", "-m", MODEL).out == called("inspect", MODEL).out


@pytest.mark.slow
@pytest.mark.parametrize("command", ["generate x", "chat", "inspect", "perplexity -", "bench"])
def test_a_repository_of_the_hub(command: str, tmp_path: Path) -> None:
    """Nothing is asked: it is not there, and the hub may not be."""
    env = {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(tmp_path)}
    text = fails(1, *command.split(), "-hf", "tiny/stories:q8_0", by=pyggml, env=env)
    assert "hf:tiny/stories:q8_0 is not in" in text


@pytest.mark.parametrize("name", ["llama3.2", "qwen3:0.6b", "mistral:latest"])
def test_a_name_of_ollamas_library(name: str) -> None:
    expected = (
        f"there is no model file at {name}; if that is a name of ollama's library, find the model on huggingface.co"
    )
    assert expected in fails(1, "generate", "-m", name, "x")
    assert "ollama" not in fails(1, "generate", "-m", "model2.gguf", "x")


# --- texts ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_texts_are_joined(tmp_path: Path) -> None:
    file = tmp_path / "story.txt"
    file.write_text("Once upon a time\n")
    both, options = "Once upon a time\nthere was a dog", ("-n", 8)
    expected = text_of(both, *options)
    assert text_of("there was a dog", *options, stdin="Once upon a time\n") == expected
    assert text_of("-p", "there was a dog", *options, stdin="Once upon a time") == expected
    assert text_of("there was a dog", "-f", file, *options) == expected
    assert text_of("there was a dog", "-f", "-", *options, stdin="Once upon a time\n") == expected
    assert text_of("-f", file, *options, stdin="there was a dog\n") == expected
    assert text_of(both, *options, stdin="") == expected


@pytest.mark.slow
def test_it_says_what_it_waits_for() -> None:
    command = [sys.executable, "-m", "pyggml", "generate", "there was a dog", *map(str, OPTIONS), "-n", "8"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        assert "waiting for standard input" in process.stderr.readline()
        out, _ = process.communicate("Once upon a time\n")
    assert out == text_of("Once upon a time\nthere was a dog", "-n", 8)


def test_escapes() -> None:
    assert text_of("-e", r"One day,\nTim\x21", "-n", 6) == text_of("One day,\nTim!", "-n", 6)
    assert text_of(r"One day,\nTim", "-n", 6) != text_of("One day,\nTim", "-n", 6)


def test_schemas_and_grammars_as_text(tmp_path: Path) -> None:
    schema = '{"enum": ["red", "blue"]}'
    (tmp_path / "schema.json").write_text(schema)
    assert json.loads(text_of("The sky is", "-j", schema)) in ("red", "blue")
    assert text_of("The sky is", "-jf", tmp_path / "schema.json") == text_of("The sky is", "--json-schema", schema)
    assert text_of("The sky is", "--grammar", 'root ::= "green"') == "green\n"
    assert "the text given is not valid JSON" in fails(1, "generate", "x", "-j", "{")
    assert "File 'no.gbnf' does not exist" in fails(2, "generate", "x", "--grammar-file", "no.gbnf")


@pytest.mark.slow
def test_numbers_as_llama_cli_has_them() -> None:
    assert text_of("Once", "-n", 4, "-l", "42-inf") == text_of("Once", "-n", 4, "--logit-bias", "42=-inf")
    assert text_of("Once", "-n", 4, "-s", -1) == text_of("Once", "-n", 4)
    done = json.loads(text_of("Once upon a time", "-n", -1, "-c", 32, "--ignore-eos", "--json"))
    assert sum(done["tokens"].values()) == 32 + 1  # the last one need not be in the context
