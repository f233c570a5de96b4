"""The report as text that may be pasted anywhere: it names no user, and no home directory."""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Sequence
from typing import Any

from rich.text import Text

from pyggml.cli.doctor.checks import Check
from pyggml.units import bytes_text

_STYLES = {"ok": "green", "note": "cyan", "warning": "yellow", "failed": "bold red"}


# What a key's own words do not say well enough.
_HEADINGS = {
    "n_processors": "processors",
    "n_cores": "physical cores",
    "n_quota": "cores by quota",
    "n_usable": "cores to use",
    "ulimit_v_bytes": "ulimit -v",
    "ulimit_l_bytes": "ulimit -l (locked)",
    "usable_bytes": "left for pyggml",
    "machine_bytes": "left by machine",
    "cgroup_bytes": "left by cgroup",
    "address_space_bytes": "left by ulimit -v",
    "n_models": "models",
}


def anonymous(value: Any) -> Any:
    """The same without the user's name and home directory, in all the strings of it."""
    if isinstance(value, str):
        return _anonymous(value)
    if isinstance(value, dict):
        return {key: anonymous(member) for key, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [anonymous(member) for member in value]
    return value


def report(facts: dict[str, Any], checks: Sequence[Check]) -> Text:
    """All of it."""
    text = Text()
    for topic, fact in facts.items():
        text.append(f"{topic.replace('_', ' ')}\n", style="bold")
        for line in _lines(fact):
            text.append(f"  {line}\n")
        text.append("\n")
    text.append("checks\n", style="bold")
    for check in checks:
        text.append(f"  {check.status:8}", style=_STYLES[check.status])
        text.append(f"{check.name}: {check.text}\n")
        if check.advice:
            text.append(f"          -> {check.advice}\n")
    text.append(f"\n{_verdict(checks)}")
    return text


def _lines(fact: Any) -> list[str]:
    if not fact:
        return ["none"]
    if isinstance(fact, list):
        return ["; ".join(_members(member)) for member in fact]
    width = max(len(_heading(key)) for key in fact)
    return [f"{_heading(key):{width}}  {_value(key, value)}" for key, value in fact.items()]


def _members(fact: dict[str, Any]) -> list[str]:
    return [f"{_heading(key)} {_value(key, value)}" for key, value in fact.items() if value is not None]


def _heading(key: str) -> str:
    if key.isupper():  # a variable's name is as it is
        return key
    return _HEADINGS.get(key) or key.removesuffix("_bytes").replace("_", " ")


def _value(key: str, value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return " ".join(value) or "-"
    if key.endswith("_bytes") or key.startswith("memory_"):
        return bytes_text(value)
    return str(value)


def _verdict(checks: Sequence[Check]) -> str:
    counts = {status: sum(check.status == status for check in checks) for status in ("failed", "warning")}
    if counts["failed"]:
        return f"{counts['failed']} of {len(checks)} checks failed."
    return "Everything works; see the warnings." if counts["warning"] else "All is well."


def _anonymous(text: str) -> str:
    home = os.path.expanduser("~")  # noqa: PTH111  (as it is where there is none)
    if home not in ("/", "~"):
        text = re.sub(re.escape(home) + r"(?![\w.-])", "~", text)
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        return text  # this user has no name
    return re.sub(rf"(?<=/){re.escape(user)}(?=/|$|:)", "<user>", text)
