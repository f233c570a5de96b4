"""Logprobs of a native request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from pyggml._core import c_calls
from pyggml._core.c_values import pointer
from pyggml._core.ffi import lib
from pyggml.types import TokenLogprob, TokenLogprobs

if TYPE_CHECKING:
    from pyggml._core.ffi import CData


def read(
    request: CData, token_ids: Sequence[int], first: int, n_top: int, *, of_prompt: bool = False
) -> list[TokenLogprobs]:
    """Read the logprobs of tokens that a ``pyg_request *`` has returned, or of its prompt's tokens.

    Args:
        request: the request.
        token_ids: the tokens.
        first: index of the first of them among the generated tokens; in the prompt, 0 means its second token.
        n_top: number of alternatives per token, as requested, at most the size of the vocabulary.
        of_prompt: the tokens are the prompt's.
    """
    n = len(token_ids)
    if n == 0:
        return []
    logprobs = np.empty(n, np.float32)
    top_ids, top = np.empty((n, n_top), np.int32), np.empty((n, n_top), np.float32)
    c_calls.call(
        lib.pyg_request_logprobs,
        request,
        of_prompt,
        first,
        n,
        pointer("float[]", logprobs),
        pointer("int32_t[]", top_ids.reshape(-1)),
        pointer("float[]", top.reshape(-1)),
    )
    rows = zip(top_ids.tolist(), top.tolist(), (top_ids >= 0).sum(axis=1).tolist(), strict=True)
    likeliest = [list(map(TokenLogprob, ids[:n_left], values[:n_left])) for ids, values, n_left in rows]
    return list(map(TokenLogprobs, token_ids, logprobs.tolist(), likeliest))
