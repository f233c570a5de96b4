"""Every layout in every format computes what its weights mean, or is refused.

docs/reference/hugging-face-checkpoints.md has the table.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.checkpoints.family_formats import COLUMNS, refusal, rows, write
from support.checkpoints.formats import with_factor

import pyggml
from pyggml import Context, Model
from pyggml.errors import UnsupportedArchitectureError
from pyggml.gguf import GGUFReader
from pyggml.quant import GGMLType

ROWS = rows()
PROMPT = np.random.default_rng(1).integers(0, 256, 24).tolist()

#: The largest rms error of a token's logits, relative to their deviation: where the engine rounds activations to 8
#: bits, and where it does not. The median of the tokens counts: rounding makes a mixture choose other experts for some
#: if they are nearly equal.
LIMIT_OF_BLOCKS, LIMIT_OF_FLOATS = 0.08, 0.02
#: Layout -> how much larger its error may be. Linear attention passes the errors of a token on to all that follow.
SENSITIVITY = {"Qwen3-Next": 2.5}


def cells() -> Iterator[Any]:
    """All layouts, each in every second format; the fast ones are one layout of each format, and one format of each."""
    n = max(len(ROWS), len(COLUMNS))
    sample = {(i % len(ROWS), i % len(COLUMNS)) for i in range(n)}
    for (i, layout), (j, format) in itertools.product(enumerate(ROWS), enumerate(COLUMNS)):
        if (i, j) not in sample and (i + j) % 2:
            continue
        marks = () if (i, j) in sample else pytest.mark.slow
        yield pytest.param(layout, format, marks=marks, id=f"{layout}, {format}")


def logits_of(path: Path) -> Any:
    with (
        Model(path, device="cpu") as model,
        Context(model, n_ctx=32, n_threads=1, flash_attn="off", cache_type="f32") as context,
    ):
        context.decode(PROMPT, output="all")
        return context.logits()


@pytest.mark.slow_except(every=8)
@pytest.mark.parametrize(("layout", "format"), list(cells()))
def test_computes_what_its_weights_mean(tmp_path: Path, layout: str, format: str) -> None:
    row, column = ROWS[layout], COLUMNS[format]
    stored = write(tmp_path / "stored", row, format)
    message = refusal(row, column)
    if message:
        with pytest.raises(UnsupportedArchitectureError, match=message):
            pyggml.convert(stored, tmp_path / "model.gguf")
        return
    report = pyggml.convert(stored, tmp_path / "model.gguf")
    pyggml.convert(write(tmp_path / "meant", row, format, is_meant=True), tmp_path / "meant.gguf", "f32")
    found, expected = logits_of(tmp_path / "model.gguf"), logits_of(tmp_path / "meant.gguf")
    has_blocks = any(GGMLType[name].is_quantized for name in report.types)
    require_same_weights(tmp_path / "model.gguf", tmp_path / "meant.gguf", column.error)
    rms = np.median(np.sqrt(((found - expected) ** 2).mean(-1))) / expected.std()
    assert rms < (LIMIT_OF_BLOCKS if has_blocks else LIMIT_OF_FLOATS) * SENSITIVITY.get(layout, 1)
    assert column.type in ("", *report.types) or column.title == "NVFP4"


def require_same_weights(stored: Path, meant: Path, error: float) -> None:
    with GGUFReader(stored) as found, GGUFReader(meant) as expected:
        assert {name for name in found.tensors if not name.endswith(".scale")} == set(expected.tensors)
        for name in expected.tensors:
            values = expected.dequantized(name)
            assert (np.abs(with_factor(found, name) - values) <= (error + 1e-6) * np.abs(values)).all(), name


@pytest.mark.slow_except(every=2)
@pytest.mark.parametrize("layout", ROWS)
def test_the_projections_are_found(layout: str) -> None:
    """Attention and feed-forward layers of every block: else a format would be tried on nothing."""
    row = ROWS[layout]
    assert sum(map(row.is_projection, row.shapes)) >= 4 * 2
