"""Requests with different LoRA adapters at once, against the same requests without any, and against llama-server.

Sixteen callers make 24 tokens each after random prompts of 16, and a lone caller makes 64; the adapters have rank 16 on
all products of the layers, in F16. "mixed": four adapters, four callers each. llama-server gets the mixed requests, of
which it batches those with equal adapters. The figure is generated tokens per second, with the time for the prompts
included. No tokens are guessed, because how often guesses are right depends on the text, and that on the adapter.

    python benchmarks/mixed_adapters.py [--rounds 5] [--model tinyllama-1.1b] [--without-server]
"""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "common"))

import harness
import llama_cpp_programs
import numpy as np
from synthetic_models import SCRATCH, model_file
from throughput import free_port, wait_until_ready

import pyggml
from pyggml.cli.bench.measure import random_prompts
from pyggml.gguf import GGMLType, GGUFReader, GGUFWriter

N_CALLERS = 16
N_ADAPTERS = 4
N_PROMPT = 16
N_TOKENS = 24
N_LONE_TOKENS = 64
N_CTX = 4096
RANK = 16
SERVER, SERVER_ROUNDS = "llama-server", 3

Prompts = list[list[int]]
#: The numbers of adapters that callers use, None for none.
Mix = Sequence[int | None]

MIXED: Mix = [index % N_ADAPTERS for index in range(N_CALLERS)]
NONE: Mix = [None] * N_CALLERS
MIXES: dict[str, Mix] = {"none": NONE, "mixed": MIXED, "lone none": [None], "lone": [0]}


def n_tokens(mix: Mix) -> int:
    """Tokens that each caller makes."""
    return N_TOKENS if len(mix) > 1 else N_LONE_TOKENS


def adapter_file(model: Path, seed: int) -> Path:
    """A random adapter for all products of a model's layers, made on the first call."""
    path = SCRATCH / f"{model.stem}-adapter-{seed}.gguf"
    if path.exists():
        return path
    rng = np.random.default_rng(seed)
    with GGUFReader(model) as reader:
        shapes = {
            name: info.shape
            for name, info in reader.tensors.items()
            if name.startswith("blk.") and name.endswith(".weight") and len(info.shape) == 2
        }
        architecture = reader.metadata["general.architecture"]
    tensors = {}
    for name, (n_out, n_in) in shapes.items():
        tensors[f"{name}.lora_a"] = (rng.standard_normal((RANK, n_in)) / np.sqrt(n_in)).astype(np.float16)
        tensors[f"{name}.lora_b"] = (rng.standard_normal((n_out, RANK)) * 0.02).astype(np.float16)
    with GGUFWriter(path) as writer:
        for key, value in (
            ("general.type", "adapter"),
            ("general.architecture", architecture),
            ("adapter.type", "lora"),
        ):
            writer.set(key, value)
        writer.set("adapter.lora.alpha", np.float32(RANK))
        for name, data in tensors.items():
            writer.add_tensor(name, data.shape, GGMLType.F16)
        for name, data in tensors.items():
            writer.write_tensor(name, data)
    return path


@contextlib.contextmanager
def pyggml_sides(model: Path, adapters: Sequence[Path]) -> Iterator[dict[str, Callable[[Prompts], float]]]:
    """One LLM, with each of MIXES."""
    with pyggml.load(model, n_ctx=N_CTX, n_parallel=N_CALLERS, device="cpu", speculative="off") as llm:
        for number, file in enumerate(adapters):
            llm.load_adapter(file, f"{number}")

        def side(mix: Mix) -> Callable[[Prompts], float]:
            def run(prompts: Prompts) -> float:
                def generate(index: int) -> None:
                    adapter: str | dict[str, float] = {} if mix[index] is None else f"{mix[index]}"
                    n = n_tokens(mix)
                    done = llm.generate(prompts[index], adapter=adapter, max_tokens=n, ignore_eos=True)
                    assert len(done.token_ids) == n

                return harness.together(generate, len(mix))

            return run

        yield {name: side(mix) for name, mix in MIXES.items()}


@contextlib.contextmanager
def server_side(model: Path, adapters: Sequence[Path]) -> Iterator[Callable[[Prompts], float]]:
    """llama-server with the same adapters, of which each request names one by its id."""
    port = free_port()
    command = [llama_cpp_programs.llama_server(), "-m", model, "-c", N_CTX, "-np", N_CALLERS, "-t", harness.n_cpus()]
    command += ["--host", "127.0.0.1", "--port", port, "--lora-init-without-apply"]
    command += ["--lora", ",".join(map(str, adapters))]
    log = llama_cpp_programs.SCRATCH / "llama-server.log"
    with log.open("w") as file, subprocess.Popen(list(map(str, command)), stdout=file, stderr=file) as server:
        try:
            wait_until_ready(http.client.HTTPConnection("127.0.0.1", port), server, log)

            def run(prompts: Prompts) -> float:
                def generate(index: int) -> None:
                    body = {"prompt": prompts[index], "n_predict": N_TOKENS, "temperature": 0, "ignore_eos": True}
                    body |= {"cache_prompt": False, "lora": [{"id": MIXED[index], "scale": 1.0}]}
                    connection = http.client.HTTPConnection("127.0.0.1", port)
                    connection.request("POST", "/completion", json.dumps(body), {"Content-Type": "application/json"})
                    assert json.load(connection.getresponse())["tokens_predicted"] == N_TOKENS
                    connection.close()

                return harness.together(generate, N_CALLERS)

            yield run
        finally:
            server.terminate()


def compare(name: str, rounds: int, with_server: bool) -> list[harness.Claim]:
    """Measure all sides on one model."""
    model = model_file(name)
    adapters = [adapter_file(model, seed) for seed in range(N_ADAPTERS)]
    print(f"{name}: {N_CALLERS} callers, {N_PROMPT} tokens in, {N_TOKENS} tokens out each, rank {RANK}")
    with contextlib.ExitStack() as stack:
        vocabulary = stack.enter_context(pyggml.Model(model, vocab_only=True))
        sides = stack.enter_context(pyggml_sides(model, adapters))
        if with_server:
            sides[SERVER] = stack.enter_context(server_side(model, adapters))

        def speed(side: str) -> Callable[[int], float]:
            mix = MIXES.get(side, MIXED)

            def run(n: int) -> float:
                prompts = random_prompts(vocabulary.vocab, len(mix), N_PROMPT, random.Random(n))
                return len(mix) * n_tokens(mix) / sides[side](prompts)

            return run

        def measure(names: Sequence[str], n: int) -> harness.Figures:
            return harness.interleaved({side: speed(side) for side in names}, n, "tokens/s")

        own = measure([*MIXES], rounds)
        harness.table(own, "tokens/s")
        claims = [
            harness.at_least(f"{name}: mixed / none", harness.ratio(own, "mixed", "none"), 0.90, "x"),
            harness.at_least(f"{name}: lone / lone none", harness.ratio(own, "lone", "lone none"), 0.93, "x"),
        ]
        if with_server:
            both = measure(["mixed", SERVER], SERVER_ROUNDS)
            harness.table(both, "tokens/s")
            claims.append(harness.at_least(f"{name}: mixed / {SERVER}", harness.ratio(both, "mixed", SERVER), 3, "x"))
    return claims


if __name__ == "__main__":
    without = "--without-server" in sys.argv
    sys.argv = [each for each in sys.argv if each != "--without-server"]
    chosen = harness.options(__doc__, rounds=5, models=["tinyllama-1.1b"])
    sys.exit(harness.verdict([claim for name in chosen.model for claim in compare(name, chosen.rounds, not without)]))
