"""A plugin for pytest that runs llama-cpp-python's own tests on pyggml, with models of this machine.

Their tests download models from the Hugging Face hub; each gets a model with the same kind of memory here.
"""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import huggingface_hub
from support.checkpoints import models

import pyggml
import pyggml.compat

pyggml.compat.install()

FOLDER = Path(tempfile.mkdtemp())
#: Repository -> the model in its place.
MODELS: dict[str, Callable[[], Path]] = {
    "lmstudio-community/Qwen3.5-0.8B-GGUF": lambda: next(Path(os.environ["PYGGML_TEST_MODELS"]).glob("SmolLM2*.gguf")),
    "ggml-org/models": lambda: pyggml.SHIPPED_MODEL,
    "CompendiumLabs/bge-small-en-v1.5-gguf": lambda: models.write_bert(FOLDER / "bert.gguf"),
    "QuantFactory/mamba-130m-hf-GGUF": lambda: models.write_mamba(FOLDER / "mamba.gguf"),
    "tiiuae/Falcon-H1-Tiny-90M-Instruct-GGUF": lambda: models.write_jamba(FOLDER / "jamba.gguf"),
}


@functools.cache
def hf_hub_download(repo_id: str, filename: str, **options: object) -> str:  # noqa: ARG001
    return str(MODELS[repo_id]())


huggingface_hub.hf_hub_download = hf_hub_download  # type: ignore[assignment]
