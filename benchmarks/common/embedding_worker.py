"""One side of embeddings.py: loads a model, and embeds what it is sent.

    python embedding_worker.py SIDE TYPE DIRECTORY N_THREADS

SIDE is pyggml, sentence-transformers or onnxruntime; TYPE f32, bf16 or q8_0. Each line on standard input is
``{"texts": [...]}``, with ``"out": PATH`` to keep the vectors; each answer is a line ``{"seconds": S, "cpu_s": S}``.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]
Embed = Callable[[list[str]], Vectors]
#: Texts in a batch of those that pad them.
BATCH_SIZE = 32


def with_pyggml(kind: str, directory: str, n_threads: int) -> Embed:
    import pyggml

    llm = pyggml.load(directory, outtype=kind, n_threads=n_threads)
    return lambda texts: np.asarray(llm.embed(texts, truncate=True))


def with_sentence_transformers(kind: str, directory: str, n_threads: int) -> Embed:
    model = _model_of_torch(directory, n_threads)
    if kind == "bf16":
        model = model.bfloat16()
    return lambda texts: model.encode(texts, batch_size=BATCH_SIZE, convert_to_tensor=True).float().numpy()


def with_onnxruntime(kind: str, directory: str, n_threads: int) -> Embed:
    """The model exported to ONNX and optimised by the runtime, with the tokenizers library, as in fastembed."""
    import onnxruntime
    import tokenizers

    assert kind == "f32"
    tokenizer = tokenizers.Tokenizer.from_file(str(Path(directory) / "tokenizer.json"))
    tokenizer.enable_padding()
    tokenizer.no_truncation()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = n_threads
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        _export(directory, n_threads, path)
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def embed(texts: list[str]) -> Vectors:
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        vectors: list[Any] = [None] * len(texts)
        for first in range(0, len(order), BATCH_SIZE):
            batch = order[first : first + BATCH_SIZE]
            encoded = tokenizer.encode_batch([texts[i] for i in batch])
            ids = np.array([each.ids for each in encoded], np.int64)
            mask = np.array([each.attention_mask for each in encoded], np.int64)
            (rows,) = session.run(None, {"input_ids": ids, "attention_mask": mask})
            weights = mask[..., None].astype(np.float32)
            pooled = (rows * weights).sum(1) / weights.sum(1)
            pooled /= np.linalg.norm(pooled, axis=-1, keepdims=True)
            for i, vector in zip(batch, pooled, strict=True):
                vectors[i] = vector
        return np.stack(vectors)

    return embed


def _model_of_torch(directory: str, n_threads: int) -> Any:
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(n_threads)
    return SentenceTransformer(directory, device="cpu")


def _export(directory: str, n_threads: int, path: Path) -> None:
    """Write the transformer of a sentence-transformers directory as ONNX, for batches and lengths of any size."""
    import torch

    transformer = _model_of_torch(directory, n_threads)[0].auto_model

    class Rows(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.transformer = transformer

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            return self.transformer(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state

    n_texts, n_tokens = torch.export.Dim("n_texts", min=1, max=4096), torch.export.Dim("n_tokens", min=2, max=512)
    shape = {0: n_texts, 1: n_tokens}
    example = (torch.ones(3, 17, dtype=torch.int64), torch.ones(3, 17, dtype=torch.int64))
    torch.onnx.export(
        Rows().eval(), example, str(path), input_names=["input_ids", "attention_mask"],
        dynamic_shapes=(shape, shape), dynamo=True, external_data=False, verbose=False,
    )  # fmt: skip


SIDES: dict[str, Callable[[str, str, int], Embed]] = {
    "pyggml": with_pyggml,
    "sentence-transformers": with_sentence_transformers,
    "onnxruntime": with_onnxruntime,
}


def main() -> None:
    side, kind, directory, n_threads = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")  # libraries print what they like to the standard output
    os.dup2(2, 1)
    embed = SIDES[side](kind, directory, int(n_threads))
    for line in sys.stdin:
        asked = json.loads(line)
        start, cpu_start = time.perf_counter(), time.process_time()
        vectors = embed(asked["texts"])
        seconds, cpu_s = time.perf_counter() - start, time.process_time() - cpu_start
        if "out" in asked:
            np.save(asked["out"], vectors)
        print(json.dumps({"seconds": seconds, "cpu_s": cpu_s}), file=answers, flush=True)


if __name__ == "__main__":
    main()
