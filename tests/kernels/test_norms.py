"""RMS norms by our own kernel: the bits that exact squares give, for any batch, with and without weights.

Upstream rounds squares, and so gives other bits for some of the short rows here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest
from support.raw_graphs import Floats, graph_on, put, take

from pyggml import lib
from pyggml._native.backend import Backend
from pyggml.errors import EngineError

EPSILON = np.float32(1e-5)


@dataclass(frozen=True)
class Case:
    shape: tuple[int, ...]  # of the values, as ggml has it
    weights: tuple[int, ...] | None = None
    n_left_out: int = 0  # values between two rows in memory
    weights_first: bool = False
    in_place: bool = False

    @property
    def rows(self) -> tuple[int, ...]:
        """The shape as numpy has it."""
        return self.shape[::-1]

    def drawn(self) -> tuple[Floats, Floats | None]:
        draw = np.random.default_rng(5)
        values = draw.standard_normal(self.rows, np.float32) * draw.uniform(1e-3, 30, (*self.rows[:-1], 1))
        weights = None if self.weights is None else draw.standard_normal(self.weights[::-1], np.float32)
        return values.astype(np.float32), weights


CASES = {
    "alone": Case((576, 40)),
    "short rows alone": Case((5, 300)),
    "short rows times weights": Case((5, 300), (5,)),
    "in place": Case((5, 300), (5,), in_place=True),
    "weights first": Case((5, 300), (5, 300), weights_first=True),
    "times weights": Case((576, 40), (576,)),
    "weights of each head": Case((128, 3, 17), (128, 3)),
    "in four dimensions": Case((64, 2, 3, 5), (64, 1, 3)),
    "an odd length": Case((77, 40), (77,)),
    "a single row": Case((2048, 1), (2048,)),
    "rows apart from each other": Case((96, 33), (96,), n_left_out=64),
}


def computed(case: Case, values: Floats, weights: Floats | None, n_threads: int) -> Floats:
    with Backend("cpu", n_threads=n_threads) as backend, graph_on(backend) as graph:
        n, *others = values.shape[::-1]
        stored = graph.input(n + case.n_left_out, *others)
        x = stored
        if case.n_left_out:
            x = lib.ggml_view_2d(graph.ctx, stored, n, others[0], stored.nb[1], 0)
        norm = lib.ggml_rms_norm_inplace if case.in_place else lib.ggml_rms_norm
        multiply = lib.ggml_mul_inplace if case.in_place else lib.ggml_mul
        result = norm(graph.ctx, x, EPSILON)
        factor = None if weights is None else graph.input(*weights.shape[::-1])
        if factor is not None:
            both = (factor, result) if case.weights_first else (result, factor)
            result = multiply(graph.ctx, *both)
        cgraph = graph.of(result)
        wide = np.full((*values.shape[:-1], n + case.n_left_out), np.nan, np.float32)
        wide[..., :n] = values
        put(stored, wide)
        if factor is not None and weights is not None:
            put(factor, weights)
        backend.compute(cgraph)
        return take(result, values.shape)


def true(values: Floats, weights: Floats | None) -> Floats:
    exact = values.astype(np.float64)
    mean = (exact * exact).mean(-1, keepdims=True).astype(np.float32)
    scaled: Floats = values * (np.float32(1) / np.sqrt(mean + EPSILON))
    if weights is None:
        return scaled
    repeats = [1] * (values.ndim - weights.ndim) + list(weights.shape)
    return scaled * np.tile(weights.reshape(repeats), [of // by for of, by in zip(values.shape, repeats, strict=True)])


def bits(values: Floats) -> npt.NDArray[np.uint32]:
    return values.view(np.uint32)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_squares_are_exact(case: Case) -> None:
    values, weights = case.drawn()
    expected = true(values, weights)
    for n_threads in (1, 2, 3):
        np.testing.assert_array_equal(bits(computed(case, values, weights, n_threads)), bits(expected))


def test_a_row_is_the_same_alone_and_in_batches() -> None:
    values, weights = CASES["times weights"].drawn()
    all_rows = computed(CASES["times weights"], values, weights, 2)
    for row in (0, 17, 39):
        alone = computed(CASES["a single row"], values[row : row + 1], weights, 1)
        np.testing.assert_array_equal(bits(alone[0]), bits(all_rows[row]))


def test_joined_with_weights_is_the_same_as_one_after_the_other() -> None:
    values, weights = CASES["times weights"].drawn()
    assert weights is not None
    alone = computed(CASES["alone"], values, None, 2)
    np.testing.assert_array_equal(bits(computed(CASES["times weights"], values, weights, 2)), bits(alone * weights))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_stays_in_its_row(value: float) -> None:
    values, weights = CASES["times weights"].drawn()
    values[7, 100] = value
    result = computed(CASES["times weights"], values, weights, 2)
    assert not np.isfinite(result[7]).all()
    assert np.isfinite(np.delete(result, 7, 0)).all()


@pytest.mark.slow
def test_an_epsilon_below_zero_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "EPSILON", np.float32(-1))
    with pytest.raises(EngineError, match="eps"):
        computed(CASES["alone"], *CASES["alone"].drawn(), 2)
