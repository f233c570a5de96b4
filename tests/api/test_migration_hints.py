"""Commands and calls of other tools work, or the error message says what to type instead."""

from __future__ import annotations

import ast
import asyncio
import json
import logging
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.checkpoints.hf_llama import HFLlama
from support.command import Run, called
from support.migration_lines import Habit, habits_in
from support.servers.hub_server import hub_at

import pyggml
from pyggml import LLM
from pyggml.files.model_files import checkpoint_at
from pyggml.importer import imported
from pyggml.source import SHIPPED_MODEL

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
)


_ONE_THREAD = ["--n-threads", "1"]  # other tests run at the same time
_REPEATABLE = {
    "generate": _ONE_THREAD,
    "chat": [*_ONE_THREAD, "--seed", "7"],
    "run": [*_ONE_THREAD, "--seed", "7"],
}


@pytest.fixture(scope="module", autouse=True)
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory in which everything is typed: with models, texts, and a hub behind ``hf:``."""
    folder = tmp_path_factory.mktemp("desk")
    with pytest.MonkeyPatch.context() as patch, hub_at(folder / "hub", patch) as hub:
        patch.chdir(folder)
        hub.add("org/repo", {"model-Q8_0.gguf": SHIPPED_MODEL.read_bytes()})
        Path("model.gguf").symlink_to(SHIPPED_MODEL)
        imported(checkpoint_at(HFLlama().write(Path("imported"), stored="F32")))
        pyggml.convert(HFLlama().write(Path("hf-model"), stored="BF16"), "f32.gguf", "f32")
        Path("story.txt").write_text("Once upon a time there was a dog.\n")
        Path("both.txt").write_text("Once upon a time there was a dog.\nThe dog")
        Path("fenced.txt").write_text('"""Once upon a time there was a dog.\nWhat is it about?"""')
        Path("long.txt").write_text("Once upon a time there was a dog. " * 200)
        Path("yesno.gbnf").write_text('root ::= "yes" | "no"')
        Path("schema.json").write_text('{"enum": [2, 3]}')
        Path("chatml.jinja").write_text(CHATML)
        yield folder


def _tests(name: str) -> list[Any]:
    return [pytest.param(habit, id=f"{habit.tool}: {habit.typed}") for habit in habits_in(name)]


@pytest.mark.slow_except(every=69)
@pytest.mark.parametrize("habit", _tests("commands"))
def test_command(habit: Habit) -> None:
    done = run(habit.typed)
    ours = run(habit.ours) if habit.ours else Run(0, "", "")
    assert ours.code == 0, (done, ours)
    if not habit.says:
        assert (done.code, _timeless(done.out)) == (0, _timeless(ours.out)), done
        return
    assert done.code in (1, 2), done
    assert done.err.count("\n") == 1, done.err
    assert habit.says in done.err
    assert habit.is_needless or habit.says in habit.ours


def run(line: str) -> Run:
    """A command line, behind a pipe from ``echo`` or ``cat`` or not."""
    source, piped, command = line.rpartition(" | pyggml ")
    stdin = ""
    if piped:
        program, text = shlex.split(source)
        stdin = f"{text}\n" if program == "echo" else Path(text).read_text()
    words = shlex.split(command.removeprefix("pyggml "))
    return called(words[0], *_REPEATABLE.get(words[0], []), *words[1:], stdin=stdin)


def _timeless(text: str) -> str:
    """Without how long something took."""
    return re.sub(r" in [0-9.]+ s\b", "", text)


@pytest.mark.slow_except(every=7)
@pytest.mark.parametrize("habit", _tests("calls"))
def test_call(habit: Habit, pyggml_llm: LLM) -> None:
    ours = value(habit.ours, pyggml_llm) if habit.ours else None
    if not habit.says:
        assert value(habit.typed, pyggml_llm) == ours
        return
    with pytest.raises((pyggml.InferError, TypeError, AttributeError)) as refusal:
        value(habit.typed, pyggml_llm)
    assert habit.says in str(refusal.value)
    assert habit.is_needless or habit.says in habit.ours


def value(code: str, llm: LLM) -> object:
    """Return the value of the last statement, without parts that differ between runs."""
    messages = [{"role": "user", "content": "What colour is the sky?"}]
    names = {"pyggml": pyggml, "llm": llm, "messages": messages, "json": json, "logging": logging, "asyncio": asyncio}
    *before, last = ast.parse(code).body
    exec(compile(ast.Module(before, []), "typed", "exec"), names)
    if not isinstance(last, ast.Expr):
        exec(compile(ast.Module([last], []), "typed", "exec"), names)
        return None
    return _told(eval(compile(ast.Expression(last.value), "typed", "eval"), names))


def _told(value: Any) -> object:
    if isinstance(value, pyggml.LLM):
        with value:
            return repr(value)
    if isinstance(value, pyggml.Completion):
        return value.text
    if isinstance(value, list):
        return [_told(each) for each in value]
    return value.tolist() if isinstance(value, np.ndarray) else value
