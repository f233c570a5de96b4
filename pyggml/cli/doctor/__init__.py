"""``pyggml doctor``: checks of this installation and this machine."""

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
    """Check this installation and this machine.

    Shows the build, the processor, GPUs, memory, versions and the cache, and runs the model that ships with pyggml on
    every device. The output contains no user names or secrets, so it can be pasted into bug reports.

    The exit code is 1 if a check failed. Warnings show problems that only reduce performance.
    """
    from pyggml.cli.doctor import machine
    from pyggml.cli.doctor.checks import checks
    from pyggml.cli.doctor.probe import probe
    from pyggml.cli.show.tables import print_all
    from pyggml.gpus.diagnosis import Machine

    with console(stderr=True).status("checking the engine"):
        engine, failure = probe()
    processor, host = machine.processor(), Machine()
    results = checks({**engine, "processor": processor}, host, failure)
    # Information of the system, merged with that of the engine.
    facts: dict[str, Any] = {
        "build": engine.get("build", {}),
        "processor": processor | {key: value for key, value in engine.get("cpu", {}).items() if key != "used"},
        "memory": machine.memory() | engine.get("memory", {}),
        "devices": engine.get("devices", []),
        "versions": machine.versions(),
        "environment": machine.environment(),
        "cache": engine.get("cache", {}),
        "gpus": [gpu._asdict() for gpu in host.gpus],
        "checks": [check._asdict() for check in results],
    }
    is_ok = all(check["status"] != "failed" for check in facts["checks"])
    if as_json:
        print_json({"ok": is_ok, **anonymize(facts)})
    else:
        terminal = console()
        terminal.width = ENDLESS  # let the terminal wrap lines, so that commands can be copied
        print_all(terminal, _parts(anonymize(facts)))
    if not is_ok:
        raise click.exceptions.Exit(1)


def anonymize(value: Any) -> Any:
    """Remove the user's name and home directory from a JSON value."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    home = os.path.expanduser("~")  # noqa: PTH111  (returns "~" without a home directory)
    if home not in ("/", "~"):
        text = re.sub(re.escape(home) + r"(?![\w.-])", "~", text)
    with contextlib.suppress(KeyError, OSError):  # the user id has no name
        text = re.sub(rf"(?<=/){re.escape(getpass.getuser())}(?![\w.-])", "<user>", text)
    return json.loads(text)


def verdict(checks: list[dict[str, Any]]) -> str:
    """Summarise all checks in one sentence."""
    statuses = [check["status"] for check in checks]
    if "failed" in statuses:
        return f"{statuses.count('failed')} of {len(checks)} checks failed."
    return "All checks passed, with warnings." if "warning" in statuses else "All checks passed."


def _parts(facts: dict[str, Any]) -> Iterator[RenderableType]:
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
    """Return a row for each key of a dict, or for each item of a list: its first value, and the others."""
    if isinstance(fact, dict):
        return [(_heading(key), _text(key, value)) for key, value in fact.items()]
    known = [_rows({key: value for key, value in each.items() if value is not None}) for each in fact]
    return [(first, "; ".join(f"{name} {text}" for name, text in rest)) for (_, first), *rest in known]


def _heading(key: str) -> str:
    """Return a key as words, but the name of an environment variable unchanged."""
    return key if key.isupper() else key.removeprefix("n_").removesuffix("_bytes").replace("_", " ")


def _text(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and key.endswith(("_bytes", "_total", "_free")):
        return bytes_text(value)
    if isinstance(value, dict):
        return "; ".join(f"{name}: {words}" for name, words in value.items()) or "-"
    return (" ".join(value) or "-") if isinstance(value, list) else str("-" if value in (None, "") else value)
