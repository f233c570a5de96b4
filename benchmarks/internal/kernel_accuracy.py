"""How near models come to what their weights mean, with our kernels and with upstream's: perplexities and logits.

    python benchmarks/internal/kernel_accuracy.py [--model shipped smollm2-135m] [--type q8_0 q4_k_m ...]

The reference has the same weights as 32-bit floats, dequantised, through upstream's code with a cache of 32-bit floats:
nothing is rounded on the way but sums. Against it stand our kernels and PYGGML_KERNELS=off, both with the file as it is
and the usual cache. The models are the shipped one on stories that it wrote itself, and random weights in the shape of
SmolLM2 135M on random tokens. In a perplexity errors of either sign cancel, more or less as it happens. Two distances
from the reference have none to cancel: the error of logits, the root of the mean square of differences as a part of
their spread, and the mean divergence (Kullback-Leibler) of the next token's distribution, in nats.

Exit status 1: with our kernels, the logits of some type are farther from the reference than with upstream's.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "common"))

import harness
import numpy as np
import numpy.typing as npt
import synthetic_models

import pyggml
from pyggml import Context, Model
from pyggml.source import SHIPPED_MODEL

MODELS = ("shipped", "smollm2-135m")
TYPES = ("q8_0", "q6_k", "q5_k_m", "q4_k_m", "q4_0", "q5_1", "iq4_xs", "q2_k", "f16", "bf16")
SIDES = {"reference": ("off", "f32"), "ours": ("on", "f16"), "upstream": ("off", "f16")}
COMPARED = ("ours", "upstream")
CHUNK = 256  # tokens that are read together
N_STORIES = 6
N_RANDOM = 512

Ids = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]


def stories() -> Ids:
    """What the shipped model writes, in chunks of tokens."""
    with pyggml.load() as llm:
        done = [
            llm.generate("Once upon a time", max_tokens=CHUNK, temperature=1.0, seed=seed, ignore_eos=True)
            for seed in range(N_STORIES)
        ]
        return np.array([[*llm.tokenize("Once upon a time"), *each.token_ids][:CHUNK] for each in done], np.int32)


def random_tokens(model: Path) -> Ids:
    with Model(model) as opened:
        return np.random.default_rng(0).integers(0, opened.vocab.n_tokens, (N_RANDOM // CHUNK, CHUNK)).astype(np.int32)


def logits_in_this_process(model: Path, ids: Ids, cache_type: str) -> Floats:
    """Of every token, [chunk, token, vocabulary]."""
    with Model(model) as opened, Context(opened, n_ctx=CHUNK, cache_type=cache_type, flash_attn="on") as context:
        chunks = []
        for chunk in ids:
            context.memory_clear(data=False)
            context.decode(chunk, output="all")
            chunks.append(context.logits().copy())
        return np.stack(chunks)


def logits(model: Path, ids: Ids, side: str) -> Floats:
    kernels, cache_type = SIDES[side]
    given, kept = model.with_name("ids.npy"), model.with_name("logits.npy")
    np.save(given, ids)
    command: list[str | Path] = [sys.executable, __file__, "--worker", model, given, kept, cache_type]
    subprocess.run(command, env=os.environ | {"PYGGML_KERNELS": kernels}, check=True)
    result: Floats = np.load(kept)
    return result


def log_probabilities(logits: Floats) -> npt.NDArray[np.float64]:
    rows = logits.astype(np.float64)
    rows -= rows.max(axis=-1, keepdims=True)
    rows -= np.log(np.exp(rows).sum(axis=-1, keepdims=True))
    return rows


def perplexity(logits: Floats, ids: Ids) -> float:
    taken = np.take_along_axis(log_probabilities(logits[:, :-1]), ids[:, 1:, None], axis=-1)
    return float(np.exp(-taken.mean()))


def error(logits: Floats, reference: Floats) -> float:
    """Of logits, whose mean in each row means nothing."""
    centred = [each - each.mean(axis=-1, keepdims=True) for each in (logits, reference)]
    return float(np.sqrt(np.mean((centred[0] - centred[1]) ** 2) / np.mean(centred[1] ** 2)))


def divergence(logits: Floats, reference: Floats) -> float:
    """Mean over all rows of what a distribution lacks of the reference's."""
    own, true = (log_probabilities(each) for each in (logits, reference))
    return float((np.exp(true) * (true - own)).sum(axis=-1).mean())


@dataclass(frozen=True)
class Row:
    """What was found for one file, of each side; distances from the reference."""

    name: str
    perplexities: dict[str, float]
    errors: dict[str, float]
    divergences: dict[str, float]

    def __str__(self) -> str:
        cells = [self.name, *(f"{self.perplexities[side]:.5g}" for side in SIDES)]
        cells += [f"{found[side]:.3g}" for found in (self.errors, self.divergences) for side in COMPARED]
        return f"| {' | '.join(cells)} |"


def compare(name: str, model: Path, ids: Ids) -> Row:
    floats = model.with_name("floats.gguf")
    pyggml.quantize(model, floats, "f32", requantize=True)
    found = {side: logits(floats if side == "reference" else model, ids, side) for side in SIDES}
    reference = found["reference"]
    return Row(
        name,
        {side: perplexity(each, ids) for side, each in found.items()},
        {side: error(found[side], reference) for side in COMPARED},
        {side: divergence(found[side], reference) for side in COMPARED},
    )


def model_and_ids(name: str) -> tuple[Path, Ids]:
    if name == "shipped":
        return Path(SHIPPED_MODEL), stories()
    path = synthetic_models.model_file(name, "f16")
    return path, random_tokens(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--type", nargs="+", default=list(TYPES), help=f"default {' '.join(TYPES)}")
    parser.add_argument("--model", nargs="+", choices=MODELS, default=list(MODELS), help="default: both")
    parser.add_argument("--worker", nargs=4, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.worker:
        model, given, kept, cache_type = chosen.worker
        np.save(kept, logits_in_this_process(Path(model), np.load(given), cache_type))
        return 0
    print("| model and type | reference | ours | upstream | error: ours | upstream | divergence: ours | upstream |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    claims = []
    for name in chosen.model:
        source, ids = model_and_ids(name)
        for type in chosen.type:
            with tempfile.TemporaryDirectory() as folder:
                model = Path(folder) / f"{type}.gguf"
                pyggml.quantize(source, model, type, requantize=True)
                row = compare(f"{name} {type}", model, ids)
            print(row, flush=True)
            claims.append(harness.at_most(row.name, row.errors["ours"], 1.02 * row.errors["upstream"]))
    return harness.verdict(claims)


if __name__ == "__main__":
    sys.exit(main())
