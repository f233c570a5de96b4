"""``pyggml chat`` and ``generate`` in an emulated terminal: every cell of the screen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.command import called
from support.terminal import Terminal

from pyggml.source import SHIPPED_MODEL

SKY, BLUE = "What colour is the sky?", "The sky is blue."
GRASS, GREEN = "What colour is grass?", "Grass is green."
ENDLESS = ["-m", SHIPPED_MODEL, "--n-ctx", 50_000, "--rope-freq-base", 20_000, "--ignore-eos", "--max-tokens", 50_000]
PASTE = [f"line {i} of a paste that is long" for i in range(60)]

Start = Callable[..., Terminal]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a command in a terminal, with a history of its own."""
    with ExitStack() as running:

        def begin(*arguments: object, columns: int = 80, **env: str) -> Terminal:
            greedy = ["--temperature", 0] if arguments[0] == "chat" else []
            return running.enter_context(
                Terminal(*arguments, *greedy, columns=columns, env={"XDG_STATE_HOME": str(tmp_path), **env})
            )

        yield begin


def leave(terminal: Terminal) -> None:
    terminal.send("\x04")
    assert terminal.wait_for_exit() == 0
    assert "\ufffd" not in terminal.text


def interrupt_an_answer(terminal: Terminal) -> None:
    """Asks, sees a good part of the answer, presses Ctrl-C, and is asked for the next question."""
    n_shown = len(terminal.text)
    terminal.send("Tell me a story\r")
    terminal.wait_until(lambda: len(terminal.text) > n_shown + 500, "an answer")
    terminal.send("\x03")
    terminal.wait_for("[stopped]")
    terminal.wait_for_prompt()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("columns", "colours"),
    [
        (40, "colours"),
        (200, "NO_COLOR"),
        pytest.param(40, "NO_COLOR", marks=pytest.mark.slow),
        pytest.param(200, "colours", marks=pytest.mark.slow),
    ],
)
def test_a_session(columns: int, colours: str, start: Start) -> None:
    """Two questions, an interrupt inside the answer, /reset, a long paste, exit."""
    env = {"NO_COLOR": "1"} if colours == "NO_COLOR" else {}
    chat = start("chat", "-c", 5000, columns=columns, **env)
    chat.wait_for_prompt()
    assert chat.shows("no --model given: using the small demonstration model that ships with pyggml")
    chat.say(SKY)
    chat.say(GRASS)
    assert chat.rows[-5:] == [f">>> {SKY}", BLUE, f">>> {GRASS}", GREEN, ">>>"]

    chat.say("/set ignore_eos on")
    interrupt_an_answer(chat)
    chat.say("/reset")
    assert chat.rows[-4:] == ["[stopped]", ">>> /reset", "The conversation starts over.", ">>>"]

    chat.say("/set ignore_eos off")
    chat.paste("\n".join(PASTE))
    chat.wait_for(PASTE[-1])
    chat.say("")
    chat.say(SKY)
    assert chat.rows[-3:] == [f">>> {SKY}", BLUE, ">>>"]
    leave(chat)

    pasted = [f"... {line}" for line in PASTE[-10:]]
    where = chat.rows.index(pasted[0])
    assert chat.rows[where : where + len(pasted)] == pasted
    assert not any("[?" in row or "\x1b" in row or "[0m" in row for row in chat.rows)
    if colours == "NO_COLOR":
        assert chat.styles == set()


@pytest.mark.slow
def test_after_an_interrupt_the_conversation_goes_on(start: Start) -> None:
    chat = start("chat", *ENDLESS)
    chat.wait_for_prompt()
    interrupt_an_answer(chat)
    interrupt_an_answer(chat)
    chat.say("/undo")
    chat.say("/undo")
    assert chat.text.count("Removed: Tell me a story") == 2
    chat.say("/undo")
    assert chat.rows[-2] == "there is no question yet"
    leave(chat)


