"""Overrides of a quantisation mix: element types for tensors by regular expressions on their names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from pyggml import quant
from pyggml._core.checks import items, shown
from pyggml._native.quantization_mix import Choice
from pyggml.errors import InvalidParameterError
from pyggml.importer.plan import PlannedTensor
from pyggml.quant import GGMLType


class TypeOverrides:
    """The caller's ``tensor_types`` and ``keep``, of :func:`pyggml.convert` and :func:`pyggml.quantize`."""

    def __init__(self, tensor_types: Mapping[str, str] | None = None, keep: Iterable[str] = ()) -> None:
        """Validate both.

        Raises:
            InvalidParameterError: one of them is not of the right kind, or names a type or expression that is not one.
        """
        kept = items("keep", keep, "a list of regular expressions")
        tensor_types = {} if tensor_types is None else tensor_types
        if not isinstance(tensor_types, Mapping):
            message = f"tensor_types must map regular expressions to types, not be {shown(tensor_types)}"
            raise InvalidParameterError(message)
        self._types: list[tuple[re.Pattern[str], GGMLType | None]] = [
            *((_pattern(expression), None) for expression in kept),  # None: unchanged
            *((_pattern(expression), _element_type(type)) for expression, type in tensor_types.items()),
        ]

    def __bool__(self) -> bool:
        return bool(self._types)

    def type_of(self, tensor: PlannedTensor) -> GGMLType | None:
        """Return the overriding type for a tensor; None: the mix decides."""
        for pattern, type in self._types:
            if pattern.search(tensor.name):
                return tensor.weight.type if type is None else type
        return None

    def require_matches(self, tensors: Sequence[PlannedTensor], choices: Sequence[Choice]) -> None:
        """Check that every expression matches a tensor, to catch typos."""
        names = [tensor.name for tensor, choice in zip(tensors, choices, strict=True) if choice.is_mixed]
        for pattern, _ in self._types:
            if not any(map(pattern.search, names)):
                known = ", ".join(sorted({re.sub(r"\d+", "0", name) for name in names}))
                message = f"{pattern.pattern!r} matches no tensor that can be quantised; their names are {known}"
                raise InvalidParameterError(message)


def _pattern(expression: object) -> re.Pattern[str]:
    if not isinstance(expression, str):
        raise InvalidParameterError(f"a regular expression was expected, not {shown(expression)}")
    try:
        return re.compile(expression)
    except re.error as error:
        raise InvalidParameterError(f"{expression!r} is not a valid regular expression: {error}") from None


def _element_type(name: object) -> GGMLType:
    types = {type.name.lower(): type for type in quant.types() if type.is_convertible}
    type = types.get(name.lower()) if isinstance(name, str) else None
    if type is None:
        raise InvalidParameterError(f"{shown(name)} is not an element type; choose one of {', '.join(types)}")
    return type
