"""Notes and warnings on an imported model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyggml import quant
from pyggml._native.model import TOKENIZER_JSON
from pyggml.importer.plan import ImportPlan
from pyggml.importer.vocabulary import Vocabulary
from pyggml.quant import GGMLType
from pyggml.units import bytes_text


def conversion_notes(plan: ImportPlan, types: Sequence[GGMLType], vocabulary: Vocabulary) -> tuple[str, ...]:
    """Return all notes on a model whose tensors become these types."""
    return (
        *plan.notes,
        *_rounding_note(plan, types),
        *_size_note(plan, types),
        *([] if vocabulary.difference is None else [_tokenizer_note(vocabulary.difference)]),
        *vocabulary.notes,
    )


def conversion_warnings(plan: ImportPlan, types: Sequence[GGMLType]) -> tuple[str, ...]:
    """Return the notes that are logged as warnings during an import."""
    return (*plan.notes, *_size_note(plan, types))


def _rounding_note(plan: ImportPlan, types: Sequence[GGMLType]) -> Iterator[str]:
    """Note quantised weights that no type represents exactly."""
    exact = (tensor.weight.in_type(type) for tensor, type in zip(plan.tensors, types, strict=True))
    errors = [weight.error for weight in exact if weight is not None and weight.error]
    if errors:
        largest = max(errors)
        yield f"{len(errors)} quantised tensors are not exact: the largest relative error of a weight is {largest:.1e}"


def _size_note(plan: ImportPlan, types: Sequence[GGMLType]) -> Iterator[str]:
    """Note weights that become floats for accuracy, with the size of the smaller alternative."""
    grown = [
        (quant.nbytes(type, tensor.shape), tensor.weight.compact, tensor.shape)
        for tensor, type in zip(plan.tensors, types, strict=True)
        if type == tensor.weight.type
    ]
    smaller = [(n, compact.type, shape) for n, compact, shape in grown if compact is not None]
    if not smaller:
        return
    type = smaller[0][1].name.lower()
    now, then = sum(n for n, _, _ in smaller), sum(quant.nbytes(compact, shape) for _, compact, shape in smaller)
    yield (
        f"{len(smaller)} tensors of integers with zero points take {bytes_text(now)} as floats, which keep the "
        f"checkpoint's accuracy; outtype {type!r} of pyggml.convert keeps the same integers in {bytes_text(then)}, "
        "but the engine then rounds activations to 8 bits, and all other matrices are quantised as well"
    )


def _tokenizer_note(difference: str) -> str:
    return (
        f"the file carries the model's own tokenizer ({TOKENIZER_JSON}), which encodes texts when pyggml loads it; "
        f"programs that ignore it will encode some texts differently: {difference}"
    )
