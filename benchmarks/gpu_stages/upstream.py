"""Upstream's programs, a process per call, on the modules of the installed pyggml."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import harness
import llama_cpp_programs

import pyggml

from .setting import Setting


def environment() -> dict[str, str]:
    """This process's environment, with the folders of CUDA's libraries: pyggml finds those of Python packages.

    The device must have been used, which loads them.
    """
    paths = {Path(line.split()[-1]) for line in Path("/proc/self/maps").read_text().splitlines() if ".so" in line}
    folders = {str(path.parent) for path in paths if path.name.startswith(("libcudart.so", "libcublas"))}
    given = os.environ.get("LD_LIBRARY_PATH")
    return os.environ | {"LD_LIBRARY_PATH": ":".join([*sorted(folders), *([given] if given else [])])}


class Upstream:
    """llama-bench, llama-batched-bench and llama-server with a model on a device.

    To try the script they get one thread: on a busy machine, several spend their time waiting for each other.
    """

    def __init__(self, setting: Setting, path: Path | None = None, n_gpu_layers: int = 99) -> None:
        device = pyggml.find_device(setting.device)
        self._folder = llama_cpp_programs.for_devices(Path(pyggml.__file__).parent, setting.programs)
        self.environment = environment()
        on_cpu = device.type == "cpu"
        self._where = ["-dev", "none" if on_cpu else device.name, "-ngl", "0" if on_cpu else str(n_gpu_layers)]
        self._where += ["-m", str(path or setting.path), "-t", str(1 if setting.is_short else harness.n_cpus())]

    def command(self, program: str, *arguments: object) -> list[str]:
        return [str(self._folder / program), *self._where, *map(str, arguments)]

    def bench(self, *arguments: object) -> dict[str, float]:
        """Tokens per second of llama-bench by test: "prompt 512", "generate 128"."""
        results = json.loads(self._run("llama-bench", *arguments, "-r", 1, "-o", "json"))
        speeds = {}
        for result in results:
            kind, n_tokens = ("prompt", result["n_prompt"]) if result["n_prompt"] else ("generate", result["n_gen"])
            speeds[f"{kind} {n_tokens}"] = float(result["avg_ts"])
        return speeds

    def batched_arguments(self, n_streams: Sequence[int], n_prompt: int, n_tokens: int) -> list[object]:
        # The prompt's logits give the first token, so one step fewer is needed.
        asked: list[object] = ["-npp", n_prompt, "-ntg", n_tokens - 1, "-npl", ",".join(map(str, n_streams))]
        return [*asked, "-c", max(n_streams) * (n_prompt + n_tokens), "--output-format", "jsonl"]

    def batched(
        self, n_streams: Sequence[int], n_prompt: int, n_tokens: int, *arguments: object, **env: str
    ) -> list[dict[str, Any]]:
        """The rows of llama-batched-bench: streams "pl", seconds "t_pp" of all prompts, "t_tg" of all steps, "t"."""
        asked = [*self.batched_arguments(n_streams, n_prompt, n_tokens), *arguments]
        output = self._run("llama-batched-bench", *asked, env=env)
        rows = [json.loads(line) for line in output.splitlines() if line.startswith('{"n_kv_max"')]
        if len(rows) != len(n_streams):
            raise RuntimeError(f"llama-batched-bench measured {len(rows)} of {len(n_streams)} cases:\n{output[-1500:]}")
        return [{name: row[name] for name in ("pl", "t_pp", "t_tg", "t")} for row in rows]

    @contextlib.contextmanager
    def served(self, n_parallel: int, n_ctx: int, log: Path) -> Iterator[int]:
        """llama-server; yields its port."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = int(free.getsockname()[1])
        size = ["-c", n_ctx, "-np", n_parallel, "--host", "127.0.0.1", "--port", port]
        command = self.command("llama-server", *size)
        with log.open("w") as file, subprocess.Popen(command, env=self.environment, stdout=file, stderr=file) as server:
            try:
                wait_until_healthy(port, server)
                yield port
            finally:
                server.terminate()

    def _run(self, program: str, *arguments: object, env: Mapping[str, str] | None = None) -> str:
        command = self.command(program, *arguments)
        done = subprocess.run(
            command, cwd=self._folder, env={**self.environment, **(env or {})}, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr[-1200:]}")
        return done.stdout + (done.stderr if program == "llama-batched-bench" else "")


def wait_until_healthy(port: int, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while server.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
            return
        time.sleep(0.1)
    raise RuntimeError("llama-server did not start; its output is in the log")
