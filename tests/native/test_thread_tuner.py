"""The tuner of compute threads for passes that the engine does not run."""

from __future__ import annotations

import pytest
from support.checkpoints import models

from pyggml import Context
from pyggml._native.model import Model
from pyggml._native.thread_tuner import ThreadTuner
from pyggml.system import cpu_limits

IDS = [models.BOS, *b"hello"]


def test_passes_get_threads_within_the_limits(tiny: Model) -> None:
    tuner = ThreadTuner()
    with Context(tiny, n_ctx=256) as context:
        for _ in range(20):
            with tuner.tuned(context, len(IDS)):
                assert 1 <= context.n_threads == context.n_threads_batch <= cpu_limits().n_usable
                context.decode(IDS)
            context.memory_clear()


def test_a_pass_that_fails_is_not_measured(tiny: Model) -> None:
    tuner = ThreadTuner()
    with Context(tiny, n_ctx=256) as context:
        with pytest.raises(ZeroDivisionError), tuner.tuned(context, len(IDS)):
            _ = 1 / 0
        with tuner.tuned(context, len(IDS)):
            context.decode(IDS)