@pytest.mark.slow
def test_what_is_typed_during_an_answer_waits_for_the_next_prompt(start: Start) -> None:
    chat = start("chat", *ENDLESS)
    chat.wait_for_prompt()
    n_shown = len(chat.text)
    chat.send("Tell me a story\r")
    chat.wait_until(lambda: len(chat.text) > n_shown + 300, "an answer")
    chat.send("/set max_tokens 7\r")
    chat.send("\x1b[200~/system two\rlines\x1b[201~")
    chat.wait_until(lambda: len(chat.text) > n_shown + 800, "more of it")
    assert "max_tokens" not in chat.text
    assert "system" not in chat.text
    chat.send("\x03")  # which a terminal takes for: and forget what was typed
    chat.wait_for("[stopped]")
    chat.wait_for_prompt()
    leave(chat)


@pytest.mark.slow
def test_a_line_typed_ahead_is_the_next_question(start: Start) -> None:
    chat = start(
        "chat", "-m", SHIPPED_MODEL, "--n-ctx", 50_000, "--rope-freq-base", 20_000, "--ignore-eos", "--max-tokens", 1000
    )
    chat.wait_for_prompt()
    n_shown = len(chat.text)
    chat.send("Tell me a story\r")
    chat.wait_until(lambda: len(chat.text) > n_shown + 300, "an answer")
    chat.send("/stats\r")
    chat.wait_for(">>> /stats")
    chat.wait_for("1,000 generated")
    assert chat.text.count("/stats") == 1
    chat.wait_for_prompt()
    leave(chat)


@pytest.mark.slow
def test_editing_history_and_several_lines(start: Start, tmp_path: Path) -> None:
    chat = start("chat", "-m", SHIPPED_MODEL)
    chat.wait_for_prompt()
    chat.send("What colour is the sea?" + "\x08" * 4 + "sky?")
    chat.wait_for(f">>> {SKY}")
    chat.say("")
    assert chat.rows[-2] == BLUE
    chat.send("\x1b[A")  # up: the last line again
    chat.wait_until(lambda: chat.rows[-1] == f">>> {SKY}", "the last question")
    chat.say("")
    assert chat.rows[-3:-1] == [f">>> {SKY}", BLUE]
    chat.send("/system one\ntwo\x1b\rthree")  # Ctrl-J, then Alt-Enter
    chat.wait_until(lambda: chat.rows[-3:] == [">>> /system one", "... two", "... three"], "three lines")
    chat.say("")
    chat.say("/system")
    assert chat.rows[-5:] == [">>> /system", "one", "two", "three", ">>>"]
    chat.send('"""\r')
    chat.wait_until(lambda: chat.rows[-1] == "...", "an open fence")
    chat.say(f'{SKY}\r"""')
    assert chat.rows[-2] == BLUE
    leave(chat)
    history = tmp_path / "pyggml" / "chat_history"
    assert history.stat().st_mode & 0o077 == 0
    assert f"+{SKY}" in history.read_text()

    later = start("chat", "-m", SHIPPED_MODEL)
    later.wait_for_prompt()
    later.send("\x1b[A")
    later.wait_until(lambda: later.rows[-3:] == ['>>> """', f"... {SKY}", '... """'], "what was asked in the other one")
    later.send("\x03")
    later.wait_for("Ctrl-C again")
    later.wait_for_prompt()
    leave(later)


@pytest.mark.slow
def test_tab_completes_commands(start: Start, tmp_path: Path) -> None:
    (tmp_path / "earlier.json").write_text('[{"role": "user", "content": "Who?"}]')
    chat = start("chat", "-m", SHIPPED_MODEL)
    chat.wait_for_prompt()
    chat.send("/he\t")
    chat.wait_for(">>> /help")
    chat.say("")
    assert chat.shows("/reset")
    chat.send("/set temp\t")
    chat.wait_for(">>> /set temperature")
    chat.say(" 0.5")
    chat.send(f"/load {tmp_path}/earl\t")
    chat.wait_for("earlier.json")
    chat.say("")
    assert chat.rows[-2] == "0 messages loaded"
    leave(chat)


@pytest.mark.slow
def test_mistakes_do_not_end_it(start: Start) -> None:
    chat = start("chat", "-m", SHIPPED_MODEL)
    chat.wait_for_prompt()
    for line, says in {
        "/nope": "there is no command /nope",
        "/hlep": "there is no command /hlep; did you mean /help?",
        "/temprature 1": "did you mean /temperature?",
        "/load missing.json": "there is no file missing.json; to change the model, use /model NAME",
        "/set top_p 5": "top_p: 5",
        "/set mirostat 1": "mirostat 1",
        "/set top_k 5": "mirostat replaces top_k",
        "word " * 1500: "/reset starts over",
    }.items():
        chat.send("\x1b[200~" + line + "\x1b[201~")
        chat.say("")
        assert chat.shows(says)
    chat.say("/set mirostat default")
    chat.say(SKY)
    assert chat.rows[-2] == BLUE
    leave(chat)


