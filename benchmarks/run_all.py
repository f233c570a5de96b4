"""Run all benchmarks, one after the other, and show whose claims hold.

    python benchmarks/run_all.py [NAME ...]       NAME: throughput, prefix_cache ...; default all (about half an hour)

It first builds the peers and makes the models, so that nothing compiles between two rounds.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "common"))

import llama_cpp_programs
import peers
from synthetic_models import SHAPES, model_file

HERE = Path(__file__).resolve().parent
PATHS = (
    "single_stream.py",
    "throughput.py",
    "internal/thread_choice.py",
    "internal/cpu_contention.py",
    "internal/prefix_cache.py",
    "internal/alternating_conversations.py",
    "internal/growing_chats.py",
    "internal/prefixes_on_disk.py",
    "internal/speculative_decoding.py",
    "internal/prefill_stall.py",
    "internal/cancel_latency.py",
    "internal/grammar_overhead.py",
    "internal/asyncio_load.py",
    "http_streams.py",
)
SCRIPTS = {Path(path).stem: HERE / path for path in PATHS}


def prepare() -> None:
    """Build and create all that is missing."""
    for program in (
        llama_cpp_programs.llama_bench,
        llama_cpp_programs.llama_batched_bench,
        llama_cpp_programs.llama_server,
        peers.llama_cpp_python,
    ):
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
        status[name] = subprocess.run([sys.executable, SCRIPTS[name]], check=False).returncode
    print()
    for name, code in status.items():
        print(f"{name:15} {'all claims hold' if code == 0 else 'FAILS'}")
    return 1 if any(status.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
