"""The cache of imports: one process writes a file while others wait, and interrupted imports resume."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.checkpoints import models, tokenizer_files
from support.checkpoints.hf_llama import HFLlama

import pyggml
from pyggml import importer
from pyggml.errors import (
    ArchitectureMismatchError,
    DiskFullError,
    InvalidParameterError,
    ModelLoadError,
    TokenizerError,
)
from pyggml.files import resumable_file
from pyggml.files.model_files import checkpoint_at
from pyggml.gguf import GGUFReader
from pyggml.importer import cache_dir, cache_entries, clear_cache

N_TENSORS = 21  # of HFLlama


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYGGML_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def hf(tmp_path: Path) -> Path:
    return HFLlama().write(tmp_path / "hf", stored="BF16", n_shards=2)


@pytest.fixture
def reference(hf: Path, tmp_path: Path) -> bytes:
    """The file of an undisturbed import."""
    pyggml.convert(hf, tmp_path / "reference.gguf")
    return (tmp_path / "reference.gguf").read_bytes()


def imported(directory: Path, *arguments: Any, **keywords: Any) -> Path:
    return importer.imported(checkpoint_at(directory), *arguments, **keywords)


def stop_after(n: int) -> Callable[[float], bool]:
    """A progress callback that stops at the ``n``-th call."""
    calls = iter(range(n - 1))
    return lambda _part: next(calls, None) is not None


def names_in(directory: Path) -> list[str]:
    return sorted(path.suffix for path in directory.iterdir())


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    """A process with ``wait`` as a callback that says how far it is, and goes on when it reads a line."""
    begin = """
        import os, sys
        from pathlib import Path
        import pyggml
        from pyggml import importer
        from pyggml.files.model_files import checkpoint_at

        def imported(path, **keywords):
            return importer.imported(checkpoint_at(path), **keywords)

        def wait(part):
            print(part, flush=True)
            sys.stdin.readline()
    """
    command = [sys.executable, "-c", textwrap.dedent(begin) + textwrap.dedent(code), *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def tell(process: subprocess.Popen[str], text: str = "\n") -> None:
    assert process.stdin is not None
    process.stdin.write(text)
    process.stdin.flush()


# --- going on ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outtype", ["auto", "q8_0"])
def test_what_was_stopped_goes_on_from_there(tmp_path: Path, cache: Path, hf: Path, outtype: str) -> None:
    pyggml.convert(hf, tmp_path / "reference.gguf", outtype)
    with pytest.raises(ModelLoadError, match="stopped by its progress callback"):
        imported(hf, outtype, stop_after(10))
    assert names_in(cache) == [".part"]
    told: list[float] = []
    path = imported(hf, outtype, told.append)
    assert len(told) == N_TENSORS - 10
    assert path.read_bytes() == (tmp_path / "reference.gguf").read_bytes()
    assert names_in(cache) == [".gguf"]


def test_it_can_be_stopped_again_and_again(cache: Path, hf: Path, reference: bytes) -> None:
    for _ in range(N_TENSORS - 1):
        with pytest.raises(ModelLoadError, match="stopped"):
            imported(hf, progress=stop_after(1))
    told: list[float] = []
    assert imported(hf, progress=told.append).read_bytes() == reference
    assert told == [1.0]
    assert names_in(cache) == [".gguf"]


@pytest.mark.usefixtures("cache")
def test_ctrl_c_keeps_what_there_is(hf: Path, reference: bytes) -> None:
    def interrupt(part: float) -> None:
        if part > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        imported(hf, progress=interrupt)
    told: list[float] = []
    assert imported(hf, progress=told.append).read_bytes() == reference
    assert told[0] > 0.5


@pytest.mark.usefixtures("cache")
def test_a_disk_that_is_full_in_the_middle(hf: Path, reference: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    write, n_written = os.pwrite, 0

    def write_until_full(descriptor: int, data: Any, offset: int) -> int:
        nonlocal n_written
        if n_written > len(reference) // 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        n_written += len(data)
        return write(descriptor, data, offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", write_until_full)
        with pytest.raises(DiskFullError, match="No space left") as raised:
            imported(hf)
    assert raised.value.required_bytes == len(reference)
    assert imported(hf).read_bytes() == reference


def test_a_disk_that_loses_what_was_written(
    cache: Path, hf: Path, reference: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so once. Nothing may count as written that came before."""
    n_syncs = 0

    def sync(descriptor: int) -> None:
        nonlocal n_syncs
        n_syncs += 1
        time.sleep(0.001)
        if n_syncs == 2:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        os.fsync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(resumable_file, "_sync_data", sync)
        with pytest.raises(ModelLoadError, match=r"could not be written.*Input/output error"):
            imported(hf)
    assert names_in(cache) == [".part"]
    assert imported(hf).read_bytes() == reference


