"""``pyggml generate`` as a program or a script calls it: no terminal anywhere."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
from support.checkpoints import models
from support.command import Run, called, fails, pyggml

import pyggml as library
from pyggml.cli.arguments import sampling
from pyggml.source import SHIPPED_MODEL

GREEDY = "Once upon a time"
LONG = ["-m", str(SHIPPED_MODEL), "--ignore-eos", "-c", "50000", "--rope-freq-base", "20000"]
LONG += ["--max-tokens", "50000"]
NOTICE = "no --model given: using the small demonstration model that ships with pyggml"


@pytest.fixture(scope="module")
def story() -> str:
    """The shipped model's continuation of the prompt."""
    with library.load(n_parallel=1) as llm:
        return llm.generate(GREEDY, max_tokens=20).text


def generate(*arguments: object, by: Callable[..., Run] = called, **options: object) -> Run:
    done = by("generate", "--max-tokens", 20, *arguments, **options)
    assert done.code == 0, done
    return done


@pytest.mark.slow
def test_it_generates_and_says_which_model(story: str) -> None:
    done = generate(GREEDY, by=pyggml)
    assert done.out == story + "\n"
    assert NOTICE in done.err


@pytest.mark.slow
def test_a_named_model_needs_no_words(story: str) -> None:
    for by in (called, pyggml):
        assert generate(GREEDY, "-m", SHIPPED_MODEL, by=by) == Run(0, story + "\n", "")


@pytest.mark.slow_except("argument", "dash", "file")
@pytest.mark.parametrize("how", ["argument", "dash", "standard input", "file", "file -"])
def test_where_the_prompt_may_come_from(how: str, story: str, tmp_path: Path) -> None:
    path = tmp_path / "prompt.txt"
    path.write_text(GREEDY + "\n")  # as editors end a file
    places: dict[str, list[object]] = {"argument": [GREEDY], "dash": ["-"], "file": ["-f", path], "file -": ["-f", "-"]}
    stdin = GREEDY + "\n" if how in ("dash", "standard input", "file -") else ""
    by = pyggml if how == "standard input" else called
    assert generate(*places.get(how, []), "-m", SHIPPED_MODEL, by=by, stdin=stdin).out == story + "\n"


def test_json(story: str) -> None:
    answer = json.loads(generate(GREEDY, "--json").out)
    assert answer["text"] == story
    assert answer["finish_reason"] == "length"
    assert answer["tokens"]["generated"] == len(answer["token_ids"]) == 20
    assert answer["tokens"]["prompt"] > 0
    assert answer["timings"]["ttft_s"] > 0
    assert answer["timings"]["tokens_per_s"] > 0


def test_stats_go_to_standard_error(story: str) -> None:
    done = generate(GREEDY, "--stats", "-m", SHIPPED_MODEL)
    assert done.out == story + "\n"
    assert "20 generated" in done.err
    assert re.search(r" tokens/s, .*on \w+", done.err)


def test_one_token_has_no_speed() -> None:
    done = generate(GREEDY, "--stats", "-m", SHIPPED_MODEL, "--max-tokens", 1)
    assert re.search(r" 1 generated, first after [0-9.]+ m?s, .*on \w+\n$", done.err)


def test_special_tokens_in_the_prompt() -> None:
    markup = "<|im_start|>user\nWhat colour is the sky?<|im_end|>\n<|im_start|>assistant\n"
    with library.load(n_parallel=1) as llm:
        expected = {flag: llm.generate(markup, parse_special=flag, max_tokens=20) for flag in (True, False)}
    for flags, parse_special in ((), True), (["--parse-special"], True), (["--no-parse-special"], False):
        answer = json.loads(generate(markup, "--json", *flags).out)
        assert answer["text"] == expected[parse_special].text
        assert answer["tokens"]["prompt"] == expected[parse_special].prompt_tokens
    assert expected[True].prompt_tokens < expected[False].prompt_tokens


@pytest.mark.slow
def test_sampling_options_reach_the_sampler() -> None:
    hot = ["--temperature", 1.5, "--top-k", 40, "-m", SHIPPED_MODEL, "-t", 1]
    first, again, other = (generate(GREEDY, *hot, "--seed", seed).out for seed in (1, 1, 2))
    assert first == again != other
    assert json.loads(generate(GREEDY, "--stop", "there", "--stop", "zzz", "--json").out)["stop_reason"] == "there"
    with library.load(n_parallel=1) as llm:
        (token_id,) = llm.tokenize(",", add_special=False)
    assert not generate(GREEDY, "-m", SHIPPED_MODEL, "--logit-bias", f"{token_id}=-inf").out.startswith(",")
    assert generate(GREEDY, "-m", SHIPPED_MODEL, "--stop-token-ids", f"1,{token_id}").out == ""


