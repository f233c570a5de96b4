"""Texts per second that an encoder embeds: pyggml, sentence-transformers (torch), onnxruntime, upstream's kernels.

    python benchmarks/embeddings.py DIRECTORY --python PYTHON [--rounds 5] [--threads 2] [--sides ...] [--keep]

DIRECTORY is a model of sentence-transformers, as all-MiniLM-L6-v2 is published. PYTHON is an interpreter with
sentence-transformers, onnxruntime and onnxscript; it exports the model to ONNX in the run. Each side is a separate
process with as many threads, and all take turns. "upstream's kernels" is pyggml with PYGGML_KERNELS=off: llama.cpp's
code computes pyggml's passes. All texts of a round have 64 or 256 tokens, so no side pads any.

Speeds are given by the clock and by CPU time, which other programs on the machine disturb less.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "common"), str(HERE.parent / "tests")]

import harness  # noqa: E402
import result_files  # noqa: E402
from support.checkpoints.sentences import mixed_texts  # noqa: E402

WORDS = [
    "the",
    "of",
    "a",
    "cat",
    "river",
    "house",
    "green",
    "mountain",
    "walks",
    "under",
    "bright",
    "quiet",
    "market",
    "story",
    "engine",
    "winter",
    "paper",
    "music",
    "garden",
    "stone",
    "light",
]
N_TOKENS = {64: 64, 256: 16}  # of a text -> texts of a round
_N_SPECIAL = 2  # [CLS] and [SEP]
_N_TEXTS_OF_PAIRS = 200


@dataclass(frozen=True)
class Side:
    program: str
    kind: str
    is_upstream: bool = False

    @property
    def name(self) -> str:
        program = "upstream's kernels" if self.is_upstream else self.program
        return f"{program} {self.kind}"


SIDES = {
    side.name: side
    for side in (
        Side("pyggml", "f32"),
        Side("pyggml", "bf16"),
        Side("pyggml", "q8_0"),
        Side("sentence-transformers", "f32"),
        Side("sentence-transformers", "bf16"),
        Side("onnxruntime", "f32"),
        Side("pyggml", "f32", is_upstream=True),
        Side("pyggml", "bf16", is_upstream=True),
        Side("pyggml", "q8_0", is_upstream=True),
    )
}


class Worker:
    """A side in a separate process."""

    def __init__(self, side: Side, python: str, directory: Path, n_threads: int) -> None:
        self._name = side.name
        own = sys.executable if side.program == "pyggml" else python
        command = [own, str(HERE / "common" / "embedding_worker.py"), side.program, side.kind, str(directory)]
        environment = os.environ | ({"PYGGML_KERNELS": "off"} if side.is_upstream else {})
        environment |= {"OMP_NUM_THREADS": str(n_threads), "TOKENIZERS_PARALLELISM": "true", "HF_HUB_OFFLINE": "1"}
        self._process = subprocess.Popen(
            [*command, str(n_threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def embed(self, texts: Sequence[str], out: Path | None = None) -> dict[str, float]:
        """Return the seconds by the clock and of the CPUs."""
        assert self._process.stdin
        assert self._process.stdout
        asked: dict[str, Any] = {"texts": list(texts)} | ({"out": str(out)} if out else {})
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise ChildProcessError(f"{self._name} ended with status {self._process.wait()}")
        answer: dict[str, float] = json.loads(line)
        return answer

    def close(self) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


@contextmanager
def workers(names: Sequence[str], python: str, directory: Path, n_threads: int) -> Iterator[dict[str, Worker]]:
    with ExitStack() as stack:
        found = {}
        for name in names:
            found[name] = Worker(SIDES[name], python, directory, n_threads)
            stack.callback(found[name].close)
            found[name].embed(["warm up"])  # one loads at a time
        yield found


def texts_of(n_tokens: int, n_texts: int, seed: int) -> list[str]:
    """Texts of words that are one token each."""
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=n_tokens - _N_SPECIAL)) for _ in range(n_texts)]


def measured(found: dict[str, Worker], n_tokens: int, rounds: int) -> tuple[harness.Figures, harness.Figures]:
    """Texts per second by the clock, and of a CPU's time."""
    by_cpu: harness.Figures = {name: [] for name in found}

    def speed(name: str, n: int) -> float:
        n_texts = N_TOKENS[n_tokens]
        took = found[name].embed(texts_of(n_tokens, n_texts, n))
        if n:
            by_cpu[name].append(n_texts / took["cpu_s"])
        return n_texts / took["seconds"]

    sides = {name: (lambda n, name=name: speed(name, n)) for name in found}
    return harness.interleaved(sides, rounds, "texts/s"), by_cpu


