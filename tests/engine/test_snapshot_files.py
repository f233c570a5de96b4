"""The prefix cache on disk: restarts, several processes, and files that are damaged or cannot be written."""

from __future__ import annotations

import logging
import os
import random
import signal
import stat
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from soak import schedules, tiered_schedules
from support import device_kinds
from support.checkpoints import models

import pyggml

WRITERS: dict[str, Callable[[Path], Path]] = {
    "attention": models.write_llama,
    "window": lambda path: models.write_gemma2(path, sliding_window=32),
    "recurrent": models.write_mamba,
    "hybrid": models.write_jamba,
}
LOAD: dict[str, Any] = {"n_ctx": 512, "n_threads": 1, "n_parallel": 1}
OPTIONS: dict[str, Any] = {"ignore_eos": True, "max_tokens": 10}


@pytest.fixture(scope="module")
def llama(model_dir: Path) -> Path:
    return models.write_llama(model_dir / "snapshot-files-llama.gguf")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "prefixes"


def tokens(n: int, seed: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(1, 250) for _ in range(n)]


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.pygprefix"))


def fill(path: Path, folder: Path, seeds: range, **options: Any) -> list[list[int]]:
    """Write a file for each prompt, and return the answers."""
    with pyggml.load(path, prefix_cache_dir=folder, **LOAD | options) as llm:
        return [llm.generate(tokens(100, seed), **OPTIONS).token_ids for seed in seeds]


@pytest.mark.parametrize("kind", WRITERS)
def test_a_restart_computes_nothing_again(kind: str, model_dir: Path, folder: Path) -> None:
    path = WRITERS[kind](model_dir / f"snapshot-files-{kind}.gguf")
    first = fill(path, folder, range(3))
    assert len(files(folder)) == 3  # of the last one, too, which was cached when the model was closed
    with (
        pyggml.load(path, prefix_cache_dir=folder, **LOAD) as llm,
        pyggml.load(path, prefix_cache=False, **LOAD) as alone,
    ):
        for seed in range(3):
            turn = [*tokens(100, seed), *first[seed], *tokens(5, seed=seed)]
            done = llm.generate(turn, **OPTIONS)
            assert done.cached_tokens == 109  # all but the last token, which was not computed
            assert done.token_ids == alone.generate(turn, **OPTIONS).token_ids
        stats = llm.stats()
    assert stats.n_disk_hits == 3
    assert stats.n_disk_tokens == stats.n_cached_tokens == 3 * 109
    assert stats.n_disk_snapshots >= 3
    assert stats.disk_snapshot_bytes > 0


def test_only_the_owner_can_read_them(llama: Path, folder: Path) -> None:
    fill(llama, folder, range(2))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(each.stat().st_mode) for each in files(folder)} == {0o600}


def test_running_processes_share_a_directory(llama: Path, folder: Path) -> None:
    with (
        pyggml.load(llama, prefix_cache_dir=folder, **LOAD) as one,
        pyggml.load(llama, prefix_cache_dir=folder, isolate=True, **LOAD) as other,
    ):
        first = one.generate(tokens(100, 1), **OPTIONS)
        one.generate(tokens(100, 2), **OPTIONS)  # evicts it
        deadline = time.monotonic() + 20
        while not files(folder) and time.monotonic() < deadline:
            time.sleep(0.01)
        done = other.generate(tokens(100, 1), **OPTIONS)
        assert done.cached_tokens == 99
        assert done.token_ids == first.token_ids


def test_other_options_and_salts_have_their_own_files(llama: Path, folder: Path, model_dir: Path) -> None:
    fill(llama, folder, range(1))
    other = models.write_llama(model_dir / "snapshot-files-other.gguf", seed=7)
    for path, options in ((llama, {"cache_type": "q8_0"}), (llama, {"rope_freq_base": 20000.0}), (other, {})):
        with pyggml.load(path, prefix_cache_dir=folder, **LOAD | options) as llm:
            assert llm.generate(tokens(100, 0), **OPTIONS).cached_tokens == 0
    with pyggml.load(llama, prefix_cache_dir=folder, **LOAD) as llm:
        assert llm.generate(tokens(100, 0), cache_salt="a", **OPTIONS).cached_tokens == 0
        assert llm.generate(tokens(100, 0), **OPTIONS).cached_tokens == 99
    assert len(files(folder)) == 5


def test_the_oldest_files_are_removed(llama: Path, folder: Path) -> None:
    fill(llama, folder, range(1))
    size = files(folder)[0].stat().st_size
    for seed in range(1, 6):
        fill(llama, folder, range(seed, seed + 1), prefix_cache_disk_bytes=3 * size)
        assert len(files(folder)) == min(seed + 1, 3)
    with pyggml.load(llama, prefix_cache_dir=folder, prefix_cache_disk_bytes=3 * size, **LOAD) as llm:
        cached = [llm.generate(tokens(100, seed), max_tokens=0).cached_tokens for seed in (5, 0)]
    assert cached == [99, 0]


