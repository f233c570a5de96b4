"""Structured output against llguidance, xgrammar and llama.cpp: JSON schemas and instances of MaskBench.

The schemas are those of guidance-ai/jsonschemabench on GitHub: clone it, and pass its folder ``maskbench/data``. For
each schema, the engines take turns in one process: each compiles the schema and follows all instances, token by token.
The table has the schemas that compile, the instances accepted, and the thread CPU time of a mask with the acceptance of
its token, as MaskBench measures it. Unlike in MaskBench, a text must also be allowed to end after its last token. A
schema that takes too much CPU time or memory counts as refused. The masks of an engine that refuses hard schemas are
those of the easy ones, so a second table has only the schemas that every engine compiles. The resident memory of the
process is printed on the way: with one engine, it is that engine's.

    python benchmarks/schemas.py path/to/jsonschemabench/maskbench/data [--sample 1/60] [--engines pyggml llguidance]
    python benchmarks/schemas.py path/to/data --texts 200000     random texts by pyggml, validated by jsonschema
    python benchmarks/schemas.py path/to/data --outputs 200 --model SmolLM2-135M-Instruct.Q4_1.gguf
                                         a model's outputs, eight at once at temperature 0.8, validated by jsonschema
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import queue
import random
import subprocess
import sys
import sysconfig
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent / "common"))

import numpy as np
import peers
from schema_engines import ENGINES, LlamaCpp
from schema_worker import INDENTS

ROOT = Path(__file__).resolve().parent.parent
VOCABULARY = ROOT / "vendor" / "llama.cpp" / "models" / "ggml-vocab-llama-bpe.gguf"  # 128,256 tokens
START_SECONDS = 300
WALL_PER_CPU_SECOND = 20  # after which a process that does not compute counts as stuck


class Worker:
    """A process with all engines, which is replaced when a schema kills it or takes too long."""

    def __init__(self, python: Path, engines: list[str], options: argparse.Namespace) -> None:
        worker = ROOT / "benchmarks" / "common" / "schema_worker.py"
        self.python = python
        self.arguments = [worker, VOCABULARY, ",".join(engines), options.indent, options.memory_gib]
        self.seconds = options.seconds
        self._start()

    def _start(self) -> None:
        # pyggml and its requirements come from this environment, the other engines from their own.
        folders = [sysconfig.get_path("purelib")]
        if LlamaCpp.name in self.arguments[2].split(","):
            folders.append(_purelib(peers.llama_cpp_python()))
        code = f"import sys, runpy, site; [site.addsitedir(folder) for folder in {folders!r}]; del sys.argv[0]; "
        code += "runpy.run_path(sys.argv[0], run_name='__main__')"
        command = [str(part) for part in (self.python, "-c", code, *self.arguments)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=_read, args=(self.process.stdout, self.lines), daemon=True).start()
        if self._line(START_SECONDS) != "ready":
            raise SystemExit("the engines' process did not start: see its message above")

    def _line(self, seconds: float) -> str | None:
        """The next line, or None if the process has ended, or has computed for too long."""
        limit = self._cpu_seconds() + seconds
        end = time.monotonic() + seconds * WALL_PER_CPU_SECOND
        while self._cpu_seconds() < limit and time.monotonic() < end:
            with contextlib.suppress(queue.Empty):
                return self.lines.get(timeout=0.5)
        return None

    def _cpu_seconds(self) -> float:
        """CPU time of the process so far; infinite once it has ended."""
        try:
            stat = Path(f"/proc/{self.process.pid}/stat").read_text()
        except FileNotFoundError:
            return math.inf
        user, system = stat.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def run(self, engine: str, path: Path) -> dict[str, Any]:
        """The result of one engine for a schema: see schema_worker.run."""
        assert self.process.stdin
        self.process.stdin.write(f"{engine} {path}\n")
        self.process.stdin.flush()
        line = self._line(self.seconds)
        if line is not None:
            result: dict[str, Any] = json.loads(line)
            return result
        why = f"no result within {self.seconds:g} s of CPU time" if self.process.poll() is None else "the process ended"
        self.close()
        self._start()
        return {"refused": why}

    def resident_mib(self) -> float:
        """Resident memory of the process."""
        n_pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return n_pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def _purelib(python: Path) -> str:
    """The folder of an interpreter's packages."""
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def _read(stream: Any, lines: queue.Queue[str | None]) -> None:
    for line in stream:
        lines.put(line.rstrip("\n"))
    lines.put(None)


