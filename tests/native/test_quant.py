"""Arrays to and from every type of ggml, against numpy."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import pytest

from pyggml import ffi, lib
from pyggml._core import c_calls
from pyggml.errors import InvalidParameterError
from pyggml.quant import GGMLType, dequantize, nbytes, quantize, types

Floats = npt.NDArray[np.float32]

# Root mean square error of normally distributed values, relative to theirs, that each type stays below; about a
# tenth above what upstream's encoders reach. TQ1_0, TQ2_0 and Q2_0 are made for weights that are ternary or nearly.
RMS_BOUNDS = {
    GGMLType.Q1_0: 0.66,
    GGMLType.Q2_0: 0.79,
    GGMLType.Q4_0: 0.092,
    GGMLType.Q4_1: 0.079,
    GGMLType.Q5_0: 0.046,
    GGMLType.Q5_1: 0.039,
    GGMLType.Q8_0: 0.0059,
    GGMLType.Q2_K: 0.31,
    GGMLType.Q3_K: 0.165,
    GGMLType.Q4_K: 0.080,
    GGMLType.Q5_K: 0.040,
    GGMLType.Q6_K: 0.0196,
    GGMLType.IQ1_S: 0.58,
    GGMLType.IQ1_M: 0.65,
    GGMLType.IQ2_XXS: 0.41,
    GGMLType.IQ2_XS: 0.36,
    GGMLType.IQ2_S: 0.29,
    GGMLType.IQ3_XXS: 0.23,
    GGMLType.IQ3_S: 0.180,
    GGMLType.IQ4_NL: 0.084,
    GGMLType.IQ4_XS: 0.085,
    GGMLType.TQ1_0: 0.89,
    GGMLType.TQ2_0: 0.89,
    GGMLType.MXFP4: 0.129,
    GGMLType.NVFP4: 0.105,
}

QUANTIZED = list(RMS_BOUNDS)
UNCONVERTIBLE = [type for type in types() if not type.is_convertible]


def normal(shape: tuple[int, ...] = (8, 512), scale: float = 0.05) -> Floats:
    return (np.random.default_rng(0).standard_normal(shape) * scale).astype(np.float32)


def importances(type: GGMLType, n: int = 512) -> Floats | None:
    return np.ones(n, np.float32) if type.needs_imatrix else None


def relative_rms(values: Floats, decoded: Floats, weights: Floats | None = None) -> float:
    error, size = values - decoded, values
    if weights is not None:
        error, size = error * np.sqrt(weights), size * np.sqrt(weights)
    return float(np.linalg.norm(error) / np.linalg.norm(size))


def test_every_type_of_the_engine_is_there() -> None:
    constants = ffi.typeof("enum ggml_type").relements
    names = {name.removeprefix("GGML_TYPE_"): n for name, n in constants.items() if name != "GGML_TYPE_COUNT"}
    assert {type.name: int(type) for type in types()} == names


def test_what_types_tell() -> None:
    facts = {type: (type.block_size, type.block_bytes, type.is_quantized) for type in types()}
    assert facts[GGMLType.F32] == (1, 4, False)
    assert facts[GGMLType.BF16] == (1, 2, False)
    assert facts[GGMLType.I64] == (1, 8, False)
    assert facts[GGMLType.Q4_0] == (32, 18, True)
    assert facts[GGMLType.Q4_K] == (256, 144, True)
    assert facts[GGMLType.MXFP4] == (32, 17, True)
    assert {type for type in types() if type.needs_imatrix} == {GGMLType.IQ2_XXS, GGMLType.IQ2_XS, GGMLType.IQ1_S}
    assert {type.name for type in UNCONVERTIBLE} == {"I8", "I16", "I32", "I64", "F64", "Q8_1", "Q8_K"}
    for type in types():
        assert type.dtype.itemsize == (1 if type.is_quantized else type.block_bytes)


def test_nbytes() -> None:
    assert nbytes(GGMLType.F32, (3, 5)) == 60
    assert nbytes(GGMLType.Q4_0, (7, 64)) == 7 * 2 * 18
    assert nbytes(GGMLType.Q4_K, (2, 3, 512)) == 6 * 2 * 144
    assert nbytes(GGMLType.Q8_K, (256,)) == 292
    assert nbytes(GGMLType.I8, (0, 5)) == 0
    for shape in ((33,), (32, 33), (), (-32,)):
        with pytest.raises(InvalidParameterError):
            nbytes(GGMLType.Q8_0, shape)


@pytest.mark.slow_except(every=2)
@pytest.mark.parametrize(
    "type",
    [pytest.param(type, marks=pytest.mark.slow if type.name in ("IQ1_S", "IQ2_S") else ()) for type in QUANTIZED],
    ids=lambda type: type.name,
)
def test_round_trip(type: GGMLType) -> None:
    values = normal()
    encoded = quantize(values, type, importances(type))
    assert encoded.dtype == np.uint8
    assert encoded.shape == (8, 512 // type.block_size * type.block_bytes)
    decoded = dequantize(encoded, type, values.shape)
    assert decoded.dtype == np.float32
    assert decoded.shape == values.shape
    bound = RMS_BOUNDS[type]
    assert 0.75 * bound < relative_rms(values, decoded) < bound  # from below: the types are what they claim to be


@pytest.mark.slow_except("Q4_0", "Q6_K")
@pytest.mark.parametrize("type", QUANTIZED, ids=lambda type: type.name)
def test_rows_are_encoded_one_by_one(type: GGMLType) -> None:
    values = normal((2, 3, 512))
    encoded = quantize(values, type, importances(type))
    assert encoded.shape == (2, 3, nbytes(type, (512,)))
    for i, j in np.ndindex(2, 3):
        np.testing.assert_array_equal(encoded[i, j], quantize(values[i, j], type, importances(type)))
    decoded = dequantize(encoded, type, values.shape)
    np.testing.assert_array_equal(decoded[1, 2], dequantize(encoded[1, 2], type, (512,)))


@pytest.mark.slow_except("Q4_0", "Q6_K")
@pytest.mark.parametrize("type", QUANTIZED, ids=lambda type: type.name)
def test_zeros_stay_zeros(type: GGMLType) -> None:
    zeros = np.zeros((1, 512), np.float32)
    np.testing.assert_array_equal(dequantize(quantize(zeros, type, importances(type)), type, zeros.shape), zeros)


def test_f32_is_the_array_itself() -> None:
    values = np.array([[0.1, -0.0, np.nan, np.inf, 1e-45]], np.float32)
    encoded = quantize(values, GGMLType.F32)
    assert encoded.tobytes() == values.tobytes()
    assert dequantize(encoded, GGMLType.F32, (1, 5)).tobytes() == values.tobytes()


def test_f16_is_numpys() -> None:
    values = normal((64, 64), 100)
    values[0, :8] = [0, -0.0, np.inf, -np.inf, 65504, -65504, 1e-8, 6e-8]
    expected = values.astype(np.float16)
    encoded = quantize(values, GGMLType.F16)
    np.testing.assert_array_equal(encoded.view(np.float16), expected, strict=True)
    np.testing.assert_array_equal(dequantize(encoded, GGMLType.F16, values.shape), expected.astype(np.float32))
    assert np.isnan(dequantize(quantize([np.nan], GGMLType.F16), GGMLType.F16, (1,)))[0]


def test_bf16_is_rounded_to_nearest_even() -> None:
    values = normal((64, 64), 100)
    values[0, :6] = [0, -0.0, np.inf, -np.inf, 3e38, 1e-30]
    bits = values.view(np.uint32).astype(np.uint64)
    expected = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    encoded = quantize(values, GGMLType.BF16)
    np.testing.assert_array_equal(encoded.view(np.uint16), expected, strict=True)
    decoded = (expected.astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_array_equal(dequantize(encoded, GGMLType.BF16, values.shape), decoded, strict=True)


def test_q8_0_is_what_the_format_says() -> None:
    """Blocks of an F16 scale, the largest magnitude over 127, and 32 signed bytes."""
    values = normal()
    blocks = quantize(values, GGMLType.Q8_0).reshape(-1, 34)
    scales = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    decoded = scales * blocks[:, 2:].view(np.int8)
    np.testing.assert_array_equal(
        dequantize(blocks, GGMLType.Q8_0, values.shape), decoded.reshape(values.shape), strict=True
    )
    largest = np.abs(values).reshape(-1, 32).max(axis=1, keepdims=True)
    np.testing.assert_allclose(scales, largest / 127, rtol=2**-11)
    # Half a step, and what the scale's own rounding adds at the far end.
    assert (np.abs(decoded - values.reshape(-1, 32)) <= scales * 0.5 + largest * 2**-11).all()


def test_q4_0_is_what_the_format_says() -> None:
    """Blocks of an F16 scale and 16 bytes: low halves are values 0 to 15, high halves 16 to 31, each minus 8."""
    random = np.random.default_rng(1)
    scales = random.standard_normal((64, 1)).astype(np.float16)
    halves = random.integers(0, 256, (64, 16), np.uint8)
    blocks = np.concatenate([scales.view(np.uint8), halves], axis=1)
    numbers = np.concatenate([halves & 15, halves >> 4], axis=1).astype(np.float32) - 8
    decoded = dequantize(blocks, GGMLType.Q4_0, (64, 32))
    np.testing.assert_array_equal(decoded, scales.astype(np.float32) * numbers, strict=True)


@pytest.mark.slow_except("2", "12")
@pytest.mark.parametrize("type", [GGMLType.Q4_0, GGMLType.Q4_K, GGMLType.Q2_K, GGMLType.IQ3_S, GGMLType.IQ2_XS])
def test_importances_move_the_error_to_where_it_matters_less(type: GGMLType) -> None:
    values = normal()
    weights = np.where(np.arange(512) % 4 == 0, 100, 1).astype(np.float32)
    weighted = dequantize(quantize(values, type, weights), type, values.shape)
    even = dequantize(quantize(values, type, np.ones(512)), type, values.shape)
    assert relative_rms(values, weighted, weights) < 0.95 * relative_rms(values, even, weights)


@pytest.mark.parametrize("type", [type for type in types() if type.needs_imatrix], ids=lambda type: type.name)
def test_importances_that_are_needed(type: GGMLType) -> None:
    with pytest.raises(InvalidParameterError, match="importance matrix"):
        quantize(normal(), type)


@pytest.mark.parametrize(
    ("imatrix", "words"),
    [
        (np.ones(511), r"shape \(511,\)"),
        (np.ones((1, 512)), r"\(512,\)"),
        (np.full(512, -1.0), "importance 0 is -1"),
        (np.where(np.arange(512) == 7, np.nan, 1), "importance 7 is nan"),
        (np.full(512, np.inf), "importance 0 is inf"),
        (["a"] * 512, "real numbers"),
    ],
)
def test_refused_importances(imatrix: npt.ArrayLike, words: str) -> None:
    for type in (GGMLType.IQ2_XXS, GGMLType.Q4_K):
        with pytest.raises(InvalidParameterError, match=words):
            quantize(normal(), type, imatrix)


@pytest.mark.slow_except("Q4_0", "Q4_K", "Q6_K", "IQ4_NL")
@pytest.mark.parametrize("type", QUANTIZED, ids=lambda type: type.name)
def test_odd_importances_do_no_harm(type: GGMLType) -> None:
    for weights in (np.zeros(512), np.full(512, 1e-42), np.full(512, 1e20), np.eye(1, 512)[0]):
        decoded = dequantize(quantize(normal((1, 512)), type, weights), type, (1, 512))
        assert np.isfinite(decoded).all()


@pytest.mark.parametrize("type", UNCONVERTIBLE, ids=lambda type: type.name)
def test_refused_types(type: GGMLType) -> None:
    words = "intermediate type" if type.is_quantized else "plain numbers"
    with pytest.raises(InvalidParameterError, match=words):
        quantize(normal(), type)
    with pytest.raises(InvalidParameterError, match=words):
        dequantize(np.zeros(nbytes(type, (256,)), np.uint8), type, (256,))


@pytest.mark.parametrize("number", [4, 5, 31, 33, 36, 38, 43, 1000, -1])
def test_numbers_that_are_no_types(number: int) -> None:
    with pytest.raises(InvalidParameterError, match="not a ggml type"):
        quantize(normal(), number)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError, match="not a ggml type"):
        dequantize(np.zeros(4, np.uint8), number, (1,))  # type: ignore[arg-type]


@pytest.mark.slow_except("Q4_0", "Q4_K", "Q8_0", "IQ4_NL", "MXFP4", "NVFP4")
@pytest.mark.parametrize("type", QUANTIZED, ids=lambda type: type.name)
def test_refused_values(type: GGMLType) -> None:
    limit = {GGMLType.MXFP4: np.inf, GGMLType.NVFP4: 2688.0}.get(type, 32768.0)
    for bad in (np.nan, np.inf, -np.inf, limit * 1.01):
        values = normal((2, 512))
        values[1, 9] = bad
        with pytest.raises(InvalidParameterError, match=f"(?i)value 521 is .*{type.name} holds only finite"):
            quantize(values, type, importances(type))
    extreme = normal((1, 512))
    extreme[0, 0] = min(limit, 1e38)
    assert np.isfinite(dequantize(quantize(extreme, type, importances(type)), type, (1, 512))).all()


def test_values_too_large_for_floats() -> None:
    with pytest.raises(InvalidParameterError, match=r"65505.* f16 holds only finite values up to 65504"):
        quantize([0.0, 65505.0], GGMLType.F16)
    with pytest.raises(InvalidParameterError, match="bf16 holds only finite"):
        quantize(np.array([3.4e38], np.float32), GGMLType.BF16)
    with pytest.raises(InvalidParameterError, match="too large for float32"):
        quantize(np.array([1e39]), GGMLType.F32)


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((4, 33), np.float32), "blocks of 32"),
        (np.float32(1), "rows"),
        (np.zeros(32, complex), "real numbers"),
        (np.array(["a"] * 32), "real numbers"),
        (np.array([None] * 32), "real numbers"),
    ],
)
def test_refused_arrays(array: npt.ArrayLike, words: str) -> None:
    with pytest.raises(InvalidParameterError, match=words):
        quantize(array, GGMLType.Q8_0)


def test_arrays_of_any_layout_and_dtype() -> None:
    values = np.arange(-64, 64).reshape(2, 64)
    expected = quantize(values.astype(np.float32), GGMLType.Q8_0)
    for same in (
        values,
        values.astype(np.int8),
        values.astype(">f8"),
        values.tolist(),
        np.asfortranarray(values),
        np.repeat(values, 2, axis=1)[:, ::2],
    ):
        np.testing.assert_array_equal(quantize(same, GGMLType.Q8_0), expected)
    for shape in ((0, 64), (64, 0), (0,)):
        assert quantize(np.zeros(shape), GGMLType.Q8_0).size == 0
        assert dequantize(np.zeros(0, np.uint8), GGMLType.Q8_0, shape).shape == shape


def test_refused_data() -> None:
    encoded = quantize(normal((2, 64)), GGMLType.Q8_0)
    for wrong in (encoded[:, :-1], encoded[:1], np.zeros(0, np.uint8)):
        with pytest.raises(InvalidParameterError, match="take 136 bytes"):
            dequantize(wrong, GGMLType.Q8_0, (2, 64))
    with pytest.raises(InvalidParameterError, match="blocks of 32"):
        dequantize(encoded, GGMLType.Q8_0, (2, 63))


@pytest.mark.slow_except(every=2)
@pytest.mark.parametrize("type", QUANTIZED, ids=lambda type: type.name)
def test_any_bytes_decode_or_are_refused(type: GGMLType) -> None:
    random = np.random.default_rng(0)
    n_refused = 0
    for _ in range(300):
        data = random.integers(0, 256, type.block_bytes, np.uint8)
        try:
            assert np.isfinite(dequantize(data, type, (type.block_size,))).all()
        except InvalidParameterError:
            n_refused += 1
    assert n_refused < 150
    if type != GGMLType.NVFP4:  # all its scales are numbers
        ones = np.full(type.block_bytes, 0xFF, np.uint8)
        with pytest.raises(InvalidParameterError, match="decodes to"):
            dequantize(ones, type, (type.block_size,))


def test_many_threads_at_once() -> None:
    values = normal((4, 256))
    kinds = [GGMLType.Q4_K, GGMLType.IQ3_XXS, GGMLType.Q6_K, GGMLType.Q8_0] * 4
    expected = {type: quantize(values, type).tobytes() for type in set(kinds)}
    with ThreadPoolExecutor(8) as pool:
        for type, encoded in zip(kinds, pool.map(lambda type: quantize(values, type), kinds), strict=True):
            assert encoded.tobytes() == expected[type]


@pytest.mark.slow
def test_the_native_side_checks_for_itself() -> None:
    values, encoded = ffi.new("float[64]"), ffi.new("char[68]")
    for n_rows, n_per_row, size, words in (
        (2, 32, 67, "take 68 bytes, but 67"),
        (-1, 32, 68, "-1 rows"),
        (2, 33, 68, "blocks of 32"),
        (2**40, 2**40, 68, "not a possible shape"),
        (2**57, 32, 68, "take .* bytes, but 68"),
    ):
        with pytest.raises(InvalidParameterError, match=words):
            c_calls.call(lib.pyg_quantize, GGMLType.Q8_0, values, n_rows, n_per_row, ffi.NULL, encoded, size)
    for n, size in ((64, 67), (63, 68), (-32, 68), (2**62, 68)):
        with pytest.raises(InvalidParameterError):
            c_calls.call(lib.pyg_dequantize, GGMLType.Q8_0, encoded, size, n, values)
    for number in (-1, 4, 43, 2**31 - 1):
        with pytest.raises(InvalidParameterError, match="not the number of a ggml type"):
            c_calls.call(lib.pyg_dequantize, number, encoded, 68, 64, values)
