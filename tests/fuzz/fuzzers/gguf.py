"""Changed GGUF files, in everything that takes them: each is used, or refused by an InferError."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from support.checkpoints import family_models, models

import pyggml
from fuzz import gguf_changes, gguf_file
from pyggml.errors import InferError
from pyggml.gguf import GGUFReader
from pyggml.memory.estimate import estimate

#: What the models are loaded onto.
DEVICE = os.environ.get("PYGGML_TEST_DEVICE", "cpu")

MAX_SECONDS = 40.0
MAX_MESSAGE = 4000
N_TOKENS = 300  # of the vocabularies that are cut from real ones
WIDE = family_models.Size(n_embd=256, n_ff=256, n_layer=1)  # for types of weights whose blocks have 256

PROMPT = "The the th"


def _cut_vocabulary(name: str) -> dict[str, object]:
    """The first tokens of a real one."""
    vocabulary = models.real_vocabulary(name)
    for key, value in vocabulary.items():
        if key.rpartition(".")[2] in ("tokens", "scores", "token_type"):
            assert isinstance(value, (tuple, np.ndarray))
            vocabulary[key] = value[:N_TOKENS] if isinstance(value, np.ndarray) else list(value[:N_TOKENS])
    return vocabulary


def prepare(folder: Path) -> list[gguf_file.File]:
    """A good file of every family, in two sizes, and of every kind of memory, of embedding and of vocabulary."""
    paths = []
    for layout, size in itertools.product(family_models.LAYOUTS, (family_models.SMALL, WIDE)):
        architecture = {"mixtral": "llama"}.get(layout, layout)
        path = folder / f"{layout}-{size.n_embd}.gguf"
        vocabulary = models.byte_vocabulary()
        paths.append(family_models.write(path, architecture, vocabulary, layout=layout, size=size))
    spm = _cut_vocabulary("llama-spm")
    paths += [
        models.write_llama(folder / "llama.gguf"),
        models.write_llama(folder / "spm.gguf", spm),
        models.write_mamba(folder / "mamba.gguf"),
        models.write_jamba(folder / "jamba.gguf"),
        models.write_gemma2(folder / "gemma2.gguf"),
        models.write_t5(folder / "t5.gguf"),
        models.write_t5(folder / "t5-encoder.gguf", decoder=False),
        models.write_qwen3_reranker(folder / "reranker.gguf"),
        models.write_bert(folder / "bert.gguf"),
        models.write_bert(folder / "ranks.gguf", ranks=True),
    ]
    return [gguf_file.read(path) for path in paths]


def make(random: np.random.Generator) -> list[Any]:
    """Choose a file, its changes, and its uses."""
    n_changes = int(random.choice([1, 2, 3, 5], p=[0.6, 0.2, 0.15, 0.05]))
    uses = random.choice(list(USES), size=int(random.choice([1, 2])), p=_WEIGHTS, replace=False)
    return [
        ["file", int(random.integers(1 << 20))],
        *(["change", gguf_changes.make(random)] for _ in range(n_changes)),
        *(["use", str(use)] for use in uses),
    ]


def run(prepared: list[gguf_file.File], parts: list[Any], folder: Path) -> str:
    which = next((number for kind, number in parts if kind == "file"), 0)
    good = prepared[which % len(prepared)]
    tensors = [gguf_file.Tensor(each.name, each.ne, each.type, each.data) for each in good.tensors]
    file = gguf_file.File(list(good.pairs), tensors)
    for change in [what for kind, what in parts if kind == "change"]:
        gguf_changes.apply(file, change)
    path = folder / "changed.gguf"
    path.write_bytes(file.content())
    outcomes = [f"{use}: {_outcome(USES[use][1], path)}" for kind, use in parts if kind == "use"]
    return outcomes[0] if outcomes else "nothing"


def _outcome(use: Callable[[Path], None], path: Path) -> str:
    try:
        use(path)
        return "done"
    except InferError as error:
        if len(str(error)) > MAX_MESSAGE:
            raise AssertionError(f"a message of {len(str(error))} characters") from error
        return type(error).__name__


def _generate(path: Path, **options: Any) -> None:
    with pyggml.load(path, device=DEVICE, n_ctx=64, **options) as llm:
        llm.generate(PROMPT, max_tokens=3, ignore_eos=True, timeout_s=20)
        llm.generate([1, 2, 3], max_tokens=2, temperature=1.0, seed=1, timeout_s=20)


def _chat(path: Path) -> None:
    with pyggml.load(path, device=DEVICE, n_threads=1) as llm:
        llm.chat([{"role": "user", "content": "th"}], max_tokens=2, timeout_s=20)


def _embed(path: Path) -> None:
    with pyggml.load(path, device=DEVICE, n_ctx=64) as llm:
        llm.embed([PROMPT, "a"])


def _context(path: Path, **options: Any) -> None:
    with pyggml.Model(path) as model, pyggml.Context(model, n_ctx=256, n_batch=16, n_seq_max=2, **options) as context:
        if model.has_encoder:
            context.encode([1, 2, 3])
        if model.has_decoder:
            context.decode([1, 2, 3])
            context.decode([4])


def _vocabulary(path: Path) -> None:
    with pyggml.Model(path, vocab_only=True) as model:
        model.vocab.detokenize(model.vocab.tokenize(PROMPT))
        dict(model.metadata)


def _inspect(path: Path) -> None:
    report = pyggml.inspect(path)
    report.estimate(n_ctx=512)
    str(report)


def _quantize(path: Path, type: str) -> None:
    pyggml.quantize(path, path.with_suffix(".out"), type, n_threads=1)


def _read(path: Path) -> None:
    with GGUFReader(path) as reader:
        dict(reader.metadata)
        for name in reader.tensors:
            reader.tensor(name)
            if reader.tensors[name].type not in (24, 25, 26, 27, 28):
                reader.dequantized(name)


def _perplexity(path: Path) -> None:
    pyggml.perplexity(path, list(range(1, 40)), n_ctx=16)


#: Kind of use -> how often, and what is done.
USES: dict[str, tuple[float, Callable[[Path], Any]]] = {
    "generate": (8, _generate),
    "generate with one thread": (5, lambda path: _generate(path, n_threads=1, n_parallel=1)),
    "generate with another cache": (2, lambda path: _generate(path, cache_type="q8_0", n_threads=2)),
    "chat": (1, _chat),
    "embed": (2, _embed),
    "context": (2, _context),
    "context with embeddings": (2, lambda path: _context(path, embeddings=True)),
    "vocabulary": (2, _vocabulary),
    "inspect": (3, _inspect),
    "estimate": (1, lambda path: estimate(path, n_ctx=512)),
    "quantize": (1, lambda path: _quantize(path, "q8_0")),
    "quantize to blocks of 256": (1, lambda path: _quantize(path, "q4_k_m")),
    "read": (1, _read),
    "perplexity": (1, _perplexity),
}
_WEIGHTS = [often / sum(often for often, _ in USES.values()) for often, _ in USES.values()]
