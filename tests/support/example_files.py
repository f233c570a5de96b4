"""The files that examples in docs read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyggml
from support.checkpoints import lora_files
from support.checkpoints.hf_llama import HFLlama


def write(folder: Path, text: str) -> None:
    """Write those that a page names: always ``my-model``, and ``base.gguf`` with the adapters ``law`` and ``tax``."""
    HFLlama().write(folder / "my-model")
    if "law.gguf" in text:
        shutil.copyfile(pyggml.SHIPPED_MODEL, folder / "base.gguf")
        for seed, name in enumerate(("law", "tax")):
            lora_files.write_adapter(folder / f"{name}.gguf", folder / "base.gguf", seed=seed)
