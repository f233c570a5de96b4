"""Checkpoints with random damage are imported, or refused with a clear error; nothing else ever happens."""

from __future__ import annotations

from pathlib import Path

import fuzz_import


def test_random_damage(tmp_path: Path) -> None:
    """``make fuzz`` does the same for much longer."""
    found, failures = fuzz_import.run(tmp_path, 150, seed=7)
    assert not failures
    assert found["imported"] > 0
    assert found["ModelLoadError"] > 0
    assert found["TokenizerError"] > 0
