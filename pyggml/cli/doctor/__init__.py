"""``pyggml doctor``: what this installation and this machine can do, and what is wrong."""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from pyggml.cli.program import Command
from pyggml.cli.show.terminal import console, json_option, print_json
from pyggml.units import bytes_text

if TYPE_CHECKING:
    from rich.text import Text

_STYLES = {"ok": "green", "note": "cyan", "warning": "yellow", "failed": "bold red"}
# Where the words of a key do not say enough.
_HEADINGS = {
    "n_quota": "cores by quota",
    "n_usable": "cores to use",
    "usable_bytes": "left for pyggml",
    "machine_bytes": "left by machine",
    "cgroup_bytes": "left by cgroup",
    "address_space_bytes": "left by ulimit -v",
}


@click.command("doctor", cls=Command)
@json_option
def command(as_json: bool) -> None:
    """Show what this installation and this machine can do, and what is wrong.

    Looks at the build, the processor, GPUs, memory, versions and the cache, and has the model that ships with pyggml
    answer a question on every device. The output names no user and holds no secret: paste it into bug reports.

    Exits with 1 when a check failed. Warnings are about what works, but not as well as it could.
    """
    from pyggml.cli.doctor import machine
    from pyggml.cli.doctor.checks import checks
    from pyggml.cli.doctor.gpu import find_gpus, has_rocm
    from pyggml.cli.doctor.probe import probe

    with console(stderr=True).status("asking the engine"):
        said, failure = probe()
    processor, gpus = machine.processor(), find_gpus()
    found = [each._asdict() for each in checks({**said, "processor": processor}, gpus, failure, has_rocm=has_rocm())]
    cores = {key: value for key, value in said.get("cpu", {}).items() if key != "used"}
    # The machine as the system shows it, and beside it as the engine sees it.
    facts = {
        "build": said.get("build", {}),
        "processor": {**processor, **cores},
        "memory": {**machine.memory(), **said.get("memory", {})},
        "devices": said.get("devices", []),
        "versions": machine.versions(),
        "environment": machine.environment(),
        "cache": said.get("cache", {}),
        "gpus": [gpu._asdict() for gpu in gpus],
    }
    failed = any(check["status"] == "failed" for check in found)
    if as_json:
        print_json(anonymous({"ok": not failed, **facts, "checks": found}))
    else:
        console().print(report(anonymous(facts), anonymous(found)), soft_wrap=True)
    if failed:
        raise click.exceptions.Exit(1)


def anonymous(value: Any) -> Any:
    """The same without the user's name and home directory, in all of its strings: it can be pasted anywhere."""
    if isinstance(value, dict):
        return {key: anonymous(member) for key, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [anonymous(member) for member in value]
    if not isinstance(value, str):
        return value
    home = os.path.expanduser("~")  # noqa: PTH111  (as it is where there is none)
    if home not in ("/", "~"):
        value = re.sub(re.escape(home) + r"(?![\w.-])", "~", value)
    try:
        return re.sub(rf"(?<=/){re.escape(getpass.getuser())}(?=/|$|:)", "<user>", value)
    except (KeyError, OSError):
        return value  # this user has no name


def report(facts: dict[str, Any], checks: Sequence[dict[str, Any]]) -> Text:
    """All of it, for a person."""
    from rich.text import Text

    text = Text()
    for topic, fact in facts.items():
        text.append(f"{topic}\n", "bold").append("".join(f"  {line}\n" for line in _lines(fact) or ["none"]) + "\n")
    text.append("checks\n", "bold")
    for check in checks:
        text.append(f"  {check['status']:8}", _STYLES[check["status"]]).append(f"{check['name']}: {check['text']}\n")
        text.append(f"          -> {check['advice']}\n" if check["advice"] else "")
    statuses = [check["status"] for check in checks]
    n_failed, n_warnings = statuses.count("failed"), statuses.count("warning")
    verdict = "Everything works; see the warnings." if n_warnings else "All is well."
    return text.append(f"\n{n_failed} of {len(checks)} checks failed." if n_failed else f"\n{verdict}")


def _lines(fact: dict[str, Any] | list[dict[str, Any]]) -> list[str]:
    if isinstance(fact, list):
        members = [
            [f"{_heading(key)} {_value(key, value)}" for key, value in each.items() if value is not None]
            for each in fact
        ]
        return ["; ".join(member) for member in members]
    width = max((len(_heading(key)) for key in fact), default=0)
    return [f"{_heading(key):{width}}  {_value(key, value)}" for key, value in fact.items()]


def _heading(key: str) -> str:
    """The words of a key; a variable's name stays as it is."""
    if key.isupper():
        return key
    return _HEADINGS.get(key) or key.removeprefix("n_").removesuffix("_bytes").replace("_", " ")


def _value(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        value = " ".join(value)
    is_size = isinstance(value, int) and (key.endswith("_bytes") or key.startswith("memory_"))
    return bytes_text(value) if is_size else "-" if value in (None, "") else str(value)
