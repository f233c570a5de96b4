"""Compare imported models with transformers' own: logits, choices and greedy texts of the same stored weights.

For each architecture that can be imported, transformers makes a tiny checkpoint with random weights and computes it in
float32; then it is imported and computed by the engine. There are two interpreters, because transformers needs PyTorch
and pyggml does not: this one has pyggml, and ``--python`` names one with transformers::

    make compare TRANSFORMERS_PYTHON=/path/to/python

The table shows, per case: the largest and the root-mean-square difference of logits in units of their standard
deviation, how many positions have the same first choice, and how many greedy tokens are equal before the first
difference. With float32 weights a case fails if a logit is off by more than 2e-2, fewer than 98% of the choices agree,
or a greedy text differs. The rows called "auto" keep the stored bfloat16 weights and show what that costs: with such
weights the engine rounds activations to bfloat16 as well, and small models with random weights are full of near ties.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from reference_cases import BASE, CASES, N_VOCAB, Case  # noqa: E402
from support.checkpoints import checkpoints  # noqa: E402

#: What the tests compare with, without transformers.
RECORD = ROOT / "tests" / "data" / "transformers.npz"


# --- with transformers ------------------------------------------------------------------------------------------


def make(directory: Path, names: set[str]) -> None:
    """Write checkpoints, and what transformers computes with them."""
    for number, case in enumerate(CASES):
        if not names or case.name in names:
            make_case(directory / f"{number:02}", case, number)


def make_case(directory: Path, case: Case, seed: int) -> None:
    import safetensors
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)  # with matrices this small, more would only wait for each other
    values = {**BASE, **case.config}
    if case.around is not None:
        values = {**case.around, "text_config": values}
    config = getattr(transformers, f"{case.config_kind or case.kind}Config")(**values)
    kind = getattr(transformers, f"{case.kind}For{'CausalLM' if case.around is None else 'ConditionalGeneration'}")
    kind(config).save_pretrained(directory, save_original_format=not case.is_stacked)
    with safetensors.safe_open(directory / "model.safetensors", "np") as file:
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in sorted(file.keys())}
    if case.is_mxfp4:
        shapes = with_mxfp4(directory, shapes)
    write_weights(directory, shapes, is_sharded=bool(seed % 2))
    write_tokenizer(directory)
    read_as = {"quantization_config": transformers.Mxfp4Config(dequantize=True)} if case.is_mxfp4 else {}
    model = kind.from_pretrained(directory, dtype=torch.float32, **read_as).eval()
    prompt = np.random.default_rng(seed).integers(0, N_VOCAB, case.n_positions)
    with torch.no_grad():
        step = model(torch.tensor(prompt)[None], use_cache=True)
        logits, greedy = step.logits[0].numpy(), [int(step.logits[0, -1].argmax())]
        while len(greedy) < case.n_greedy:
            step = model(torch.tensor(greedy[-1:])[None], past_key_values=step.past_key_values, use_cache=True)
            greedy.append(int(step.logits[0, -1].argmax()))
    np.savez(directory / "expected.npz", prompt=prompt, logits=logits, greedy=greedy)
    (directory / "shapes.json").write_text(json.dumps(shapes))


def with_mxfp4(directory: Path, shapes: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the same experts as MXFP4, which the configuration then names."""
    config = json.loads((directory / "config.json").read_text())
    config["quantization_config"] = {
        "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "lm_head"],
        "quant_method": "mxfp4",
    }
    (directory / "config.json").write_text(json.dumps(config))
    found: dict[str, tuple[int, ...]] = {}
    for name, shape in shapes.items():
        if name.endswith("_proj"):
            n_experts, n_cols, n_rows = shape
            found[f"{name}_blocks"] = (n_experts, n_rows, n_cols // 32, 16)
            found[f"{name}_scales"] = (n_experts, n_rows, n_cols // 32)
        else:
            found[name] = shape
    return found


def write_weights(directory: Path, shapes: dict[str, tuple[int, ...]], *, is_sharded: bool) -> None:
    """Write random bfloat16 weights under the names that transformers chose, in one file or three."""
    (directory / "model.safetensors").unlink()
    tensors = {name: checkpoints.drawn(name, shape) for name, shape in shapes.items()}
    if is_sharded:
        checkpoints.write_shards(directory, tensors, 3)
    else:
        checkpoints.write(directory / "model.safetensors", tensors)


def write_tokenizer(directory: Path) -> None:
    """Write a tokenizer with a token for every byte, as GPT-2 spells them, and one special token."""
    shown = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = [byte for byte in range(256) if byte not in shown]
    spelled = {chr(byte) if byte in shown else chr(256 + hidden.index(byte)): byte for byte in range(256)}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    end = {"id": 256, "content": "<|endoftext|>", "special": True}
    end |= {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    content = {
        "version": "1.0",
        "added_tokens": [end],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": {**spelled, "<|endoftext|>": 256}, "merges": []},
    }
    (directory / "tokenizer.json").write_text(json.dumps(content), "utf-8")
    (directory / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|endoftext|>"}), "utf-8")


# --- with pyggml ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Result:
    largest: float
    rms: float
    same_choice: float
    n_greedy: int
    is_good: bool


def compare(directory: Path, case: Case, outtype: str) -> Result:
    import pyggml

    expected = np.load(directory / "expected.npz")
    gguf = directory / f"{outtype}.gguf"
    pyggml.convert(directory, gguf, outtype)
    prompt = expected["prompt"].tolist()
    # Flash attention computes with float16, which would hide what is measured here.
    with (
        pyggml.Model(gguf, device="cpu") as model,
        pyggml.Context(
            model, n_ctx=case.n_ctx, n_batch=case.n_ctx, flash_attn="off", cache_type="f32", n_threads=1
        ) as context,
    ):
        context.decode(prompt, output="all")
        logits = context.logits()
        greedy = [int(logits[-1].argmax())]
        while len(greedy) < case.n_greedy:
            context.decode(greedy[-1:])
            greedy.append(int(context.logits()[-1].argmax()))
    difference = (logits - expected["logits"]) / expected["logits"].std()
    same = logits.argmax(-1) == expected["logits"].argmax(-1)
    n_greedy = next((i for i, (a, b) in enumerate(zip(greedy, expected["greedy"], strict=True)) if a != b), len(greedy))
    largest, rms = float(abs(difference).max()), float(np.sqrt((difference**2).mean()))
    is_good = outtype == "auto" or (largest <= 2e-2 and same.mean() >= 0.98 and n_greedy == case.n_greedy)
    return Result(largest, rms, float(same.mean()), n_greedy, bool(is_good))


def record(directory: Path, names: set[str]) -> None:
    """Save configurations, shapes, prompts and the logits after their last tokens: what tests cannot make alone.

    If only some cases were made, the others stay unchanged.
    """
    kept: dict[str, Any] = dict(np.load(RECORD)) if names else {}
    for folder, case in chosen(directory, names):
        expected = np.load(folder / "expected.npz")
        config = json.loads((folder / "config.json").read_text())
        shapes = json.loads((folder / "shapes.json").read_text())
        kept[f"{case.name}/model"] = json.dumps({"config": config, "shapes": shapes, "n_ctx": case.n_ctx})
        kept[f"{case.name}/prompt"] = expected["prompt"].astype(np.int32)
        kept[f"{case.name}/logits"] = expected["logits"][-2:].astype(np.float32)
    np.savez_compressed(RECORD, **kept)


def chosen(directory: Path, names: set[str]) -> Iterator[tuple[Path, Case]]:
    for number, case in enumerate(CASES):
        if not names or case.name in names:
            yield directory / f"{number:02}", case


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", help="an interpreter with transformers and PyTorch")
    parser.add_argument("--make", type=Path, help="only write the checkpoints, with the current interpreter")
    parser.add_argument("--record", action="store_true", help=f"save what the tests need in {RECORD.name}")
    parser.add_argument("cases", nargs="*", help="names of cases (default: all)")
    args = parser.parse_args()
    names = set(args.cases)
    if args.make:
        make(args.make, names)
        return
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([args.python or sys.executable, __file__, "--make", folder, *args.cases], check=True)
        if args.record:
            record(Path(folder), names)
        print(f"{'case':34} {'weights':8} {'largest':>9} {'rms':>9} {'choices':>8} {'greedy':>7}")
        for directory, case in chosen(Path(folder), names):
            for outtype in ("f32", "auto"):
                result = compare(directory, case, outtype)
                failed += not result.is_good
                print(
                    f"{case.name:34} {outtype:8} {result.largest:9.1e} {result.rms:9.1e} {result.same_choice:8.1%} "
                    f"{result.n_greedy:4}/{case.n_greedy}{'' if result.is_good else '  DIFFERS'}",
                    flush=True,
                )
    if failed:
        sys.exit(f"{failed} comparisons failed")


if __name__ == "__main__":
    main()
