"""``pyggml rpc-serve``: RPC server for this machine's devices."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import click

import pyggml
from pyggml.cli.arguments.options import threads_option
from pyggml.cli.command import Command, Option
from pyggml.remote import DEFAULT_PORT, KEY_VARIABLE, Address, create_key, default_key_file, find_key
from pyggml.units import bytes_text, parse_bytes


def _size(text: str) -> int:
    """Parse a number of bytes, such as 8G or 12GiB."""
    try:
        size = parse_bytes(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if size < 1:
        raise click.BadParameter("must be at least 1 byte")
    return size


@click.command("rpc-serve", cls=Command)
@click.option(
    "--host",
    cls=Option,
    other_names=["-H"],
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="Address to listen on, or 0.0.0.0 for all.",
)
@click.option(
    "--port",
    cls=Option,
    other_names=["-p"],
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    metavar="N",
    help="Port to listen on, or 0 for any free port.",
)
@click.option(
    "-dev",
    "--device",
    cls=Option,
    other_names=["-d"],
    metavar="NAME[,NAME]...",
    help="Devices to export. Default, or auto: all GPUs, or the CPU if there is no GPU.",
)
@click.option(
    "--mem",
    cls=Option,
    other_names=["-m"],
    type=_size,
    metavar="SIZE",
    help="Memory limit per client and device, such as 8G.",
)
@click.option(
    "--key-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help=f"File with the key of clients. Default: {KEY_VARIABLE}, or a key that is generated and saved.",
)
@threads_option("Compute threads of the CPU.")
def command(
    host: str, port: int, device: str | None, mem: int | None, key_file: Path | None, n_threads: int | None
) -> None:
    r"""Export this machine's devices to pyggml on other hosts: load(..., rpc=["HOST:PORT"]) puts layers on them.

    A separate process serves each client. Clients need the same key and the same build of the engine. The connection
    is authenticated, but not encrypted: over an untrusted network, use a tunnel. Ctrl-C and SIGTERM stop the server
    and disconnect its clients.

    \b
    pyggml rpc-serve                               # this machine's programs only
    pyggml rpc-serve --host 10.0.0.7 --mem 20G --key-file rpc.key
    """
    from pyggml.remote import (  # here: --help does not need the compiled module
        ExportedDevices,
        Supervisor,
        list_exported_devices,
    )

    named = "" if device in (None, "auto") else device
    names = tuple(name.strip() for name in re.split("[,/]", named) if name.strip())
    exported = ExportedDevices(names, mem or ExportedDevices.max_bytes, n_threads or 0)
    key = _key(key_file)
    devices = list_exported_devices(exported)
    with Supervisor(Address(host.strip("[]"), port), exported, key, _log) as supervisor:
        _log(f"pyggml {pyggml.__version__} exports devices at {supervisor.address}:")
        for each in devices:
            free = bytes_text(min(each["memory_free"], exported.max_bytes))
            _log(f"  {each['name']}: {each['description']}, {free} free")
        supervisor.run()


def _key(file: Path | None) -> bytes:
    made = file or default_key_file()
    if made.exists() or (file is None and os.environ.get(KEY_VARIABLE)):
        return find_key(file)
    key = create_key(made)
    click.echo(f"pyggml: generated a key in {made}. Copy the file to the clients (rpc_key=FILE).", err=True)
    return key


def _log(line: str) -> None:
    click.echo(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}", err=True)
