"""``pyggml doctor``: what this installation and this machine can do, and what is wrong."""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from pyggml.cli.program import Command
from pyggml.cli.show.terminal import console, json_option, print_json


@click.command("doctor", cls=Command)
@json_option
def command(as_json: bool) -> None:
    """Tell what this installation and this machine can do, and what is wrong.

    Looks at the build, the processor, GPUs, memory, versions and the cache, and has the model that ships with pyggml
    answer a question on every device. What it prints names no user and holds no secret: paste it into bug reports.

    Exits with 1 when a check failed. Warnings are about what works, but not as well as it could.
    """
    from pyggml.cli.doctor.checks import checks
    from pyggml.cli.doctor.gpu import find_gpus, has_rocm
    from pyggml.cli.doctor.probe import probe
    from pyggml.cli.doctor.text import anonymous, report

    with console(stderr=True).status("asking the engine"):
        told = probe()
    gpus = find_gpus()
    facts = _facts(told.facts)
    found = checks({**told.facts, "processor": facts["processor"]}, gpus, told.failure, has_rocm=has_rocm())
    facts["gpus"] = [dataclasses.asdict(gpu) for gpu in gpus]
    failed = any(check.status == "failed" for check in found)
    if as_json:
        print_json(anonymous({"ok": not failed, **facts, "checks": [dataclasses.asdict(check) for check in found]}))
    else:
        shown = [dataclasses.replace(check, **anonymous(dataclasses.asdict(check))) for check in found]
        console().print(report(anonymous(facts), shown), soft_wrap=True)
    if failed:
        raise click.exceptions.Exit(1)


def _facts(told: dict[str, Any]) -> dict[str, Any]:
    """What is shown: the machine as the system shows it, and the engine's view beside it."""
    from pyggml.cli.doctor import machine

    cpu = told.get("cpu", {})
    return {
        "build": told.get("build", {}),
        "processor": {**machine.processor(), **{key: value for key, value in cpu.items() if key != "used"}},
        "memory": {**machine.memory(), **told.get("memory", {})},
        "devices": told.get("devices", []),
        "versions": machine.versions(),
        "environment": machine.environment(),
        "cache": told.get("cache", {}),
    }
