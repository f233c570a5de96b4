"""``pyggml rpc-serve``: lends this machine's devices to other hosts."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

import click

import pyggml
from pyggml.cli.arguments.options import ParamType
from pyggml.cli.command import Command, Option
from pyggml.remote import DEFAULT_PORT, KEY_VARIABLE, Address, create_key, default_key_file, find_key
from pyggml.units import bytes_text, parse_bytes


class _Size(ParamType):
    """A number of bytes, such as 8G or 12GiB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number."""
        try:
            size = value if isinstance(value, int) else parse_bytes(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if size < 1:
            self.fail("nothing would be lent", param, ctx)
        return size


@click.command("rpc-serve", cls=Command)
@click.option(
    "--host",
    cls=Option,
    other_names=["-H"],
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="Address to listen on; 0.0.0.0: all.",
)
@click.option(
    "--port",
    cls=Option,
    other_names=["-p"],
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    metavar="N",
    help="Port to listen on; 0: any free one.",
)
@click.option(
    "-dev",
    "--device",
    cls=Option,
    other_names=["-d"],
    metavar="NAME[,NAME]...",
    help="Devices to lend. Without it, or with auto: all GPUs or, without any, the CPU.",
)
@click.option(
    "--mem",
    cls=Option,
    other_names=["-m"],
    type=_Size(),
    metavar="SIZE",
    help="Memory for each client on each device, such as 8G.",
)
@click.option(
    "--key-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help=f"The key that clients must have. Without it: {KEY_VARIABLE}, or a key that is made and kept.",
)
@click.option(
    "-t",
    "--n-threads",
    cls=Option,
    other_names=["--threads"],
    type=click.IntRange(1, 512),
    metavar="N",
    help="Compute threads of the CPU. Without it: one per core.",
)
def command(
    host: str, port: int, device: str | None, mem: int | None, key_file: Path | None, n_threads: int | None
) -> None:
    r"""Lend this machine's devices to pyggml on other hosts: load(..., rpc=["HOST:PORT"]) puts layers on them.

    Each client is served by a process of its own, which is gone with the client. Clients must have the same key and the
    same build of the engine. The connection is authenticated, but not encrypted: over a network you do not trust, put a
    tunnel in front of it. Ctrl-C and SIGTERM end the server and its clients' work.

    \b
    pyggml rpc-serve                               # this machine's programs only
    pyggml rpc-serve --host 10.0.0.7 --mem 20G --key-file rpc.key
    """
    from pyggml.remote import (  # here, because help does without the compiled module
        ExportedDevices,
        Supervisor,
        list_exported_devices,
    )

    named = "" if device in (None, "auto") else device
    names = tuple(name.strip() for name in re.split("[,/]", named) if name.strip())
    exported = ExportedDevices(names, mem or ExportedDevices.max_bytes, n_threads or 0)
    key = _key(key_file)
    lent = list_exported_devices(exported)
    with Supervisor(Address(host.strip("[]"), port), exported, key, _say) as supervisor:
        _say(f"pyggml {pyggml.__version__} lends at {supervisor.address}:")
        for each in lent:
            free = bytes_text(min(each["memory_free"], exported.max_bytes))
            _say(f"  {each['name']}: {each['description']}, {free} free")
        supervisor.run()


def _key(file: Path | None) -> bytes:
    made = file or default_key_file()
    if made.exists() or (file is None and os.environ.get(KEY_VARIABLE)):
        return find_key(file)
    key = create_key(made)
    click.echo(f"pyggml: made a key for clients, in {made}: copy the file to them (rpc_key=FILE)", err=True)
    return key


def _say(line: str) -> None:
    click.echo(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}", err=True)
