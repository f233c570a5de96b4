"""``pyggml chat`` without a terminal: the conversation, its commands, and chats through a pipe."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from support.checkpoints import models
from support.command import Run, called, fails, pyggml

from pyggml import ChatCompletion, ChatMessage, InvalidParameterError, SamplingParams, Timings, load
from pyggml.cli.arguments.model import looks_like_model
from pyggml.cli.arguments.sampling import OPTIONS
from pyggml.cli.chat.commands import COMMANDS, Outcome, run_input
from pyggml.cli.chat.inputs import has_open_fence, inputs_from_lines
from pyggml.cli.chat.model import ChatModelInfo
from pyggml.cli.chat.parameters import Parameters
from pyggml.cli.chat.repetition import without_repetition
from pyggml.cli.chat.session import Session
from pyggml.options.chat_defaults import LIMITS
from pyggml.source import SHIPPED_MODEL

SKY, BLUE = "What colour is the sky?", "The sky is blue."
GRASS, GREEN = "What colour is grass?", "Grass is green."


def answer(content: str, **message: Any) -> ChatCompletion:
    message = {"content": content, **message}
    return ChatCompletion(content, [1, 2], "stop", None, 9, 3, Timings(), message=ChatMessage(**message))


def new_session(system: str = "") -> Session:
    session = Session(system, Parameters({}))
    session.use_model(
        ChatModelInfo(source="model.gguf", name="A model", summary="A model, 5 parameters", template="{{ it }}")
    )
    return session


@pytest.fixture
def session() -> Session:
    """One in which two questions were answered."""
    session = new_session("Be brief.")
    for question, reply in ((SKY, BLUE), (GRASS, GREEN)):
        session.add_question(question)
        session.add_answer(answer(reply))
    return session


def contents(session: Session) -> list[str]:
    return [message["content"] for message in session.messages]


# --- the conversation -------------------------------------------------------------------------------------------


def test_a_question_comes_with_all_that_was_said(session: Session) -> None:
    asked = session.add_question("And snow?")
    assert [message["role"] for message in asked] == ["system", *["user", "assistant"] * 2, "user"]
    assert [message["content"] for message in asked] == ["Be brief.", SKY, BLUE, GRASS, GREEN, "And snow?"]


def test_a_question_without_an_answer_leaves_the_conversation_as_it_was(session: Session) -> None:
    before = contents(session)
    session.add_question("And snow?")
    session.add_answer(answer(""))  # stopped before anything came
    assert contents(session) == before
    assert session.retry() == "And snow?"
    assert contents(session) == before


def test_reasoning_is_kept(session: Session) -> None:
    session.add_question("And snow?")
    session.add_answer(answer("", reasoning_content="Snow is"))
    assert session.messages[-1] == {"role": "assistant", "content": "", "reasoning_content": "Snow is"}


def test_a_conversation_survives_being_saved(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    for _ in range(2):  # over its own it may
        assert run_input(session, f"/save {path}").message == f"Saved: {path}"
    other = new_session()
    assert GREEN in run_input(other, f"/load {path}").message
    assert (other.system, other.messages) == (session.system, session.messages)
    assert json.loads(path.read_text())["messages"][0] == {"role": "system", "content": "Be brief."}


def test_another_conversation_is_replaced_only_when_asked_twice(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    path.write_text(before := new_session("Other.").to_json().replace("[]", '[{"role": "user", "content": "x"}]'))
    assert "Replace it?" in run_input(session, f"/save {path}").message
    assert path.read_text() == before
    assert run_input(session, f"/save {path}").message == f"Saved: {path}"
    assert GREEN in path.read_text()


def test_a_question_at_the_end_of_a_loaded_conversation_waits(session: Session) -> None:
    session.load_json(json.dumps([{"role": "user", "content": [{"type": "text", "text": "Who?"}]}]))
    assert (session.system, session.messages, session.retry()) == ("", [], "Who?")


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"messages": 5}', '[{"role": "king", "content": ""}]', "[" * 99_999])
def test_what_is_no_conversation(session: Session, text: str, tmp_path: Path) -> None:
    before = contents(session)
    with pytest.raises(InvalidParameterError):
        session.load_json(text)
    path = tmp_path / "notes.txt"
    path.write_text(text)
    with pytest.raises(click.ClickException, match=r"notes\.txt"):
        run_input(session, f"/load {path}")
    with pytest.raises(click.ClickException, match="is not a saved conversation"):
        run_input(session, f"/save {path}")
    assert contents(session) == before
    assert path.read_text() == text


# --- commands ---------------------------------------------------------------------------------------------------


def test_what_is_no_command_is_a_question(session: Session) -> None:
    for text in (SKY, "/usr/bin/env is what?", "/* text */", "a /reset", "/", "1/2"):
        assert run_input(session, text) == Outcome(question=text)


def test_the_words_that_leave_other_chats_leave_this_one(session: Session) -> None:
    for line in ("exit", "quit", " exit ", "/exit", "/bye"):
        assert run_input(session, line) == Outcome(exits=True)
    assert run_input(session, "exit the room") == Outcome(question="exit the room")


def test_an_unknown_command(session: Session) -> None:
    with pytest.raises(click.ClickException, match="no command /nope"):
        run_input(session, "/nope now")


def test_help_names_every_command(session: Session) -> None:
    for line in ("/help", "/?"):
        assert all(f"/{name}" in run_input(session, line).message for name in COMMANDS)


def test_reset_keeps_the_system_message(session: Session) -> None:
    for line in ("/reset", "/clear", "/RESET"):
        run_input(session, line)
        assert [message["content"] for message in session.add_question(SKY)] == ["Be brief.", SKY]


def test_undo_and_retry(session: Session) -> None:
    assert run_input(session, "/retry").question == GRASS
    session.add_question(GRASS)
    session.add_answer(answer(GREEN))
    assert GRASS in run_input(session, "/undo").message
    assert contents(session) == [SKY, BLUE]
    run_input(session, "/undo")
    for line in ("/undo", "/retry"):
        with pytest.raises(click.ClickException, match="there is no question"):
            run_input(session, line)


@pytest.mark.parametrize(
    ("lines", "remark"),
    [
        ([], ""),
        (["/temperature 0"], "At temperature 0 the answer is always the same; /temperature 0.8 changes that"),
        (["/temperature 0", "/temperature 0.8"], ""),
        (["/set top_k 1"], "With top_k 1 the answer is always the same; /set top_k 40 changes that"),
        (["/set seed 5"], "With seed 5 the answer is always the same; /set seed default changes that"),
        (["/set seed 5", "/set seed default"], ""),
    ],
)
def test_retry_says_when_the_answer_stays_the_same(session: Session, lines: list[str], remark: str) -> None:
    for line in lines:
        run_input(session, line)
    outcome = run_input(session, "/retry")
    assert (outcome.message, outcome.question) == (
        remark if not lines else "",
        GRASS,
    )  # this is not how it was answered
    session.add_question(GRASS)
    session.add_answer(answer(GREEN))
    assert run_input(session, "/retry").message == remark


def test_system(session: Session) -> None:
    assert run_input(session, "/system").message == "Be brief."
    run_input(session, "/system Answer\nin two lines.")
    assert session.add_question(SKY)[0] == {"role": "system", "content": "Answer\nin two lines."}
    run_input(session, "/system none")
    assert session.add_question(SKY)[0]["role"] == "user"


def test_set(session: Session) -> None:
    given = {
        "temperature": "0.5",
        "top-k": "30",
        "stop": "END",
        "ignore_eos": "on",
        "samplers": "min_p,top_k,temperature",
    }
    for name, value in given.items():
        run_input(session, f"/set {name} {value}")
    expected = {
        "temperature": 0.5,
        "top_k": 30,
        "stop": ("END",),
        "ignore_eos": True,
        "samplers": ("min_p", "top_k", "temperature"),
    }
    assert session.parameters.given == expected
    assert {name: getattr(session.parameters.effective, name) for name in expected} == expected
    assert "top_k 30" in run_input(session, "/set").message
    for name in ("samplers", *expected):
        run_input(session, f"/set {name} default")
    assert session.parameters.given == {}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("/set heat 5", "heat is not a parameter of /set"),
        ("/set temprature 5", "did you mean temperature?"),
        ("/set temperature hot", "temperature: 'hot' is not a valid float"),
        ("/set top_p 2", "top_p"),
        ("/set top_k 1.5", "top_k"),
        ("/set max_tokens -2", "max_tokens"),
        ("/set thinking much", "thinking is on or off"),
        ("/set num_ctx 4096", "pyggml chat --n-ctx"),
        ("/set n_ctx 4096", "pyggml chat --n-ctx"),
        ("/set format yaml", "the only format is json"),
        ("/set nohistory", "history"),
        ("/set think high", "/set thinking on"),
    ],
)
def test_set_what_cannot_be(session: Session, line: str, says: str) -> None:
    with pytest.raises(click.ClickException) as caught:
        run_input(session, line)
    assert says in caught.value.message
    assert session.parameters.given == {}


def test_a_chat_samples_as_its_model_is_recommended(session: Session) -> None:
    assert session.parameters.effective == SamplingParams(temperature=0.8, top_k=40, min_p=0.05, **LIMITS)
    recommended = SamplingParams(temperature=0.0, top_p=0.95)
    session.use_model(ChatModelInfo(recommended=recommended))
    assert session.parameters.effective == SamplingParams(temperature=0.0, top_p=0.95, **LIMITS)
    run_input(session, "/set temperature 0.5")
    session.use_model(ChatModelInfo())
    assert session.parameters.effective == SamplingParams(temperature=0.5, top_k=40, min_p=0.05, **LIMITS)


def test_a_default_gives_way_to_what_contradicts_it(session: Session) -> None:
    run_input(session, "/set mirostat 2")
    assert session.parameters.effective == SamplingParams(temperature=0.8, mirostat=2, **LIMITS)
    with pytest.raises(InvalidParameterError, match="mirostat replaces top_k"):
        run_input(session, "/set top_k 5")
    run_input(session, "/set mirostat default")
    run_input(session, "/set samplers temperature")
    assert session.parameters.effective.top_k == 0
    session.use_model(ChatModelInfo(recommended=SamplingParams(temperature=0.5, dynatemp_range=0.1)))
    run_input(session, "/temperature 0")
    assert session.parameters.effective.dynatemp_range == 0


def test_values_are_shown_as_people_say_them(session: Session) -> None:
    for name in OPTIONS:
        said = run_input(session, f"/set {name}").message
        assert said.startswith(f"{name} is ")
        assert not re.search(r"(?<!42=-)inf|\d{7}|None|\(\)|`|True|False", said), said
    assert run_input(session, "/set temperature").message == (
        "temperature is 0.8, one of the defaults of a chat.\n"
        "0 always picks the likeliest token; higher values vary more.\n"
        "It may be a number, 0 or more."
    )
    assert run_input(session, "/temperature 1").message == "temperature 1.0"
    assert run_input(session, "/set top_p").message.endswith("It may be a number from 0 to 1.")
    assert run_input(session, "/set timeout_s").message.startswith("timeout_s is no limit, which is the default.")
    assert run_input(session, "/set max_tokens -1").message == "max_tokens no limit: the rest of the context"
    run_input(session, "/set stop the end")
    listed = run_input(session, "/set").message
    assert re.search(r"You have set:\n  temperature 1\.0 +0 always", listed)
    assert "stop 'the end'" in listed
    assert re.search(r"The defaults of a chat:\n  top_k 40 +Sample from", listed)
    assert "2147483647" not in listed


def test_the_settings_of_a_chat(session: Session) -> None:
    assert run_input(session, "/set thinking").message.startswith("thinking is the default of the model's template.")
    assert run_input(session, "/set thinking off").message == "thinking off"
    run_input(session, "/set stats on")
    assert (session.settings.thinking, session.settings.stats) == (False, True)
    assert "thinking off" in run_input(session, "/set").message
    run_input(session, "/set thinking default")
    assert session.settings.thinking is None


def test_what_ollama_calls_it(session: Session) -> None:
    for line in (
        '/set system "Be kind."',
        "/set parameter temperature 1",
        "/set parameter num_predict 7",
        "/set parameter repeat_last_n 9",
        "/set parameter stop END",
        "/set nothink",
        "/set verbose",
        "/set nowordwrap",
        "/set format json",
    ):
        run_input(session, line)
    assert session.system == "Be kind."
    assert session.parameters.given == {
        "temperature": 1.0,
        "max_tokens": 7,
        "penalty_last_n": 9,
        "stop": ("END",),
        "json_schema": {},
    }
    assert (session.settings.thinking, session.settings.stats, session.settings.wrap) == (False, True, False)
    for line in ("/set think", "/set quiet", "/set wordwrap", "/set noformat"):
        run_input(session, line)
    assert (session.settings.thinking, session.settings.stats, session.settings.wrap) == (True, False, True)
    assert "json_schema" not in session.parameters.given
    assert "temperature" in run_input(session, "/set parameter").message
    assert run_input(session, "/show system").message == "Be kind."
    assert run_input(session, "/show info").message == run_input(session, "/model").message == "A model, 5 parameters"
    assert run_input(session, "/show template").message == "{{ it }}"
    assert "model.gguf" in run_input(session, "/show modelfile").message
    assert "You have set" in run_input(session, "/show parameters").message
    assert "license" in run_input(session, "/show license").message
    assert "Tab completes" in run_input(session, "/? shortcuts").message
    assert run_input(session, "/? set").message.startswith("/set NAME VALUE")
    for line, says in {
        "/show all": "use info",
        "/list": "pyggml cache list",
        "/load llama.gguf": "/model llama.gguf",
        "/image cat.png": "text only",
    }.items():
        with pytest.raises(click.ClickException, match=says):
            run_input(session, line)


def test_the_name_of_a_parameter_is_a_command(session: Session) -> None:
    for line in ("/temp 0.3", "/top_k 7", "/min-p 0.1"):
        run_input(session, line)
    assert session.parameters.given == {"temperature": 0.3, "top_k": 7, "min_p": 0.1}


def test_a_file_goes_before_the_next_question(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("Snow is white.\n")
    assert "15 characters" in run_input(session, f"/read {path}").message
    asked = session.add_question("And snow?")[-1]["content"]
    assert asked == f"--- File: {path} ---\nSnow is white.\n\n\nAnd snow?"
    session.add_answer(answer("White."))
    assert session.messages[-2]["content"] == asked
    assert session.add_question("Why?")[-1]["content"] == "Why?"
    path.write_bytes(b"\xff")
    with pytest.raises(click.ClickException, match="not UTF-8"):
        run_input(session, f"/read {path}")


def test_what_was_set_is_saved_with_the_conversation(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    for line in ("/temperature 0.5", "/set logit_bias 42=-5", "/set stop END", "/set format json", f"/save {path}"):
        run_input(session, line)
    other = new_session()
    other.use_model(ChatModelInfo(source="other.gguf"))
    assert "/model model.gguf" in run_input(other, f"/load {path}").message
    assert other.parameters.given == session.parameters.given
    assert other.parameters.effective == session.parameters.effective
    assert "/model" not in run_input(new_session(), f"/load {path}").message


@pytest.mark.parametrize("sampling", [5, {"heat": 1}, {"top_p": 5}, {"logit_bias": {"a": 1}}])
def test_sampling_that_cannot_be_loaded(session: Session, sampling: object) -> None:
    before = contents(session)
    with pytest.raises(InvalidParameterError):
        session.load_json(json.dumps({"sampling": sampling, "messages": [{"role": "user", "content": "Who?"}]}))
    assert contents(session) == before
    assert session.parameters.given == {}


@pytest.mark.parametrize("line", ["/save", "/load", "/save ~stranger-of-that-name/x", "/load a\0b"])
def test_files_that_cannot_be(session: Session, line: str) -> None:
    with pytest.raises(click.ClickException):
        run_input(session, line)


def test_stats(session: Session) -> None:
    assert run_input(session, "/stats").message.startswith("9 prompt tokens (3 cached), 2 generated")
    with pytest.raises(click.ClickException):
        run_input(new_session(), "/stats")


def test_leaving(session: Session) -> None:
    assert all(run_input(session, line).exits for line in ("/exit", "/quit", "/bye", " /exit "))


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
    assert list(inputs_from_lines(lines)) == ["one", "two\n\n  lines", "three", "  four", "five"]


def test_a_fence_is_open_until_the_next() -> None:
    assert [has_open_fence(text) for text in ('"""', '"""a\n', '"""a"""', '""""""', "a", "")] == [
        True,
        True,
        *[False] * 4,
    ]


# --- an answer without end --------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", ["-", "\n", "ha", "The sky is blue. ", "天地玄黄宇宙洪荒。", "The same item\n" * 30])
@pytest.mark.parametrize("n_more", [0, 5, 9])
def test_one_copy_of_what_repeats_itself_is_kept(block: str, n_more: int) -> None:
    beginning = "I will think about that. "
    kept = without_repetition(beginning + block * 400 + block[:n_more])
    assert kept.startswith(beginning)
    assert len(kept) <= len(beginning) + 2 * len(block)
    assert without_repetition(kept[:40]) == kept[:40]


# --- one question -----------------------------------------------------------------------------------------------


@pytest.mark.slow_except("arguments0", "arguments1", "arguments2")
@pytest.mark.parametrize(
    "arguments",
    [
        [SKY],
        [*SKY.split()],
        ["-p", SKY],
        [SHIPPED_MODEL, SKY],
        [SHIPPED_MODEL, "--prompt", SKY],
        ["-m", SHIPPED_MODEL, SKY],
        ["-m", SHIPPED_MODEL, *SKY.split()],
    ],
)
def test_a_question_is_answered_once(arguments: list[object]) -> None:
    assert chat("", *arguments).out == f"{BLUE}\n"


def test_a_model_may_stand_alone() -> None:
    assert chat(f"{SKY}\n", SHIPPED_MODEL) == Run(0, f"{BLUE}\n", "")


def test_what_is_piped_goes_before_the_question() -> None:
    template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    done = chat("The sky is\nblue.\n", SHIPPED_MODEL, SKY, "--chat-template", template, "--stats", "--max-tokens", 1)
    prompt = f"<user>The sky is\nblue.\n\n{SKY}"
    with load(SHIPPED_MODEL) as llm:
        assert f"{len(llm.tokenize(prompt))} prompt tokens" in done.err


@pytest.mark.parametrize(
    ("text", "is_model"),
    [
        *((text, True) for text in ("model.gguf", "no such file.GGUF", "hf:org/repo", "org/repo", "org/repo:Q4_K_M")),
        *((text, True) for text in ("llama3.2:1b", "qwen3", "phi-4", "TinyLlama-1.1B", "./x", "/models/x", "~/x")),
        *((text, True) for text in ("https://huggingface.co/org/repo", str(SHIPPED_MODEL), str(SHIPPED_MODEL.parent))),
        *((text, False) for text in ("", "hello", "Why?", SKY, "and/or?", "2+2", "H2O", "What is 2/3 of 9?", "10:30")),
        *((text, False) for text in ("What is llama3?", " org/repo", "Read ./x", "a\nb.gguf")),
    ],
)
def test_a_model_is_told_from_a_question(text: str, is_model: bool) -> None:
    assert looks_like_model(text) == is_model


def test_the_model_comes_first() -> None:
    expected = f"MODEL comes first: type 'pyggml chat {SHIPPED_MODEL} \"What colour"
    for words in ([SKY], SKY.split()):
        assert expected.replace('"', "'") in fails(2, "chat", *words, SHIPPED_MODEL).replace('"', "'")
    assert "MODEL comes first: type 'pyggml generate hf:org/repo Hi'" in fails(2, "generate", "Hi", "hf:org/repo")


def test_a_model_that_is_not_there_is_no_question() -> None:
    assert "there is no model file" in fails(1, "chat", "missing.gguf", SKY)
    assert "hf:org/repo" in fails(1, "chat", "org/repo", SKY)


# --- through a pipe ---------------------------------------------------------------------------------------------


def chat(text: str, *arguments: object, by: Callable[..., Run] = called, **options: Any) -> Run:
    return by("chat", "--temperature", 0, *arguments, stdin=text, **options)


@pytest.mark.slow
def test_answers_are_plain_and_in_order() -> None:
    done = chat(f"{SKY}\n{GRASS}\n", "-m", SHIPPED_MODEL, by=pyggml, env={"FORCE_COLOR": "1"})
    assert done == Run(0, f"{BLUE}\n{GREEN}\n", "")


def test_commands_work_there_and_speak_on_standard_error() -> None:
    done = chat(f"{SKY}\n/undo\n/set max_tokens 2\n{SKY}\n/exit\n{GRASS}\n", "-m", SHIPPED_MODEL)
    assert done.out == f"{BLUE}\nThe sky\n"
    assert done.err.splitlines() == [
        f"Removed: {SKY}",
        "max_tokens 2",
        "[cut at max_tokens 2: --max-tokens -1 sets no limit]",
    ]


def test_an_empty_answer_is_told_of() -> None:
    done = chat(f"{SKY}\n", "-m", SHIPPED_MODEL, "--stop", "The sky")
    assert done == Run(0, "", "[empty answer, not added to the conversation]\n")


def test_the_shipped_model_is_named() -> None:
    assert "demonstration model" in chat("/exit\n").err


def test_stats_after_each_answer() -> None:
    assert chat(f"{SKY}\n{GRASS}\n", "--stats").err.count("tokens/s") == 2


def test_no_input_is_no_chat() -> None:
    assert chat("", "-m", SHIPPED_MODEL) == Run(0, "", "")


def test_an_answer_that_repeats_itself_is_stopped(tmp_path: Path) -> None:
    grammar = tmp_path / "grammar.gbnf"
    grammar.write_text('root ::= "Well. " ("The sky is blue. ")+')
    text = f"{SKY}\n/save {tmp_path}/chat.json\n"
    command = ["chat", SHIPPED_MODEL, "--grammar", grammar, "--n-ctx", 5000]
    done = called(*command, stdin=text)
    assert done.out.startswith("Well. The sky is blue. The sky is blue.")
    assert done.err.startswith("[stopped: the answer repeats itself;")
    assert "--no-repetition-guard" in done.err
    kept = json.loads((tmp_path / "chat.json").read_text())["messages"][-1]["content"]
    assert kept.startswith("Well. The sky is blue")
    assert len(kept) < 50

    longer = called(*command, "--no-repetition-guard", "--max-tokens", 1200, stdin=f"{SKY}\n")
    assert longer.err.startswith("[cut at max_tokens 1200")


def test_reasoning_is_not_part_of_the_answer(thinking_path: Path, tmp_path: Path) -> None:
    grammar = tmp_path / "grammar.gbnf"
    grammar.write_text('root ::= "It may be.</think>Yes"')
    assert chat("Is it?\n", "-m", thinking_path, "--grammar", grammar) == Run(0, "Yes\n", "")


def test_another_model_goes_on_with_the_conversation(tmp_path: Path) -> None:
    other = tmp_path / "other.gguf"
    other.symlink_to(SHIPPED_MODEL)
    saved = tmp_path / "chat.json"
    done = chat(f"{SKY}\n/model {other}\n/model\n{GRASS}\n/save {saved}\n", "-m", SHIPPED_MODEL)
    assert done.out == f"{BLUE}\n{GREEN}\n"
    assert "continues the conversation" in done.err
    assert f"file: {other}" in done.err
    value = json.loads(saved.read_text())
    assert [message["content"] for message in value["messages"]] == [SKY, BLUE, GRASS, GREEN]
    assert (value["model"], value["sampling"]) == (str(other), {"temperature": 0.0})


# Another model, where there is no room for two; and one without a template, after which the other comes back.
NO_ROOM_FOR_TWO = """
import resource, sys
import pyggml
from pyggml.cli.chat.model import ChatModel