def rank_correlation(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> float:
    """Spearman's."""
    ranks = [np.argsort(np.argsort(each)).astype(np.float64) for each in (a, b)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def similarities(worker: Worker, texts: Sequence[str], out: Path) -> npt.NDArray[np.float64]:
    """Cosines of all pairs of texts."""
    worker.embed(texts, out)
    vectors = np.load(out).astype(np.float64)
    vectors /= np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray((vectors @ vectors.T)[np.triu_indices(len(vectors), 1)])


def order_kept(found: dict[str, Worker]) -> float:
    """Rank correlation of the similarities by Q8_0 with those by F32, over the pairs of a fixed set of texts."""
    with tempfile.TemporaryDirectory() as folder:
        out, texts = Path(folder) / "vectors.npy", [each[:600] for each in mixed_texts(_N_TEXTS_OF_PAIRS)]
        return rank_correlation(*(similarities(found[f"pyggml {kind}"], texts, out) for kind in ("f32", "q8_0")))


def claims(figures: harness.Figures, n_tokens: int, by: str) -> list[harness.Claim]:
    claimed = []
    for kind in ("f32", "bf16"):
        peers = [name for name in figures if SIDES[name].kind == kind and name != f"pyggml {kind}"]
        if f"pyggml {kind}" in figures and peers:
            peer = harness.best(figures, peers)
            ratio = harness.ratio(figures, f"pyggml {kind}", peer)
            claimed.append(harness.at_least(f"{n_tokens} tokens, {by}: pyggml {kind} / {peer}", ratio, 1.5, "x"))
    if {"pyggml q8_0", "sentence-transformers f32"} <= figures.keys():
        ratio = harness.ratio(figures, "pyggml q8_0", "sentence-transformers f32")
        claimed.append(harness.at_least(f"{n_tokens} tokens, {by}: pyggml q8_0 / torch f32", ratio, 3, "x"))
    return claimed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--python", required=True, help="an interpreter with sentence-transformers and onnxruntime")
    parser.add_argument("--rounds", type=int, default=5, help="default 5")
    parser.add_argument("--threads", type=int, default=harness.n_cpus(), help="of every side; default: one per CPU")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES), help="default: all")
    parser.add_argument("--keep", action="store_true", help="keep the figures in benchmarks/results")
    chosen = parser.parse_args()
    machine = result_files.machine()
    print(f"{machine}, {chosen.threads} threads", flush=True)
    claimed, results = [], {}
    with workers(chosen.sides, chosen.python, chosen.directory, chosen.threads) as found:
        for n_tokens in N_TOKENS:
            print(f"{n_tokens} tokens", flush=True)
            by_clock, by_cpu = measured(found, n_tokens, chosen.rounds)
            for by, unit, figures in (("clock", "texts/s", by_clock), ("CPU", "texts per second of a CPU", by_cpu)):
                harness.table(figures, unit)
                claimed += claims(figures, n_tokens, by)
                results[f"{n_tokens} tokens, {by}"] = figures
        if {"pyggml f32", "pyggml q8_0"} <= found.keys():
            kept = order_kept(found)
            claimed.append(harness.at_least("rank correlation of similarities, q8_0 with f32", kept, 0.999))
            results["rank correlation"] = {"q8_0": [kept]}
    if chosen.keep:
        machine |= {"load_after": round(os.getloadavg()[0], 2)}
        medians = {case: {k: round(statistics.median(v), 4) for k, v in each.items()} for case, each in results.items()}
        result_files.write("embeddings", {"machine": machine, "n_threads": chosen.threads, "texts_per_s": medians})
    return harness.verdict(claimed)


if __name__ == "__main__":
    sys.exit(main())
