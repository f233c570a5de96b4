"""Configurations in the form of published repositories, and what transformers computed with them."""

from __future__ import annotations

import json
import zlib
from typing import Any

import numpy as np

from support.checkpoints import checkpoints
from support.paths import DATA

#: What ``tools/record_published.py`` wrote down.
RECORD = DATA / "published.npz"
FILES = sorted((DATA / "published").glob("*.json"))
#: Configurations that transformers does not read -> the same model's configuration in later keys.
LATER = {
    "falcon-7b-first": "falcon-7b-instruct",
    "falcon-40b-first": "falcon-40b",
    "phi-3-mini-128k-instruct-first": "phi-3-mini-128k-instruct",
    "stablelm-3b-4e1t-first": "stablelm-3b-4e1t",
    "yi-6b-first": "yi-6b-chat",
}

N_POSITIONS = 200
#: Logits are recorded after the last positions, of the first tokens.
N_KEPT = 2
N_VOCAB = 320


def prompt_of(name: str) -> list[int]:
    """A random prompt that depends on nothing but the configuration's name."""
    ids: list[int] = np.random.default_rng(zlib.crc32(name.encode())).integers(0, 256, N_POSITIONS).tolist()
    return ids


def config_of(name: str) -> dict[str, Any]:
    """The configuration."""
    config: dict[str, Any] = json.loads((DATA / "published" / f"{name}.json").read_bytes())
    return config


def tensors_of(name: str) -> dict[str, Any]:
    """Weights that depend on nothing but their names, under the names of the repository."""
    with np.load(RECORD) as recorded:
        shapes: dict[str, Any] = json.loads(str(recorded[f"{LATER.get(name, name)}/shapes"]))
    return {tensor: checkpoints.drawn(tensor, tuple(shape)) for tensor, shape in shapes.items()}
