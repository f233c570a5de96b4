"""Products of our kernels: as accurate as upstream's, with the same bits for any batch."""

from __future__ import annotations

import itertools
import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from support import products
from support.raw_graphs import Floats, relative_error

from pyggml import lib

NO_LARGER = 1.02  # than upstream's error: activations are rounded to the same grid, but ties and sums not alike
SAMPLE = ("F16", "Q4_K")
sample_of_types = pytest.mark.slow_except(*SAMPLE, *(f"{kind}-{type}" for kind in products.KINDS for type in SAMPLE))


class Results:
    """The products of all types, which another process computes, a type when its results are first read."""

    def __init__(self, folder: Path, kernels: str) -> None:
        self._folder = folder
        self._kernels = kernels
        self._found: dict[str, dict[str, Floats]] = {}

    def __getitem__(self, name: str) -> Floats:
        type = name.partition(" ")[0]
        if type not in self._found:
            path = self._folder / f"{type}.npz"
            command = [sys.executable, products.__file__, str(path), type]
            subprocess.run(command, env=os.environ | {"PYGGML_KERNELS": self._kernels}, check=True)
            with np.load(path) as results:
                self._found[type] = dict(results)
        return self._found[type][name]


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return Results(tmp_path_factory.mktemp("ours"), "on")


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return Results(tmp_path_factory.mktemp("upstream"), "off")


def _true(type: str, n_in: int, n_out: int, kind: str) -> npt.NDArray[np.float64]:
    weights = products.weights_of(type, n_out, n_in)[1].astype(np.float64)
    true: npt.NDArray[np.float64] = products.activations(kind, products.N_ROWS, n_in).astype(np.float64) @ weights.T
    return true


@sample_of_types
@pytest.mark.parametrize("type", products.TYPES)
@pytest.mark.parametrize("kind", products.KINDS)
def test_error_is_not_larger_than_upstream_s(type: str, kind: str, ours: Results, upstream: Results) -> None:
    for n_in, n_out in products.shapes(type):
        true = _true(type, n_in, n_out, kind)
        name = f"{type} {n_in}x{n_out} {kind} {products.N_ROWS} 2"
        assert relative_error(ours[name], true) <= NO_LARGER * relative_error(upstream[name], true) + 1e-7, name


@pytest.mark.slow
@pytest.mark.skipif(
    platform.machine().lower() not in ("x86_64", "amd64", "aarch64", "arm64"), reason="has no vectors of floats"
)
@pytest.mark.parametrize("type", ["F16", "BF16"])
def test_what_activations_are_rounded_to_for_floats(type: str, ours: Results, upstream: Results) -> None:
    true = _true(type, 768, 64, "even")
    name = f"{type} 768x64 even {products.N_ROWS} 2"
    error, theirs = relative_error(ours[name], true), relative_error(upstream[name], true)
    assert theirs > 1e-5
    if type == "BF16" and lib.ggml_cpu_has_avx512_bf16():  # they are rounded, unless AMX takes sums of two numbers
        assert 1e-5 < error <= NO_LARGER * theirs or (lib.ggml_cpu_has_amx_int8() and error < 5e-6)
    else:
        assert error < (5e-6 if type == "BF16" and lib.ggml_cpu_has_amx_int8() else 1e-6)


@sample_of_types
@pytest.mark.parametrize("type", products.TYPES)
@pytest.mark.parametrize("kind", products.KINDS)
def test_a_row_is_the_same_alone_and_in_batches(type: str, kind: str, ours: Results) -> None:
    for n_in, n_out in products.shapes(type):
        every = ours[f"{type} {n_in}x{n_out} {kind} {products.N_ROWS} 1"].view(np.uint32)
        for n_rows in products.BATCHES:
            for n_threads in products.THREADS:
                name = f"{type} {n_in}x{n_out} {kind} {n_rows} {n_threads}"
                result = ours[name].view(np.uint32)
                np.testing.assert_array_equal(result, every[: len(result)], err_msg=name)


