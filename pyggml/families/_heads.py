"""Heads of cross-encoders, which score a pair of texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pyggml.errors import UnsupportedArchitectureError
from pyggml.families._layout import Sizes
from pyggml.files.config import Config
from pyggml.files.weights import Plain, Reordered, Stacked, Weight
from pyggml.quant import GGMLType

#: The switch of models with such a head.
CLASSIFIER = "classifies"
#: The size of its output.
N_LABELS = "n_labels"
#: The key of the ids of the tokens whose logits score a pair: of one that is relevant, and of one that is not.
SCORED_TOKENS = "scored tokens"
#: The switch of models whose head is these tokens' rows of the output layer.
BY_TOKENS = "scores by tokens"
#: The number by which the ids of a pair's second text are higher, in a vocabulary that has all tokens twice.
SECOND_TEXT = "second_text_ids"

#: llama_pooling_type of a model with such a head.
_RANK = 4


def classifies(values: Mapping[str, Any]) -> bool:
    """Check whether a configuration's ``architectures`` name a classifier.

    Args:
        values: the configuration.
    """
    names = values.get("architectures")
    return isinstance(names, list) and any(str(name).endswith("ForSequenceClassification") for name in names)


def n_labels(config: Config) -> int:
    """Return the number of scores of a head; as in transformers, ``id2label`` counts them.

    Args:
        config: the configuration.
    """
    labels = config.get("id2label")
    config.get("label2id")
    if isinstance(labels, dict) and labels:
        return len(labels)
    return config.integer("num_labels", 2)


def require_one_score(config: Config, sizes: Sizes) -> None:
    """Reject a head that tells classes apart instead of scoring a pair.

    Args:
        config: the configuration.
        sizes: the model's sizes.

    Raises:
        UnsupportedArchitectureError: it has several scores.
    """
    n = sizes.of(N_LABELS)
    if n != 1:
        raise UnsupportedArchitectureError(
            f"{config.path}: this classifier has {n} labels (id2label); pyggml imports cross-encoders, whose head has "
            "one score for a pair of texts"
        )


def head_metadata(*labels: str) -> dict[str, Any]:
    """Return the metadata of a model whose graph ends with a head.

    Args:
        labels: names of its scores, the first of which counts.
    """
    return {"pooling_type": _RANK, "classifier.output_labels": list(labels)}


def beside_zero(weight: Weight, _sizes: Sizes) -> Weight:
    """Add a score that is always 0: the engine's softmax over both is then the sigmoid of the first.

    Args:
        weight: the head's one row.
    """
    zero = Plain(np.zeros((1, weight.n_cols), np.float32), GGMLType.F32)
    return Stacked([weight, zero])


def rows_of_tokens(weight: Weight, sizes: Sizes) -> Weight:
    """Keep the rows of the two scored tokens.

    Args:
        weight: the output layer.
        sizes: the model's sizes, with the ids of the tokens.
    """
    return Reordered(weight, np.array([sizes.of("relevant"), sizes.of("irrelevant")]))
