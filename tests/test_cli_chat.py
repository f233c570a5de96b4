"""``pyggml chat`` without a terminal: the conversation, its commands, and chats through a pipe."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import models
import pytest
from command import Run, called, fails, pyggml

from pyggml import ChatCompletion, ChatMessage, InvalidParameterError, SamplingParams, Timings
from pyggml.cli.arguments.sampling import differing
from pyggml.cli.chat.commands import COMMANDS, Outcome, understood
from pyggml.cli.chat.inputs import inputs_of, is_open
from pyggml.cli.chat.session import Session
from pyggml.source import SHIPPED_MODEL

SKY, BLUE = "What colour is the sky?", "The sky is blue."
GRASS, GREEN = "What colour is grass?", "Grass is green."


def answer(content: str, **message: Any) -> ChatCompletion:
    message = {"content": content, **message}
    return ChatCompletion(content, [1, 2], "stop", None, 9, 3, Timings(), message=ChatMessage(**message))


@pytest.fixture
def session() -> Session:
    """One in which two questions were answered."""
    session = Session("Be brief.", SamplingParams())
    for question, reply in ((SKY, BLUE), (GRASS, GREEN)):
        session.ask(question)
        session.answered(answer(reply))
    return session


def contents(session: Session) -> list[str]:
    return [message["content"] for message in session.messages]


# --- the conversation -------------------------------------------------------------------------------------------


def test_a_question_comes_with_all_that_was_said(session: Session) -> None:
    asked = session.ask("And snow?")
    assert [message["role"] for message in asked] == ["system", *["user", "assistant"] * 2, "user"]
    assert [message["content"] for message in asked] == ["Be brief.", SKY, BLUE, GRASS, GREEN, "And snow?"]


def test_a_question_without_an_answer_leaves_the_conversation_as_it_was(session: Session) -> None:
    before = contents(session)
    session.ask("And snow?")
    session.answered(answer(""))  # stopped before anything came
    assert contents(session) == before
    assert session.again() == "And snow?"
    assert contents(session) == before


def test_reasoning_is_kept(session: Session) -> None:
    session.ask("And snow?")
    session.answered(answer("", reasoning_content="Snow is"))
    assert session.messages[-1] == {"role": "assistant", "content": "", "reasoning_content": "Snow is"}


def test_a_conversation_survives_being_saved(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    understood(session, f"/save {path}")
    understood(session, f"/save {path}")  # over a conversation it may
    other = Session("", SamplingParams())
    assert GREEN in understood(other, f"/load {path}").say
    assert (other.system, other.messages) == (session.system, session.messages)
    assert json.loads(path.read_text())["messages"][0] == {"role": "system", "content": "Be brief."}


def test_a_question_at_the_end_of_a_loaded_conversation_waits(session: Session) -> None:
    session.load(json.dumps([{"role": "user", "content": [{"type": "text", "text": "Who?"}]}]))
    assert (session.system, session.messages, session.again()) == ("", [], "Who?")


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"messages": 5}', '[{"role": "king", "content": ""}]', "[" * 99_999])
def test_what_is_no_conversation(session: Session, text: str, tmp_path: Path) -> None:
    before = contents(session)
    with pytest.raises(InvalidParameterError):
        session.load(text)
    path = tmp_path / "notes.txt"
    path.write_text(text)
    with pytest.raises(click.ClickException, match=r"notes\.txt"):
        understood(session, f"/load {path}")
    with pytest.raises(click.ClickException, match="is not a saved conversation"):
        understood(session, f"/save {path}")
    assert contents(session) == before
    assert path.read_text() == text


# --- commands ---------------------------------------------------------------------------------------------------


def test_what_is_no_command_is_a_question(session: Session) -> None:
    for text in (SKY, "/usr/bin/env is what?", "/* text */", "a /reset", "/", "1/2"):
        assert understood(session, text) == Outcome(ask=text)


def test_an_unknown_command(session: Session) -> None:
    with pytest.raises(click.ClickException, match="no command /nope"):
        understood(session, "/nope now")


def test_help_names_every_command(session: Session) -> None:
    for line in ("/help", "/?"):
        assert all(f"/{name}" in understood(session, line).say for name in COMMANDS)


def test_reset_keeps_the_system_message(session: Session) -> None:
    for line in ("/reset", "/clear", "/RESET"):
        understood(session, line)
        assert [message["content"] for message in session.ask(SKY)] == ["Be brief.", SKY]


def test_undo_and_retry(session: Session) -> None:
    assert understood(session, "/retry").ask == GRASS
    session.ask(GRASS)
    session.answered(answer(GREEN))
    assert GRASS in understood(session, "/undo").say
    assert contents(session) == [SKY, BLUE]
    understood(session, "/undo")
    for line in ("/undo", "/retry"):
        with pytest.raises(click.ClickException, match="nothing has been asked"):
            understood(session, line)


def test_retry_says_that_a_greedy_answer_stays_the_same(session: Session) -> None:
    assert "/set temperature" in understood(session, "/retry").say
    understood(session, "/set temperature 0.8")
    assert understood(session, "/retry").say == ""


def test_system(session: Session) -> None:
    assert understood(session, "/system").say == "Be brief."
    understood(session, "/system Answer\nin two lines.")
    assert session.ask(SKY)[0] == {"role": "system", "content": "Answer\nin two lines."}
    understood(session, "/system none")
    assert session.ask(SKY)[0]["role"] == "user"


def test_set(session: Session) -> None:
    for line in (
        "/set temperature 0.8",
        "/set top-k 40",
        "/set stop END",
        "/set ignore_eos on",
        "/set samplers top_k,temperature",
    ):
        understood(session, line)
    expected = {
        "temperature": 0.8,
        "top_k": 40,
        "stop": ("END",),
        "ignore_eos": True,
        "samplers": ("top_k", "temperature"),
    }
    assert differing(session.params) == expected
    assert "top_k 40" in understood(session, "/set").say
    for name in ("samplers", *expected):
        understood(session, f"/set {name} default")
    assert session.params == SamplingParams()


@pytest.mark.parametrize(
    "line", ["/set heat 5", "/set temperature", "/set temperature hot", "/set top_p 2", "/set top_k 1.5"]
)
def test_set_what_cannot_be(session: Session, line: str) -> None:
    with pytest.raises(click.ClickException):
        understood(session, line)
    assert session.params == SamplingParams()


@pytest.mark.parametrize("line", ["/save", "/load", "/save ~nobody-of-that-name/x", "/load a\0b"])
def test_files_that_cannot_be(session: Session, line: str) -> None:
    with pytest.raises(click.ClickException):
        understood(session, line)


def test_stats(session: Session) -> None:
    assert understood(session, "/stats").say.startswith("9 prompt tokens (3 cached), 2 generated")
    with pytest.raises(click.ClickException):
        understood(Session("", SamplingParams()), "/stats")


def test_leaving(session: Session) -> None:
    assert all(understood(session, line).leave for line in ("/exit", "/quit", "/bye", " /exit "))


# --- inputs -----------------------------------------------------------------------------------------------------


def test_inputs_are_lines_or_stand_between_fences() -> None:
    lines = [
        "one\n",
        "\n",
        "   \n",
        '"""\n',
        "two\n",
        "\n",
        "  lines\n",
        '"""\n',
        '"""three"""\r\n',
        "  four\n",
        '"""five\n',
    ]
    assert list(inputs_of(lines)) == ["one", "two\n\n  lines", "three", "  four", "five"]


