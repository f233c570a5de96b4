"""Recommended sampling settings are read from a directory or a GGUF file; invalid ones are ignored."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.checkpoints import models
from support.checkpoints.hf_llama import HFLlama

import pyggml
from pyggml import SamplingParams
from pyggml.gguf import GGUFReader
from pyggml.importer.recommended_sampling import read_sampling
from pyggml.sampling import DEFAULT_SAMPLERS

TEMPERATURE_FIRST = (
    "penalties",
    "dry",
    "top_n_sigma",
    "temperature",
    "top_k",
    "typical_p",
    "top_p",
    "min_p",
    "xtc",
)


# --- directories --------------------------------------------------------------------------------------------------

#: The generation_config.json of published models, without the ids of tokens -> what pyggml makes of it.
PUBLISHED: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {
    "Qwen3-0.6B": (
        {"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95},
        {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "samplers": TEMPERATURE_FIRST},
    ),
    "Qwen2.5-7B-Instruct": (
        {"do_sample": True, "repetition_penalty": 1.05, "temperature": 0.7, "top_p": 0.8, "top_k": 20},
        {
            "temperature": 0.7,
            "top_k": 20,
            "top_p": 0.8,
            "repeat_penalty": 1.05,
            "penalty_last_n": 128,
            "samplers": TEMPERATURE_FIRST,
        },
    ),
    "Qwen2.5-7B": ({"do_sample": False, "max_new_tokens": 2048}, {"temperature": 0.0}),
    "Llama-3.2-1B-Instruct": (
        {"do_sample": True, "temperature": 0.6, "top_p": 0.9},
        {"temperature": 0.6, "top_p": 0.9, "samplers": TEMPERATURE_FIRST},
    ),
    "gemma-3-1b-it": (
        {"cache_implementation": "hybrid", "do_sample": True, "top_k": 64, "top_p": 0.95},
        {"temperature": 1.0, "top_k": 64, "top_p": 0.95},
    ),
    "gpt-oss-20b": ({"do_sample": True}, {"temperature": 1.0}),
    "phi-2": ({"_from_model_config": True}, None),
}


def directory(tmp_path: Path, content: dict[str, Any]) -> Path:
    path = HFLlama().write(tmp_path / "hf")
    (path / "generation_config.json").write_text(json.dumps({"eos_token_id": models.EOS, **content}))
    return path


@pytest.mark.slow_except("Qwen3-0.6B", "Qwen2.5-7B-Instruct", "Qwen2.5-7B")
@pytest.mark.parametrize("name", PUBLISHED)
def test_a_directory_and_its_file_recommend_the_same(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYGGML_CACHE", str(tmp_path / "cache"))
    content, expected = PUBLISHED[name]
    hf = directory(tmp_path, content)
    wanted = None if expected is None else SamplingParams(**expected)
    path = pyggml.convert(hf, tmp_path / "model.gguf").path
    for source in (hf, path):
        with pyggml.load(source, n_threads=1, n_ctx=128) as llm:
            assert llm.recommended_sampling == wanted
            if wanted is not None:
                assert llm.generate("a", wanted, max_tokens=2).token_ids
        report = pyggml.inspect(source)
        assert report.problems == ()
        assert (report.recommended_sampling is None) == (wanted is None)
        assert ("recommended: " in str(report)) == (wanted is not None)
        json.dumps(report.to_dict())


def test_the_keys_have_the_types_of_upstreams_converter(tmp_path: Path) -> None:
    hf = directory(tmp_path, PUBLISHED["Qwen2.5-7B-Instruct"][0])
    with GGUFReader(pyggml.convert(hf, tmp_path / "model.gguf").path) as reader:
        types = {key: reader.value_type(key).name for key in reader.metadata if key.startswith("general.sampling.")}
    assert types == {
        "general.sampling.temp": "FLOAT32",
        "general.sampling.top_k": "INT32",
        "general.sampling.top_p": "FLOAT32",
        "general.sampling.penalty_repeat": "FLOAT32",
        "general.sampling.penalty_last_n": "INT32",
        "general.sampling.sequence": "STRING",
    }


NONSENSE: list[Any] = ["hot", "x" * 10**6, True, [0.5], {}, float("nan"), float("inf"), 10**400, 1e300, "0.5"]


@pytest.mark.parametrize("key", ["temperature", "top_k", "top_p", "min_p", "repetition_penalty"])
def test_nonsense_in_a_directory_is_ignored_with_a_note(tmp_path: Path, key: str) -> None:
    for value in NONSENSE:
        (tmp_path / "generation_config.json").write_text(json.dumps({"do_sample": True, key: value}))
        metadata, (note,) = read_sampling(tmp_path)
        assert metadata == {"general.sampling.temp": 1.0}
        assert f"generation_config.json: {key} was ignored" in note
        assert len(note) < 400


def test_such_a_note_reaches_users(tmp_path: Path) -> None:
    hf = directory(tmp_path, {"do_sample": True, "temperature": "hot"})
    note, *_ = pyggml.convert(hf, tmp_path / "model.gguf").notes
    (problem,) = pyggml.inspect(hf).problems
    assert (problem.severity, problem.code, problem.message) == ("warning", "bad-sampling", note)
    assert "temperature was ignored" in note


# --- GGUF files ---------------------------------------------------------------------------------------------------


def file_with(path: Path, **values: object) -> Path:
    metadata = models.metadata_of(models.write_llama(path))
    metadata |= {f"general.sampling.{key}": value for key, value in values.items()}
    return models.write(path, metadata, models.llama_weights())


FILES: dict[str, tuple[dict[str, object], dict[str, Any] | None]] = {
    "nothing": ({}, None),
    "as upstream converts Gemma 3": ({"top_k": np.int32(64), "top_p": 0.95}, {"top_k": 64, "top_p": 0.95}),
    "all": (
        {"temp": 0.8, "top_k": 40, "top_p": 0.9, "min_p": 0.05, "penalty_last_n": 32, "penalty_repeat": 1.1},
        {
            "temperature": 0.8,
            "top_k": 40,
            "top_p": 0.9,
            "min_p": 0.05,
            "penalty_last_n": 32,
            "repeat_penalty": 1.1,
        },
    ),
    "xtc": ({"xtc_probability": 0.5, "xtc_threshold": 0.2}, {"xtc_probability": 0.5, "xtc_threshold": 0.2}),
    "off, as upstream spells it": ({"temp": -1.0, "top_k": np.int32(-1)}, {"temperature": 0.0}),
    "the whole context": ({"penalty_last_n": -1, "penalty_repeat": 1.5}, {"penalty_last_n": 64, "repeat_penalty": 1.5}),
    "mirostat replaces what drops": (
        {"mirostat": 2, "mirostat_tau": 4.0, "top_k": 40, "min_p": 0.1, "temp": 0.7},
        {"mirostat": 2, "mirostat_tau": 4.0, "temperature": 0.7},
    ),
    "an order": (
        {"sequence": ";".join(DEFAULT_SAMPLERS).replace("typical_p", "typ_p"), "temp": 0.5},
        {"temperature": 0.5, "samplers": DEFAULT_SAMPLERS},
    ),
    "an order without what is on": (
        {"sequence": "top_k;temperature", "temp": 0.5, "top_k": 5, "min_p": 0.1},
        {"temperature": 0.5, "top_k": 5, "samplers": ("top_k", "temperature")},
    ),
    "an order without the temperature": (
        {"sequence": "top_k", "temp": 0.5, "top_k": 5},
        {"temperature": 1.0, "top_k": 5, "samplers": ("top_k",)},
    ),
}


@pytest.mark.slow_except(every=2)
@pytest.mark.parametrize("name", FILES)
def test_a_file_recommends(tmp_path: Path, name: str) -> None:
    values, expected = FILES[name]
    path = file_with(tmp_path / "model.gguf", **values)
    assert pyggml.inspect(path).problems == ()
    with pyggml.load(path, n_threads=1, n_ctx=64) as llm:
        assert llm.recommended_sampling == (
            None if expected is None else SamplingParams(**{"temperature": 1.0, **expected})
        )


BAD: dict[str, dict[str, object]] = {
    "not a number": {"temp": "hot"},
    "NaN": {"temp": float("nan")},
    "infinite": {"temp": float("inf")},
    "a bool": {"top_k": True},
    "half a token": {"top_k": 1.5},
    "out of range": {"top_p": 1.5},
    "negative": {"penalty_repeat": -1.0},
    "a third version": {"mirostat": 3},
    "an unknown sampler": {"sequence": "top_k;magic"},
    "a sampler twice": {"sequence": "top_k;top_k"},
}


@pytest.mark.slow_except("not a number", "NaN", "infinite", "a bool", "half a token", "out of range")
@pytest.mark.parametrize("name", BAD)
def test_nonsense_in_a_file_is_ignored_with_a_note(tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
    path = file_with(tmp_path / "model.gguf", **BAD[name], min_p=0.125)
    (problem,) = pyggml.inspect(path).problems
    key = f"general.sampling.{next(iter(BAD[name]))}"
    assert (problem.severity, problem.code) == ("warning", "bad-sampling")
    assert key in problem.message
    with caplog.at_level(logging.WARNING, "pyggml"), pyggml.load(path, n_threads=1) as llm:
        assert llm.recommended_sampling == SamplingParams(temperature=1.0, min_p=0.125)
    assert key in caplog.text
