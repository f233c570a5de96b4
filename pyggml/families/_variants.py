"""Detection of a model's variant within its family."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from pyggml.families._detection import words_of
from pyggml.families._family import GENERIC, Family, Variant


def variant_of(family: Family, names: Iterable[str], template: str, sizes: Mapping[str, object]) -> Variant:
    """Return the variant, or one with the title of the family if none fits; "" if the family is unknown.

    The strongest sign decides: a name, then the chat template, then the sizes, by the names in :class:`Variant`.

    Args:
        family: the family.
        names: the model's names.
        template: its chat template.
        sizes: its sizes, by the names in :class:`Variant`.
    """
    words = words_of(names)
    signs: tuple[Callable[[Variant], bool], ...] = (
        lambda variant: any(f" {name} " in words for name in variant.names),
        lambda variant: bool(variant.template) and variant.template in template,
        lambda variant: bool(variant.sizes) and all(sizes.get(name) in of for name, of in variant.sizes.items()),
    )
    for fits in signs:
        found = next(filter(fits, family.variants), None)
        if found is not None:
            return replace(found, kind=found.kind or family.variant_kind)
    return Variant("" if family is GENERIC else family.title, kind=family.variant_kind)
