"""What users should know about an imported model."""

from __future__ import annotations

from collections.abc import Sequence

from pyggml import quant
from pyggml._native.model import TOKENIZER_JSON
from pyggml.importer.plan import ImportPlan
from pyggml.importer.vocabulary import Vocabulary
from pyggml.quant import GGMLType
from pyggml.units import bytes_text


def notes_on(plan: ImportPlan, types: Sequence[GGMLType], vocabulary: Vocabulary) -> tuple[str, ...]:
    """Returns all there is to say about a model whose tensors become these types."""
    return (
        *plan.notes,
        *_losses(plan, types),
        *_growth(plan, types),
        *_differences(vocabulary),
        *vocabulary.notes,
    )


def warnings_about(plan: ImportPlan, types: Sequence[GGMLType]) -> tuple[str, ...]:
    """Returns what is worth a warning even to those who did not ask for a report."""
    return (*plan.notes, *_growth(plan, types))


def _losses(plan: ImportPlan, types: Sequence[GGMLType]) -> tuple[str, ...]:
    """A note on quantised weights that no type holds exactly."""
    exact = (tensor.weight.in_type(type) for tensor, type in zip(plan.tensors, types, strict=True))
    errors = [weight.error for weight in exact if weight is not None and weight.error]
    if not errors:
        return ()
    return (
        f"{len(errors)} quantised tensors are not exact: the largest relative error of a weight is {max(errors):.1e}",
    )


def _growth(plan: ImportPlan, types: Sequence[GGMLType]) -> tuple[str, ...]:
    """A note on weights that are floats for the sake of accuracy, and what they would be otherwise."""
    grown = [
        (quant.nbytes(type, tensor.shape), tensor.weight.compact, tensor.shape)
        for tensor, type in zip(plan.tensors, types, strict=True)
        if type == tensor.weight.type
    ]
    smaller = [(n, compact.type, shape) for n, compact, shape in grown if compact is not None]
    if not smaller:
        return ()
    type = smaller[0][1].name.lower()
    now, then = sum(n for n, _, _ in smaller), sum(quant.nbytes(compact, shape) for _, compact, shape in smaller)
    return (
        f"{len(smaller)} tensors of integers with zero points take {bytes_text(now)} as floats, which keep the "
        f"checkpoint's accuracy; outtype {type!r} of pyggml.convert keeps the same integers in {bytes_text(then)}, "
        "but the engine then rounds activations to 8 bits, and all other matrices are quantised as well",
    )


def _differences(vocabulary: Vocabulary) -> tuple[str, ...]:
    if vocabulary.difference is None:
        return ()
    return (
        f"the file carries the model's own tokenizer ({TOKENIZER_JSON}), which encodes texts when pyggml loads it; "
        f"programs that ignore it will encode some texts differently: {vocabulary.difference}",
    )
