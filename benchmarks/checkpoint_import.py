"""Importing a checkpoint of 1.1 billion weights (BF16, 2.2 GB, four shards): memory, speed, and one pass or two.

The checkpoint has the shape of TinyLlama and random weights. The import is compared with copying the same files, and
with upstream's own converter followed by its quantiser, on the same machine in the same run. The converter needs
PyTorch, which pyggml does not: ``--python`` names an interpreter with upstream's requirements; without it the import is
only compared with copying.

    python benchmarks/checkpoint_import.py [--python PYTHON] [--rounds 1]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent / "common"))

import harness
import llama_cpp_programs
import numpy as np

import pyggml

if TYPE_CHECKING:
    from typing_extensions import Self

ROOT = Path(__file__).resolve().parent.parent
SHAPE = {
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 22,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
    "max_position_embeddings": 2048,
}
N_SHARDS = 4
MAX_MEMORY_BYTES = 600e6


def make_checkpoint(directory: Path) -> None:
    """Random weights with the vocabulary of Llama 2."""
    sys.path.insert(0, str(ROOT / "tests"))
    from support.checkpoints import checkpoints, models, tokenizer_files

    n_embd, n_ff, n_kv = SHAPE["hidden_size"], SHAPE["intermediate_size"], 64 * SHAPE["num_key_value_heads"]
    block = {
        "input_layernorm": (n_embd,),
        "post_attention_layernorm": (n_embd,),
        "self_attn.q_proj": (n_embd, n_embd),
        "self_attn.k_proj": (n_kv, n_embd),
        "self_attn.v_proj": (n_kv, n_embd),
        "self_attn.o_proj": (n_embd, n_embd),
        "mlp.gate_proj": (n_ff, n_embd),
        "mlp.up_proj": (n_ff, n_embd),
        "mlp.down_proj": (n_embd, n_ff),
    }
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (SHAPE["vocab_size"], n_embd),
        "model.norm.weight": (n_embd,),
        "lm_head.weight": (SHAPE["vocab_size"], n_embd),
    }
    for i in range(SHAPE["num_hidden_layers"]):
        shapes |= {f"model.layers.{i}.{name}.weight": shape for name, shape in block.items()}
    random = np.random.default_rng(0)
    # One pool of numbers, cut at a different place for each tensor: drawing a billion would take longer than the rest.
    pool = checkpoints.bf16_bits(0.02 * random.standard_normal(2**26 + 2**20, np.float32))

    def tensor(shape: tuple[int, ...]) -> checkpoints.Stored:
        start = int(random.integers(2**20))
        n = int(np.prod(shape))
        return checkpoints.Stored("BF16", pool[start : start + n].reshape(shape))

    checkpoints.write_shards(directory, {name: tensor(shape) for name, shape in shapes.items()}, N_SHARDS)
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "rms_norm_eps": 1e-5, "eos_token_id": 2}
    (directory / "config.json").write_text(json.dumps({**config, **SHAPE, "torch_dtype": "bfloat16"}))
    vocabulary = models.real_vocabulary("llama-spm")
    tokenizer_files.write_json(directory, vocabulary)
    (directory / "tokenizer.model").write_bytes(
        tokenizer_files.sentencepiece_bytes(tokenizer_files.sentencepiece_model(vocabulary))
    )


class MemoryWatch:
    """The peak memory of this process, without mapped files."""

    def __init__(self) -> None:
        self.peak = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.005):
            status = Path("/proc/self/status").read_text()
            anonymous = next(line for line in status.splitlines() if line.startswith("RssAnon"))
            self.peak = max(self.peak, 1024 * int(anonymous.split()[1]))


def convert_here(directory: Path, out: Path, outtype: str) -> None:
    """Convert in this process and print time and memory."""
    with MemoryWatch() as memory:
        start = time.perf_counter()
        pyggml.convert(directory, out, outtype)
        seconds = time.perf_counter() - start
    print(json.dumps({"seconds": seconds, "peak": memory.peak}))


def convert(directory: Path, out: Path, outtype: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--convert", outtype, str(directory), str(out)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout))


def copy(directory: Path, to: Path) -> float:
    """Seconds to copy the shards and flush them to the disk, as the import does."""
    start = time.perf_counter()
    for shard in sorted(directory.glob("*.safetensors")):
        shutil.copyfile(shard, to / shard.name)
        descriptor = os.open(to / shard.name, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
    seconds = time.perf_counter() - start
    for shard in to.glob("*.safetensors"):
        shard.unlink()
    return seconds


def upstream_in_two_passes(python: str, directory: Path, folder: Path) -> float:
    """Seconds for upstream's converter to BF16 and its quantiser to Q4_K_M, flushed to the disk."""
    converter = llama_cpp_programs.tree() / "convert_hf_to_gguf.py"
    between, out = folder / "bf16.gguf", folder / "upstream.gguf"
    start = time.perf_counter()
    subprocess.run(
        [python, str(converter), str(directory), "--outfile", str(between), "--outtype", "bf16"],
        check=True,
        capture_output=True,
    )
    llama_cpp_programs.quantize(between, out, pyggml.lib.LLAMA_FTYPE_MOSTLY_Q4_K_M, harness.n_cpus())
    with out.open("rb") as file:
        os.fsync(file.fileno())
    seconds = time.perf_counter() - start
    between.unlink()
    out.unlink()
    return seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", help="an interpreter with the requirements of upstream's converter")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--layers", type=int, default=SHAPE["num_hidden_layers"], help="fewer layers take less time")
    parser.add_argument("--convert", nargs=3, metavar=("OUTTYPE", "DIRECTORY", "OUT"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.convert:
        convert_here(Path(args.convert[1]), Path(args.convert[2]), args.convert[0])
        return 0
    SHAPE["num_hidden_layers"] = args.layers
    print(f"{harness.n_cpus()} CPUs, load average {os.getloadavg()[0]:.2f} before the start", flush=True)
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as name:
        folder = Path(name)
        directory = folder / "tinyllama-shape"
        directory.mkdir()
        make_checkpoint(directory)
        n_bytes = sum(shard.stat().st_size for shard in directory.glob("*.safetensors"))
        claims = []
        for _ in range(args.rounds):
            claims += run(args.python, directory, folder, n_bytes)
    return harness.verdict(claims)


def run(python: str | None, directory: Path, folder: Path, n_bytes: int) -> list[harness.Claim]:
    out = folder / "ours.gguf"

    def show(what: str, seconds: float, note: str = "") -> None:
        print(f"{what:20} {seconds:7.1f} s  {n_bytes / seconds / 1e6:6.0f} MB/s{note}", flush=True)

    copied = copy(directory, folder)
    show(f"copy of {n_bytes / 1e9:.2f} GB", copied)
    kept = convert(directory, out, "auto")
    show("import unchanged", kept["seconds"], f"  {kept['peak'] / 1e6:5.0f} MB of memory")
    mixed = convert(directory, out, "q4_k_m")
    show("import to q4_k_m", mixed["seconds"], f"  {mixed['peak'] / 1e6:5.0f} MB of memory")
    claims = [
        harness.at_most("memory, unchanged", kept["peak"] / 1e6, MAX_MEMORY_BYTES / 1e6, "MB"),
        harness.at_most("memory, to q4_k_m", mixed["peak"] / 1e6, MAX_MEMORY_BYTES / 1e6, "MB"),
        harness.at_least("speed unchanged / of copying", copied / kept["seconds"], 1 / 3),
    ]
    if python is not None:
        theirs = upstream_in_two_passes(python, directory, folder)
        show("upstream, two passes", theirs)
        claims.append(harness.at_most("seconds to q4_k_m / upstream's", mixed["seconds"] / theirs, 1.0))
    return claims


if __name__ == "__main__":
    sys.exit(main())
