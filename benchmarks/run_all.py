"""Runs all measurements, one after the other, and shows whose claims hold.

    python benchmarks/run_all.py [NAME ...]       NAME: throughput, prefix ...; default all (about half an hour)

It first builds the peers and makes the models, so that nothing compiles between two rounds.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import peers
import upstream
from shapes import SHAPES, model_file

HERE = Path(__file__).resolve().parent
SCRIPTS = (
    "single_stream",
    "throughput",
    "thread_choice",
    "disturbance",
    "prefix",
    "mixed",
    "cancel",
    "grammar",
    "asyncio_load",
    "http_streams",
)


def prepare() -> None:
    """Builds and makes whatever is missing."""
    for program in (upstream.llama_bench, upstream.llama_batched_bench, upstream.llama_server, peers.llama_cpp_python):
        program()
    for name in SHAPES:
        model_file(name)


def main() -> int:
    names = sys.argv[1:] or SCRIPTS
    unknown = set(names) - set(SCRIPTS)
    if unknown:
        sys.exit(f"no such measurement: {', '.join(sorted(unknown))}; choose from {', '.join(SCRIPTS)}")
    prepare()
    status = {}
    for name in names:
        print(f"\n=== {name} ===", flush=True)
        status[name] = subprocess.run([sys.executable, HERE / f"{name}.py"], check=False).returncode
    print()
    for name, code in status.items():
        print(f"{name:15} {'all claims hold' if code == 0 else 'FAILS'}")
    return 1 if any(status.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
