"""Changed LoRA adapters, GGUF files and PEFT directories: converted, checked, merged and loaded, or refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from support.checkpoints import adapters, checkpoints, family_models, models
from support.checkpoints import handmade_gguf as handmade
from support.checkpoints.hf_llama import HFLlama

import pyggml
from fuzz import damage, gguf_changes, gguf_file
from fuzz.refusal import refused
from pyggml.errors import InferError
from pyggml.importer.adapter import BaseModel, check_adapter, convert_adapter

MAX_SECONDS = 30.0

LLAMA = HFLlama(n_embd=32, n_head=2, n_head_kv=1, head_dim=16, n_ff=32, n_layer=2)
#: Keys and names of tensors that decide what an adapter is.
KEYS = (
    "general.type", "general.architecture", "adapter.type", "adapter.lora.alpha", "adapter.alora.invocation_tokens",
    "adapter.lora.task_name", "adapter.lora.x", "pyggml.adapter.block_count",
)  # fmt: skip
NAMES = (
    "blk.0.attn_norm.weight", "output_norm.weight.lora_a", "token_embd.weight.lora_a", "token_embd.weight.lora_b",
    "output.weight.lora_b", ".lora_a", "lora_a", "blk.0.attn_q.weight", "blk.9.attn_q.weight.lora_a",
    "blk.0.attn_q.bias.lora_a", "blk.0.ffn_gate_exps.weight.lora_b",
)  # fmt: skip
PEFT_NAMES = (
    "lora_A", "lora_B", "lora_embedding_A", "lora_embedding_B", "lora_B.bias", "lora_magnitude_vector", "weight",
    "base_layer.weight", "lora_A.default", "base_layer.lora_A",
)  # fmt: skip
MODULES = (
    "model.layers.0.self_attn.q_proj", "model.layers.99999999999.self_attn.q_proj", "lm_head", "model.embed_tokens",
    "model.norm", "blk.0.attn_q", "model.layers.0.mlp.experts", "", "a" * 3000, "layers.1.mlp.up_proj",
)  # fmt: skip


class Prepared(NamedTuple):
    """Objects that all cases use: base models, and adapters for the first and the last."""

    directory: Path
    llama: Path
    experts: Path
    models: dict[str, pyggml.Model]
    files: list[gguf_file.File]
    peft: list[tuple[Path, Path]]


def prepare(folder: Path) -> Prepared:
    LLAMA.write(folder / "base", stored="BF16")
    llama = pyggml.convert(folder / "base", folder / "llama.gguf").path
    size = family_models.Size(n_embd=32, n_ff=48)
    experts = family_models.write(
        folder / "experts.gguf", "llama", models.byte_vocabulary(), layout="mixtral", size=size
    )
    modules = adapters.modules_of(LLAMA, (*adapters.LINEAR, "lm_head"))
    embedding = {
        f"{adapters.PREFIX}model.embed_tokens.lora_embedding_{half}": np.ones(shape, np.float32)
        for half, shape in (("A", (4, LLAMA.n_vocab)), ("B", (LLAMA.n_embd, 4)))
    }
    of_experts = {
        f"{adapters.PREFIX}model.layers.0.mlp.experts.{name}": np.ones(shape, np.float32)
        for name, shape in (
            ("lora_A.weight", (16, 48)),
            ("lora_B.weight", (32, 16)),
            ("base_layer.lora_A.weight", (16, 32)),
            ("base_layer.lora_B.weight", (96, 16)),
        )
    }
    one_by_one = adapters.matrices({f"model.layers.1.block_sparse_moe.experts.{e}.w1": (48, 32) for e in range(3)})
    directories = [
        (adapters.write_peft(folder / "plain", adapters.matrices(modules)), folder / "base"),
        (adapters.write_peft(folder / "by-gguf", adapters.matrices(modules) | embedding), llama),
        (adapters.write_peft(folder / "stacked", of_experts, alpha_pattern={r"layers.0.*_proj": 2}), experts),
        (adapters.write_peft(folder / "experts", one_by_one, use_rslora=True, rank_pattern={"w1": 4}), experts),
    ]
    files = []
    for number, (directory, base) in enumerate(directories):
        convert_adapter(directory, folder / f"{number}.gguf", base)
        files.append(gguf_file.read(folder / f"{number}.gguf"))
    loaded = {"llama": pyggml.Model(llama, device="cpu"), "experts": pyggml.Model(experts, device="cpu")}
    return Prepared(folder / "base", llama, experts, loaded, files, directories)


def make(random: np.random.Generator) -> list[Any]:
    """Choose an adapter, its changes, and its uses."""
    n_changes = int(random.choice([1, 2, 3, 5], p=[0.5, 0.3, 0.15, 0.05]))
    which = ["adapter", int(random.integers(1 << 20))]
    if random.random() < 0.6:
        return [["gguf", 0], which, *(_gguf_change(random) for _ in range(n_changes))]
    return [["peft", 0], which, *(_peft_change(random) for _ in range(n_changes))]


def _gguf_change(random: np.random.Generator) -> list[Any]:
    kind = str(random.choice(["change", "key", "name"], p=[0.6, 0.25, 0.15]))
    if kind == "change":
        return ["change", gguf_changes.make(random)]
    if kind == "name":
        return ["name", float(random.random()), NAMES[int(random.integers(len(NAMES)))]]
    type = int(random.choice(gguf_changes.SCALARS))
    values = gguf_changes.TEXTS if type == handmade.STRING else gguf_changes.NUMBERS
    value = values[int(random.integers(len(values)))]
    return ["key", KEYS[int(random.integers(len(KEYS)))], type, [value] * 3 if random.random() < 0.3 else value]


def _peft_change(random: np.random.Generator) -> list[Any]:
    kind = str(random.choice(["config", "setting", "header", "bytes", "rename", "shape", "number"]))
    return [kind, int(random.integers(1 << 30))]


def run(prepared: Prepared, parts: list[Any], folder: Path) -> str:
    which = next((number for kind, number in (part[:2] for part in parts) if kind == "adapter"), 0)
    if ["gguf", 0] in parts:
        file = _changed_file(prepared.files[which % len(prepared.files)], parts)
        path = folder / "adapter.gguf"
        path.write_bytes(file.content())
        return _use(prepared, path, folder)
    source, base = prepared.peft[which % len(prepared.peft)]
    directory = Path(shutil.copytree(source, folder / "peft"))
    for kind, number in (part[:2] for part in parts):
        if kind in _PEFT_CHANGES:
            _PEFT_CHANGES[kind](directory, np.random.default_rng(number))
    try:
        report = convert_adapter(directory, folder / "adapter.gguf", base)
        str(report)
    except InferError as error:
        left = [path.name for path in folder.iterdir() if path.name != "peft"]
        assert not left, f"something is left: {left}"
        return f"peft: {refused(error)}"
    return f"converted, {_use(prepared, folder / 'adapter.gguf', folder)}"


def _changed_file(good: gguf_file.File, parts: list[Any]) -> gguf_file.File:
    tensors = [gguf_file.Tensor(each.name, each.ne, each.type, each.data) for each in good.tensors]
    file = gguf_file.File(list(good.pairs), tensors)
    for kind, *rest in parts:
        if kind == "change":
            gguf_changes.apply(file, rest[0])
        elif kind == "key":
            key, type, value = rest
            file.set(key, gguf_file.value_bytes(type, value))
        elif kind == "name" and file.tensors:
            place, name = rest
            file.tensors[int(place * len(file.tensors))].name = name.encode()
    return file


def _use(prepared: Prepared, path: Path, folder: Path) -> str:
    """Check it against each model; those that it passes for can load it and have it merged into them."""
    outcomes = []
    pyggml.is_adapter(path)
    for name, base in (("llama", prepared.llama), ("experts", prepared.experts)):
        try:
            report = check_adapter(path, BaseModel.of_gguf(base))
        except InferError as error:
            outcomes.append(refused(error))
            continue
        str(report)
        json.dumps(report.to_dict())
        adapter = pyggml.lib.llama_adapter_lora_init(prepared.models[name].handle, str(path).encode())
        assert adapter != pyggml.ffi.NULL, "the engine refuses what passed the check"
        pyggml.lib.llama_adapter_lora_free(adapter)
        try:
            pyggml.quantize(base, folder / "merged.gguf", "f32", merge=path, n_threads=1)
            outcomes.append("merged")
        except InferError as error:
            outcomes.append(f"not merged: {refused(error)}")
    return " and ".join(sorted(set(outcomes)))


# --- changes of directories -------------------------------------------------------------------------------------

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
SETTINGS: dict[str, list[Any]] = {
    "alpha_pattern": [{"q_proj": 1e-300}, {"(a*)*b": 1}, {".*": 3}, {"a|b|": 2}, {"[": 1}, {"": 1}, {".*.*.*": 1}],
    "rank_pattern": [{"q_proj": 1}, {}, []],
    "target_modules": ["all-linear", ["q_proj"], [], None, 3],
    "layers_to_transform": [0, [0], []],
    "modules_to_save": [["lm_head"], []],
    "alora_invocation_tokens": [[1], [1 << 40], [-1], [], [True]],
    "use_dora": [True],
    "use_rslora": [True, 1],
    "init_lora_weights": ["gaussian", "pissa", False],
    "lora_alpha": [1e-30, 1e30, 10**400, -1, 1e39],
    "r": [1, 3, 4, 8, 2**31],
    "base_model_name_or_path": [None, "", "a\0b", "/", "\ud800", "x" * 100_000],
}


def _change_config(directory: Path, random: np.random.Generator) -> None:
    content = json.loads((directory / CONFIG).read_text())
    damage.with_changed_value(content, random, bool(random.integers(2)))
    (directory / CONFIG).write_text(json.dumps(content))


def _change_setting(directory: Path, random: np.random.Generator) -> None:
    content = json.loads((directory / CONFIG).read_text())
    key = str(random.choice(list(SETTINGS)))
    if isinstance(content, dict):
        content[key] = SETTINGS[key][int(random.integers(len(SETTINGS[key])))]
    (directory / CONFIG).write_text(json.dumps(content))


def _entries(content: bytes) -> tuple[Any, bytes]:
    n_head = 8 + int.from_bytes(content[:8], "little")
    return json.loads(content[8:n_head]), content[n_head:]


def _change_header(directory: Path, random: np.random.Generator) -> None:
    entries, body = _entries((directory / WEIGHTS).read_bytes())
    entries = damage.with_changed_value(entries, random, bool(random.integers(2)))
    (directory / WEIGHTS).write_bytes(checkpoints.file(entries, body))


def _change_bytes(directory: Path, random: np.random.Generator) -> None:
    path = directory / str(random.choice([CONFIG, WEIGHTS]))
    change = damage.with_changed_bytes if random.integers(2) else damage.with_changed_span
    path.write_bytes(change(path.read_bytes(), random))


def _rename(directory: Path, random: np.random.Generator) -> None:
    """Give a tensor the name of something else."""
    entries, body = _entries((directory / WEIGHTS).read_bytes())
    names = [name for name in entries if name != "__metadata__"]
    if names:
        module, half = (str(each[int(random.integers(len(each)))]) for each in (MODULES, PEFT_NAMES))
        entries[f"{adapters.PREFIX}{module}.{half}.weight"] = entries.pop(str(random.choice(names)))
    (directory / WEIGHTS).write_bytes(checkpoints.file(entries, body))


def _reshape(directory: Path, random: np.random.Generator) -> None:
    """Give a tensor another shape of the same size."""
    entries, body = _entries((directory / WEIGHTS).read_bytes())
    names = [name for name in entries if name != "__metadata__"]
    if names:
        entry = entries[str(random.choice(names))]
        shape = entry.get("shape") if isinstance(entry, dict) else None
        if isinstance(shape, list) and len(shape) == 2:
            n, m = shape
            changed = [[m, n], [n * m], [1, n * m], [n * m, 1], [1, n, m], [n, m, 1], [2 * n, m // 2]]
            entry["shape"] = changed[int(random.integers(len(changed)))]
    (directory / WEIGHTS).write_bytes(checkpoints.file(entries, body))


def _change_numbers(directory: Path, random: np.random.Generator) -> None:
    content = bytearray((directory / WEIGHTS).read_bytes())
    value = np.float32(random.choice([np.nan, np.inf, 3e38, -3e38, 0, 1e-40])).tobytes()
    at = 8 + int.from_bytes(content[:8], "little") + 4 * int(random.integers(1000))
    if at + 4 <= len(content):
        content[at : at + 4] = value
    (directory / WEIGHTS).write_bytes(bytes(content))


def _tolerant(change: Any) -> Any:
    """The change, unless an earlier one has left nothing that it could change."""

    def changed(directory: Path, random: np.random.Generator) -> None:
        try:
            change(directory, random)
        except (ValueError, TypeError, AttributeError, RecursionError, OverflowError):
            return

    return changed


_PEFT_CHANGES = {
    "config": _tolerant(_change_config),
    "setting": _tolerant(_change_setting),
    "header": _tolerant(_change_header),
    "bytes": _tolerant(_change_bytes),
    "rename": _tolerant(_rename),
    "shape": _tolerant(_reshape),
    "number": _tolerant(_change_numbers),
}
