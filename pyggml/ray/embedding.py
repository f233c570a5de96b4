"""Embeddings as a Ray Data operator."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import ray.data

import pyggml
from pyggml.batch import FieldNames, require_load_options
from pyggml.ray.actor import WorkerSpec
from pyggml.ray.cluster import connect, plan_actors

if TYPE_CHECKING:
    from ray.data import Dataset

# CPUs for Ray Data's tasks that read and write rows: if the actors took all CPUs, these would never be scheduled.
_DATA_CPUS = 1
# Batches that an actor tokenizes, computes and returns at the same time.
_CONCURRENT_BATCHES = 3


def embed_batches(
    dataset: Dataset,
    model: str | os.PathLike[str] | None = None,
    *,
    text: str = "text",
    column: str = "embedding",
    prompt_name: str | None = None,
    dimensions: int | None = None,
    normalize: bool | None = None,
    dtype: str = "float32",
    truncate: bool = True,
    max_tokens: int | None = None,
    batch_size: int = 1024,
    n_actors: int | None = None,
    **load: Any,
) -> Dataset:
    """Add the vectors of a text to the rows of a dataset, as :func:`pyggml.batch.embed` does to a file.

    It is lazy, as Ray's own ``map_batches``. A row without a text gets null.

    Args:
        dataset: rows with a text.
        model: as for :func:`pyggml.load`; this machine and every node must have it under this name.
        text: name of the column with the text.
        column: name of the column for the vector: a list of fixed size.
        prompt_name: as for :meth:`LLM.embed <pyggml.LLM.embed>`.
        dimensions: as for :meth:`LLM.embed <pyggml.LLM.embed>`.
        normalize: as for :meth:`LLM.embed <pyggml.LLM.embed>`.
        dtype: as for :meth:`LLM.embed <pyggml.LLM.embed>`.
        truncate: cut off texts that are too long; False: such a text fails the job.
        max_tokens: as for :meth:`LLM.embed <pyggml.LLM.embed>`.
        batch_size: number of rows in a batch.
        n_actors: number of actors. None: as many as fit on the nodes.
        **load: options of :func:`pyggml.load`.

    Raises:
        OutOfMemoryError: the model fits on no node.
        InvalidParameterError: an option is invalid.
        EngineError: there is no cluster.
    """
    require_load_options(load, embed_batches)
    connect("auto")
    spec = WorkerSpec(model, None, FieldNames(), False, load)
    plan = plan_actors(spec, n_actors, n_reserved_cpus=_DATA_CPUS)
    options = {
        "prompt_name": prompt_name,
        "dimensions": dimensions,
        "normalize": normalize,
        "dtype": dtype,
        "truncate": truncate,
        "max_tokens": max_tokens,
    }
    return dataset.map_batches(
        _TableEmbedder,
        fn_constructor_args=(spec.with_threads(plan), text, column, options),
        batch_size=batch_size,
        batch_format="pyarrow",
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=plan.n_actors, initial_size=plan.n_actors),
        max_concurrency=_CONCURRENT_BATCHES,
        num_cpus=plan.n_cpus,
        num_gpus=plan.n_gpus or None,
        memory=plan.memory_bytes or None,
    )


class _TableEmbedder:
    """Ray Data function that adds vectors to Arrow tables. Several threads may call it."""

    def __init__(self, spec: WorkerSpec, text: str, column: str, options: dict[str, Any]) -> None:
        self._text, self._column, self._options = text, column, options
        self._llm = spec.load_model()

    def __call__(self, table: pa.Table) -> pa.Table:
        if self._text not in table.column_names:
            raise pyggml.InvalidParameterError(
                f"the dataset has no column {self._text!r}, but {', '.join(table.column_names)}: pass text="
            )
        texts = table[self._text].to_pylist()
        given = [index for index, text in enumerate(texts) if isinstance(text, str) and text]
        vectors = np.asarray(self._llm.embed([texts[index] for index in given], **self._options))
        rows = np.zeros((len(texts), vectors.shape[1]), vectors.dtype)
        rows[given] = vectors
        missing = np.ones(len(texts), bool)
        missing[given] = False
        kind = pa.list_(pa.from_numpy_dtype(rows.dtype), rows.shape[1])
        lists = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), type=kind, mask=pa.array(missing))
        return table.append_column(pa.field(self._column, kind), lists)
