"""Model families. Each file declares one: how it is recognised, its stop tokens, how it is imported, its names.

To add a family, add a file, for an encoder in ``encoders/``. Every :class:`Family` in a file whose name does not begin
with an underscore belongs to :data:`FAMILIES`. Everything else is derived from there; no code outside these files
mentions a family by name. :func:`of_model`, :func:`of_gguf` and :func:`of_config` detect a model's family.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

from pyggml.families import encoders
from pyggml.families._detection import Detector, Match
from pyggml.families._family import GENERIC, Family, Kind, Signs, Variant
from pyggml.families._heads import CLASSIFIER, SCORED_TOKENS, SECOND_TEXT
from pyggml.families._layout import Architecture, Layout, Sizes, Tensor
from pyggml.families._stop_tokens import STOP_TOKEN_IDS, stop_tokens
from pyggml.families._variants import variant_of

__all__ = [
    "CLASSIFIER",
    "FAMILIES",
    "GENERIC",
    "KINDS",
    "LAYOUTS",
    "REFUSED",
    "SCORED_TOKENS",
    "SECOND_TEXT",
    "SOFTMAX_HEADS",
    "STOP_TOKEN_IDS",
    "Architecture",
    "Family",
    "Kind",
    "Layout",
    "Match",
    "Signs",
    "Sizes",
    "Tensor",
    "Variant",
    "kind_of",
    "of_config",
    "of_gguf",
    "of_model",
    "of_vocabulary",
    "stop_tokens",
    "variant_of",
]


def _declared() -> Iterator[Family]:
    for file in pkgutil.walk_packages(__path__, f"{__name__}."):
        if not file.name.rpartition(".")[2].startswith("_"):
            values = vars(importlib.import_module(file.name)).values()
            yield from (value for value in values if isinstance(value, Family))


#: All families; where several fit a model, the first one is preferred.
FAMILIES: tuple[Family, ...] = tuple(sorted(_declared(), key=lambda family: (-family.precedence, family.name)))

#: The layouts of checkpoints that can be imported.
LAYOUTS: tuple[Layout, ...] = tuple(
    dict.fromkeys(build for family in FAMILIES for build in family.builds if isinstance(build, Layout))
)

#: Architectures whose graph ends the outputs of a classification head with a softmax. No layout describes qwen3vl.
SOFTMAX_HEADS = frozenset({"qwen3vl", *(layout.architecture for layout in LAYOUTS if layout.gives_probabilities)})

#: Architectures that cannot be imported, with the reason.
REFUSED: tuple[Architecture, ...] = (
    *dict.fromkeys(build for family in FAMILIES for build in family.builds if build.refusal),
    *encoders.REFUSED,
)


def _kind(name: str) -> Kind:
    takes = [family for family in FAMILIES if name in family.classes]
    aliases = [alias for family in takes if name == family.classes[0] for alias in family.aliases]
    return Kind(name, tuple(sorted(takes, key=lambda family: family.needs_sign)), tuple(aliases))  # special cases last


#: The public classes.
KINDS: tuple[Kind, ...] = tuple(map(_kind, sorted({name for family in FAMILIES for name in family.classes})))


def kind_of(family: Family) -> Kind | None:
    """Return the most specific class for a family; None: a plain LLM.

    Args:
        family: the family.
    """
    return next((kind for kind in KINDS if kind.name in family.classes[:1]), None)


_DETECTOR = Detector(FAMILIES, GENERIC)
of_model = _DETECTOR.of_model
of_gguf = _DETECTOR.of_gguf
of_vocabulary = _DETECTOR.of_vocabulary
of_config = _DETECTOR.of_config
