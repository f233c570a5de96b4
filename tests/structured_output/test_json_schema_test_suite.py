"""The official JSON-Schema-Test-Suite: each of its instances is judged as it says, or the schema is refused by name.

The table in the docs has the results: after a change, write it anew with ``tools/make_schema_conformance.py``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support import json_schema_suite
from support.checkpoints import models
from support.paths import ROOT

import pyggml

sys.path.insert(0, str(ROOT / "tools"))

import json_schema_test_suite
import make_schema_conformance


@pytest.mark.slow
@pytest.mark.parametrize("draft", json_schema_suite.DRAFTS)
def test_instances_of_the_official_suite(draft: str, tmp_path: Path) -> None:
    path = models.write_llama(tmp_path / "bytes.gguf")
    with pyggml.Model(path, vocab_only=True) as vocabulary:
        counts = json_schema_suite.count(json_schema_test_suite.fetch(), draft, vocabulary)
    assert counts.wrong == []
    assert all(len(reason) > 10 for reason in counts.refused.values())  # what and why
    assert counts.row(draft) in make_schema_conformance.PAGE.read_text(encoding="utf-8").splitlines()
