"""Detection of a model's variant within its family."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyggml.families._detection import words_of
from pyggml.families._family import GENERIC, Family, Variant


def variant_of(family: Family, names: Iterable[str], template: str, sizes: Mapping[str, object]) -> str:
    """Return the title of the variant, or of the family if no variant fits; "" if the family is unknown.

    The strongest sign decides: a name, then the template, then the sizes.

    Args:
        family: the model's family.
        names: the model's names, from any source.
        template: its chat template.
        sizes: its sizes, by the names that :class:`Variant` lists.
    """
    words = words_of(names)

    def has_its_name(variant: Variant) -> bool:
        return any(f" {name} " in words for name in variant.names)

    def has_its_template(variant: Variant) -> bool:
        return bool(variant.template) and variant.template in template

    def has_its_sizes(variant: Variant) -> bool:
        wanted = variant.sizes.items()
        return bool(wanted) and all(sizes.get(name) in values for name, values in wanted)

    for fits in (has_its_name, has_its_template, has_its_sizes):
        found = next(filter(fits, family.variants), None)
        if found is not None:
            return found.title
    return "" if family is GENERIC else family.title
