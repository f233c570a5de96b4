"""Fuzzers that coverage guides: bytes of whole files and texts, which libFuzzer changes where pyggml takes a new way.

    cd tests && python -m fuzz.guided schemas --time 600 [--corpus FOLDER]

It needs the package atheris, which brings libFuzzer along and counts what Python code of pyggml runs; the engine's code
is not counted. What it finds new is kept in the folder of the corpus, from which another run goes on. An exception that
is not one of pyggml's ends it with status 77, and the bytes are in FOLDER/crash-..., which this tries once more:

    cd tests && python -m fuzz.guided schemas --again FOLDER/crash-...
"""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import atheris
import numpy as np
from support.checkpoints import made_tokenizers

import pyggml
from fuzz import damage, fuzzer
from fuzz.refusal import refused
from pyggml.errors import InferError
from pyggml.importer.vocabulary import read_vocabulary
from pyggml.schema.grammar import grammar_of

CASE_SECONDS = 30
MEMORY_MB = 3072
MAX_BYTES = 1 << 17
CHANGED_AS_BYTES = 0.3
NOT_COUNTED = ("pyggml.ray", "pyggml.server", "pyggml.cli", "pyggml.pytest_plugin", "pyggml.__main__")

Try = Callable[[bytes], Any]


@dataclass(frozen=True)
class Target:
    """A consumer of bytes.

    Attributes:
        seeds: good ones, which are changed.
        prepare: makes the function that takes them; in an empty folder.
        change: a value in them, where they are such a text.
    """

    seeds: Callable[[Path], Iterator[bytes]]
    prepare: Callable[[Path], Try]
    change: Callable[[Any, np.random.Generator], Any] | None = None


def fuzzer_named(name: str) -> Any:
    """A fuzzer with all that its module has."""
    return fuzzer.named(name)


def _schemas(_folder: Path) -> Iterator[bytes]:
    module = fuzzer_named("json_schemas")
    for keyword, values in module.KEYWORDS.items():
        yield json.dumps({"properties": {f"p{i}": {keyword: value} for i, value in enumerate(values)}}).encode()
    for number in range(200):
        schemas = [part for part in fuzzer.case(module, 0, number) if part[0] == "schema"]
        yield from (json.dumps(module.random_schema(module.standard.Random(seed))).encode() for _, seed in schemas)


def _schema(_folder: Path) -> Try:
    return lambda data: grammar_of(data.decode("utf-8", "replace"))


def _gguf_files(folder: Path) -> Iterator[bytes]:
    contents = (file.content() for file in fuzzer_named("gguf").prepare(folder))
    return (content for content in contents if len(content) <= MAX_BYTES)


def _gguf(folder: Path) -> Try:
    path = folder / "changed.gguf"

    def read(data: bytes) -> None:
        path.write_bytes(data)
        with pyggml.gguf.GGUFReader(path) as reader:
            dict(reader.metadata)
            dict(reader.tensors)
        report = pyggml.inspect(path)
        str(report)
        report.estimate(n_ctx=512)

    return read


def _matrices(folder: Path) -> Iterator[bytes]:
    prepared = fuzzer_named("importance_matrices").prepare(folder)
    yield from (prepared.older, prepared.matrix.content())


def _matrix(folder: Path) -> Try:
    path = folder / "changed.imatrix"

    def read(data: bytes) -> None:
        path.write_bytes(data)
        matrix = pyggml.ImportanceMatrix.load(path)
        for name in matrix.entries:
            matrix.weights(name)

    return read


def _file_of_checkpoints(name: str) -> Callable[[Path], Iterator[bytes]]:
    def seeds(folder: Path) -> Iterator[bytes]:
        for directory in fuzzer_named("checkpoints").prepare(folder):
            yield (directory / name).read_bytes()

    return seeds


def _checkpoint_with(name: str) -> Callable[[Path], Try]:
    """A good one, of which a file is changed."""

    def prepare(folder: Path) -> Try:
        directory = fuzzer_named("checkpoints").make_plain(folder / "hf")

        def convert(data: bytes) -> None:
            (directory / name).write_bytes(data)
            pyggml.convert(directory, folder / "out.gguf", n_threads=1)

        return convert

    return prepare


def _tokenizers(_folder: Path) -> Iterator[bytes]:
    for name in made_tokenizers.NAMES:
        files = made_tokenizers.made(name).files
        if isinstance(files.get("tokenizer.json"), dict):
            yield json.dumps(files["tokenizer.json"]).encode()


