"""GELU by our own kernel, alone and as GEGLU: against float64, for rows of any length and any number of threads."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import numpy.typing as npt
import pytest
from support.raw_graphs import Floats, graph_on, put, take

from pyggml import lib
from pyggml._native.backend import Backend

Kind = Literal["tanh", "erf"]
KINDS: tuple[Kind, ...] = ("tanh", "erf")
_ALONE = {"tanh": lib.ggml_gelu, "erf": lib.ggml_gelu_erf}
_WITH_GATE = {"tanh": lib.GGML_GLU_OP_GEGLU, "erf": lib.GGML_GLU_OP_GEGLU_ERF}
# Upstream's table by tanh is off by 1e-3, and erfc here by 1.5e-7 / 2 times the value.
_MOST_ERROR = 1e-6


def drawn(*shape: int) -> Floats:
    return np.random.default_rng(3).normal(0, 3, shape).astype(np.float32)


def true(values: Floats, kind: Kind) -> npt.NDArray[np.float64]:
    x = values.astype(np.float64)
    if kind == "tanh":
        share = np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
    else:
        share = np.vectorize(math.erf)(x / math.sqrt(2))
    return np.asarray(0.5 * x * (1 + share), np.float64)


def alone(values: Floats, kind: Kind, n_threads: int = 2) -> Floats:
    with Backend("cpu", n_threads=n_threads) as backend, graph_on(backend) as graph:
        x = graph.input(*values.shape[::-1])
        result = _ALONE[kind](graph.ctx, x)
        cgraph = graph.of(result)
        put(x, values)
        backend.compute(cgraph)
        return take(result, values.shape)


def joined(values: Floats, kind: Kind, *, is_swapped: bool) -> Floats:
    """GEGLU of the two halves of each row."""
    with Backend("cpu", n_threads=2) as backend, graph_on(backend) as graph:
        x = graph.input(*values.shape[::-1])
        result = lib.ggml_glu(graph.ctx, x, _WITH_GATE[kind], is_swapped)
        cgraph = graph.of(result)
        put(x, values)
        backend.compute(cgraph)
        return take(result, (*values.shape[:-1], values.shape[-1] // 2))


def split(values: Floats, gate: Floats, kind: Kind) -> Floats:
    """GEGLU of two tensors."""
    with Backend("cpu", n_threads=2) as backend, graph_on(backend) as graph:
        x, factors = graph.input(*values.shape[::-1]), graph.input(*values.shape[::-1])
        result = lib.ggml_glu_split(graph.ctx, x, factors, _WITH_GATE[kind])
        cgraph = graph.of(result)
        put(x, values)
        put(factors, gate)
        backend.compute(cgraph)
        return take(result, values.shape)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 7, 16, 77, 1536])
def test_every_value_is_close_to_the_true_one(kind: Kind, n: int) -> None:
    values = drawn(5, 3, n)
    np.testing.assert_allclose(alone(values, kind), true(values, kind), rtol=1e-6, atol=_MOST_ERROR)


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_has_the_same_bits_alone_and_in_batches(kind: Kind) -> None:
    values = drawn(41, 333)
    in_batch = alone(values, kind, n_threads=3)
    for row in (0, 13, 40):
        one = alone(values[row : row + 1], kind, n_threads=1)
        np.testing.assert_array_equal(one.view(np.uint32)[0], in_batch.view(np.uint32)[row])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [24, 77])
def test_times_the_values_of_a_gate(kind: Kind, n: int) -> None:
    values, gate = drawn(19, 2 * n)[:, :n].copy(), drawn(19, 2 * n)[:, n:].copy()
    expected = true(values, kind) * gate
    both, swapped = np.concatenate([values, gate], -1), np.concatenate([gate, values], -1)
    for found in (
        split(values, gate, kind),
        joined(both, kind, is_swapped=False),
        joined(swapped, kind, is_swapped=True),
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=20 * _MOST_ERROR)


@pytest.mark.parametrize("kind", KINDS)
def test_values_at_the_ends(kind: Kind) -> None:
    values = np.array([[np.inf, -np.inf, np.nan, 0.0, 1e30, -1e30, 12, -12]], np.float32)
    found = alone(values, kind)[0]
    assert found[0] == np.inf
    assert found[1] == 0
    assert np.isnan(found[2])
    assert found[3:].tolist() == [0.0, np.float32(1e30), 0.0, 12.0, 0.0]
