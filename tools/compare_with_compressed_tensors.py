"""Compare imported weights with what the compressed-tensors library makes of the same checkpoints.

The library quantises a tiny Llama in each of its formats, with settings by class, name and pattern, writes it as it
writes published checkpoints, and decompresses it again. Then it is imported, and weights and logits are compared. As
for ``compare_with_transformers.py``, there are two interpreters: this one has pyggml, and ``--python`` names one with
transformers and compressed-tensors::

    python tools/compare_with_compressed_tensors.py --python /path/to/python

``--record`` saves the checkpoints and the logits for the tests.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from compare_with_transformers import ROOT, write_tokenizer

sys.path.insert(0, str(ROOT / "tests"))

from support.checkpoints import checkpoints

RECORD = ROOT / "tests" / "data" / "compressed_tensors.npz"

#: Sizes that no group and no block divides by accident.
SIZES = {
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
    "bos_token_id": 256,
    "eos_token_id": 256,
}
PROMPT = list(range(3, 40))


def group(targets: list[str], bits: int, kind: str = "int", **settings: Any) -> dict[str, Any]:
    weights = {"num_bits": bits, "type": kind, "symmetric": True, "strategy": "channel", **settings}
    return {"targets": targets, "weights": weights}


OF_32: dict[str, Any] = {"strategy": "group", "group_size": 32}
ASYMMETRIC: dict[str, Any] = {"symmetric": False}
ACTIVATIONS: dict[str, Any] = {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True, "symmetric": True}
FLOAT_ACTIVATIONS = {**ACTIVATIONS, "type": "float"}
MX: dict[str, Any] = {"strategy": "group", "group_size": 32, "scale_dtype": "torch.uint8"}
NV: dict[str, Any] = {"strategy": "tensor_group", "group_size": 16, "scale_dtype": "torch.float8_e4m3fn"}

#: Name of a case -> its groups; the output is ignored.
CASES: dict[str, list[dict[str, Any]]] = {
    "w8a8": [{**group(["Linear"], 8), "input_activations": ACTIVATIONS}],
    "w8a8, a scale": [{**group(["Linear"], 8, strategy="tensor"), "input_activations": ACTIVATIONS}],
    "w8a8, zero points": [{**group(["Linear"], 8, **ASYMMETRIC), "input_activations": ACTIVATIONS}],
    "w4a8": [{**group(["Linear"], 4, **OF_32), "input_activations": ACTIVATIONS}],
    "w8a16": [group(["Linear"], 8, **OF_32)],
    "w8a16, zero points": [group(["Linear"], 8, **OF_32, **ASYMMETRIC)],
    "w4a16": [group(["Linear"], 4, **OF_32)],
    "w4a16, rows": [group(["Linear"], 4)],
    "w4a16, a scale": [group(["Linear"], 4, strategy="tensor")],
    "w4a16, zero points": [group(["Linear"], 4, **OF_32, **ASYMMETRIC)],
    "w4a16, rows, zero points": [group(["Linear"], 4, **ASYMMETRIC)],
    "fp8": [{**group(["Linear"], 8, "float", strategy="tensor"), "input_activations": FLOAT_ACTIVATIONS}],
    "fp8, rows": [{**group(["Linear"], 8, "float"), "input_activations": FLOAT_ACTIVATIONS}],
    "fp8, blocks": [group(["Linear"], 8, "float", strategy="block", block_structure=[40, 32])],
    "mxfp8": [group(["Linear"], 8, "float", **MX)],
    "mxfp4": [group(["Linear"], 4, "float", **MX)],
    "nvfp4": [group(["Linear"], 4, "float", **NV)],
    "mixed": [
        group(["re:.*mlp.*"], 8),
        group(["re:.*(up|down)_proj$", "model.layers.0.self_attn.q_proj"], 4, **OF_32),
        group(["Linear"], 8, "float"),
        group(["model.layers.0.self_attn.k_proj"], 4, "float", **MX),
    ],
    "only attention": [group(["re:.*self_attn.*"], 4, **OF_32)],
    "later groups win": [group(["Linear"], 8), group(["Linear"], 4, **OF_32)],
}


# --- with compressed-tensors --------------------------------------------------------------------------------------


def make(directory: Path) -> None:
    """Write checkpoints, and what the library makes of them."""
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    for number, groups in enumerate(CASES.values()):
        make_case(directory / f"{number:02}", groups)


def make_case(directory: Path, groups: list[dict[str, Any]]) -> None:
    import torch
    import transformers
    from compressed_tensors.compressors import ModelCompressor, decompress_module
    from compressed_tensors.quantization import QuantizationConfig, apply_quantization_config

    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES)).to(torch.bfloat16).eval()
    for key, tensor in model.state_dict().items():
        bits = np.asarray(checkpoints.drawn(key, tuple(tensor.shape)).data)
        tensor.copy_(torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16))
    config = QuantizationConfig(
        config_groups={f"group_{i}": each for i, each in enumerate(groups)},
        quantization_status="frozen",
        ignore=["lm_head"],
    )
    apply_quantization_config(model, config, show_progress=False)
    for module in model.modules():
        calibrate(module)
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    model.save_pretrained(directory)
    compressor.update_config(str(directory))
    write_tokenizer(directory)
    for module in model.modules():
        if getattr(module, "weight_scale", None) is not None and module.weight_scale.dtype == torch.bfloat16:
            module.weight_scale.data = module.weight_scale.data.float()  # it computes in the type of the scales
        decompress_module(module, leave_decompressed=False)
    weights = {key: tensor.float().numpy() for key, tensor in model.state_dict().items()}
    plain = transformers.LlamaForCausalLM(model.config).float().eval()  # the other's table of rotations is rounded
    plain.load_state_dict({key: torch.from_numpy(weight) for key, weight in weights.items()})
    with torch.no_grad():
        logits = plain(torch.tensor(PROMPT)[None]).logits[0].numpy()
    np.savez(directory / "expected.npz", logits=logits, **weights)


def calibrate(module: Any) -> None:
    """Set the scales and zero points of a module from its weight."""
    import torch
    from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam

    scheme = getattr(module, "quantization_scheme", None)
    if scheme is None or scheme.weights is None:
        return
    args, weight = scheme.weights, module.weight.data.float()
    if args.strategy == "block":
        rows, cols = args.block_structure
        padded = torch.nn.functional.pad(weight, (0, -weight.shape[1] % cols, 0, -weight.shape[0] % rows))
        parts = padded.unflatten(0, (-1, rows)).unflatten(2, (-1, cols)).permute(0, 2, 1, 3).flatten(2)
    elif args.group_size:
        parts = weight.unflatten(1, (-1, args.group_size))
    else:
        parts = weight.reshape(1, -1) if args.strategy == "tensor" else weight[:, None]
    low, high = parts.amin(-1), parts.amax(-1)
    divisor = None
    if args.strategy == "tensor_group":
        divisor = generate_gparam(low.min(), high.max())
        module.weight_global_scale.data = divisor
    scale, zero = calculate_qparams(low, high, args, global_scale=divisor)
    module.weight_scale.data = scale.reshape(module.weight_scale.shape).to(module.weight_scale.dtype)
    if getattr(module, "weight_zero_point", None) is not None:
        module.weight_zero_point.data = zero.reshape(module.weight_scale.shape).to(module.weight_zero_point.dtype)


# --- with pyggml --------------------------------------------------------------------------------------------------


def compare(directory: Path) -> tuple[float, float, str]:
    """The largest error of a weight relative to its size, and the logits' rms error, as "auto" has them; the types."""
    from support.checkpoints.formats import with_factor

    import pyggml
    from pyggml.gguf import GGUFReader

    expected = np.load(directory / "expected.npz")
    report = pyggml.convert(directory, directory / "auto.gguf")
    worst = 0.0
    with GGUFReader(directory / "auto.gguf") as reader:
        for ours, theirs in NAMES.items():
            meant = expected[f"model.layers.0.{theirs}.weight"]
            if ours in ("attn_q", "attn_k"):  # rows that rotate together are neighbours
                meant = meant.reshape(-1, 2, 8, meant.shape[1]).swapaxes(1, 2).reshape(meant.shape)
            found = with_factor(reader, f"blk.0.{ours}.weight")
            worst = max(worst, float((abs(found - meant) / np.maximum(abs(meant), 1e-6)).max()))
    with (
        pyggml.Model(directory / "auto.gguf", device="cpu") as model,
        pyggml.Context(model, n_ctx=64, flash_attn="off", cache_type="f32", n_threads=1) as context,
    ):
        context.decode(PROMPT, output="all")
        difference = (context.logits() - expected["logits"]) / expected["logits"].std()
    return worst, float(np.sqrt((difference**2).mean())), " ".join(f"{n} {name}" for name, n in report.types.items())


NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def record(directory: Path) -> None:
    """Save what the library wrote, without the weights that follow from their names, and the last logits."""
    kept: dict[str, Any] = {}
    for number, name in enumerate(CASES):
        folder = directory / f"{number:02}"
        kept[f"{name}/config"] = (folder / "config.json").read_text()
        kept[f"{name}/weights"] = np.frombuffer(of_blocks((folder / "model.safetensors").read_bytes()), np.uint8)
        kept[f"{name}/logits"] = np.load(folder / "expected.npz")["logits"][-2:].astype(np.float32)
    np.savez_compressed(RECORD, prompt=PROMPT, **kept)


def of_blocks(file: bytes) -> bytes:
    """A safetensors file without the tensors outside the blocks."""
    n_header = 8 + int.from_bytes(file[:8], "little")
    stored = {
        name: checkpoints.Stored(
            entry["dtype"], np.frombuffer(file[n_header:], np.uint8)[slice(*entry["data_offsets"])]
        )
        for name, entry in json.loads(file[8:n_header]).items()
        if ".layers." in name
    }
    shapes = {name: entry["shape"] for name, entry in json.loads(file[8:n_header]).items() if name in stored}
    entries = {name: {**entry, "shape": shapes[name]} for name, entry in checkpoints.header(stored).items()}
    return checkpoints.file(entries, checkpoints.data(stored))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", help="an interpreter with transformers and compressed-tensors")
    parser.add_argument("--make", type=Path, help="only write the checkpoints, with the current interpreter")
    parser.add_argument("--record", action="store_true", help=f"save what the tests need in {RECORD.name}")
    args = parser.parse_args()
    if args.make:
        make(args.make)
        return
    with tempfile.TemporaryDirectory() as folder:
        command = [args.python or sys.executable, __file__, "--make", folder]
        subprocess.run(command, check=True, env={**os.environ, "TQDM_DISABLE": "1"})
        if args.record:
            record(Path(folder))
        print(f"{'case':28} {'weights':>9} {'logits':>9}  types")
        for number, name in enumerate(CASES):
            worst, rms, types = compare(Path(folder) / f"{number:02}")
            print(f"{name:28} {worst:9.1e} {rms:9.1e}  {types}", flush=True)


if __name__ == "__main__":
    main()
