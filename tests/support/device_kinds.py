"""Devices that are not the CPU, of each kind that tests compare with it, and models to compare them by.

Two servers on the loopback are always there. Another kind that this build or this machine lacks is skipped, with the
reason. Mesa's software driver counts as a Vulkan device where GGML_VK_VISIBLE_DEVICES names it, as ``make vulkan-test``
does: upstream leaves it out otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import pyggml
from pyggml._native.context import Context
from support.checkpoints import family_models, models

Logits = npt.NDArray[np.float32]

#: Kinds of devices -> how their names begin, as :attr:`pyggml.LLM.memory` has them.
NAMES = {"rpc": "RPC", "vulkan": "Vulkan", "cuda": "CUDA"}

#: For ``pytest.fixture(params=...)``.
KINDS = ["rpc", "vulkan", pytest.param("cuda", marks=pytest.mark.gpu)]

#: What each server lends: enough for the models here, and little enough to use up.
LENT_BYTES = 64 << 20


@dataclass(frozen=True)
class Placed:
    """Devices of a kind, and how to load a model onto them.

    Attributes:
        kind: "rpc", "vulkan" or "cuda".
        options: the options of :func:`pyggml.load` that put a model there.
        free_bytes: what each device that shares it has free, before it is loaded.
    """

    kind: str
    options: Mapping[str, Any]
    free_bytes: tuple[int, ...]


@contextmanager
def placed(kind: str) -> Iterator[Placed]:
    """The devices of a kind; skips the test if there are none."""
    if kind == "rpc":
        with _two_hosts() as hosts:
            yield hosts
        return
    found = [device for device in pyggml.devices() if device.kind == kind]
    if not found:
        pytest.skip(f"needs a {NAMES[kind]} device that this build supports")
    yield Placed(kind, {"device": kind}, (found[0].memory_free,))


@contextmanager
def _two_hosts() -> Iterator[Placed]:
    from pyggml.remote import ExportedDevices
    from support.servers.remote_servers import KEY, server

    loan = ExportedDevices(("cpu",), max_bytes=LENT_BYTES, n_threads=1)
    with TemporaryDirectory() as folder, server(loan) as one, server(loan) as other:
        key = Path(folder) / "key"
        key.write_bytes(KEY)
        hosts = [one.address, other.address]
        options = {"rpc": hosts, "rpc_key": key, "device": ["rpc:0", "rpc:1"], "tensor_split": [1, 1]}
        yield Placed("rpc", options, (LENT_BYTES, LENT_BYTES))


# --- models ----------------------------------------------------------------------------------------------------------

SIZE = family_models.Size(n_layer=4, n_embd=256, n_ff=512)  # whole blocks of every quantised type


def _of_family(layout: str, path: Path) -> Path:
    architecture = {"mixtral": "llama"}.get(layout, layout)
    vocabulary = family_models.small_vocabulary("<end>")
    return family_models.write(path, architecture, vocabulary, layout=layout, own_output=True, size=SIZE)


#: Every kind of model that generates: the families' architectures, and memories other than a cache.
WRITERS: dict[str, Callable[[Path], Path]] = {
    **{layout: partial(_of_family, layout) for layout in family_models.LAYOUTS},
    "window": models.write_gemma2,
    "mamba": models.write_mamba,
    "jamba": models.write_jamba,
}


class Shelf:
    """Models that are made when they are first asked for."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def __call__(self, name: str, ftype: str = "f32") -> Path:
        """The file of a model, of the same weights in each type."""
        path = self.directory / f"{name}-{ftype}.gguf"
        if not path.exists():
            if ftype == "f32":
                WRITERS[name](path)
            else:
                pyggml.quantize(self(name), path, ftype)
        return path


# --- what is compared ------------------------------------------------------------------------------------------------

N_TOGETHER = 70  # more than one tile of any kernel for matrices, and no multiple of one


def prompt(seed: int, n: int = N_TOGETHER) -> list[int]:
    """Random tokens."""
    return [int(token) for token in np.random.default_rng(seed).integers(0, 256, n)]


PROMPT = prompt(7)
FOLLOWING = prompt(8, 4)

#: A family -> a prompt after which its best token leads by a tenth of a standard deviation for 16 tokens: other kernels
#: choose the same.
UNDISPUTED = {"llama": prompt(50), "qwen3": prompt(3), "gemma3": prompt(14)}


def logits_of(llm: pyggml.LLM, token_ids: list[int], n_alone: int = 0, **options: Any) -> Logits:
    """Logits after every token, (n_tokens, n_vocab), the last ``n_alone`` of them computed one by one."""
    together, alone = token_ids[: len(token_ids) - n_alone], token_ids[len(token_ids) - n_alone :]
    with Context(llm.model, n_ctx=512, **options) as context:
        rows = []
        for batch in (together, *([token] for token in alone)):
            context.decode(batch, output="all")
            rows.append(context.logits())
        return np.concatenate(rows)


def difference(a: Logits, b: Logits) -> float:
    """The largest difference between two sets of logits, in standard deviations of the first."""
    return float(np.abs(a - b).max() / a.std())


def worst_choice(reference: pyggml.LLM, token_ids: list[int], written: list[int]) -> float:
    """Return the worst token's distance below the best logit, in standard deviations; 0 if each token is the best.

    Args:
        reference: whose logits judge.
        token_ids: the prompt.
        written: what followed it, with ``ignore_eos``.
    """
    logits = logits_of(reference, [*token_ids, *written])[len(token_ids) - 1 : -1]
    chosen = logits[np.arange(len(written)), written]
    allowed = np.delete(logits, sorted(reference.stop_tokens), axis=1)
    return float((allowed.max(1) - chosen).max() / logits.std())
