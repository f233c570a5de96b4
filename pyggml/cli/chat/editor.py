"""The line that a user of a chat edits: history, several lines, pastes, completion of commands."""

from __future__ import annotations

import os
import sys
import termios
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
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
from pyggml.cli.chat.commands import COMMANDS, SHOWN
from pyggml.cli.chat.inputs import PROMPT, is_open
from pyggml.cli.chat.set_command import SETTINGS

if TYPE_CHECKING:
    from prompt_toolkit.key_binding import KeyPressEvent
    from typing_extensions import Self

_PASTES_MARKED, _PASTES_BARE = "\x1b[?2004h", "\x1b[?2004l"


class Editor:
    """Asks for one input after another; while it is entered, it has the terminal to itself.

    What is typed while an answer appears is kept for the next prompt, and not echoed into the answer.
    """

    def __init__(self) -> None:
        """Loads the history of earlier chats."""
        self._before: list[Any] = []
        self._prompt: PromptSession[str] = PromptSession(
            PROMPT,
            multiline=Condition(lambda: is_open(self._prompt.default_buffer.text)),
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
        silent[0] &= ~termios.ICRNL  # Enter stays Enter, as it is while a line is edited
        silent[3] &= ~(termios.ECHO | termios.ICANON)
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, silent)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        _send(_PASTES_BARE)
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._before)

    def read(self) -> str:
        """The next input.

        Raises:
            KeyboardInterrupt: Ctrl-C; :attr:`is_empty` says whether something had been typed.
            EOFError: Ctrl-D.
        """
        try:
            return self._prompt.prompt()
        finally:
            _send(_PASTES_MARKED)  # the prompt's end has switched it off

    @property
    def is_empty(self) -> bool:
        """Whether nothing had been typed when the last :meth:`read` ended."""
        return not self._prompt.default_buffer.text


def _send(sequence: str) -> None:
    sys.stdout.write(sequence)
    sys.stdout.flush()


def _output() -> Output:
    """The terminal, which is not asked for its cursor: only menus need that, and not all terminals answer."""
    output = create_output()
    if isinstance(output, Vt100_Output):
        output.enable_cpr = False
    return output


class _KeptHistory(FileHistory):
    """A history in a file, where a full disk does not end the chat."""

    def store_string(self, string: str) -> None:
        try:
            super().store_string(string)
        except OSError:
            return


def _history() -> History:
    """The history of all chats, or of this one alone where no file can be kept."""
    try:
        path = _history_path()
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # what people ask is their own business
    except (OSError, RuntimeError):  # the latter when there is no home
        return InMemoryHistory()
    return _KeptHistory(path)


def _history_path() -> Path:
    state = os.environ.get("XDG_STATE_HOME", "")
    folder = Path(state) if Path(state).is_absolute() else Path.home() / ".local" / "state"
    return folder / "pyggml" / "chat_history"


def _new_line_keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("escape", "enter")
    @keys.add("c-j")
    def begin_line(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    return keys


class _Completer(Completer):
    """Names of commands, of what can be set and shown, and of files."""

    def __init__(self) -> None:
        self._files = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """The names that continue what is before the cursor."""
        command, space, argument = document.text_before_cursor.partition(" ")
        if not command.startswith("/"):
            return
        if not space:
            yield from _beginning_with(command, [f"/{name}" for name in COMMANDS])
        elif command == "/set" and " " not in argument:
            yield from _beginning_with(argument, [*SETTINGS, *OPTIONS])
        elif command == "/show":
            yield from _beginning_with(argument, SHOWN)
        elif command in ("/save", "/load", "/read", "/model"):
            yield from self._files.get_completions(Document(argument), complete_event)


def _beginning_with(begun: str, names: Iterable[str]) -> Iterator[Completion]:
    for name in names:
        if name.startswith(begun):
            yield Completion(name, start_position=-len(begun))
