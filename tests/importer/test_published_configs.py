"""Published configurations: every one loads, and gives the results of transformers with the same file."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.checkpoints import published, published_checkpoints
from support.checkpoints.published import FILES, LATER, N_POSITIONS, RECORD, prompt_of
from support.checkpoints.published_checkpoints import logits_of
from support.paths import DATA

import pyggml
from pyggml.gguf import GGUFReader

NAMES = [path.stem for path in FILES]
RECORDED = np.load(RECORD)
#: Largest differences of logits in units of their standard deviation, where they are not those of float32 with a few
#: activations out of tables of float16.
WIDER = {
    # The engine rounds the bounds of YaRN; the conversion says so.
    "gpt-oss-20b-bf16": 0.1,
    # 46 layers of random weights magnify everything: float16 before each GELU makes 0.2 in transformers itself, another
    # scale of the attention 2.3.
    "gemma-2-27b-it": 0.3,
}
#: What differs between repositories, but not in what is computed.
IGNORED = {
    "smollm2-135m-instruct": ("is_llama_config", "transformers.js_config"),
    "unsloth-llama-3.2-1b-instruct": ("unsloth_fixed",),
    "nous-hermes-2-neftune": ("neftune_noise_alpha", "unsloth_version"),
    "gemma-2-9b-it": ("sliding_window_size",),
    "gpt-oss-20b-bf16": ("experts_per_token", "initial_context_length", "unsloth_fixed"),
    "llama-7b-decapoda": ("max_sequence_length",),
}


def write(directory: Path, name: str) -> Path:
    """A checkpoint with this configuration, as it stands."""
    published_checkpoints.write(directory, {}, published.tensors_of(name))
    (directory / "config.json").write_bytes((DATA / "published" / f"{name}.json").read_bytes())
    return directory


def test_there_are_many() -> None:
    assert len(NAMES) >= 40
    listed = (FILES[0].parent / "README.md").read_text("utf-8")
    assert [name for name in NAMES if f"| {name} | " not in listed] == []


def marked(name: str) -> Any:
    """Slow where the file leaves out the size of a vocabulary that is huge."""
    return pytest.param(name, marks=pytest.mark.slow) if name == "gemma-3-4b-it" else name


@pytest.mark.slow_except(every=10)
@pytest.mark.parametrize("name", [marked(name) for name in NAMES if name not in LATER])
def test_computes_what_transformers_did(tmp_path: Path, name: str) -> None:
    pyggml.convert(write(tmp_path / "hf", name), tmp_path / "model.gguf", "f32")
    prompt, expected = prompt_of(name), RECORDED[f"{name}/logits"]
    assert len(prompt) == N_POSITIONS
    found = logits_of(tmp_path / "model.gguf", prompt)
    assert np.abs(found - expected).max() <= WIDER.get(name, 5e-3) * expected.std()
    if name not in WIDER:
        assert (found.argmax(-1) == expected.argmax(-1)).all()


@pytest.mark.slow_except("falcon-7b-first", "falcon-40b-first", "phi-3-mini-128k-instruct-first")
@pytest.mark.parametrize("name", LATER)
def test_earlier_keys_mean_the_same(tmp_path: Path, name: str) -> None:
    found = []
    for each in (name, LATER[name]):
        pyggml.convert(write(tmp_path / each, each), tmp_path / f"{each}.gguf", "f32")
        with GGUFReader(tmp_path / f"{each}.gguf") as reader:
            found.append(
                {
                    key: str(value)
                    for key, value in reader.metadata.items()
                    if not key.startswith("tokenizer.") and key != "general.name"
                }
            )
    first, later = found
    assert first == later
    prompt = prompt_of(name)
    assert (logits_of(tmp_path / f"{name}.gguf", prompt) == logits_of(tmp_path / f"{LATER[name]}.gguf", prompt)).all()


@pytest.mark.slow_except(every=2)
@pytest.mark.parametrize("name", IGNORED)
def test_what_is_ignored_is_named(tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "pyggml"):
        report = pyggml.inspect(write(tmp_path / "hf", name))
        pyggml.convert(tmp_path / "hf", tmp_path / "model.gguf")
    assert sorted(report.plan.ignored_keys) == sorted(IGNORED[name])
    (line,) = [record.getMessage() for record in caplog.records if "ignored" in record.getMessage()]
    assert all(key in line for key in IGNORED[name])
