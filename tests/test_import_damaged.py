"""Checkpoints with random damage are imported, or refused with a clear error; nothing else ever happens."""

from __future__ import annotations

import contextlib
import copy
import json
from pathlib import Path

import fuzz_import
import pytest

from pyggml.errors import InferError
from pyggml.files.model_files import checkpoint_at
from pyggml.importer.plan import read_plan


def test_random_damage(tmp_path: Path) -> None:
    """``make fuzz`` does the same for much longer."""
    found, failures = fuzz_import.run(tmp_path, 150, seed=7)
    assert not failures
    assert found["imported"] > 0
    assert found["ModelLoadError"] > 0
    assert found["TokenizerError"] > 0


@pytest.mark.parametrize(
    "name", [name if name == "mixed" else pytest.param(name, marks=pytest.mark.slow) for name in fuzz_import.BESIDES]
)
def test_every_setting_of_a_quantisation_may_be_strange(tmp_path: Path, name: str) -> None:
    directory = fuzz_import.make_quantized(tmp_path / "hf", name)
    config = json.loads((directory / "config.json").read_text())
    read_plan(checkpoint_at(directory))
    for number in range(len(list(fuzz_import.places_of(config["quantization_config"])))):
        for strange in fuzz_import.STRANGE:
            damaged = copy.deepcopy(config)
            holder, key = list(fuzz_import.places_of(damaged["quantization_config"]))[number]
            holder[key] = strange
            (directory / "config.json").write_text(json.dumps(damaged))
            with contextlib.suppress(InferError):
                read_plan(checkpoint_at(directory))
