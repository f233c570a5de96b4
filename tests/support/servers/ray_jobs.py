"""Jobs on a Ray cluster of this machine, in a process of their own: writes what became of each to FOLDER, as JSON.

python tests/support/servers/ray_jobs.py FOLDER
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ray
import ray.data

import pyggml
import pyggml.ray
from pyggml.batch import BatchProgress, FieldNames
from pyggml.ray.actor import WorkerSpec
from pyggml.ray.plan import Plan
from pyggml.ray.pool import ActorPool, RowBatch

FOUR = pyggml.SamplingParams(max_tokens=4, ignore_eos=True)
LOAD: dict[str, Any] = {"n_ctx": 1024, "n_threads": 1}


class Poison:
    """Ends the process that unpickles it, as a row does at which the engine dies."""

    def __reduce__(self) -> tuple[Callable[[int], object], tuple[int]]:
        return os._exit, (1,)


def requests(folder: Path) -> Any:
    """A job in OpenAI's format that is stopped and begun again."""

    def stop(state: BatchProgress) -> None:
        if state.n_done == 5:
            raise KeyError

    source, out = folder / "requests.jsonl", folder / "answers.jsonl"
    with contextlib.suppress(KeyError):
        pyggml.ray.run_batch(source, out, progress=stop, **LOAD)
    report = pyggml.ray.run_batch(source, out, **LOAD)
    return {"n_kept": report.n_kept, "rows": [json.loads(line) for line in out.read_text().splitlines()]}


def killed(folder: Path) -> Any:
    """A job whose actors are killed when a third of it is done, and again at two thirds."""
    left, victims = [100, 200], []

    def kill(state: BatchProgress) -> None:
        if left and state.n_done >= left[0]:
            del left[0]
            for pid in _actors():
                os.kill(pid, signal.SIGKILL)
                victims.append(pid)

    out = folder / "killed.jsonl"
    pyggml.ray.run_batch(
        folder / "prompts.jsonl", out, params=FOUR, progress=kill, batch_tokens=100, n_actors=1, **LOAD
    )
    return {"n_killed": len(victims), "rows": [json.loads(line) for line in out.read_text().splitlines()]}


def poisoned(folder: Path) -> Any:
    """A row that kills whoever computes it, among others."""
    del folder
    rows = [{"prompt": f"{n} cats" if n != 5 else Poison()} for n in range(12)]
    batches = [RowBatch(list(enumerate(rows))[n : n + 4]) for n in range(0, 12, 4)]
    spec = WorkerSpec(None, FOUR, FieldNames(), False, LOAD)
    with ActorPool(spec, Plan(1, 1, 0, 0)) as pool:
        return sorted(pool.process(iter(batches)))


def unloadable(folder: Path) -> Any:
    """A model that no actor can load."""
    pyggml.ray.run_batch(folder / "prompts.jsonl", folder / "none.jsonl", device="cuda:7", **LOAD)


def dataset(folder: Path) -> Any:
    """A dataset, a failed row included, and how many rows Ray's metrics tell of."""
    del folder
    rows = ray.data.from_items([{"id": n, "prompt": f"{n} cats" if n != 3 else None} for n in range(400)])
    answered = pyggml.ray.map_batches(rows, params=FOUR, batch_tokens=100, **LOAD).take_all()
    return {"rows": answered, "n_counted": _counted("ray_pyggml_batch_rows_total", len(answered))}


def vectors(folder: Path) -> Any:
    """A dataset with vectors, and a row without a text."""
    del folder
    rows = ray.data.from_items([{"id": n, "text": f"{n} cats" if n != 3 else None} for n in range(100)])
    found = pyggml.ray.embed_batches(rows, batch_size=30, dimensions=16, normalize=True, **LOAD).take_all()
    for row in found:
        row["embedding"] = None if row["embedding"] is None else [*map(float, row["embedding"])]
    return found


def _actors() -> Iterator[int]:
    """The processes of this cluster's actors."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if entry.joinpath("cmdline").read_bytes().startswith(b"ray::Actor"):
                raylet = entry.joinpath("stat").read_text().rpartition(")")[2].split()[1]
                if Path(f"/proc/{raylet}/stat").read_text().rpartition(")")[2].split()[1] == str(os.getpid()):
                    yield int(entry.name)


def _counted(name: str, expected: int) -> float:
    """A counter among Ray's metrics, which come late: once it is what is expected, or what it is after a minute."""
    (node,) = ray.nodes()
    end = time.monotonic() + 60
    while True:
        with urllib.request.urlopen(f"http://127.0.0.1:{node['MetricsExportPort']}/metrics") as page:
            lines = page.read().decode().splitlines()
        found = sum(float(line.split()[-1]) for line in lines if line.startswith(name + "{"))
        if found == expected or time.monotonic() > end:
            return found
        time.sleep(0.5)


def main() -> None:
    ray.init(
        "local",
        num_cpus=2,
        object_store_memory=100_000_000,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    ray.data.DataContext.get_current().enable_progress_bars = False
    found: dict[str, Any] = {}
    for job in (requests, killed, poisoned, unloadable, dataset, vectors):
        try:
            found[job.__name__] = job(Path(sys.argv[1]))
        except pyggml.InferError as error:
            found[job.__name__] = f"{type(error).__name__}: {error}"
    Path(sys.argv[1], "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