def test_schemas_and_grammars_from_files(tmp_path: Path) -> None:
    schema, grammar = tmp_path / "schema.json", tmp_path / "grammar.gbnf"
    schema.write_text('{"enum": ["red", "green"]}')
    grammar.write_text('root ::= " meow" | " woof"')
    assert json.loads(generate("A colour:", "--json-schema", schema).out) in ("red", "green")
    assert generate("A cat says", "--grammar", grammar).out in (" meow\n", " woof\n")


def test_every_sampling_parameter_is_an_option_with_its_default() -> None:
    defaults = library.SamplingParams()
    unlisted = {"logprobs", "logprobs_mode", "prompt_logprobs", "json_schema_options", "cache_salt", "adapter"}
    unlisted |= {"logits_processor", "reasoning_budget", "reasoning_budget_message"}
    unlisted |= {"speculative", "num_speculative_tokens"}  # --speculative is the option of loading
    names = {field.name for field in fields(defaults)} - unlisted
    assert sampling.OPTIONS.keys() == names
    for name, option in sampling.OPTIONS.items():
        assert option.field.default == getattr(defaults, name), name


def test_as_much_context_as_fits(story: str) -> None:
    assert generate(GREEDY, "-m", SHIPPED_MODEL, "-c", "auto", "--n-gpu-layers", "auto").out == story + "\n"


def test_zero_is_a_value() -> None:
    assert generate(GREEDY, "--max-tokens", 0, "-m", SHIPPED_MODEL).out == ""


@pytest.mark.slow_except(every=2)
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--max-tokens", -2], "--max-tokens"),
        (["--temperature", "hot"], "--temperature"),
        (["--temperature", "nan"], "temperature"),
        (["--top-p", 1.5], "--top-p"),
        (["--max-tokens", 2**40], "max_tokens"),
        (["--repeat-penalty", 0], "--repeat-penalty"),
        (["--logit-bias", "5"], "TOKEN_ID=NUMBER"),
        (["--stop-token-ids", "a,b"], "--stop-token-ids"),
        (["--stop", ""], "stop"),
        (["--samplers", "top_k,nope"], "nope"),
        (["--mirostat", 1, "--top-k", 5], "mirostat replaces top_k"),
        (["--dynatemp-range", 0.5], "temperature"),
        (["--cache-type", "f17"], "--cache-type"),
        (["--n-ctx", 0], "--n-ctx"),
        (["--json-schema", "missing.json"], "missing.json"),
        (["--grammar", "."], "directory"),
        (["-f", "missing.txt"], "missing.txt"),
        (["-f", "."], "directory"),
        (["too", "many"], "Quote them as one: pyggml generate 'Once upon a time too many'"),
        (["-p", "again"], "there are 2 prompts"),
        (["-s", "Be brief."], "--system TEXT"),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else "",
)
def test_a_wrong_command_line(arguments: list[object], says: str) -> None:
    assert says in fails(2, "generate", GREEDY, *arguments)


def test_no_prompt() -> None:
    for arguments in ([""], ["-"], []):
        assert "the prompt is empty" in fails(2, "generate", *arguments, stdin="\n")


