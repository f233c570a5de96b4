"""examples/chat.py in a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support import recipes
from support.examples import EXAMPLES
from support.terminal import Terminal

pytestmark = pytest.mark.slow
CHAT = (str(EXAMPLES / "chat.py"),)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    with Terminal(program=CHAT) as terminal:
        yield terminal


def say(terminal: Terminal, text: str) -> None:
    """Type a line, and wait for the prompt after it."""
    n_prompts = sum(row.startswith(">") for row in terminal.rows)
    terminal.send(f"{text}\r")
    terminal.wait_until(lambda: sum(row.startswith(">") for row in terminal.rows) > n_prompts, "prompt")


def test_a_conversation(terminal: Terminal) -> None:
    terminal.wait_for(": 0 of 1,024 tokens")
    say(terminal, "What colour is the sky?")
    terminal.wait_for("The sky is blue.")
    terminal.wait_for_match(r": \d\d of 1,024 tokens")
    say(terminal, "/retry")
    assert terminal.text.count("The sky is blue.") == 2
    say(terminal, "/reset")
    terminal.wait_for(": 0 of 1,024 tokens")
    say(terminal, "/retry")
    assert terminal.shows("There is no answer yet.")
    say(terminal, "/unknown")
    assert terminal.shows("/reset start a new conversation")
    terminal.send("\x04")
    assert terminal.wait_for_exit() == 0


def test_ctrl_c_stops_an_answer_and_keeps_the_conversation(tmp_path: Path) -> None:
    with Terminal("-m", recipes.write_talker(tmp_path / "talker.gguf"), program=CHAT) as terminal:
        terminal.wait_for(": 0 of")
        n_tokens = [stop_the_answer_to(terminal, question) for question in ("Hello", "And")]
        assert 10 < n_tokens[0] < n_tokens[1]
        say(terminal, "/reset")
        terminal.wait_for(": 0 of")
        terminal.send("half a line")
        terminal.wait_for("> half a line")
        terminal.send("\x03/quit\r")
        assert terminal.wait_for_exit() == 0


def stop_the_answer_to(terminal: Terminal, question: str) -> int:
    """Press Ctrl-C once the answer has begun. Returns how long the conversation is, in tokens."""

    def has_toolbar() -> bool:
        return terminal.shows("/help for help")

    n_stopped = terminal.text.count("[stopped]")
    terminal.send(f"{question}\r")
    terminal.wait_until(lambda: len(terminal.text.partition(f"> {question}\n")[2]) > 10 and not has_toolbar(), "answer")
    terminal.send("\x03")
    terminal.wait_until(lambda: terminal.text.count("[stopped]") > n_stopped, "stop")
    return int(terminal.wait_for_match(r": [\d,]+ of").strip(": of").replace(",", ""))


def test_a_conversation_that_is_too_long_says_so_and_goes_on(terminal: Terminal) -> None:
    terminal.wait_for(": 0 of")
    terminal.send("word " * 1100 + "\r")
    terminal.wait_for("the context holds only 1024")
    terminal.wait_for(": 0 of")
    say(terminal, "What colour is the sky?")
    terminal.wait_for("The sky is blue.")