@pytest.mark.slow
def test_a_full_context_says_so_and_the_conversation_is_kept(start: Start) -> None:
    chat = start("chat", "-m", SHIPPED_MODEL, "-c", 120, "--ignore-eos")
    chat.wait_for_prompt()
    chat.say(SKY)
    assert chat.shows("[the context is full: /reset starts over")
    chat.say(GRASS)
    assert chat.shows("/reset starts over, /undo removes the last question, --n-ctx sets a larger context")
    chat.say("/undo")
    assert chat.rows[-2] == f"Removed: {SKY}"
    leave(chat)


@pytest.mark.slow
def test_ctrl_c_at_the_prompt(start: Start) -> None:
    chat = start("chat", "-m", SHIPPED_MODEL)
    chat.wait_for_prompt()
    chat.send("no such question")
    chat.wait_for("no such question")
    chat.send("\x03")
    chat.wait_for("To leave: Ctrl-C again, Ctrl-D or /exit.")
    chat.wait_for_prompt()
    chat.say(SKY)
    assert chat.rows[-2] == BLUE
    chat.send("\x03")
    chat.wait_until(lambda: chat.text.count("Ctrl-C again") == 2, "a second hint")
    chat.wait_for_prompt()
    chat.send("\x03")
    assert chat.wait_for_exit() == 0


