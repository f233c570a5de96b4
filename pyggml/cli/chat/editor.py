"""The line editor of a chat: history, several lines, pastes, completion of commands."""

from __future__ import annotations

import os
import sys
import termios
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.output import Output, create_output
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.shortcuts import CompleteStyle

from pyggml.cli.arguments.sampling import OPTIONS
from pyggml.cli.chat.commands import COMMANDS, SHOW_TOPICS
from pyggml.cli.chat.inputs import PROMPT, has_open_fence
from pyggml.cli.chat.set_command import SETTINGS

if TYPE_CHECKING:
    from prompt_toolkit.key_binding import KeyPressEvent
    from typing_extensions import Self

_BRACKETED_PASTE_ON, _BRACKETED_PASTE_OFF = "\x1b[?2004h", "\x1b[?2004l"


class Editor:
    """Line editor on the terminal. While it is entered, the terminal does not echo.

    Text that is typed while an answer is shown is kept for the next prompt.
    """

    def __init__(self) -> None:
        """Load the history of earlier chats."""
        self._before: list[Any] = []
        self._prompt: PromptSession[str] = PromptSession(
            PROMPT,
            multiline=Condition(lambda: has_open_fence(self._prompt.default_buffer.text)),
            prompt_continuation=lambda width, _line, wrapped: " " * width if wrapped else "... ",
            history=_history(),
            completer=_Completer(),
            complete_style=CompleteStyle.READLINE_LIKE,
            complete_while_typing=False,
            key_bindings=_new_line_keys(),
            enable_open_in_editor=True,
            enable_suspend=True,
            output=_output(),
        )

    def __enter__(self) -> Self:
        self._before = termios.tcgetattr(sys.stdin)
        silent = [*self._before]
        silent[0] &= ~termios.ICRNL  # Enter sends CR, as it does while a line is edited
        silent[3] &= ~(termios.ECHO | termios.ICANON)
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, silent)
        return self

    def __exit__(self, *_: object) -> None:
        _send(_BRACKETED_PASTE_OFF)
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._before)

    def read(self) -> str:
        """Read the next input; see :class:`PlainReader`."""
        try:
            return self._prompt.prompt()
        finally:
            _send(_BRACKETED_PASTE_ON)  # the prompt has turned it off

    @property
    def is_empty(self) -> bool:
        """See :class:`PlainReader`."""
        return not self._prompt.default_buffer.text


def _send(sequence: str) -> None:
    sys.stdout.write(sequence)
    sys.stdout.flush()


def _output() -> Output:
    """Return the terminal without cursor position requests: only menus need them, and some terminals ignore them."""
    output = create_output()
    if isinstance(output, Vt100_Output):
        output.enable_cpr = False
    return output


class _BestEffortHistory(FileHistory):
    """A history file that ignores write errors, such as a full disk."""

    def store_string(self, string: str) -> None:
        with suppress(OSError):
            super().store_string(string)


def _history() -> History:
    """Return the history of all chats, or an empty one if its file cannot be opened."""
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    try:
        folder = state if state.is_absolute() else Path.home() / ".local" / "state"
        path = folder / "pyggml" / "chat_history"
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # questions are private
    except (OSError, RuntimeError):  # RuntimeError: no home directory
        return InMemoryHistory()
    return _BestEffortHistory(path)


def _new_line_keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("escape", "enter")
    @keys.add("c-j")
    def begin_line(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    return keys


class _Completer(Completer):
    """Completer for commands, parameters, topics and files."""

    _files = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Return the completions of the text before the cursor."""
        command, space, argument = document.text_before_cursor.partition(" ")
        if not command.startswith("/"):
            return
        if not space:
            yield from _completions(command, [f"/{name}" for name in COMMANDS])
        elif command == "/set" and " " not in argument:
            yield from _completions(argument, [*SETTINGS, *OPTIONS])
        elif command == "/show":
            yield from _completions(argument, SHOW_TOPICS)
        elif command in ("/save", "/load", "/read", "/model"):
            yield from self._files.get_completions(Document(argument), complete_event)


def _completions(prefix: str, names: Iterable[str]) -> Iterator[Completion]:
    for name in names:
        if name.startswith(prefix):
            yield Completion(name, start_position=-len(prefix))
