"""Options for longer contexts, and separate types of the K and V caches."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.checkpoints import models

import pyggml
from pyggml.memory.estimate import estimate

PROMPT = [*range(5, 60)]
N_CTX_TRAIN = models.N_CTX_TRAIN


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.write_llama(tmp_path_factory.mktemp("rope") / "plain.gguf")


def logits(path: Path, **options: Any) -> Any:
    with pyggml.load(path, n_ctx=256, n_threads=1, **options) as llm:
        return llm.logits(PROMPT)


def test_options_do_what_the_same_keys_of_a_file_do(path: Path, tmp_path: Path) -> None:
    plain = logits(path)
    ways: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"rope__freq_base": 2e6}, {"rope_freq_base": 2e6}),
        (
            {"rope__scaling__type": "linear", "rope__scaling__factor": 4.0},
            {"rope_scaling_type": "linear", "rope_freq_scale": 0.25},
        ),
        (
            {
                "rope__scaling__type": "yarn",
                "rope__scaling__factor": 4.0,
                "rope__scaling__original_context_length": 16,
            },
            {"rope_scaling_type": "yarn", "rope_freq_scale": 0.25, "yarn_orig_ctx": 16},
        ),
    ]
    for keys, options in ways:
        asked = logits(path, **options)
        assert not np.array_equal(asked, plain), options
        assert np.array_equal(asked, logits(models.write_llama(tmp_path / "own.gguf", **keys))), options
    assert np.array_equal(logits(path, rope_freq_scale=0, type_k="f16", type_v=None), plain)
    yarn: dict[str, Any] = {"rope_scaling_type": "yarn", "rope_freq_scale": 0.25}
    seen = [logits(path, **yarn)]
    more: list[dict[str, Any]] = [{"ext_factor": 0}, {"ext_factor": 0, "attn_factor": 0.5}]
    for changes in (*more, {"beta_fast": 4}, {"beta_slow": 0.25}):
        seen.append(logits(path, **yarn, **{f"yarn_{name}": value for name, value in changes.items()}))
        assert len({each.tobytes() for each in seen}) == len(seen), changes


def test_embeddings_follow_them(path: Path) -> None:
    with pyggml.load(path, n_threads=1) as plain, pyggml.load(path, n_threads=1, rope_freq_base=2e6) as other:
        assert not np.array_equal(plain.embed([PROMPT]), other.embed([PROMPT]))


def test_the_caches_have_types_of_their_own(path: Path) -> None:
    sizes = {}
    for types in ((None, None), ("q8_0", None), (None, "q8_0"), ("q8_0", "q8_0")):
        options: dict[str, Any] = {"n_ctx": 4096, "type_k": types[0], "type_v": types[1], "rope_freq_base": 1e6}
        with pyggml.load(path, n_threads=1, **options) as llm:
            sizes[types] = llm.memory[0].cache_bytes
            assert estimate(path, **options).cache_bytes == sizes[types] + 144 * 4096  # what it adds for each cell
            assert len(llm.generate(PROMPT, max_tokens=4, ignore_eos=True).token_ids) == 4
    assert sizes["q8_0", "q8_0"] < sizes["q8_0", None] == sizes[None, "q8_0"] < sizes[None, None]
    assert logits(path, type_k="q8_0").tobytes() != logits(path, type_v="q8_0").tobytes()


@pytest.fixture
def told() -> Iterator[list[warnings.WarningMessage]]:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        yield told


def test_a_context_beyond_the_training_warns(path: Path, told: list[warnings.WarningMessage]) -> None:
    for load in (pyggml.load, pyggml.LLM):
        load(path, n_ctx=4 * N_CTX_TRAIN, n_threads=1).close()
        (warning,) = told
        assert warning.category is UserWarning
        assert warning.filename == __file__
        assert "n_ctx=2048 is longer than the 512 tokens that plain.gguf was trained for" in str(warning.message)
        told.clear()
    for options in (
        {"n_ctx": N_CTX_TRAIN},
        {"n_ctx": 4 * N_CTX_TRAIN, "rope_scaling_type": "yarn", "rope_freq_scale": 0.25},
        {"n_ctx": 4 * N_CTX_TRAIN, "rope_freq_base": 1e6},
    ):
        pyggml.load(path, n_threads=1, **options).close()
    assert not told


def test_a_longer_context_is_advised_only_if_rope_is_scaled(path: Path) -> None:
    assert estimate(path, n_ctx=4 * N_CTX_TRAIN).suggestions.n_ctx == N_CTX_TRAIN
    assert estimate(path, n_ctx="auto").n_ctx == N_CTX_TRAIN
    assert estimate(path, n_ctx="auto", rope_scaling_type="yarn", rope_freq_scale=0.25).n_ctx == 4 * N_CTX_TRAIN


def test_a_file_that_is_scaled_is_measured_from_its_original_length(tmp_path: Path) -> None:
    scaled = models.write_llama(
        tmp_path / "yarn.gguf",
        context_length=2048,
        rope__scaling__type="yarn",
        rope__scaling__factor=4.0,
        rope__scaling__original_context_length=512,
    )
    for options, length in (({}, 2048), ({"rope_freq_scale": 0.125}, 4096), ({"rope_scaling_type": "none"}, 512)):
        assert estimate(scaled, n_ctx="auto", **options).n_ctx == length, options


def test_wrong_values_are_refused(path: Path) -> None:
    for name, value in (
        ("rope_scaling_type", "spiral"),
        ("rope_freq_base", -1),
        ("yarn_orig_ctx", 0),
        ("type_k", "q9"),
    ):
        wrong: Any = {name: value}
        with pytest.raises(pyggml.InvalidParameterError, match=name):
            pyggml.load(path, **wrong)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rope_scaling_type": "yarn"}, "rope_scaling_type has no effect, because RoPE is not scaled: add rope_freq_s"),
        ({"rope_scaling_type": "linear", "rope_freq_scale": 1}, "rope_scaling_type has no effect"),
        ({"rope_scaling_type": "longrope"}, "rope_scaling_type has no effect"),
        ({"rope_scaling_type": "none", "rope_freq_scale": 0.5}, "rope_freq_scale .* leave one of them out"),
        ({"yarn_orig_ctx": 2048}, "yarn_orig_ctx has no effect, because RoPE is not scaled"),
        ({"yarn_ext_factor": 1.0}, "yarn_ext_factor has no effect, because RoPE is not scaled"),
        ({"rope_freq_scale": 0.5, "yarn_beta_fast": 4}, 'option of YaRN: add rope_scaling_type="yarn"'),
        (
            {"rope_scaling_type": "yarn", "rope_freq_scale": 0.25, "yarn_attn_factor": 2},
            "yarn_attn_factor has no effect, because the engine computes it, unless yarn_ext_factor is 0",
        ),
    ],
)
def test_options_without_an_effect_are_refused(path: Path, options: dict[str, Any], message: str) -> None:
    """The engine's logits are the same without them, which is why they are refused."""
    for call in (pyggml.load, estimate):
        with pytest.raises(pyggml.InvalidParameterError, match=message):
            call(path, **options)
    with pyggml.Model(path) as model, pytest.raises(pyggml.InvalidParameterError, match=message):
        pyggml.Context(model, **options)