def test_a_fence_is_open_until_the_next() -> None:
    assert [is_open(text) for text in ('"""', '"""a\n', '"""a"""', '""""""', "a", "")] == [True, True, *[False] * 4]


# --- through a pipe ---------------------------------------------------------------------------------------------


def chat(text: str, *arguments: object, by: Callable[..., Run] = called, **options: Any) -> Run:
    return by("chat", *arguments, stdin=text, **options)


def test_answers_are_plain_and_in_order() -> None:
    done = chat(f"{SKY}\n{GRASS}\n", "-m", SHIPPED_MODEL, by=pyggml, env={"FORCE_COLOR": "1"})
    assert done == Run(0, f"{BLUE}\n{GREEN}\n", "")


def test_commands_work_there_and_speak_on_standard_error() -> None:
    done = chat(f"{SKY}\n/undo\n/set max_tokens 2\n{SKY}\n/exit\n{GRASS}\n", "-m", SHIPPED_MODEL)
    assert done.out == f"{BLUE}\nThe sky\n"
    assert done.err.splitlines() == [f"Forgotten: {SKY}", "max_tokens 2", "[cut at max_tokens 2]"]


def test_an_empty_answer_is_told_of() -> None:
    done = chat(f"{SKY}\n", "-m", SHIPPED_MODEL, "--stop", "The sky")
    assert done == Run(0, "", "[an empty answer, which is left out of the conversation]\n")