def test_a_cache_that_is_removed_meanwhile(cache: Path, hf: Path, reference: bytes) -> None:
    def remove(part: float) -> None:
        if part > 0.5:
            shutil.rmtree(cache, ignore_errors=True)

    with pytest.raises(ModelLoadError, match="could not be written"):
        imported(hf, progress=remove)
    assert imported(hf).read_bytes() == reference


def test_only_what_is_proven_is_kept(cache: Path, hf: Path, reference: bytes) -> None:
    """Whatever a crash of the machine makes of the file: the next import is right."""
    random = np.random.default_rng(0)
    with GGUFReader(imported(hf)) as reader:
        head_size = min(tensor.offset for tensor in reader.tensors.values())
    clear_cache()
    for damage in ("marks", "head", "cut", "cut in the head", "empty", "noise"):
        with pytest.raises(ModelLoadError, match="stopped"):
            imported(hf, progress=stop_after(12))
        part = next(cache.iterdir())
        content = bytearray(part.read_bytes())
        n_marks = len(content) - len(reference)
        if damage == "marks":  # of tensors that were never written, in all bits
            content[-n_marks // 2 :] = random.bytes(n_marks // 2)
        elif damage == "head":
            content[100] ^= 1
        elif damage == "cut":
            del content[-n_marks - 5 :]
        elif damage == "cut in the head":
            del content[head_size // 2 :]
        elif damage == "empty":
            content.clear()
        else:
            content[:] = random.bytes(len(content))
        part.write_bytes(content)
        assert imported(hf).read_bytes() == reference, damage
        assert names_in(cache) == [".gguf"]
        clear_cache()


def test_what_has_no_mark_is_written_again(cache: Path, hf: Path, reference: bytes) -> None:
    with pytest.raises(ModelLoadError, match="stopped"):
        imported(hf, progress=stop_after(12))
    part = next(cache.iterdir())
    content = bytearray(part.read_bytes())
    content[len(reference) :] = bytes(len(content) - len(reference))
    content[len(reference) - 50_000 : len(reference)] = b"?" * 50_000  # of tensors only, which have no gaps here
    part.write_bytes(content)
    told: list[float] = []
    assert imported(hf, progress=told.append).read_bytes() == reference
    assert len(told) == N_TENSORS


def test_a_changed_directory_begins_anew(cache: Path, hf: Path) -> None:
    with pytest.raises(ModelLoadError, match="stopped"):
        imported(hf, progress=stop_after(12))
    HFLlama(seed=1).write(hf, stored="BF16", n_shards=2)
    told: list[float] = []
    path = imported(hf, progress=told.append)
    assert len(told) == N_TENSORS
    assert names_in(cache) == [".gguf", ".part"]
    pyggml.convert(hf, cache.parent / "new.gguf")
    assert path.read_bytes() == (cache.parent / "new.gguf").read_bytes()


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    "name", ["chat_template.jinja", "additional_chat_templates/tools.jinja", "generation_config.json"]
)
def test_every_file_that_is_read_makes_a_difference(hf: Path, name: str) -> None:
    paths = [imported(hf)]
    for content in ("{}", "{ }"):
        (hf / name).parent.mkdir(exist_ok=True)
        (hf / name).write_text(content)
        paths.append(imported(hf))
    assert len(set(paths)) == 3


def test_what_cannot_be_imported_leaves_nothing(cache: Path, tmp_path: Path) -> None:
    llama = HFLlama()
    llama.weights["model.layers.1.mlp.up_proj.weight"][3, 5] = 1e6
    llama.write(tmp_path / "hf")
    with pytest.raises(ModelLoadError, match="cannot be stored as F16"):
        imported(tmp_path / "hf", "f16")
    assert names_in(cache) == []


# --- a process that is killed -----------------------------------------------------------------------------------


@pytest.mark.slow_except(every=7)
@pytest.mark.parametrize("n", [0, 1, 2, 5, 10, 20, 21])
def test_killed_after_any_tensor(cache: Path, hf: Path, reference: bytes, n: int) -> None:
    with start("imported(Path(sys.argv[1]), progress=wait if int(sys.argv[2]) else None)", hf, n) as process:
        for i in range(n):
            assert 0 < float(line_of(process)) <= 1
            if i + 1 < n:
                tell(process)
        if not n:  # somewhere in between
            while process.poll() is None and not list(cache.glob("*")):
                time.sleep(0.001)
        process.kill()
    assert not list(cache.glob("*.gguf")) or not n
    assert imported(hf).read_bytes() == reference
    assert names_in(cache) == [".gguf"]


@pytest.mark.slow
@pytest.mark.parametrize("to_cache", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_killed_at_any_moment(tmp_path: Path, cache: Path, hf: Path, reference: bytes, to_cache: bool) -> None:
    """One process after the other is killed a little later in its import, until one is done."""
    code = """
        print("ready", flush=True)
        sys.stdin.readline()
        (imported if sys.argv[2] == "True" else lambda d: pyggml.convert(d, d.parent / "out.gguf"))(Path(sys.argv[1]))
    """
    out, delay_s = tmp_path / "out.gguf", 0.0
    while True:
        with start(code, hf, to_cache) as process:
            assert line_of(process) == "ready\n"
            tell(process)
            time.sleep(delay_s)
            process.kill()
        assert process.returncode in (0, -signal.SIGKILL)
        finished = [path for path in (*cache.glob("*.gguf"), out) if path.exists()]
        if finished:
            break
        delay_s = 0.01 + 1.3 * delay_s
    assert [path.read_bytes() for path in finished] == [reference]
    if not to_cache:
        pyggml.convert(hf, out)
        assert out.read_bytes() == reference


def test_killed_it_goes_on_from_there(cache: Path, hf: Path, reference: bytes) -> None:
    """All but what was written in the last moments is kept."""
    with start("imported(Path(sys.argv[1]), progress=wait)", hf) as process:
        for _ in range(10):
            line_of(process)
            time.sleep(0.05)
            tell(process)
        line_of(process)
        process.kill()
    told: list[float] = []
    assert imported(hf, progress=told.append).read_bytes() == reference
    assert len(told) < N_TENSORS
    assert names_in(cache) == [".gguf"]


# --- several at once --------------------------------------------------------------------------------------------


def test_the_second_process_waits_for_the_first(cache: Path, hf: Path, reference: bytes) -> None:
    with start("imported(Path(sys.argv[1]), progress=wait)", hf) as process:
        line_of(process)
        told: list[float] = []

        def stop(part: float) -> bool:
            told.append(part)
            return len(told) < 3

        with pytest.raises(ModelLoadError, match="stopped"):
            imported(hf, progress=stop)
        assert told == [0, 0, 0]
        assert names_in(cache) == [".part"]

        def go_on(part: float) -> None:
            assert part == 0, "the second makes the file as well"
            tell(process, "\n" * N_TENSORS)

        assert imported(hf, progress=go_on).read_bytes() == reference
        assert process.wait() == 0


def test_the_second_takes_over_from_one_that_is_killed(cache: Path, hf: Path, reference: bytes) -> None:
    with start("imported(Path(sys.argv[1]), progress=wait)", hf) as process:
        for _ in range(5):
            line_of(process)
            tell(process)
        line_of(process)
        told: list[float] = []

        def kill(part: float) -> None:
            told.append(part)
            process.kill()

        assert imported(hf, progress=kill).read_bytes() == reference
    assert told[0] == 0
    assert told[-1] == 1
    assert names_in(cache) == [".gguf"]


def test_processes_and_threads_all_at_once(cache: Path, hf: Path, reference: bytes) -> None:
    """Each gets the file, and it is made once."""
    n_written: list[int] = []
    code = "n = []; imported(Path(sys.argv[1]), progress=n.append); print(sum(map(bool, n)))"
    processes = [start(code, hf) for _ in range(3)]

    def work() -> None:
        told: list[float] = []
        assert imported(hf, progress=told.append).read_bytes() == reference
        n_written.append(sum(map(bool, told)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for process in processes:
        with process:
            n_written.append(int(line_of(process)))
    assert sorted(n_written) == [0] * 6 + [N_TENSORS]
    assert names_in(cache) == [".gguf"]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_holds_no_lock(cache: Path, hf: Path, reference: bytes) -> None:
    """One that lives longer than its parent's import neither keeps others waiting nor touches the file."""
    code = """
        def fork(part):
            if part > 0.3 and not children:
                children.append(os.fork())
                if not children[0]:
                    sys.stdin.readline()
                    os._exit(0)
                print(children[0], flush=True)
                os.kill(os.getpid(), 9)

        children = []
        imported(Path(sys.argv[1]), progress=fork)
    """
    with start(code, hf) as process:
        child = int(line_of(process))
        assert process.wait() == -signal.SIGKILL
        os.kill(child, 0)  # lives
        assert imported(hf).read_bytes() == reference
        tell(process)
    assert names_in(cache) == [".gguf"]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_can_import_as_well(cache: Path, hf: Path, reference: bytes) -> None:
    children: list[int] = []

    def fork(part: float) -> None:
        if part > 0.3 and not children:
            children.append(os.fork())
            if not children[0]:
                is_same = imported(hf).read_bytes() == reference
                os._exit(0 if is_same else 1)

    assert imported(hf, progress=fork).read_bytes() == reference
    assert os.waitpid(children[0], 0)[1] == 0
    assert names_in(cache) == [".gguf"]


def test_without_locks_it_says_so_and_goes_on(
    cache: Path, hf: Path, reference: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(ModelLoadError, match="stopped"):
        imported(hf, progress=stop_after(12))
    assert names_in(cache) == []
    assert imported(hf).read_bytes() == reference
    assert "does not support locks (No locks available)" in caplog.text
    assert names_in(cache) == [".gguf"]


# --- what is in the cache ---------------------------------------------------------------------------------------


def test_leftovers_go_after_a_day_unless_somebody_has_them(cache: Path, hf: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="stopped"):
        imported(hf, progress=stop_after(3))
    abandoned = next(cache.iterdir())
    HFLlama(seed=1).write(tmp_path / "held")
    HFLlama(seed=2).write(tmp_path / "other")
    with start("imported(Path(sys.argv[1]), progress=wait)", tmp_path / "held") as process:
        line_of(process)
        held = next(path for path in cache.iterdir() if path != abandoned)
        imported(tmp_path / "other")
        assert abandoned.exists()
        for path in (abandoned, held):
            os.utime(path, (0, time.time() - 25 * 3600))
        (cache / next(cache.glob("*.gguf")).name).unlink()
        imported(tmp_path / "other")
        assert not abandoned.exists()
        assert held.exists()
        process.kill()


def test_its_own_leftover_is_used_however_old(cache: Path, hf: Path) -> None:
    with pytest.raises(ModelLoadError, match="stopped"):
        imported(hf, progress=stop_after(10))
    os.utime(next(cache.iterdir()), (0, 0))
    told: list[float] = []
    imported(hf, progress=told.append)
    assert len(told) == N_TENSORS - 10


@pytest.mark.parametrize("limit", ["a lot", "-1", "nan"])
def test_a_limit_that_is_none_is_refused_before_the_import(
    cache: Path, hf: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setenv("PYGGML_CACHE_GB", limit)
    with pytest.raises(InvalidParameterError, match=f"PYGGML_CACHE_GB is '{limit}'"):
        imported(hf)
    assert not cache.exists()


def test_leftovers_count_and_can_be_cleared(
    cache: Path, hf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ModelLoadError, match="stopped"):
        imported(hf, progress=stop_after(10))
    (entry,) = cache_entries()
    assert not entry.is_complete
    assert entry.n_bytes > 0
    assert clear_cache() == entry.n_bytes
    assert not list(cache.iterdir())
    with pytest.raises(ModelLoadError, match="stopped"):
        imported(hf, progress=stop_after(10))
    HFLlama(seed=1).write(tmp_path / "other")
    monkeypatch.setenv("PYGGML_CACHE_GB", "0.0000001")
    imported(tmp_path / "other")
    assert [path.suffix for path in cache.iterdir()] == [".gguf"]


def test_clearing_leaves_a_running_import_alone(cache: Path, hf: Path, reference: bytes) -> None:
    with start("imported(Path(sys.argv[1]), progress=wait)", hf) as process:
        line_of(process)
        assert clear_cache() == 0
        tell(process, "\n" * N_TENSORS)
        assert process.wait() == 0
    assert next(cache.iterdir()).read_bytes() == reference


def test_a_leftover_is_no_model(cache: Path, hf: Path) -> None:
    with pytest.raises(ModelLoadError, match="stopped"):
        imported(hf, progress=stop_after(10))
    with pytest.raises(ModelLoadError, match=r"neither a \.gguf file"):
        pyggml.load(cache)
    assert not list(cache.glob("*.gguf"))


@pytest.mark.usefixtures("cache")
def test_a_cache_that_can_only_be_read_still_serves(hf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = imported(hf)

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "utime", refuse)
    assert imported(hf) == made


def test_a_cache_that_is_no_directory_is_named(hf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        monkeypatch.setenv("PYGGML_CACHE", str(place))
        with pytest.raises(InvalidParameterError, match="Set PYGGML_CACHE to use another folder"):
            imported(hf)


def test_descriptors_are_closed(cache: Path, hf: Path) -> None:
    def n_open() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = n_open()
    for _ in range(3):
        with pytest.raises(ModelLoadError, match="stopped"):
            imported(hf, progress=stop_after(3))
    with GGUFReader(imported(hf)):
        pass
    assert n_open() == before
    assert names_in(cache) == [".gguf"]


# --- the tokenizer ----------------------------------------------------------------------------------------------


def other_tokenizer(directory: Path) -> Path:
    """The same tokens, and two of them have changed places."""
    path = tokenizer_files.write_json(directory, models.byte_vocabulary())
    content = json.loads(path.read_text())
    vocabulary = content["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
    path.write_text(json.dumps(content))
    return path


def damaged_tokenizer(directory: Path) -> Path:
    (directory / "tokenizer.json").write_text('{"model": {"type": "BPE", "vocab": 1}}')
    return directory


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda d: d / "nothing", "no tokenizer at"),
        (lambda d: d, r"no tokenizer\.json or tokenizer\.model in"),
        (other_tokenizer, "not this model's tokenizer"),
        (damaged_tokenizer, r"tokenizer\.json"),
        (lambda _d: 7, "must be a path or a tokenizer, not int"),
    ],
)
@pytest.mark.parametrize("kind", ["load", "use_llama", "use_auto"])
def test_a_wrong_tokenizer_is_noticed_before_the_import(
    tmp_path: Path, cache: Path, hf: Path, kind: str, make: Callable[[Path], Any], said: str
) -> None:
    (tmp_path / "other").mkdir()
    tokenizer = make(tmp_path / "other")
    load = pyggml.load if kind == "load" else getattr(pyggml.Inference.cpu(), kind)
    argument = {"tokenizer" if kind == "load" else "tokenizer_path": tokenizer}
    with pytest.raises((TokenizerError, InvalidParameterError), match=said):
        load(hf, **argument)
    assert not cache.exists()


def test_a_wrong_family_is_noticed_before_the_import(cache: Path, hf: Path) -> None:
    with pytest.raises(ArchitectureMismatchError, match=r"use_qwen3\(\) are for Qwen3.*and hf is "):
        pyggml.Inference.cpu().use_qwen3(hf)
    assert not cache.exists()


def test_the_right_tokenizer_is_taken(tmp_path: Path, cache: Path, hf: Path) -> None:
    path = tokenizer_files.write_json(tmp_path, models.byte_vocabulary())
    with pyggml.load(hf, tokenizer=path) as llm:
        assert llm.tokenize("the", add_special=False) == [260]
    assert names_in(cache) == [".gguf"]


def test_the_own_tokenizer_is_looked_at_where_it_will_be_needed(cache: Path, hf: Path) -> None:
    """If only the checkpoint's own tokenizer splits texts correctly, one that cannot be opened is an error."""
    content = json.loads((hf / "tokenizer.json").read_text())
    content["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Unheard-of"}]}
    (hf / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
        pyggml.load(hf)
    assert not cache.exists()


def test_without_a_home_the_cache_has_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    for name in ("PYGGML_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(InvalidParameterError, match="set PYGGML_CACHE to a folder"):
        cache_dir()
