"""Damaged checkpoints by the thousand: each is imported, or refused by an InferError; nothing else happens.

What a round does follows from ``--seed`` and its number alone.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import checkpoints
import numpy as np
from checkpoint_formats import FORMATS
from hf_llama import HFLlama

import pyggml
from pyggml.errors import InferError

LONG = "an endless message"
MAX_SECONDS = 5.0  # of one round on a busy machine; what hangs takes longer

#: What a value of a JSON file may be found to be.
STRANGE: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 3, 2**31, 2**63, 10**30, 0.5, -0.0, 1e300, float("nan"), float("inf"), "", "a",
    "\ud800", "\0", "../x", "x" * 100_000, [], [[]], [0], [None], ["a", 1], {}, {"a": {}}, {"": 0}, {"type": "BPE"},
)  # fmt: skip


#: Formats that are tried, and further settings in their configurations.
BESIDES: dict[str, dict[str, Any]] = {
    "w8a8": {},
    "mixed": {
        "sparsity_config": {"format": "dense"},
        "transform_config": {"config_groups": {"R1": {"apply": [{"location": "weight_input"}]}}},
    },
    "nvfp4": {},
    "fp8": {"modules_to_not_convert": ["lm_head"], "ignored_layers": ["lm_head"]},
    "gptq": {"dynamic": {"+:.*q_proj": {"bits": 4}, "-:nothing": {}}},
    "awq": {"modules_to_not_convert": ["lm_head"]},
    "auto-round": {"extra_config": {"lm_head": {"bits": 16}}},
}


def make(directory: Path) -> Path:
    """A small checkpoint that has everything that can be damaged."""
    return llama().write(directory, stored="BF16", n_shards=2)


def llama() -> HFLlama:
    small = HFLlama(n_embd=32, n_head=2, n_head_kv=1, head_dim=16, n_ff=32, n_layer=1)
    small.config |= {"rope_scaling": {"rope_type": "linear", "factor": 2.0}, "attention_bias": False}
    return small


def make_quantized(directory: Path, name: str) -> Path:
    """The same, quantised in a format, and with what its configuration can say besides."""
    model, format = llama(), FORMATS[name]
    tensors: dict[str, Any] = dict(model.weights)
    for weight in [weight for weight in tensors if weight.endswith("_proj.weight")]:
        layer, _ = format.layer(weight.removesuffix(".weight"), tensors.pop(weight))
        tensors |= {weight.removesuffix("weight") + suffix: data for suffix, data in layer.items()}
    settings: dict[str, Any] = {**format.config["quantization_config"], **BESIDES.get(name, {})}
    model.config["quantization_config"] = settings
    return model.write_tensors(directory, tensors, n_shards=2)


def damage(directory: Path, random: np.random.Generator) -> str:
    """Damages one file, and says how."""
    file = random.choice(sorted(path for path in directory.iterdir() if path.is_file()))
    content = file.read_bytes()
    n_head = 8 + int.from_bytes(content[:8], "little") if file.suffix == ".safetensors" else len(content)
    kind = random.choice(["bytes", "cut", "value", "key"])
    if kind == "cut":
        file.write_bytes(content[: int(random.integers(len(content)))])
    elif kind == "bytes":
        file.write_bytes(with_changed_bytes(content[:n_head], random) + content[n_head:])
    elif file.suffix == ".safetensors":
        entries = with_changed_value(json.loads(content[8:n_head]), random, kind == "key")
        file.write_bytes(checkpoints.file(entries, content[n_head:]))
    else:
        file.write_text(json.dumps(with_changed_value(json.loads(content), random, kind == "key")))
    return f"{kind} of {file.name}"


def with_changed_bytes(content: bytes, random: np.random.Generator) -> bytes:
    changed = bytearray(content)
    for position in random.integers(0, len(content), int(random.integers(1, 4))):
        changed[position] = int(random.integers(256))
    return bytes(changed)


def with_changed_value(value: Any, random: np.random.Generator, is_key: bool) -> Any:
    """The same with one strange value, or without a key."""
    places = list(places_of(value))
    holder, key = places[int(random.integers(len(places)))]
    if is_key and isinstance(holder, dict):
        del holder[key]
    else:
        holder[key] = STRANGE[int(random.integers(len(STRANGE)))]
    return value


def places_of(value: Any, depth: int = 0) -> Iterator[tuple[Any, Any]]:
    """Where values are: near the top each, and further down a few."""
    pairs = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
    for key, inner in pairs if depth < 2 or len(pairs) < 12 else [*pairs[:4], *pairs[-4:]]:
        yield value, key
        if isinstance(inner, (dict, list)):
            yield from places_of(inner, depth + 1)


def run(folder: Path, rounds: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Damages and imports; returns how often what came of it, and what should never have."""
    found: Counter[str] = Counter()
    failures = []
    quantized = [make_quantized(folder / name, name) for name in BESIDES]
    plain = make(folder / "good")
    good = [directory for each in quantized for directory in (plain, each)]
    work = folder / "work"
    work.mkdir()
    for i in range(rounds):
        random = np.random.default_rng([seed, i])
        directory = Path(shutil.copytree(good[i % len(good)], work / "hf"))
        how = f"seed {seed}, round {i}, {damage(directory, random)}"
        start = time.perf_counter()
        try:
            outcome = outcome_of(directory, work / "out.gguf")
            found[outcome] += 1
            if outcome in (LONG, "InvalidParameterError"):  # nobody gave a wrong argument
                failures.append(f"{how}: {outcome}")
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            place = traceback.extract_tb(error.__traceback__)[-1]
            failures.append(f"{how}: {error!r:.200} at {place.filename}:{place.lineno}")
        if time.perf_counter() - start > MAX_SECONDS:
            failures.append(f"{how}: took {time.perf_counter() - start:.1f} s")
        shutil.rmtree(directory)
        if list(work.iterdir()):
            failures.append(f"{how}: something is left")
            shutil.rmtree(work)
            work.mkdir()
    return found, failures


def outcome_of(directory: Path, out: Path) -> str:
    """Imports, and loads what came of it."""
    try:
        pyggml.convert(directory, out, n_threads=1)
    except InferError as error:
        return type(error).__name__ if len(str(error)) < 2000 else LONG
    try:
        with pyggml.Model(out, device="cpu"):
            return "imported"
    except InferError as error:
        return f"imported, and then {type(error).__name__}"
    finally:
        out.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found, failures = run(Path(folder), args.rounds, args.seed)
    for outcome, n in found.most_common():
        print(f"{n:6} {outcome}")
    if failures:
        sys.exit("\n".join(failures))


if __name__ == "__main__":
    main()
