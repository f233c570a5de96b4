"""Streams over HTTP, and answers as a whole: ``pyggml serve`` and llama-server, with clients in one process."""

from __future__ import annotations

import contextlib
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

from http_clients import Clients

import pyggml
from pyggml.cli.bench.measure import random_prompts

from .setting import Report, Results, Setting, number, ratio, table
from .upstream import Upstream

SIDES = ("pyggml serve", "llama-server")
FORMS = {"streamed": True, "whole": False}


def measure(setting: Setting, results: Results) -> None:
    upstream = Upstream(setting)
    for n in setting.work.served:
        names = {side: [f"{side}, {form}, {n}" for form in FORMS] for side in SIDES}
        results.all_of(names["pyggml serve"], partial(_asked, setting, _pyggml(setting, n), n))
        log = setting.folder / f"llama-server-{n}.log"
        served = upstream.served(n, n * _cells(setting), log)
        results.all_of(names["llama-server"], partial(_asked, setting, served, n))


def _cells(setting: Setting) -> int:
    """Cells of a stream: its tokens and a few more, because llama-server ends an answer just before the last one."""
    return setting.work.n_prompt + setting.work.n_tokens + 16


@contextlib.contextmanager
def _pyggml(setting: Setting, n: int) -> Iterator[int]:
    """``pyggml serve``; yields its port."""
    command = [sys.executable, "-m", "pyggml", "serve", setting.path, "--device", setting.device, "--port", 0]
    command += ["--n-ctx", n * _cells(setting), "--n-parallel", n, "--no-prefix-cache", "--log-level", "warning"]
    # Not in the checkout, whose package need not be the one that is installed.
    with subprocess.Popen(list(map(str, command)), cwd=setting.folder, text=True, stderr=subprocess.PIPE) as server:
        assert server.stderr is not None
        seen = []
        try:
            for line in server.stderr:
                seen.append(line)
                if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                    yield int(found[1])
                    break
            else:
                raise RuntimeError(f"pyggml serve ended before it listened: {''.join(seen)[-800:]}")
        finally:
            server.terminate()


def _asked(
    setting: Setting, served: contextlib.AbstractContextManager[int], n: int, names: list[str]
) -> Iterator[tuple[str, Any]]:
    work = setting.work
    choose = random.Random(n)
    with pyggml.Model(setting.path, vocab_only=True) as model, served as port, Clients() as clients:

        def ask(n_tokens: int, is_streamed: bool) -> Any:
            prompts = random_prompts(model.vocab, n, work.n_prompt, choose)
            return clients.complete(port, prompts, n_tokens, is_streamed=is_streamed)

        ask(min(16, work.n_tokens), True)  # warms up
        for name in names:
            is_streamed = FORMS[name.split(", ")[1]]
            heard = [ask(work.n_tokens, is_streamed) for _ in range(setting.rounds if n <= work.n_some else 1)]
            yield name, {"seconds": [each["seconds"] for each in heard]}


def report(setting: Setting, results: Results) -> Report:
    rows = []
    for n in setting.work.served:
        for form in FORMS:
            found = [results.get(f"{side}, {form}, {n}") for side in SIDES]
            speeds = [each and n * setting.work.n_tokens / min(each["seconds"]) for each in found]
            rows.append([f"{n}, {form}", *map(number, speeds), ratio(*speeds)])
    return [
        "Concurrent requests over HTTP (`-np` is their number), tokens per second, the best round:",
        "",
        *table(["", *SIDES, "ratio"], rows),
    ]
