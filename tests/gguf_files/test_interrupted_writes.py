"""Unfinished files: those of killed writers are removed, those of running writers are not."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.checkpoints.hf_llama import HFLlama

import pyggml
from pyggml import DiskFullError, ImportanceMatrix, InvalidParameterError
from pyggml.files.atomic_file import PartialFile
from pyggml.gguf import GGUFWriter
from pyggml.quant import GGMLType

_WRITES = """
import os, signal, sys
from pyggml.gguf import GGUFWriter
from pyggml.quant import GGMLType

writer = GGUFWriter(sys.argv[1])
writer.add_tensor("t", (4,), GGMLType.F32)
writer.missing()
print("begun", flush=True)
sys.stdin.read()
os.kill(os.getpid(), signal.SIGKILL)
"""


def unfinished(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.suffix == ".part")


def write_one(path: Path) -> None:
    with GGUFWriter(path) as writer:
        writer.add_tensor("t", (4,), GGMLType.F32)
        writer.write_tensor("t", np.zeros(4, np.float32))


def test_what_a_killed_process_leaves_is_removed_and_what_a_living_one_writes_is_not(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _WRITES, str(tmp_path / "theirs.gguf")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        theirs = unfinished(tmp_path)
        assert len(theirs) == 1
        write_one(tmp_path / "ours.gguf")
        assert unfinished(tmp_path) == theirs
        process.stdin.close()
        assert process.wait() == -signal.SIGKILL
    assert unfinished(tmp_path) == theirs
    write_one(tmp_path / "ours.gguf")
    assert [path.name for path in tmp_path.iterdir()] == ["ours.gguf"]


def test_a_fork_does_not_keep_what_its_parent_leaves(tmp_path: Path) -> None:
    file = PartialFile(tmp_path / "file")
    ours, theirs = socket.socketpair()
    child = os.fork()
    if not child:
        ours.close()
        theirs.send(b"1")
        theirs.recv(1)
        os._exit(0)
    theirs.close()
    ours.recv(1)  # the child is there
    os.close(file._descriptor)  # as if this process were gone
    file._finalizer.detach()
    write_one(tmp_path / "ours.gguf")
    ours.close()
    os.waitpid(child, 0)
    assert unfinished(tmp_path) == []


@pytest.mark.slow
def test_many_writers_in_one_directory_leave_each_other_alone(tmp_path: Path) -> None:
    """Each writer first removes abandoned files; a file has no lock yet at the moment it is created."""
    failures: list[BaseException] = []

    def write(number: int) -> None:
        try:
            for _ in range(40):
                write_one(tmp_path / f"{number}.gguf")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(list(tmp_path.iterdir())) == 8


def test_links_and_other_files_of_such_a_name_stay(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")
    (tmp_path / ".pyggml-0.part").symlink_to(tmp_path / "precious")
    (tmp_path / "model.gguf.part").write_text("x")
    write_one(tmp_path / "ours.gguf")
    assert (tmp_path / "precious").exists()
    assert unfinished(tmp_path) == [".pyggml-0.part", "model.gguf.part"]


# --- what is no file ----------------------------------------------------------------------------------------------


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))


def a_link_to_a_device(path: Path) -> None:
    path.symlink_to(os.devnull)


def a_device(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root makes devices")
    try:
        os.mknod(path, 0o600 | 0o020000, os.makedev(1, 7))  # as /dev/full
    except OSError as error:
        pytest.skip(f"no devices here: {error}")


def what_it_is(path: Path) -> tuple[int, ...]:
    """But for when it was read, which following a link counts as."""
    at = path.lstat()
    return (at.st_mode, at.st_ino, at.st_size, at.st_mtime_ns)


@pytest.mark.parametrize("make", [a_pipe, a_socket, a_link_to_a_device, a_device])
def test_what_is_no_file_is_not_replaced(
    make: Callable[[Path], None], tmp_path: Path, tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the name of a socket is short
    target = Path("out.gguf")
    make(target)
    before = what_it_is(target)
    HFLlama().write(tmp_path / "hf")
    for write in (
        lambda: pyggml.quantize(tiny_path, target, "q8_0"),
        lambda: pyggml.convert(tmp_path / "hf", target),
        lambda: ImportanceMatrix({}, (), 0, 0).save(target),
        lambda: write_one(target),
    ):
        with pytest.raises(InvalidParameterError, match="is a device, a pipe or a socket"):
            write()
    assert what_it_is(target) == before


# --- how much room ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_full_disk_is_told_the_size_of_the_file(
    tmp_path: Path, tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    HFLlama().write(tmp_path / "hf")
    out, usage = tmp_path / "out.gguf", shutil.disk_usage(tmp_path)

    def leave(free: int) -> None:
        monkeypatch.setattr("shutil.disk_usage", lambda _: usage._replace(free=free))

    writers: list[Callable[[], pyggml.Conversion]] = [
        lambda: pyggml.quantize(tiny_path, out, "q8_0"),
        lambda: pyggml.convert(tmp_path / "hf", out),
    ]
    for write in writers:
        leave(usage.free)
        n_bytes = write().n_bytes
        out.unlink()
        leave(n_bytes - 1)
        with pytest.raises(DiskFullError) as caught:
            write()
        assert caught.value.required_bytes == n_bytes
        leave(n_bytes)
        write()
