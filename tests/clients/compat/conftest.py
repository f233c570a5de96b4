"""Makes llama_cpp mean pyggml.compat.llama_cpp before a package under test imports it, and finds models."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import pyggml
import pyggml.compat

pyggml.compat.install()


@pytest.fixture(scope="session")
def demo_path() -> str:
    """The demonstration model."""
    return str(pyggml.SHIPPED_MODEL)


@pytest.fixture(scope="session")
def smollm2_path() -> str:
    """SmolLM2 135M Instruct, as published."""
    (path,) = Path(os.environ["PYGGML_TEST_MODELS"]).glob("SmolLM2*.gguf")
    return str(path)
