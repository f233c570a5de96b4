"""Commands and code of people who know other tools, from tests/data/habits; read by test_habits.py.

A section has the tool's name and where in its repository the examples and options are documented; our name replaces the
tool's, as a user types it who has not read our documentation yet. Each habit is a few lines::

    > what is typed
    = the same as our own documentation writes it, unless that is the same line
    ! a part of the message, and of the line with "=", where the habit does not work
    ~ a part of the message where nothing needs to be typed in its place, or nothing can be

Command lines name the files on ``test_habits.desk``. In Python, ``llm`` is a loaded model and ``messages`` ask what
colour the sky is.
"""

from __future__ import annotations

from typing import NamedTuple

from support.paths import DATA

_DATA = DATA / "habits"


class Habit(NamedTuple):
    """One of them.

    Attributes:
        tool: whose users have it.
        typed: what they type.
        ours: what does the same here; nothing if nothing has to be typed.
        says: a part of the message; nothing if the habit works.
        is_needless: the message says why there is no such thing here.
    """

    tool: str
    typed: str
    ours: str
    says: str
    is_needless: bool


def habits_in(name: str) -> list[Habit]:
    """The habits in one of the files."""
    found = []
    for section in (_DATA / f"{name}.txt").read_text(encoding="utf-8").removeprefix("# ").split("\n# "):
        tool = section.partition(":")[0]
        for block in section.split("\n\n")[1:]:
            lines = {line[:2]: line[2:] for line in block.splitlines()}
            says = lines.get("! ", lines.get("~ ", ""))
            found.append(Habit(tool, lines["> "], lines.get("= ", "" if says else lines["> "]), says, "~ " in lines))
    return found