@pytest.mark.slow
@pytest.mark.parametrize("env", [{}, {"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=["colours", "NO_COLOR", "dumb"])
def test_reasoning_is_dimmed(env: dict[str, str], start: Start, thinking_path: Path, tmp_path: Path) -> None:
    grammar = tmp_path / "grammar.gbnf"
    grammar.write_text('root ::= "It may be.</think>Yes"')
    chat = start("chat", "-m", thinking_path, "--grammar", grammar, **env)
    chat.wait_for_prompt()
    chat.say("Is it?")
    assert chat.rows[-6:] == [">>> Is it?", "[thinking]", "It may be.", "[answer]", "Yes", ">>>"]
    assert ("2" in chat.styles) == (not env)
    leave(chat)


@pytest.mark.slow
def test_what_a_model_writes_cannot_command_the_terminal(start: Start, tiny_path: Path, tmp_path: Path) -> None:
    grammar = tmp_path / "grammar.gbnf"
    grammar.write_text('root ::= "one\\x1b[2Jtwo\\rthree\\u009b2J\\x07"')
    chat = start("chat", "-m", tiny_path, "--grammar", grammar)
    chat.wait_for_prompt()
    chat.say("Go")
    assert chat.rows[-3:-1] == [">>> Go", "one\u241b[2Jtwothree\ufffd2J\u2407"]
    chat.send("\x04")
    assert chat.wait_for_exit() == 0


@pytest.mark.slow
@pytest.mark.parametrize("columns", [40, 200])
def test_a_dumb_terminal_gets_no_escapes(columns: int, start: Start) -> None:
    chat = start("chat", "-c", 20_000, columns=columns, TERM="dumb")
    chat.wait_for_prompt()
    chat.say(SKY)
    chat.send('"""\r')
    chat.wait_until(lambda: chat.rows[-1] == "...", "an open fence")
    chat.send(GRASS + "\r")
    chat.wait_until(lambda: chat.rows[-2:] == [f"... {GRASS}", "..."], "its second line")
    chat.say('"""')
    assert chat.rows[-2] == GREEN
    chat.say("/set ignore_eos on")
    interrupt_an_answer(chat)
    chat.send("\x03")
    chat.wait_for("Ctrl-C again")
    chat.wait_for_prompt()
    chat.send("\x03")
    assert chat.wait_for_exit() == 0
    assert "\x1b" not in chat.raw


@pytest.mark.slow
@pytest.mark.parametrize("columns", [40, 200])
def test_generate_in_a_terminal(columns: int, start: Start) -> None:
    run = start("generate", "Once upon a time", *ENDLESS, "--stats", columns=columns)
    run.wait_until(lambda: len(run.text) > 500, "some text")
    run.send("\x03")
    assert run.wait_for_exit() == 130
    assert run.shows("tokens/s")
    assert run.rows[0].startswith(",")  # the bar is gone
    assert "Loading" in run.raw


@pytest.mark.slow
@pytest.mark.parametrize("term", ["xterm-256color", "dumb"])
def test_generated_text_is_broken_between_words(term: str, start: Start) -> None:
    arguments = ["generate", "Once upon a time", "-m", SHIPPED_MODEL, "--max-tokens", 120, "--ignore-eos"]
    text = called(*arguments).out
    run = start(*arguments, columns=40, TERM=term)
    assert run.wait_for_exit() == 0
    words = " ".join(run.rows).split()
    assert (words == text.split()) == (term != "dumb")  # which leaves that to the terminal
    assert "".join(words) == "".join(text.split())


def test_one_question_in_a_terminal(start: Start) -> None:
    run = start("chat", SHIPPED_MODEL, SKY)
    assert run.wait_for_exit() == 0
    assert run.rows == [BLUE]
    run = start("chat", *ENDLESS, "Tell me a story", columns=40)
    run.wait_until(lambda: len(run.text) > 500, "an answer")
    run.send("\x03")
    assert run.wait_for_exit() == 130
    assert run.rows[-1] == "[stopped]"
    without_echo = [row.replace("^C", "").removesuffix("^") for row in run.rows]  # the terminal shows what is pressed
    assert [row for row in without_echo if len(row) >= 40] == []


@pytest.mark.slow
def test_lines_follow_the_width_of_the_terminal(start: Start) -> None:
    chat = start("chat", SHIPPED_MODEL, columns=60)
    chat.wait_for_prompt()
    chat.say("/set temperature")
    chat.resize(24)
    chat.wait_for_prompt()
    chat.say("/set")
    chat.wait_for("The recommendations of the model's makers:")
    n_before = len(chat.rows)
    chat.say("Tell me a story")
    rows = chat.rows[n_before:-1]
    assert len(rows) > 5
    assert all(len(row) < 24 for row in rows)
    chat.say("/set wrap off")
    n_before = len(chat.rows)
    chat.say("/retry")
    assert max(map(len, chat.rows[n_before:-1])) == 24
    leave(chat)


@pytest.mark.slow
def test_another_model_in_the_same_conversation(start: Start, tmp_path: Path) -> None:
    other = tmp_path / "other.gguf"
    other.symlink_to(SHIPPED_MODEL)
    chat = start("chat", SHIPPED_MODEL, columns=200)
    chat.wait_for_prompt()
    chat.say(SKY)
    chat.say("/model missing.gguf")
    assert chat.rows[-2] == "there is no model file at missing.gguf"
    chat.say("/undo")
    assert chat.rows[-2] == f"Removed: {SKY}"
    chat.say(f"/model {other}")
    assert chat.rows[-2].endswith("continues the conversation.")
    chat.say("/model")
    assert f"file: {other}" in chat.rows
    chat.say(SKY)
    assert chat.rows[-2] == BLUE
    leave(chat)


@pytest.mark.slow
def test_names_of_files_are_shown_as_they_are(start: Start, tmp_path: Path) -> None:
    model = tmp_path / "[bold]m.gguf"
    model.symlink_to(SHIPPED_MODEL)
    generate = start("generate", "Once", "-m", model, "--max-tokens", 1)
    assert generate.wait_for_exit() == 0
    assert f"Loading {model.name}" in generate.raw


def test_generate_asks_for_a_prompt(start: Start) -> None:
    run = start("generate", columns=200)
    assert run.wait_for_exit() == 2
    assert run.rows == [
        'pyggml generate: give a PROMPT, --file FILE, or text on standard input (try "pyggml generate --help")'
    ]


@pytest.mark.slow
def test_without_a_place_for_history_it_chats_all_the_same(start: Start, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    chat = start("chat", "-m", SHIPPED_MODEL, XDG_STATE_HOME=str(tmp_path / "file"))
    chat.wait_for_prompt()
    chat.say(SKY)
    assert chat.rows[-2] == BLUE
    leave(chat)
