"""Checkpoints with random damage are imported, or refused with a clear error."""

from __future__ import annotations

import contextlib
import copy
import json
from collections import Counter
from pathlib import Path

import pytest
from fuzz import damage, fuzzer
from fuzz.fuzzers import checkpoints as damaged

from pyggml.errors import InferError
from pyggml.files.model_files import checkpoint_at
from pyggml.importer.plan import read_plan


@pytest.mark.slow
def test_random_damage(tmp_path: Path) -> None:
    """``make fuzz`` does the same for much longer."""
    work = tmp_path / "work"
    found: Counter[str] = Counter()
    prepared = damaged.prepare(tmp_path)
    for number in range(150):
        work.mkdir()
        found[damaged.run(prepared, fuzzer.case(fuzzer.named("checkpoints"), 7, number), work)] += 1
        work.rmdir()
    assert found["imported"] > 0
    assert found["ModelLoadError"] > 0
    assert found["TokenizerError"] > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name if name == "mixed" else pytest.param(name, marks=pytest.mark.slow) for name in damaged.BESIDES]
)
def test_every_setting_of_a_quantisation_may_be_strange(tmp_path: Path, name: str) -> None:
    directory = damaged.make_quantized(tmp_path / "hf", name)
    config = json.loads((directory / "config.json").read_text())
    read_plan(checkpoint_at(directory))
    for number in range(len(list(damage.places_of(config["quantization_config"])))):
        for strange in damage.STRANGE:
            changed = copy.deepcopy(config)
            holder, key = list(damage.places_of(changed["quantization_config"]))[number]
            holder[key] = strange
            (directory / "config.json").write_text(json.dumps(changed))
            with contextlib.suppress(InferError):
                read_plan(checkpoint_at(directory))