first, second, base, question = sys.argv[1:]
with ChatModel(first, None, {"n_ctx": 100_000, "n_threads": 1}) as model:
    def ask():
        return model.llm.chat([{"role": "user", "content": question}], chat_template=model.templates).message.content
    answer = ask()
    with open("/proc/self/status") as status:
        size = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmSize"))
    resource.setrlimit(resource.RLIMIT_AS, (size + 110_000_000, resource.RLIM_INFINITY))
    try:
        pyggml.load(second, n_ctx=100_000, n_parallel=1, n_threads=1)
        raise SystemExit("there is room for two")
    except pyggml.OutOfMemoryError:
        pass
    model.change(second)
    assert (model.info.source, ask()) == (second, answer)
    try:
        model.change(base)
        raise SystemExit("it has a template")
    except pyggml.InvalidParameterError as error:
        assert "chat template" in str(error), error
    assert (model.info.source, ask()) == (second, answer)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads how much memory is used from /proc")
def test_another_model_where_there_is_no_room_for_two(tmp_path: Path) -> None:
    other = tmp_path / "other.gguf"
    other.symlink_to(SHIPPED_MODEL)
    vocabulary = models.byte_vocabulary()
    del vocabulary["tokenizer.chat_template"]
    base = models.write_llama(tmp_path / "base.gguf", vocabulary)
    command = [sys.executable, "-c", NO_ROOM_FOR_TWO, SHIPPED_MODEL, other, base, SKY]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow_except(every=2)
