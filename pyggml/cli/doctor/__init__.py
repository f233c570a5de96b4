"""``pyggml doctor``: what this installation and this machine can do, and what is wrong."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from pyggml.cli.command import Command
from pyggml.cli.show.terminal import ENDLESS, console, json_option, print_json
from pyggml.units import bytes_text

if TYPE_CHECKING:
    from rich.console import RenderableType

_STYLES = {"ok": "not dim green", "note": "not dim cyan", "warning": "not dim yellow", "failed": "not dim bold red"}


@click.command("doctor", cls=Command)
@json_option
def command(as_json: bool) -> None:
    """Show what this installation and this machine can do, and what is wrong.

    Looks at the build, the processor, GPUs, memory, versions and the cache, and has the model that ships with pyggml
    answer a question on every device. The output contains neither user names nor secrets: paste it into bug reports.

    Exits with 1 if a check failed. Warnings are about what works, but not as well as it could.
    """
    from pyggml.cli.doctor import machine
    from pyggml.cli.doctor.checks import checks
    from pyggml.cli.doctor.probe import probe
    from pyggml.cli.show.tables import print_all
    from pyggml.gpus.diagnosis import Machine

    with console(stderr=True).status("asking the engine"):
        said, failure = probe()
    processor, here = machine.processor(), Machine()
    found = checks({**said, "processor": processor}, here, failure)
    # The machine as the system shows it, and beside it as the engine sees it.
    facts: dict[str, Any] = {
        "build": said.get("build", {}),
        "processor": processor | {key: value for key, value in said.get("cpu", {}).items() if key != "used"},
        "memory": machine.memory() | said.get("memory", {}),
        "devices": said.get("devices", []),
        "versions": machine.versions(),
        "environment": machine.environment(),
        "cache": said.get("cache", {}),
        "gpus": [gpu._asdict() for gpu in here.gpus],
        "checks": [check._asdict() for check in found],
    }
    is_well = all(check["status"] != "failed" for check in facts["checks"])
    if as_json:
        print_json({"ok": is_well, **anonymous(facts)})
    else:
        terminal = console()
        terminal.width = ENDLESS  # the terminal wraps lines, so that commands can be copied from them
        print_all(terminal, _parts(anonymous(facts)))
    if not is_well:
        raise click.exceptions.Exit(1)


def anonymous(value: Any) -> Any:
    """The value as JSON has it, without the user's name and home directory: it can be pasted anywhere."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    home = os.path.expanduser("~")  # noqa: PTH111  (as it is where there is none)
    if home not in ("/", "~"):
        text = re.sub(re.escape(home) + r"(?![\w.-])", "~", text)
    with contextlib.suppress(KeyError, OSError):  # this user has no name
        text = re.sub(rf"(?<=/){re.escape(getpass.getuser())}(?![\w.-])", "<user>", text)
    return json.loads(text)


def verdict(checks: list[dict[str, Any]]) -> str:
    """All checks in one sentence."""
    statuses = [check["status"] for check in checks]
    if "failed" in statuses:
        return f"{statuses.count('failed')} of {len(checks)} checks failed."
    return "Everything works; see the warnings." if "warning" in statuses else "All is well."


def _parts(facts: dict[str, Any]) -> Iterator[RenderableType]:
    """All of it, for a person."""
    from rich.text import Text

    from pyggml.cli.show import tables

    for topic, fact in facts.items():
        rows = map(_check, fact) if topic == "checks" else _rows(fact) or [("none", "")]
        yield Text(topic, "bold")
        yield tables.facts((Text(name, _STYLES.get(name, "")), Text(text)) for name, text in rows)
        yield ""
    yield verdict(facts["checks"])


def _check(check: dict[str, Any]) -> tuple[str, str]:
    advice = f"\n-> {check['advice']}" if check["advice"] else ""
    return check["status"], f"{check['name']}: {check['text']}{advice}"


def _rows(fact: dict[str, Any] | list[dict[str, Any]]) -> list[tuple[str, str]]:
    """A row for each key; of a list, one for each member: what it begins with, and the rest of it."""
    if isinstance(fact, dict):
        return [(_heading(key), _text(key, value)) for key, value in fact.items()]
    known = [_rows({key: value for key, value in each.items() if value is not None}) for each in fact]
    return [(first, "; ".join(f"{name} {text}" for name, text in rest)) for (_, first), *rest in known]


def _heading(key: str) -> str:
    """The words of a key; a variable's name stays as it is."""
    return key if key.isupper() else key.removeprefix("n_").removesuffix("_bytes").replace("_", " ")


def _text(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and key.endswith(("_bytes", "_total", "_free")):
        return bytes_text(value)
    if isinstance(value, dict):
        return "; ".join(f"{name}: {words}" for name, words in value.items()) or "-"
    return (" ".join(value) or "-") if isinstance(value, list) else str("-" if value in (None, "") else value)
