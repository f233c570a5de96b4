"""The log of a load: a few lines at INFO, the engine's report at DEBUG."""

from __future__ import annotations

import logging

import pytest

import pyggml


def test_info_is_short_and_debug_has_the_engines_report(caplog: pytest.LogCaptureFixture) -> None:
    for level in (logging.INFO, logging.DEBUG):
        caplog.clear()
        with caplog.at_level(level, "pyggml"), pyggml.load(n_ctx=512, n_threads=1) as llm:
            lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO]
            assert len(lines) <= 5
            assert f"loaded {llm!r}" in lines[-1]
    assert len(caplog.records) > 50


def test_embedding_does_not_warn(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "pyggml"), pyggml.load(n_ctx=64, n_threads=1) as llm:
        llm.embed("a")
    assert not [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
