"""``pyggml serve`` with a ticker in its event loop, for the benchmarks: how late the loop wakes it, and what is held.

    python benchmarks/common/http_worker.py MODEL N_CTX N_PARALLEL

Writes {"port": ...} to standard output once it listens. Each line of standard input then gets a line with the delays,
in milliseconds, since the line before, and what the process holds. The end of standard input ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import signal
import sys
import threading
from pathlib import Path

from pyggml import lib
from pyggml.server import ModelSpec, Settings, create_app, run

TICK_S = 0.005


async def tick(delays: list[float]) -> None:
    """Wake up repeatedly, and record the delay of each wake-up in milliseconds."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + TICK_S
        await asyncio.sleep(TICK_S)
        delays.append(1e3 * (loop.time() - due))


def held() -> dict[str, int]:
    """Return the resources of the process after a garbage collection."""
    gc.collect()
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {
        "threads": int(status["Threads"]),
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "handles": sum(lib.pyg_live_handles(kind) for kind in range(lib.PYG_HANDLE_KINDS)),
        "rss_bytes": 1024 * int(status["VmRSS"].split()[0]),
    }


def report(delays: list[float]) -> dict[str, object]:
    seen = sorted(delays)
    delays.clear()

    def quantile(q: float) -> float:
        return seen[min(len(seen) - 1, int(q * len(seen)))] if seen else 0.0

    found = {f"p{100 * q:g}": round(quantile(q), 3) for q in (0.5, 0.9, 0.99, 0.999)}
    return {"n": len(seen), **found, "max": round(quantile(1), 3), **held()}


def answer(delays: list[float]) -> None:
    for _ in sys.stdin:
        print(json.dumps(report(delays)), flush=True)
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    model, n_ctx, n_parallel = sys.argv[1:]
    load = {"n_ctx": int(n_ctx), "n_parallel": int(n_parallel), "prefix_cache": False}
    settings = Settings(models=(ModelSpec(model),), load=load, port=0, log_level="warning", drain_timeout=0)
    delays: list[float] = []
    tickers = []

    def listening(url: str) -> None:
        tickers.append(asyncio.get_running_loop().create_task(tick(delays)))
        print(json.dumps({"port": int(url.rpartition(":")[2])}), flush=True)
        threading.Thread(target=answer, args=(delays,), daemon=True).start()

    with contextlib.suppress(SystemExit):
        run(create_app(settings), settings, listening)


if __name__ == "__main__":
    main()
