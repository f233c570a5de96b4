"""A pipeline of Ray Data with checkpoints, for test_ray_batch.py to kill and to run again.

python tests/support/servers/ray_pipeline.py FOLDER
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import ray
import ray.data
from ray.data.checkpoint import CheckpointConfig

import pyggml
import pyggml.ray


def main(folder: Path) -> None:
    ray.init(
        "local",
        num_cpus=4,
        object_store_memory=100_000_000,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.checkpoint_config = CheckpointConfig("id", str(folder / "checkpoint"))
    prompts = ray.data.read_parquet(str(folder / "prompts"))
    answered = pyggml.ray.map_batches(
        prompts,
        params=pyggml.SamplingParams(max_tokens=8, ignore_eos=True),
        batch_tokens=2000,
        n_ctx=2048,
        n_threads=1,
    )
    answered.write_parquet(str(folder / "answers"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