def test_what_a_file_stores_counts(path: Path, tmp_path: Path) -> None:
    own = models.write_llama(
        tmp_path / "own.gguf", rope__scaling__type="yarn", rope__scaling__factor=4.0, context_length=512
    )
    fine: list[tuple[Path, dict[str, Any]]] = [
        (own, {"yarn_beta_fast": 4}),
        (own, {"rope_scaling_type": "yarn", "yarn_orig_ctx": 64}),
        (own, {"yarn_ext_factor": 0, "yarn_attn_factor": 2}),
        (own, {"rope_scaling_type": "none"}),
        (path, {"rope_scaling_type": "none"}),
        (path, {"yarn_attn_factor": 2}),
        (path, {"rope_freq_base": 0, "rope_freq_scale": 0}),
    ]
    for model, options in fine:
        estimate(model, **options)
    unscaled = models.write_llama(tmp_path / "none.gguf", rope__scaling__type="none")
    with pytest.raises(pyggml.InvalidParameterError, match='is "none": add rope_scaling_type="yarn"'):
        estimate(unscaled, rope_freq_scale=0.25)


def test_a_model_without_rope_takes_no_options_for_it(tmp_path: Path) -> None:
    with pytest.raises(pyggml.InvalidParameterError, match="mamba models do not use RoPE"):
        pyggml.load(models.write_mamba(tmp_path / "mamba.gguf"), rope_freq_base=1e6)