@pytest.mark.slow_except("generate-2-the prompt is empty")
@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [("generate", 2, "the prompt is empty"), ("perplexity -", 1, "the text has 1 token,"), ("cache clear", 2, "--yes")],
)
def test_no_standard_input(arguments: str, code: int, says: str, tmp_path: Path) -> None:
    (tmp_path / "old.gguf").write_bytes(b"what the cache has")
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m pyggml {arguments} <&-"],
        env={**os.environ, "PYGGML_CACHE": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (code, "")
    assert says in done.stderr


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("--file", b"caf\xe9", "not UTF-8 text: unexpected end of data at byte 3"),
        ("--file", b"a\0b", "NUL"),
        ("--json-schema", b"{", "not valid JSON"),
        ("--json-schema", b'{"type": "nope"}', "nope"),
        ("--json-schema", b"\xff", "not UTF-8"),
        ("--grammar", b"root ::= nope", "nope"),
        ("--grammar", b"\xff", "not UTF-8"),
    ],
)
def test_a_file_that_is_not_what_it_should_be(name: str, content: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    prompt = [] if name == "--file" else [GREEDY]
    assert says in fails(1, "generate", *prompt, name, path, "-m", SHIPPED_MODEL)


def test_standard_input_that_is_no_text() -> None:
    done = subprocess.run([sys.executable, "-m", "pyggml", "generate"], input=b"\xff", capture_output=True, check=False)
    assert done.returncode == 1
    assert b"standard input is not UTF-8 text" in done.stderr


@pytest.mark.slow
def test_a_model_that_is_none(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + b"\xff" * 100)
    assert "there is no model file" in fails(1, "generate", GREEDY, "-m", tmp_path / "missing.gguf")
    assert "is a directory" in fails(1, "generate", GREEDY, "-m", tmp_path)
    assert "broken.gguf" in fails(1, "generate", GREEDY, "-m", broken)
    assert "nope" in fails(1, "generate", GREEDY, "-m", SHIPPED_MODEL, "--device", "nope")
    assert "Traceback" in pyggml("generate", GREEDY, "-m", broken, "--debug").err


def test_a_model_that_only_embeds(bert_path: Path) -> None:
    assert "does not generate" in fails(1, "generate", GREEDY, "-m", bert_path)


def test_more_than_the_context_holds() -> None:
    assert "context" in fails(1, "generate", "word " * 5000, "-m", SHIPPED_MODEL)


@pytest.mark.slow
def test_a_closed_pipe_is_no_traceback() -> None:
    """As with ``| head -c 1``."""
    command = [sys.executable, "-m", "pyggml", "generate", GREEDY, *LONG]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        assert run.stdout is not None
        assert run.stderr is not None
        assert run.stdout.read(1) == b","
        run.stdout.close()
        assert run.stderr.read() == b""
        assert run.wait() == 1


@pytest.mark.slow
def test_ctrl_c_keeps_what_there_is() -> None:
    command = [sys.executable, "-m", "pyggml", "generate", GREEDY, *LONG, "--stats"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        first = run.stdout.read(100)
        run.send_signal(signal.SIGINT)
        out, err = run.communicate()
    assert run.returncode == 130
    assert len(first) == 100
    assert out.endswith("\n")
    assert err.count("\n") == 1
    assert "tokens/s" in err


@pytest.mark.slow
def test_ctrl_c_keeps_json_whole() -> None:
    program = """if True:
        import os, signal
        from pyggml.cli import main
        from pyggml.generation.stream import Stream

        read = Stream.__next__

        def read_and_interrupt(self):
            os.kill(os.getpid(), signal.SIGINT)
            return read(self)

        Stream.__next__ = read_and_interrupt
        main()
    """
    command = [sys.executable, "-c", program, "generate", GREEDY, *LONG, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "")
    assert json.loads(done.stdout)["finish_reason"] == "cancelled"


@pytest.mark.slow_except(">&-")
@pytest.mark.parametrize("closed", [">&-", "2>&-"])
def test_a_closed_output_is_none(closed: str, story: str) -> None:
    command = f'"{sys.executable}" -m pyggml generate "{GREEDY}" --max-tokens 20 {closed}'
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "" if closed == ">&-" else story + "\n")
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_an_output_that_has_not_every_character(tmp_path: Path) -> None:
    path = models.write_llama(tmp_path / "tiny.gguf")
    grammar = tmp_path / "grammar.gbnf"
    grammar.write_text('root ::= "caf\u00e9"')
    done = generate("A", "-m", path, "--grammar", grammar, by=pyggml, env={"PYTHONIOENCODING": "ascii"})
    assert done == Run(0, "caf?\n", "")


@pytest.mark.slow
def test_completion_of_options() -> None:
    def completed(words: str) -> list[str]:
        n_words = len(words.split(" "))
        env = {"_PYGGML_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(n_words - 1)}
        return called(env=env).out.split()

    assert completed("pyggml generate -m ") == ["file,"]
    assert completed("pyggml generate --cache-type q8") == ["plain,q8_0"]
    assert completed("pyggml chat --n-ctx a") == ["plain,auto"]
    assert completed("pyggml chat --device cp") == ["plain,cpu"]
    assert "plain,--temperature" in completed("pyggml generate --temp")
