"""Run the same probes with pyggml and its peers, and write the outcomes: results/features.json.

    python benchmarks/compare_features.py [--side NAME ...] [--probe NAME ...]

Each probe of features/probes.py runs in a separate process, in the side's own environment (peers.py makes them).
tools/make_comparison.py makes the README's table of it. What is not asked anew keeps its last result.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent / "common"))

import peers
from result_files import machine, read, write
from synthetic_models import SHAPES, checkpoint_settings, model_file

from pyggml.source import SHIPPED_MODEL

sys.path.insert(0, str(Path(__file__).resolve().parent / "features"))

from inputs import as_checkpoint, broken_files
from probes import PROBES

FEATURES = Path(__file__).resolve().parent / "features"
NAME = "features"
SLOW_MODEL = "smollm2-135m"
TIMES = {"threads": 5}  # whose outcome is not the same each time
SECONDS = {"threads": 45}  # what hangs, hangs; most of it is the time that a side takes to start
LONGEST_S = 300


def itself() -> Path:
    return Path(sys.executable)


SIDES: dict[str, Callable[[], Path]] = {
    "pyggml": itself,
    "llama_cpp_python": peers.llama_cpp_python,
    "xllamacpp": peers.xllamacpp,
    "vllm": peers.vllm,
}


def inputs(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the inputs of each side: GGUF files, or the same models as directories."""
    shipped = SHIPPED_MODEL
    checkpoint = as_checkpoint(shipped, folder / "checkpoint")
    slow = folder / "slow"
    slow.mkdir()
    (slow / "config.json").write_text(json.dumps(checkpoint_settings(SHAPES[SLOW_MODEL])))
    bad = [str(path) for path in broken_files(shipped, folder / "broken")]
    as_files = {"model": str(shipped), "slow model": str(model_file(SLOW_MODEL)), "checkpoint": str(checkpoint)}
    as_directories = {"model": str(checkpoint), "slow model": str(slow), "checkpoint": str(checkpoint)}
    files = {side: {"files": as_files, "bad": bad} for side in SIDES}
    return files | {"vllm": {"files": as_directories, "bad": []}}


def asked(python: Path, side: str, probe: str, files: dict[str, str]) -> dict[str, Any]:
    """Run one probe in a separate process, and return its result, or the crash of the process."""
    command = [str(python), str(FEATURES / "probes.py"), side, probe, json.dumps(files)]
    with tempfile.TemporaryDirectory() as folder:
        output, errors = Path(folder, "output"), Path(folder, "errors")
        # Into files and a group of its own: processes that a side leaves behind would keep a pipe open.
        with output.open("w") as out, errors.open("w") as err:
            environment = os.environ | {"PYGGML_CACHE": folder, "GGML_NO_BACKTRACE": "1"}
            process = subprocess.Popen(command, stdout=out, stderr=err, env=environment, start_new_session=True)
        limit = SECONDS.get(probe, LONGEST_S)
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            return {"hung_s": limit}
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        if code < 0:
            return {"died": signal.Signals(-code).name}
        if code:
            return {"failed": (errors.read_text().strip().splitlines() or [str(code)])[-1][:300]}
        result: dict[str, Any] = json.loads(output.read_text().strip().splitlines()[-1])
        return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", nargs="+", default=list(SIDES), choices=SIDES)
    parser.add_argument("--probe", nargs="+", default=list(PROBES), choices=PROBES)
    chosen = parser.parse_args()
    before = machine()
    with tempfile.TemporaryDirectory() as folder:
        given = inputs(Path(folder))
        for side in chosen.side:
            python = SIDES[side]()
            seen: dict[str, Any] = {"version": peers.version(python, side)}
            for probe in chosen.probe:
                if probe == "bad_file":
                    bad = given[side]["bad"]
                    seen[probe] = {Path(path).stem: asked(python, side, probe, {"bad": path}) for path in bad}
                else:
                    results = [asked(python, side, probe, given[side]["files"]) for _ in range(TIMES.get(probe, 1))]
                    seen[probe] = results if probe in TIMES else results[0]
                print(f"{side:18} {probe:18} {json.dumps(seen[probe])}", flush=True)
            kept = (read(NAME) or {"sides": {}})["sides"]
            write(NAME, {"machine": before, "sides": kept | {side: kept.get(side, {}) | seen}})


if __name__ == "__main__":
    main()