@sample_of_types
@pytest.mark.parametrize("type", products.TYPES)
def test_many_rows(type: str, ours: Results, upstream: Results) -> None:
    n_in, n_out = products.MANY
    weights = products.weights_of(type, n_out, n_in)[1].astype(np.float64)
    true = products.activations("even", products.N_MANY, n_in).astype(np.float64) @ weights.T
    for n_threads in products.THREADS:
        name = f"{type} many together {n_threads}"
        assert relative_error(ours[name], true) <= NO_LARGER * relative_error(upstream[name], true) + 1e-7
        together = ours[name][list(products.MANY_ALONE)]
        np.testing.assert_array_equal(together, ours[f"{type} many alone {n_threads}"])
        by_expert = ours[f"{type} many by expert together {n_threads}"][[0, -1]]
        np.testing.assert_array_equal(by_expert, ours[f"{type} many by expert alone {n_threads}"])


@sample_of_types
@pytest.mark.parametrize("type", products.TYPES)
def test_weights_are_repeated_over_the_other_dimensions(type: str, ours: Results, upstream: Results) -> None:
    weights = products.weights_of(type, *products.REPEATED_WEIGHTS)[1].astype(np.float64)
    weights = np.repeat(weights, 2, axis=1)
    rows = products.activations("even", *products.REPEATED_ROWS).astype(np.float64)
    true = np.einsum("abri,abni->abrn", rows, np.broadcast_to(weights, (3, *weights.shape[1:])))
    for n_threads in products.THREADS:
        name = f"{type} repeated {n_threads}"
        assert relative_error(ours[name], true) <= NO_LARGER * relative_error(upstream[name], true) + 1e-7
    np.testing.assert_array_equal(ours[f"{type} repeated 1"], ours[f"{type} repeated 2"])


@sample_of_types
@pytest.mark.parametrize("type", products.TYPES)
def test_products_by_expert(type: str, ours: Results, upstream: Results) -> None:
    chosen = products.choices()
    for n_in, n_out in products.BY_EXPERT:
        weights = products.weights_of(type, products.N_EXPERTS, n_out, n_in)[1].astype(np.float64)[chosen]
        for n_rows, kind in itertools.product((1, products.N_USED), products.KINDS):
            rows = products.activations(kind, products.N_TOKENS, n_rows, n_in).astype(np.float64)
            true = np.einsum("tcoi,tci->tco", weights, np.broadcast_to(rows, (*chosen.shape, n_in)))
            name = f"{type} {n_in}x{n_out} {n_rows} {kind}"
            for n_threads in products.THREADS:
                result = ours[f"{name} together {n_threads}"]
                error = relative_error(upstream[f"{name} together {n_threads}"], true)
                assert relative_error(result, true) <= NO_LARGER * error + 1e-7, name
                np.testing.assert_array_equal(result, ours[f"{name} together 1"], err_msg=name)
                np.testing.assert_array_equal(result[:3], ours[f"{name} alone {n_threads}"], err_msg=name)


def _assert_numbers_stay_numbers(name: str, results: Results) -> None:
    for n_threads in products.THREADS:
        are_numbers = results[f"{name} magnitudes {n_threads}"] < 1e35
        assert are_numbers.any()
        assert np.isfinite(results[f"{name} {n_threads}"][are_numbers]).all(), name
    np.testing.assert_array_equal(results[f"{name} 1"], results[f"{name} 2"])


@sample_of_types
@pytest.mark.parametrize("type", products.TYPES)
def test_numbers_stay_numbers(type: str, ours: Results) -> None:
    """Results are not finite only if inputs are not, or if sums overflow floats."""
    _assert_numbers_stay_numbers(f"{type} odd rows", ours)


@pytest.mark.slow_except("1-Q4_K")
@pytest.mark.parametrize("type", products.QUANTISED)
@pytest.mark.parametrize("seed", range(products.N_ARBITRARY))
def test_arbitrary_bytes_as_weights(type: str, seed: int, ours: Results, upstream: Results) -> None:
    """Our results are NaN only where upstream's are, unless the magnitudes of the terms overflow floats.

    There, as with the highest exponents of MXFP4, either may meet infinity first.
    """
    name = f"{type} arbitrary weights {seed}"
    _assert_numbers_stay_numbers(name, ours)
    for n_threads in products.THREADS:
        no_number, theirs = (np.isnan(results[f"{name} {n_threads}"]) for results in (ours, upstream))
        held = ours[f"{name} magnitudes {n_threads}"] < np.inf
        assert not (no_number & ~theirs & held).any()