@pytest.mark.parametrize(
    ("text", "arguments", "says"),
    [
        ("/model missing.gguf\n", [], "there is no model file at missing.gguf"),
        ("/nope\n", [], "no command /nope"),
        ("/load missing.json\n", [], "there is no file missing.json; to change the model, use /model NAME"),
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


@pytest.mark.slow
def test_what_cannot_be_asked() -> None:
    assert "--top-p" in fails(2, "chat", "--top-p", 2)
    assert "several models" in fails(2, "chat", "a.gguf", "-m", "b.gguf")
    assert "were both given" in fails(2, "chat", "Who?", "-p", "Why?")
    assert "there is no model file" in fails(1, "chat", "-m", "missing.gguf")
    command = [sys.executable, "-m", "pyggml", "chat", "-m", str(SHIPPED_MODEL)]
    done = subprocess.run(command, input=b"\n\xff\n", capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr == b"pyggml: line 2 of standard input is not UTF-8 text: invalid start byte at byte 0\n"


# A context beyond the training length, with another base frequency: so no warning is printed.
LONG = ["-c", "50000", "--rope-freq-base", "20000"]


@pytest.mark.slow
def test_ctrl_c_ends_a_chat_that_nobody_watches() -> None:
    command = [sys.executable, "-m", "pyggml", "chat", "-m", str(SHIPPED_MODEL), *LONG, "--ignore-eos"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        assert run.stdin is not None
        assert run.stdout is not None
        run.stdin.write(b"Tell me a story\n")
        run.stdin.flush()
        assert len(run.stdout.read(100)) == 100
        run.send_signal(signal.SIGINT)
        _, err = run.communicate()
    assert (run.returncode, err.strip()) == (130, b"")


@pytest.mark.slow
def test_a_closed_pipe_is_no_traceback() -> None:
    command = [sys.executable, "-m", "pyggml", "chat", "-m", str(SHIPPED_MODEL), *LONG, "--ignore-eos"]
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