def test_the_shipped_model_is_named() -> None:
    assert "demonstration model" in chat("/exit\n").err


def test_stats_after_each_answer() -> None:
    assert chat(f"{SKY}\n{GRASS}\n", "--stats").err.count("tokens/s") == 2


def test_no_input_is_no_chat() -> None:
    assert chat("", "-m", SHIPPED_MODEL) == Run(0, "", "")


def test_reasoning_is_not_part_of_the_answer(thinking_path: Path, tmp_path: Path) -> None:
    grammar = tmp_path / "grammar.gbnf"
    grammar.write_text('root ::= "It may be.</think>Yes"')
    assert chat("Is it?\n", "-m", thinking_path, "--grammar", grammar) == Run(0, "Yes\n", "")


@pytest.mark.parametrize(
    ("text", "arguments", "says"),
    [
        ("/nope\n", [], "no command /nope"),
        ("/load missing.json\n", [], "missing.json: No such file"),
        ("/set top_p 5\n", [], "top_p"),
        ("word " * 3000, [], "/reset starts over"),
        (f"{SKY}\n", ["--n-ctx", "5"], "n-ctx"),
    ],
)
def test_a_mistake_ends_a_chat_that_nobody_watches(text: str, arguments: list[str], says: str) -> None:
    assert says in fails(1, "chat", "-m", SHIPPED_MODEL, *arguments, stdin=text)


def test_a_model_without_a_template(tmp_path: Path) -> None:
    vocabulary = models.byte_vocabulary()
    del vocabulary["tokenizer.chat_template"]
    path = models.write_llama(tmp_path / "base.gguf", vocabulary)
    assert "chat template" in fails(1, "chat", "-m", path, stdin=f"{SKY}\n")


def test_what_cannot_be_asked() -> None:
    assert "--top-p" in fails(2, "chat", "--top-p", 2)
    assert "unexpected" in fails(2, "chat", "hello")
    assert "there is no model file" in fails(1, "chat", "-m", "missing.gguf")
    command = [sys.executable, "-m", "pyggml", "chat", "-m", str(SHIPPED_MODEL)]
    done = subprocess.run(command, input=b"\n\xff\n", capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr == b"pyggml: line 2 of standard input is not UTF-8 text: invalid start byte at byte 0\n"


def test_ctrl_c_ends_a_chat_that_nobody_watches() -> None:
    command = [sys.executable, "-m", "pyggml", "chat", "-m", str(SHIPPED_MODEL), "-c", "50000", "--ignore-eos"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        assert run.stdin is not None
        assert run.stdout is not None
        run.stdin.write(b"Tell me a story\n")
        run.stdin.flush()
        assert len(run.stdout.read(100)) == 100
        run.send_signal(signal.SIGINT)
        _, err = run.communicate()
    assert (run.returncode, err.strip()) == (130, b"")


def test_a_closed_pipe_is_no_traceback() -> None:
    command = [sys.executable, "-m", "pyggml", "chat", "-m", str(SHIPPED_MODEL), "-c", "50000", "--ignore-eos"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        assert run.stdin is not None
        assert run.stdout is not None
        assert run.stderr is not None
        run.stdin.write(b"Tell me a story\n")
        run.stdin.close()
        run.stdout.read(1)
        run.stdout.close()
        assert run.stderr.read() == b""
        assert run.wait() == 1