def _tokenizer(folder: Path) -> Try:
    def read(data: bytes) -> None:
        (folder / "tokenizer.json").write_bytes(data)
        read_vocabulary(folder, {})

    return read


def _changed(value: Any, random: np.random.Generator) -> Any:
    return damage.with_changed_value(value, random, is_key=random.random() < 0.1)


def _changed_schema(value: Any, random: np.random.Generator) -> Any:
    """With another keyword, or as any value."""
    return fuzzer_named("json_schemas").changed(value, random) if random.random() < 0.6 else _changed(value, random)


WEIGHTS = "model-00001-of-00002.safetensors"

TARGETS: dict[str, Target] = {
    "configs": Target(_file_of_checkpoints("config.json"), _checkpoint_with("config.json"), _changed),
    "gguf": Target(_gguf_files, _gguf),
    "matrices": Target(_matrices, _matrix),
    "safetensors": Target(_file_of_checkpoints(WEIGHTS), _checkpoint_with(WEIGHTS)),
    "schemas": Target(_schemas, _schema, _changed_schema),
    "tokenizers": Target(_tokenizers, _tokenizer, _changed),
}


def _mutator(change: Callable[[Any, np.random.Generator], Any]) -> Callable[[bytes, int, int], bytes]:
    """Mostly changes a value of JSON, which bytes changed anywhere seldom leave a JSON text; in turn with libFuzzer."""

    def mutated(data: bytes, max_bytes: int, seed: int) -> bytes:
        random = np.random.default_rng(seed)
        if random.random() < CHANGED_AS_BYTES:
            return bytes(atheris.Mutate(data, max_bytes))
        try:
            return json.dumps(change(json.loads(data), random)).encode()[:max_bytes]
        except (ValueError, TypeError, RecursionError):  # it is no JSON, or nothing in it can be changed
            return bytes(atheris.Mutate(data, max_bytes))

    return mutated


def _judged(function: Try) -> Callable[[bytes], None]:
    """Errors of pyggml's may come, if they say something and no book."""

    def judge(data: bytes) -> None:
        try:
            function(data)
        except InferError as error:
            refused(error)

    return judge


def _count_what_runs() -> None:
    """Changes pyggml's functions so that they say where they are."""
    for found in pkgutil.walk_packages(pyggml.__path__, "pyggml."):
        if not found.name.startswith(NOT_COUNTED):
            importlib.import_module(found.name)
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "pyggml":
            _count_in(vars(module), name)


def _count_in(names: dict[str, Any], module: str) -> None:
    for value in list(names.values()):
        # What a property, a static method or a class method calls.
        function = getattr(value, "fget", None) or getattr(value, "__func__", None) or value
        if getattr(function, "__module__", None) != module:
            continue
        if isinstance(function, type):
            _count_in(dict(vars(function)), module)
        elif hasattr(function, "__code__"):
            atheris.instrument_func(function)


def _empty(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(prog="fuzz.guided", description=__doc__.partition("\n")[0])
    parser.add_argument("name", choices=[*TARGETS, "names"], help="'names' prints the others")
    parser.add_argument("--time", type=int, default=60, help="seconds (default: %(default)s)")
    parser.add_argument("--corpus", type=Path, help="default: ../build/fuzz/guided/NAME")
    parser.add_argument("--again", type=Path, metavar="FILE", help="try the bytes in this file, and nothing else")
    args = parser.parse_args()
    if args.name == "names":
        print(*TARGETS)
        return
    target = TARGETS[args.name]
    corpus = args.corpus or Path("../build/fuzz/guided") / args.name
    kept, work, seeds = corpus / "kept", _empty(corpus / "work"), _empty(corpus / "seeds")
    judge = _judged(target.prepare(work))
    if args.again:
        judge(args.again.read_bytes())
        return
    kept.mkdir(exist_ok=True)
    for i, seed in enumerate(target.seeds(seeds)):
        (kept / f"seed-{i}").write_bytes(seed)
    _count_what_runs()
    options = (
        f"-max_total_time={args.time}", f"-timeout={CASE_SECONDS}", f"-rss_limit_mb={MEMORY_MB}",
        f"-max_len={MAX_BYTES}", f"-artifact_prefix={corpus}/", "-print_final_stats=1",
    )  # fmt: skip
    mutator = {} if target.change is None else {"custom_mutator": _mutator(target.change)}
    atheris.Setup([sys.argv[0], *options, str(kept)], judge, **mutator)
    atheris.Fuzz()  # and ends the process


if __name__ == "__main__":
    main()
