"""A mixture of experts with our kernels: logits near upstream's, and the same bits however its prompt is split."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.checkpoints import family_models
from support.raw_graphs import Floats, relative_error

import pyggml

PROGRAM = """
import sys
import numpy as np
from pyggml import Context, Model

ids = np.random.default_rng(0).integers(5, 200, 80)
results = {}
with Model(sys.argv[1]) as model:
    for n_threads in (1, 2):
        for n in (80, 7, 1):
            with Context(model, n_ctx=256, n_threads=n_threads, n_threads_batch=n_threads) as context:
                rows = []
                for first in range(0, len(ids), n):
                    context.decode(ids[first : first + n], output="all")
                    rows.append(np.array(context.logits()))
            results[f"{n_threads} {n}"] = np.concatenate(rows)
np.savez(sys.argv[2], **results)
"""


def _logits(path: Path, kernels: str) -> dict[str, Floats]:
    results = path.with_suffix(f".{kernels}.npz")
    env = os.environ | {"PYGGML_KERNELS": kernels}
    subprocess.run([sys.executable, "-c", PROGRAM, str(path), str(results)], env=env, check=True)
    with np.load(results) as loaded:
        return dict(loaded)


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    size = family_models.Size(n_layer=2, n_embd=256, n_ff=512)
    vocabulary = family_models.small_vocabulary("<end>")
    path = tmp_path_factory.mktemp("mixture") / "f32.gguf"
    return family_models.write(path, "llama", vocabulary, layout="mixtral", own_output=True, size=size)


@pytest.mark.slow
@pytest.mark.parametrize(("file_type", "most"), [("f32", 1e-4), ("q8_0", 0.05), ("q4_k_m", 0.05), ("q2_k", 0.05)])
def test_a_mixture(mixture: Path, file_type: str, most: float) -> None:
    path = mixture
    if file_type != "f32":
        path = mixture.with_name(f"{file_type}.gguf")
        pyggml.quantize(mixture, path, file_type)
    ours, upstream = (_logits(path, kernels) for kernels in ("on", "off"))
    assert relative_error(ours["1 80"], upstream["1 80"]) < most
    for name, logits in ours.items():
        np.testing.assert_array_equal(logits, ours["1 80"], err_msg=name)