@dataclass
class Figures:
    """The results of one engine."""

    n_schemas: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    n_valid: int = 0
    n_valid_accepted: int = 0
    n_invalid: int = 0
    n_invalid_accepted: int = 0
    mask_us: list[float] = field(default_factory=list)
    first_mask_ms: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)  # instances, for --verbose

    def add(self, path: Path, tests: list[dict[str, Any]], result: dict[str, Any]) -> None:
        self.n_schemas += 1
        if "refused" in result:
            self.refused[result["refused"]] += 1
            return
        self.mask_us += result["mask_us"]
        self.first_mask_ms.append(result["first_mask_ms"])
        for i, (test, accepted) in enumerate(zip(tests, result["accepted"], strict=True)):
            if test["valid"]:
                self.n_valid += 1
                self.n_valid_accepted += accepted
            else:
                self.n_invalid += 1
                self.n_invalid_accepted += accepted
            if accepted != test["valid"]:
                self.wrong.append(f"{path.name} test {i}: {'refused' if test['valid'] else 'accepted'}")

    def row(self, name: str) -> str:
        compiled = self.n_schemas - self.refused.total()
        masks = np.percentile(self.mask_us or [np.nan], [50, 90, 99])
        cells = [
            name,
            f"{compiled / max(self.n_schemas, 1):.1%} of {self.n_schemas:,}",
            f"{self.n_valid_accepted / max(self.n_valid, 1):.1%} of {self.n_valid:,}",
            f"{self.n_invalid_accepted:,} of {self.n_invalid:,}",
            " / ".join(f"{us:,.0f}" for us in masks),
            f"{np.mean(self.mask_us or [np.nan]):,.1f}",
            f"{np.median(self.first_mask_ms or [np.nan]):.1f} ms",
        ]
        return f"| {' | '.join(cells)} |"


COLUMNS = (
    "engine",
    "schemas that compile",
    "valid instances accepted",
    "invalid accepted",
    "mask p50 / p90 / p99, us",
    "mean, us",
    "first mask",
)


