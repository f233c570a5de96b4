"""Every layout of checkpoints in every format, for the tests and a table of the documentation.

docs/reference/hugging-face-checkpoints.md has the table.

The layouts are those that families declare, in the sizes that were recorded with transformers' own logits
(tools/compare_with_transformers.py). Their projections are stored as a format has them, the rest as floats; experts
that are stored as stacks, which the methods of quantisation leave alone, belong to the rest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pyggml.families import LAYOUTS, Layout
from support.checkpoints import checkpoints, models, tokenizer_files
from support.checkpoints.formats import FORMATS, Format
from support.paths import DATA

RECORD = DATA / "transformers.npz"


def _plain(title: str, stored: Callable[[Any], Any], value: Callable[[Any], Any]) -> Format:
    return Format(title, {}, lambda weight: ({"weight": stored(weight)}, value(weight)), title)


def _f16(weight: Any) -> Any:
    return np.asarray(weight, np.float16)


#: Formats without quantisation -> how they store the rest.
FLOATS: dict[str, tuple[Format, Callable[[Any], Any]]] = {
    "F32": (_plain("F32", np.float32, np.float32), np.float32),
    "F16": (_plain("F16", _f16, lambda weight: _f16(weight).astype(np.float32)), _f16),
    "BF16": (_plain("BF16", checkpoints.bf16, checkpoints.bf16_values), checkpoints.bf16),
}
COLUMNS: Mapping[str, Format] = {**{name: plain for name, (plain, _) in FLOATS.items()}, **FORMATS}

#: Meta's own files, whose names for tensors and settings are its own. They know no method but Meta's.
META = "params.json"
_META_REFUSAL = "with Meta's own method"


@dataclass(frozen=True)
class Row:
    """A layout, and a checkpoint of it.

    Attributes:
        layout: the layout.
        config: the configuration.
        shapes: name of each tensor -> its shape.
    """

    layout: Layout
    config: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]]

    @property
    def is_meta(self) -> bool:
        """Return True if it is Meta's own format."""
        return META in self.layout.model_types

    def is_projection(self, name: str) -> bool:
        """Return True if a tensor is a matrix that quantisation methods quantise."""
        return any(
            tensor.role == "linear" and _pattern(tensor.source).fullmatch(name) for tensor in self.layout.tensors
        )


def rows() -> dict[str, Row]:
    """The layouts by their names.

    Raises:
        LookupError: nothing was recorded for a layout.
    """
    record = np.load(RECORD)
    recorded = [json.loads(str(record[name])) for name in record.files if name.endswith("/model")]
    first = {m["config"]["model_type"]: m for m in reversed(recorded) if "text_config" not in m["config"]}
    llama = first["llama"]
    return {layout.name: _row(layout, first, llama) for layout in LAYOUTS if not layout.is_encoder}


def _row(layout: Layout, first: Mapping[str, Any], llama: Mapping[str, Any]) -> Row:
    if META in layout.model_types:
        return _meta_row(layout, llama)
    model = next((first[each] for each in layout.model_types if each in first), None)
    if model is None and set(llama["config"]["architectures"]) <= set(layout.hf_architectures):  # Llama by another name
        model = {**llama, "config": {**llama["config"], "model_type": layout.model_types[0]}}
    if model is None:
        raise LookupError(f"record a case for {layout.name} with tools/compare_with_transformers.py --record")
    return _with_whole_groups(Row(layout, model["config"], {n: tuple(shape) for n, shape in model["shapes"].items()}))


def _with_whole_groups(row: Row) -> Row:
    """The same with projections whose columns are a multiple of 32, as the groups of formats need it."""
    columns = {shape[-1] for name, shape in row.shapes.items() if row.is_projection(name)}
    larger = {size: -(-size // 32) * 32 for size in columns if size % 32}
    larger |= {2 * size: 2 * new for size, new in larger.items()}  # gates and what they open, in one matrix
    config = {key: larger.get(value, value) if type(value) is int else value for key, value in row.config.items()}
    shapes = {name: tuple(larger.get(size, size) for size in shape) for name, shape in row.shapes.items()}
    return Row(row.layout, config, shapes)


def _meta_row(layout: Layout, llama: Mapping[str, Any]) -> Row:
    theirs = {tensor.target: tensor.source for tensor in layout.tensors}
    usual = next(each for each in LAYOUTS if "llama" in each.model_types)
    names = {tensor.source: theirs[tensor.target] for tensor in usual.tensors if tensor.target in theirs}
    shapes = {
        re.sub(r"\{i\}", i, names[name.replace(f".{i}.", ".{i}.", 1)]): tuple(shape)
        for name, shape in llama["shapes"].items()
        for i in [next(iter(re.findall(r"\.(\d+)\.", name)), "")]
    }
    config = {"dim": 64, "n_layers": 3, "n_heads": 4, "n_kv_heads": 2, "hidden_dim": 96, "norm_eps": 1e-6}
    return Row(layout, {**config, "vocab_size": llama["config"]["vocab_size"]}, shapes)


def refusal(row: Row, format: Format) -> str:
    """Return the error message for a layout in a format; "" if it is imported."""
    return _META_REFUSAL if row.is_meta and format.config else format.refusal


def table() -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The head and the rows of the table: a format that shares its column is imported if all of them are."""
    titles = tuple(dict.fromkeys(format.title for format in COLUMNS.values()))
    body = []
    for name, row in sorted(rows().items()):
        refused = {format.title for format in COLUMNS.values() if refusal(row, format)}
        body.append((name, *("refused" if title in refused else "✓" for title in titles)))
    return ("", *titles), body


def write(directory: Path, row: Row, name: str, *, is_meant: bool = False) -> Path:
    """Writes a layout in a format; with ``is_meant``, the weights that are meant, as float32."""
    format = COLUMNS[name]
    rest = FLOATS[name][1] if name in FLOATS else checkpoints.bf16
    tensors: dict[str, Any] = {}
    for tensor, shape in sorted(row.shapes.items()):  # biases before weights
        stored = checkpoints.drawn(tensor, shape)
        assert isinstance(stored, checkpoints.Stored)
        weight = checkpoints.widened(stored)
        if row.is_projection(tensor):
            layer, meant = format.layer(tensor.removesuffix(".weight"), weight)
            parts = {"weight": meant} if is_meant else layer
            module = tensor.removesuffix("weight")
            tensors |= {module + suffix: data for suffix, data in parts.items() if module + suffix not in tensors}
        else:
            kept = np.asarray(weight, np.float16).astype(np.float32) if rest is _f16 else weight
            tensors[tensor] = kept if is_meant else rest(weight)
    directory.mkdir()
    settings = {} if is_meant else {"quantization_args": {}} if row.is_meta and format.config else format.config
    weights, config = ("consolidated.safetensors", META) if row.is_meta else ("model.safetensors", "config.json")
    checkpoints.write(directory / weights, tensors)
    (directory / config).write_text(json.dumps({**row.config, **settings}))
    tokenizer_files.write_json(directory, models.byte_vocabulary())
    (directory / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|endoftext|>"}))
    return directory


def _pattern(source: str) -> re.Pattern[str]:
    return re.compile(re.escape(source).replace(r"\{i\}", r"\d+").replace(r"\{e\}", r"\d+"))
