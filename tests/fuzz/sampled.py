"""Texts by a grammar, sampled without a model: what follows is drawn, and mostly what comes to an end."""

from __future__ import annotations

import numpy as np
from support.checkpoints import models

import pyggml

MAX_TOKENS = 600
MAX_STRANGE = 0.05  # how often a token is drawn that is not one of those that come to an end
_N_TOKENS = models.N_BYTE_VOCAB
_LONGER = {models.TH: b"th", models.THE: b"the"}  # others are no text
_ENDING = b'"}],: 0123456789ntf'


class DeadEnd(AssertionError):
    """Nothing may follow what a grammar has allowed."""


def sampled(sampler: pyggml.Sampler, random: np.random.Generator) -> bytes | None:
    """A text that a sampler's grammar allows, over the byte vocabulary; None: it has not come to its end.

    The sampler is reset.

    Raises:
        DeadEnd: see there.
        InferError: the grammar cannot be followed.
    """
    sampler.reset()
    text = b""
    likely = np.zeros(_N_TOKENS, np.float32)
    likely[list(_ENDING)] = 3
    likely[models.EOS] = 6
    for _ in range(MAX_TOKENS):
        logits = likely + random.gumbel(size=_N_TOKENS).astype(np.float32) * (3 if random.random() < MAX_STRANGE else 1)
        after = sampler.apply(logits.astype(np.float32))
        best = int(after.token_ids[int(np.argmax(after.logits))])
        if not np.isfinite(after.logits.max()):
            raise DeadEnd(f"nothing may follow {text[-100:]!r}")
        if best in (models.EOS, models.EOT):
            return text
        sampler.accept(best)
        text += bytes([best]) if best < 256 else _LONGER.get(best, b"")
    return None
