"""A GPU with pyggml and with upstream's programs, in stages; report.md in the folder of the results is what to read.

Upstream's llama-bench, llama-batched-bench and llama-server load the very modules of the installed pyggml, so the
kernels are the same and the rest is compared. That needs a build whose backends are modules: one for a GPU, or
PYGGML_PORTABLE=ON.

    python benchmarks/gpu.py [--device cuda:0] [--model llama-3.1-8b] [--ftype q4_k_m] [--rounds 2]
    python benchmarks/gpu.py --only streams profile      # some stages
    python benchmarks/gpu.py --device cpu --short        # to try the script, with smollm2-135m

Each stage is a process with a time limit, and keeps each result as soon as it has it: the same command goes on where
one was stopped, and ``--again`` measures anew. A complete run is also kept in results/device_KIND.json.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent / "common"))

import harness
import large_models
import llama_cpp_programs
import result_files
import synthetic_models
from gpu_stages.setting import Results, Setting

import pyggml
from pyggml import ffi, lib

HERE = Path(__file__).resolve().parent
#: In their order: name -> module, limit in seconds.
STAGES: dict[str, tuple[str, float]] = {
    "streams": ("streams", 150),
    "profile": ("profiling", 120),
    "sampling": ("choosing", 70),
    "single": ("single", 70),
    "graphs": ("graphs", 70),
    "depth": ("depth", 60),
    "invariance": ("invariance", 90),
    "arrivals": ("arrivals", 40),
    "http": ("servers", 100),
    "moe": ("moe", 90),
}
PATHS = os.pathsep.join(map(str, (HERE, HERE / "common")))


def module(name: str) -> Any:
    return importlib.import_module(f"gpu_stages.{STAGES[name][0]}")


def results_of(setting: Setting, name: str) -> Results:
    return Results(setting.folder / f"{name}.json")


def run_stage(setting: Setting, name: str, limit: float) -> str:
    """Run a stage in a separate process, and return its failure, or ""."""
    log = setting.folder / f"{name}.log"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([PATHS, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)}
    command = [sys.executable, "-u", str(HERE / "gpu.py"), *sys.argv[1:], "--stage", name, "--out", str(setting.folder)]
    command += ["--programs", str(setting.programs)] if setting.programs else []
    with log.open("wb") as file:
        # Not in the checkout, whose package need not be the one that is installed.
        process = subprocess.Popen(
            command, cwd=setting.folder, env=env, stdout=file, stderr=file, start_new_session=True
        )
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            return "took too long and was stopped"
        finally:
            stop(process)
    if status != 0:
        return f"exit status {status}: {''.join(log.read_text(errors='replace').splitlines(keepends=True)[-5:])}"
    return ""


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a stage and what it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def written(setting: Setting, names: list[str], about: dict[str, Any], ended: dict[str, str]) -> str:
    """The report so far."""
    lines = ["# pyggml and upstream on this device", ""]
    lines += [f"- {name}: {value}" for name, value in about.items()]
    for name in names:
        results = results_of(setting, name)
        lines += ["", f"## {name}: {(module(name).__doc__ or '').splitlines()[0]}", ""]
        lines += [f"Stopped: {ended[name]}", ""] if ended.get(name) else []
        try:
            lines += module(name).report(setting, results)
        except Exception as error:  # of one stage: the others have their part of the report
            lines += [f"No report: {type(error).__name__}: {error}", ""]
        lines += [f"- {what} failed: `{error.splitlines()[-1][:300]}`" for what, error in results.errors.items()]
    return "\n".join([*lines, ""])


def claims(setting: Setting) -> list[harness.Claim]:
    return [
        claim
        for name in STAGES
        if hasattr(module(name), "claims")
        for claim in module(name).claims(setting, results_of(setting, name))
    ]


def about_this(setting: Setting) -> dict[str, Any]:
    device = pyggml.find_device(setting.device)
    return {
        "device": f"{device.name}, {device.description}, {device.memory_total / 1e9:.1f} GB",
        "machine": result_files.machine(),
        "model": setting.path.name,
        "pyggml": pyggml.__version__,
        "engine": ffi.string(lib.pyg_engine_build()).decode(),
        "rounds": setting.rounds,
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="as for pyggml.load; default cuda")
    models = [*synthetic_models.SHAPES, *large_models.LARGE]
    parser.add_argument("--model", choices=models, help="default llama-3.1-8b, with --short smollm2-135m")
    parser.add_argument("--ftype", default="q4_k_m", help="type of the weights, default q4_k_m")
    parser.add_argument("--rounds", type=int, default=2, help="default 2")
    parser.add_argument(
        "--only", nargs="+", choices=STAGES, default=list(STAGES), metavar="STAGE", help=", ".join(STAGES)
    )
    parser.add_argument("--short", action="store_true", help="a little of everything, not kept in results/")
    parser.add_argument("--again", action="store_true", help="measure anew what has been measured")
    parser.add_argument("--programs", type=Path, metavar="FOLDER", help="upstream's programs, built elsewhere")
    parser.add_argument("--seconds", type=float, default=480, help="limit of the whole, default 480")
    parser.add_argument("--limit", type=float, default=1, metavar="X", help="multiplies the limits of the stages")
    parser.add_argument("--out", type=Path, help="folder of the results; default build/gpu/bench")
    parser.add_argument("--stage", choices=STAGES, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    chosen = arguments()
    folder = (chosen.out or HERE.parent / "build" / "gpu" / "bench").resolve()
    model = chosen.model or ("smollm2-135m" if chosen.short else "llama-3.1-8b")
    programs = chosen.programs and chosen.programs.resolve()
    setting = Setting(chosen.device, model, chosen.ftype, chosen.rounds, chosen.short, programs, folder)
    if chosen.stage:
        module(chosen.stage).measure(setting, results_of(setting, chosen.stage))
        return 0
    if chosen.again:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    if programs:
        llama_cpp_programs.unpack(programs)  # with the vocabularies that models are made from
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))  # the running stage ends with it
    begin = time.monotonic()
    about = about_this(setting)
    ended: dict[str, str] = {}
    for name in chosen.only:
        start = time.monotonic()
        left = chosen.seconds * chosen.limit - (start - begin)
        limit = min(STAGES[name][1] * chosen.limit, left)
        ended[name] = run_stage(setting, name, limit) if left > 5 else "no time was left"
        print(f"{name}: {ended[name] or 'done'}, {time.monotonic() - start:.0f} s", flush=True)
        (folder / "report.md").write_text(written(setting, chosen.only, about, ended), encoding="utf-8")
    print((folder / "report.md").read_text(encoding="utf-8"))
    if not chosen.short and not any(ended.values()) and set(chosen.only) == set(STAGES):
        kind = about["device"].split(",")[0].rstrip("0123456789").lower()
        measured = {name: json.loads((folder / f"{name}.json").read_text(encoding="utf-8")) for name in STAGES}
        result_files.write(f"device_{kind}", about | measured)
    return harness.verdict(claimed) if (claimed := claims(setting)) else 0


if __name__ == "__main__":
    sys.exit(main())
