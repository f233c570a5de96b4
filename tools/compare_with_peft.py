"""Compare imported LoRA adapters with peft's own: weights with the adapter merged into them, and logits.

For each case, transformers makes a tiny checkpoint with random weights, and peft an adapter for it. peft computes
logits with the adapter and merges it; pyggml imports both, computes logits with the adapter, and merges it into the
imported model. There are two interpreters, because peft needs PyTorch and pyggml does not: this one has pyggml, and
``--python`` names one with peft::

    make compare TRANSFORMERS_PYTHON=/path/to/python

The table shows, per case: the largest difference of a merged weight in units of the deviation of the changes, with
the adapter converted for the directory and for the GGUF file of the base model. Then the root mean square of the
differences of logits, in units of their deviation: "base", the base model's from transformers', which is rounding
that no adapter changes; "adapter", those with the adapter from those with merged weights, both computed here;
"logits", those with the adapter from peft's, and the largest of these. A case fails if a weight or "adapter" is off
by more than 1e-4, or a logit by more than 1e-3.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import compare_with_transformers as bases  # noqa: E402
from reference_cases import CASES as BASES  # noqa: E402
from reference_cases import N_VOCAB  # noqa: E402
from reference_cases import Case as BaseCase  # noqa: E402
from support.checkpoints import checkpoints  # noqa: E402

#: What the tests compare with, without peft.
RECORD = ROOT / "tests" / "data" / "peft.npz"

MAX_ERROR, MAX_LOGIT = 1e-4, 1e-3
#: Adapters of BF16 that upstream applies, because they change the embedding: it rounds activations to their type.
ROUNDED, MAX_ROUNDED = ("llama, embedding",), 5e-2
N_POSITIONS = 24


@dataclass(frozen=True)
class Case:
    """An adapter to make: the base model is a case of reference_cases.py, and the settings are those of LoraConfig."""

    name: str
    base: str
    config: dict[str, Any]


ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
LINEAR = [*ATTENTION, "gate_proj", "up_proj", "down_proj"]
EXPERTS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]

CASES = (
    Case("llama", "llama", {"r": 4, "lora_alpha": 6, "target_modules": [*LINEAR, "lm_head"]}),
    Case("llama, wide heads", "llama, wide heads", {"r": 3, "lora_alpha": 1, "target_modules": LINEAR}),
    Case("llama, rslora", "llama", {"r": 8, "lora_alpha": 2, "target_modules": LINEAR, "use_rslora": True}),
    Case(
        "llama, patterns",
        "llama",
        {
            "r": 4,
            "lora_alpha": 4,
            "target_modules": LINEAR,
            "rank_pattern": {"q_proj": 2, "model.layers.1.mlp.down_proj": 7},
            "alpha_pattern": {"layers.1.*_proj": 9, "up_proj": 1.5},
        },
    ),
    Case(
        "llama, rslora, patterns",
        "llama",
        {
            "r": 4,
            "lora_alpha": 2,
            "target_modules": ATTENTION,
            "use_rslora": True,
            "rank_pattern": {"v_proj": 9},
            "alpha_pattern": {"k_proj": 3},
        },
    ),
    Case("llama, some layers", "llama", {"r": 2, "target_modules": ATTENTION, "layers_to_transform": [1, 2]}),
    Case("llama, embedding", "llama", {"r": 4, "lora_alpha": 3, "target_modules": ["embed_tokens", "q_proj"]}),
    Case("qwen2", "qwen2", {"r": 4, "lora_alpha": 4, "target_modules": LINEAR}),
    Case("qwen3", "qwen3", {"r": 4, "lora_alpha": 4, "target_modules": LINEAR}),
    Case("gemma 3", "gemma 3", {"r": 4, "lora_alpha": 4, "target_modules": LINEAR}),
    Case(
        "gemma 3 that sees",
        "gemma 3 that sees",
        {"r": 4, "lora_alpha": 4, "target_modules": r".*language_model.*\.(q_proj|v_proj|up_proj)"},
    ),
    Case(
        "phi-3",
        "phi-3",
        {"r": 4, "lora_alpha": 4, "target_modules": ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]},
    ),
    Case("glm 4", "glm 4 (2025)", {"r": 4, "target_modules": [*ATTENTION, "gate_up_proj", "down_proj"]}),
    Case("falcon", "falcon 40b", {"r": 4, "target_modules": ["query_key_value", "dense", "dense_h_to_4h"]}),
    Case("mixtral", "mixtral", {"r": 4, "lora_alpha": 4, "target_modules": ATTENTION, "target_parameters": EXPERTS}),
    Case("mixtral, one parameter", "mixtral", {"r": 4, "target_modules": ["q_proj"], "target_parameters": EXPERTS[1:]}),
    Case(
        "mixtral, router",
        "mixtral",
        {"r": 2, "target_modules": ["v_proj"], "target_parameters": ["mlp.gate.weight", EXPERTS[0]]},
    ),
    Case(
        "qwen3 moe", "qwen3 moe", {"r": 4, "lora_alpha": 4, "target_modules": ATTENTION, "target_parameters": EXPERTS}
    ),
    Case("qwen3-next", "qwen3-next", {"r": 4, "target_modules": ["in_proj_qkvz", "out_proj", "q_proj"]}),
    Case("gpt-oss", "gpt-oss", {"r": 4, "target_modules": ATTENTION, "target_parameters": EXPERTS}),
)


def case_of(name: str) -> BaseCase:
    return next(case for case in BASES if case.name == name)


# --- with peft ------------------------------------------------------------------------------------------------------


def make(directory: Path, names: set[str]) -> None:
    """Write base models, adapters, and what peft makes of them."""
    for number, case in enumerate(CASES):
        if not names or case.name in names:
            make_case(directory / f"{number:02}", case, number)


def make_case(directory: Path, case: Case, seed: int) -> None:
    import peft
    import torch
    import transformers

    torch.manual_seed(seed)
    directory.mkdir()
    base_case = case_of(case.base)
    bases.make_case(directory / "base", replace(base_case, n_positions=8, n_greedy=1), seed)
    kind = getattr(
        transformers, f"{base_case.kind}For{'CausalLM' if base_case.around is None else 'ConditionalGeneration'}"
    )
    model = kind.from_pretrained(directory / "base", dtype=torch.float32).eval()
    adapted = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **case.config))
    adapted.save_pretrained(directory / "adapter")
    shapes = draw_adapter(directory / "adapter")
    model = kind.from_pretrained(directory / "base", dtype=torch.float32).eval()
    adapted = peft.PeftModel.from_pretrained(model, directory / "adapter").eval()
    prompt = np.random.default_rng(seed).integers(0, N_VOCAB, N_POSITIONS)
    with torch.no_grad():
        logits = adapted(input_ids=torch.tensor(prompt)[None]).logits[0].numpy()
        with adapted.disable_adapter():
            base_logits = adapted(input_ids=torch.tensor(prompt)[None]).logits[0].numpy()
    adapted.merge_and_unload().save_pretrained(directory / "merged", save_original_format=not base_case.is_stacked)
    bases.write_tokenizer(directory / "merged")
    np.savez(directory / "expected.npz", prompt=prompt, logits=logits, base_logits=base_logits)
    (directory / "shapes.json").write_text(json.dumps(shapes))


def draw_adapter(directory: Path) -> dict[str, tuple[int, ...]]:
    """Replace an adapter's weights by others that follow from their names, and return these with their shapes."""
    import safetensors

    path = directory / "adapter_model.safetensors"
    with safetensors.safe_open(path, "np") as file:
        stored = {name: file.get_tensor(name) for name in sorted(file.keys())}
    tensors = {
        name: checkpoints.drawn(name, tensor.shape) if "lora_" in name else tensor for name, tensor in stored.items()
    }
    checkpoints.write(path, tensors)
    config = json.loads((directory / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = "made/base"
    (directory / "adapter_config.json").write_text(json.dumps(config))
    return {name: tensor.shape for name, tensor in stored.items()}


# --- with pyggml ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Result:
    """Differences, as the table has them; ``largest`` is that of a logit from peft's."""

    weight: float
    weight_by_gguf: float
    base: float
    adapter: float
    logits: float
    largest: float

    def is_good(self, is_rounded: bool) -> bool:
        weights_are_good = max(self.weight, self.weight_by_gguf) <= MAX_ERROR
        if is_rounded:
            return weights_are_good and self.largest <= MAX_ROUNDED
        return weights_are_good and self.adapter <= MAX_ERROR and self.largest <= MAX_LOGIT


def compare(directory: Path) -> Result:
    import pyggml

    base, adapter = directory / "base.gguf", directory / "adapter"
    pyggml.convert(directory / "base", base, "f32")
    pyggml.convert(directory / "merged", directory / "theirs.gguf", "f32")
    largest = []
    for kind, model in (("directory", directory / "base"), ("gguf", base)):
        try:
            pyggml.convert(adapter, directory / f"{kind}.gguf", base=model)
        except pyggml.UnsupportedArchitectureError as error:
            if kind == "directory":
                raise
            print(f"  from the GGUF file: {error}")
            continue
        pyggml.quantize(base, directory / "ours.gguf", "f32", merge=directory / f"{kind}.gguf")
        largest.append(largest_difference(base, directory / "ours.gguf", directory / "theirs.gguf"))
    expected = np.load(directory / "expected.npz")
    prompt, theirs = expected["prompt"].tolist(), expected["logits"]
    adapted = logits_of(base, prompt, directory / "directory.gguf")
    return Result(
        largest[0],
        largest[-1],
        rms(logits_of(base, prompt), expected["base_logits"]),
        rms(adapted, logits_of(directory / "ours.gguf", prompt)),
        rms(adapted, theirs),
        float(abs(adapted - theirs).max() / theirs.std()),
    )


def rms(found: Any, expected: Any) -> float:
    """The root mean square of the difference, in units of the deviation of what is expected."""
    return float(np.sqrt(((found - expected) ** 2).mean()) / expected.std())


def largest_difference(base: Path, ours: Path, theirs: Path) -> float:
    """Compare the changes of all weights: the largest difference in units of a change's deviation."""
    from pyggml.gguf import GGUFReader

    largest, n_changed = 0.0, 0
    with GGUFReader(base) as before, GGUFReader(ours) as a, GGUFReader(theirs) as b:
        assert set(a.tensors) == set(b.tensors) == set(before.tensors)
        for name in a.tensors:
            start, one, other = (each.dequantized(name).astype(np.float64) for each in (before, a, b))
            deviation = (other - start).std()
            n_changed += bool(deviation)
            assert deviation or (one == start).all(), name
            largest = max(largest, float(abs(one - other).max() / (deviation or 1)))
    assert n_changed
    return largest


def logits_of(path: Path, prompt: list[int], adapter: Path | None = None) -> Any:
    import pyggml

    with (
        pyggml.Model(path, device="cpu") as model,
        pyggml.Context(model, n_ctx=256, n_batch=256, flash_attn="off", cache_type="f32", n_threads=1) as context,
        pyggml.Engine(context) as engine,
    ):
        if adapter is None:
            return engine.logits(prompt)
        engine.load_adapter(adapter, "adapter")
        return engine.logits(prompt, adapter="adapter")


def record(directory: Path, names: set[str]) -> None:
    """Save configurations, shapes, prompts and the logits after their last tokens: what tests cannot make alone.

    If only some cases were made, the others stay unchanged.
    """
    kept: dict[str, Any] = dict(np.load(RECORD)) if names else {}
    for folder, case in chosen(directory, names):
        expected = np.load(folder / "expected.npz")
        about = {
            "base": case.base,
            "config": json.loads((folder / "adapter" / "adapter_config.json").read_text()),
            "shapes": json.loads((folder / "shapes.json").read_text()),
        }
        kept[f"{case.name}/adapter"] = json.dumps(about)
        kept[f"{case.name}/prompt"] = expected["prompt"].astype(np.int32)
        kept[f"{case.name}/logits"] = expected["logits"][-2:].astype(np.float32)
    np.savez_compressed(RECORD, **kept)


def chosen(directory: Path, names: set[str]) -> Iterator[tuple[Path, Case]]:
    for number, case in enumerate(CASES):
        if not names or case.name in names:
            yield directory / f"{number:02}", case


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", help="an interpreter with transformers, peft and PyTorch")
    parser.add_argument("--make", type=Path, help="only write the files, with the current interpreter")
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
        columns = ("weights", "by GGUF", "base", "adapter", "logits", "largest")
        print(f"{'case':26} {' '.join(f'{column:>9}' for column in columns)}")
        for directory, case in chosen(Path(folder), names):
            result = compare(directory)
            is_good = result.is_good(case.name in ROUNDED)
            failed += not is_good
            print(
                f"{case.name:26} {' '.join(f'{value:9.1e}' for value in astuple(result))}"
                f"{'' if is_good else '  DIFFERS'}",
                flush=True,
            )
    if failed:
        sys.exit(f"{failed} comparisons failed")


if __name__ == "__main__":
    main()