def compare(paths: list[Path], options: argparse.Namespace) -> None:
    """Print the table of all engines."""
    python = Path(options.python) if options.python else peers.schema_engines()
    names = options.engines
    results: list[tuple[Path, list[dict[str, Any]], dict[str, dict[str, Any]]]] = []
    worker = Worker(python, names, options)
    try:
        for number, path in enumerate(paths, 1):
            tests = json.loads(path.read_text(encoding="utf-8"))["tests"]
            order = [names[(number + turn) % len(names)] for turn in range(len(names))]
            results.append((path, tests, {name: worker.run(name, path) for name in order}))
            if number % max(1, len(paths) // 10) == 0:
                progress = f"{number} of {len(paths)} schemas, {worker.resident_mib():.0f} MiB resident"
                print(progress, file=sys.stderr, flush=True)
    finally:
        worker.close()
    figures = _figures(names, results)
    _print_table(figures)
    if len(names) > 1:
        common = [each for each in results if not any("refused" in result for result in each[2].values())]
        print(f"\nThe {len(common):,} schemas that every engine compiles:\n")
        _print_table(_figures(names, common))
    if options.verbose:
        _print_findings(figures["pyggml"])


def _figures(
    names: list[str], results: list[tuple[Path, list[dict[str, Any]], dict[str, dict[str, Any]]]]
) -> dict[str, Figures]:
    figures = {name: Figures() for name in names}
    for path, tests, by_engine in results:
        for name in names:
            figures[name].add(path, tests, by_engine[name])
    return figures


def _print_table(figures: dict[str, Figures]) -> None:
    print(f"| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}")
    for name, one in figures.items():
        print(one.row(name))


def _print_findings(figures: Figures) -> None:
    print("\npyggml refuses:")
    for reason, n in figures.refused.most_common():
        print(f"{n:6} {reason}")
    print("\npyggml differs:")
    print(*figures.wrong, sep="\n")


def draw_texts(paths: list[Path], options: argparse.Namespace) -> None:
    """Validate random texts by the grammars of all schemas, equally many of each."""
    sys.path.insert(0, str(ROOT / "tests"))
    from support import random_texts

    import pyggml

    counts: Counter[str] = Counter()
    rng = random.Random(options.seed)
    with pyggml.Model(VOCABULARY, vocab_only=True) as model:
        vocabulary = random_texts.Vocabulary(model.vocab)
        for number, path in enumerate(paths):
            if number % 200 == 199:
                print(f"{number} of {len(paths)} schemas: {_listed(counts)}", file=sys.stderr, flush=True)
            n = options.texts * (number + 1) // len(paths) - options.texts * number // len(paths)
            schema = json.loads(path.read_text(encoding="utf-8"))["schema"]
            for finding in random_texts.check(schema, vocabulary, n, rng):
                counts[finding.kind] += 1
                if finding.kind == "invalid":
                    print(f"{path.name}: {finding.text}: {finding.reason}", flush=True)
    print(_listed(counts))
    if counts["invalid"]:
        raise SystemExit(1)


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{n:,} {kind}" for kind, n in counts.most_common())


def generate_outputs(paths: list[Path], options: argparse.Namespace) -> None:
    """Validate what a model writes by schemas, with the defaults of ``json_schema=``, so in the schema's order."""
    sys.path.insert(0, str(ROOT / "tests"))
    from support import schema_outputs

    import pyggml

    schemas = {}
    step = len(paths) / min(options.outputs, len(paths))
    for i in range(min(options.outputs, len(paths))):
        path = paths[int(i * step)]
        schemas[path.name] = json.loads(path.read_text(encoding="utf-8"))["schema"]
    counts: Counter[str] = Counter()
    with pyggml.load(options.model, n_ctx=8192, n_parallel=schema_outputs.N_PARALLEL) as llm:
        for name, output in schema_outputs.generate(llm, schemas, max_tokens=options.max_tokens, seed=options.seed):
            counts[output.kind] += 1
            if output.kind == "invalid":
                print(f"{name}: {output.text}: {output.reason}", flush=True)
    print(_listed(counts))
    if counts["invalid"]:
        raise SystemExit(1)


def _fraction(text: str) -> Fraction:
    value = Fraction(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError("must be more than 0 and at most 1, such as 1/60")
    return value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder with MaskBench's files")
    parser.add_argument("--sample", type=_fraction, default=Fraction(1), help="share of the files, such as 1/60")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES), metavar="ENGINE")
    parser.add_argument("--indent", choices=INDENTS, default="none", help="white space of the instances")
    parser.add_argument("--seconds", type=float, default=60, help="limit of CPU time per schema and engine, default 60")
    parser.add_argument("--memory-gib", type=float, default=16, help="address space of the process, default 16")
    parser.add_argument("--python", help="interpreter with llguidance and xgrammar; made if not given")
    parser.add_argument("--verbose", action="store_true", help="list what pyggml refuses, and where it differs")
    parser.add_argument("--texts", type=int, help="validate so many random texts instead of comparing engines")
    parser.add_argument("--outputs", type=int, help="validate a model's outputs by so many of the schemas instead")
    parser.add_argument("--model", type=Path, help="GGUF file of the model, for --outputs")
    parser.add_argument("--max-tokens", type=int, default=200, help="of an output, default 200")
    parser.add_argument("--seed", type=int, default=1, help="of random texts and outputs")
    options = parser.parse_args()
    if (options.outputs is None) != (options.model is None):
        parser.error("--outputs and --model belong together")
    paths = sorted(options.data.glob("*.json"))
    if not paths:
        raise SystemExit(f"{options.data} has no files *.json: pass the folder maskbench/data of jsonschemabench")
    step = options.sample.denominator / options.sample.numerator
    paths = [paths[int(i * step)] for i in range(int(len(paths) / step) or 1)]
    print(f"{len(paths)} schemas, load average {os.getloadavg()[0]:.2f} before the start", file=sys.stderr, flush=True)
    run = draw_texts if options.texts is not None else generate_outputs if options.outputs is not None else compare
    run(paths, options)


if __name__ == "__main__":
    main()