def damage(path: Path, how: str) -> None:
    data = path.read_bytes()
    if how == "truncated":
        path.write_bytes(data[: len(data) // 2])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "foreign":
        path.write_bytes(b"GIF89a" + bytes(200))
    elif how == "changed":
        path.write_bytes(data[:-100] + bytes([data[-100] ^ 1]) + data[-99:])
    else:
        path.write_bytes(data[:300] + bytes([data[300] ^ 1]) + data[301:])


@pytest.mark.parametrize("how", ["truncated", "empty", "foreign", "changed", "other tokens"])
def test_a_damaged_file_is_removed_with_a_warning(
    how: str, llama: Path, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (expected,) = fill(llama, folder, range(1))
    (file,) = files(folder)
    damage(file, how)
    (folder / "mine.txt").write_text("not a prefix")
    caplog.clear()
    with caplog.at_level(logging.WARNING, "pyggml"):
        assert fill(llama, folder, range(1)) == [expected]
    warnings = [record.getMessage() for record in caplog.records if "prefix cache removed" in record.getMessage()]
    assert len(warnings) == 1
    assert file.name in warnings[0]
    assert (folder / "mine.txt").exists()
    assert fill(llama, folder, range(1)) == [expected]  # it was written again


def test_a_file_that_is_too_large_is_left_alone(llama: Path, folder: Path) -> None:
    """Its head is whole, and announces more bytes than any machine has."""
    (expected,) = fill(llama, folder, range(1))
    (file,) = files(folder)
    size = 1 << 42
    with file.open("r+b") as opened:
        opened.seek(16)  # the size in the header
        opened.write(size.to_bytes(8, sys.byteorder))
        try:
            opened.truncate(size)
        except OSError:
            pytest.skip("the file system has no files of this size")
    with pyggml.load(llama, prefix_cache_dir=folder, prefix_cache_disk_bytes=1 << 60, **LOAD) as llm:
        for seed in (0, 1, 0):
            done = llm.generate(tokens(100, seed), **OPTIONS)
            assert seed == 1 or done.token_ids == expected
    assert file.stat().st_size == size


@pytest.mark.skipif(sys.platform == "win32", reason="limits of POSIX")
def test_a_file_that_cannot_be_opened_is_kept(llama: Path, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    import resource

    (expected,) = fill(llama, folder, range(1))
    (file,) = files(folder)
    with pyggml.load(llama, prefix_cache_dir=folder, **LOAD) as llm, caplog.at_level(logging.WARNING, "pyggml"):
        llm.generate(tokens(100, 1), **OPTIONS)
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        next_descriptor = os.open(os.devnull, os.O_RDONLY)
        os.close(next_descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (next_descriptor, limits[1]))
        try:
            done = llm.generate(tokens(100, 0), **OPTIONS)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert done.token_ids == expected
        assert done.cached_tokens == 0
    assert file.exists()
    assert "prefix cache removed" not in caplog.text


@pytest.mark.slow
def test_random_schedules_with_restarts(model_dir: Path) -> None:
    """A dozen of those that ``make schedules`` runs by the thousand."""
    shelf, tally = device_kinds.Shelf(model_dir), schedules.Tally()
    for number in range(12):
        tiered_schedules.run(tiered_schedules.schedule_of(1, number), shelf, tally)
    assert tally.faults == []
    assert tally.counts["snapshots"] + tally.counts["files"] > 0


def test_a_directory_that_cannot_be_used(llama: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(pyggml.InvalidParameterError, match=r"prefix_cache_dir=.*cannot be used"):
        pyggml.load(llama, prefix_cache_dir=tmp_path / "file" / "folder", **LOAD)
    for options, why in (
        ({"prefix_cache": False, "prefix_cache_dir": tmp_path}, "no effect with prefix_cache=False"),
        ({"prefix_cache_bytes": 0, "prefix_cache_dir": tmp_path}, "prefix_cache_bytes=0"),
        ({"prefix_cache_disk_bytes": 1}, "no effect without prefix_cache_dir"),
    ):
        with pytest.raises(pyggml.InvalidParameterError, match=why):
            pyggml.load(llama, **LOAD | options)


CHILD = """
import resource, signal, sys
import pyggml
sys.path.insert(0, {tests!r})
from engine.test_snapshot_files import LOAD, OPTIONS, tokens

limit = int(sys.argv[3])
if limit:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
with pyggml.load(sys.argv[1], prefix_cache_dir=sys.argv[2], **LOAD) as llm:
    seed = 0
    while limit == 0 or seed < 4:
        print(llm.generate(tokens(400, seed % 20), **OPTIONS).token_ids, flush=True)
        seed += 1
"""


def child(*arguments: object) -> subprocess.Popen[str]:
    program = textwrap.dedent(CHILD.format(tests=str(Path(__file__).parents[1])))
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


@pytest.mark.skipif(sys.platform == "win32", reason="limits and signals of POSIX")
def test_a_full_disk_costs_files_and_nothing_else(llama: Path, folder: Path) -> None:
    process = child(llama, folder, 20_000)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert len(out.splitlines()) == 4
    assert list(folder.iterdir()) == []


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_killed_at_any_moment(llama: Path, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """30 processes that are killed while they write: every file that is there is whole."""
    rng = random.Random(1)
    for _ in range(30):
        process = child(llama, folder, 0)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(rng.uniform(0, 0.2))
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
        assert process.returncode == -signal.SIGKILL
        for each in list(files(folder))[5:]:
            each.unlink()  # so that there is something to write
    assert files(folder)
    with (
        caplog.at_level(logging.WARNING, "pyggml"),
        pyggml.load(llama, prefix_cache_dir=folder, **LOAD) as llm,
        pyggml.load(llama, prefix_cache=False, **LOAD) as alone,
    ):
        n_hits = 0
        for seed in range(20):
            done = llm.generate(tokens(400, seed), **OPTIONS)
            assert done.token_ids == alone.generate(tokens(400, seed), **OPTIONS).token_ids
            n_hits += done.cached_tokens > 0
    assert n_hits > 0
    assert "prefix cache removed" not in caplog.text
