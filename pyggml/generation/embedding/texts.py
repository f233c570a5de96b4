"""Texts of a call as token ids: with a prompt, cut to a length, and checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from numbers import Integral
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from pyggml._core.c_values import int32_array
from pyggml._core.checks import choice, flag, integer, items, shown
from pyggml._native.model import Model
from pyggml._native.token_batch import Ids, TokenBatch
from pyggml.errors import ContextOverflowError, EmptyPromptError, InvalidParameterError
from pyggml.options.embedding_profile import EmbeddingProfile
from pyggml.tokenizer import Tokenizer

Text = str | Sequence[int] | npt.NDArray[np.integer[Any]]
TOO_SHORT = "shorten it"
TRUNCATE = "pass truncate=True"


@dataclass(frozen=True)
class ReadTexts:
    """Texts as token ids.

    Attributes:
        tokens: the token ids.
        n_prompt_tokens: tokens of the prompt at the beginning of each text, with the special tokens before it.
        n_truncated: number of texts that were cut off.
    """

    tokens: TokenBatch
    n_prompt_tokens: int
    n_truncated: int


class TextReader:
    """Converts texts to token ids as a model expects them."""

    def __init__(self, model: Model, tokenizer: Tokenizer, n_ctx: int, profile: EmbeddingProfile) -> None:
        """Read for a model, which the caller keeps open; ``n_ctx`` is the limit of a text."""
        self._model, self._tokenizer, self._n_ctx, self._profile = model, tokenizer, n_ctx, profile

    def read(
        self,
        texts: str | Iterable[Text],
        *,
        prompt_name: str | None = None,
        truncate: bool = False,
        max_tokens: int | None = None,
        parse_special: bool = True,
    ) -> ReadTexts:
        """Convert texts to token ids; arguments and errors as :meth:`LLM.embed <pyggml.LLM.embed>`."""
        limit, truncate = self._limit(max_tokens), flag("truncate", truncate)
        prompt = self.prompt(prompt_name)
        given = as_list("texts", texts)
        if prompt_name is not None and not all(isinstance(text, str) for text in given):
            raise InvalidParameterError(
                f"prompt_name={prompt_name!r} needs texts, and some are token ids: put those of the prompt before them"
            )
        tokens = self._tokens(given, prompt, parse_special)
        self._require_tokens(tokens.lengths)
        too_long = np.flatnonzero(tokens.lengths > limit)
        if len(too_long) and truncate:
            tokens = self._truncated(tokens, limit, too_long)
        elif len(too_long):
            index = int(too_long[0])
            raise self._overflow(f"texts[{index}]", int(tokens.lengths[index]), limit, max_tokens is None)
        n_prompt = 0 if self._profile.include_prompt or not prompt else self._n_prompt_tokens(prompt)
        return ReadTexts(tokens, n_prompt, len(too_long) if truncate else 0)

    def prompt(self, name: str | None) -> str:
        """Return the text in front of each text.

        Args:
            name: its name; None: the model's default.

        Raises:
            InvalidParameterError: the model has no such prompt.
        """
        prompts = self._profile.prompts
        if name is None:
            return prompts.get(self._profile.default_prompt or "", "")
        if not prompts:
            raise InvalidParameterError(
                f"prompt_name={shown(name)}: the model's file has no prompts ({self._model.path}). Put the text that "
                "the model's card names before each text"
            )
        return prompts[choice("prompt_name", name, prompts)]

    def truncated(self, ids: Ids, limit: int) -> Ids:
        """Drop the end of a text that is too long, but keep the special tokens after it, which models rely on."""
        if len(ids) <= limit:
            return ids
        n_end = len(ids) - self._model.vocab.inside(ids).stop
        return np.concatenate([ids[: max(0, limit - n_end)], ids[len(ids) - n_end :]])[:limit]

    def require_fitting(self, name: str, n_tokens: int, ways: Sequence[str] = ()) -> None:
        """Refuse a text that is longer than the context or than the model's limit.

        Args:
            name: the text's name in the message.
            n_tokens: its length.
            ways: what the caller could do besides shortening it.
        """
        limit = self.limit
        if n_tokens > limit:
            raise self._overflow(name, n_tokens, limit, True, ways)

    @property
    def limit(self) -> int:
        """The most tokens of a text: of the model's file, at most the context's."""
        return min(self._profile.max_tokens or self._n_ctx, self._n_ctx)

    # --- inside -----------------------------------------------------------------------------------------------

    def _limit(self, max_tokens: int | None) -> int:
        return self.limit if max_tokens is None else integer("max_tokens", max_tokens, 1, self._n_ctx)

    def _tokens(self, texts: list[Any], prompt: str, parse_special: bool) -> TokenBatch:
        if not texts:
            return TokenBatch(np.empty(0, np.int32), np.empty(0, np.int32))
        strings = {index: text for index, text in enumerate(texts) if isinstance(text, str)}
        if self._profile.lowercase:
            strings = {index: text.lower() for index, text in strings.items()}
        encoded = self._encoded(strings, prompt, parse_special)
        if len(strings) == len(texts):
            return encoded
        rows = dict(zip(strings, encoded.split(), strict=True))
        return TokenBatch.join(rows[i] if i in rows else self._checked_ids(i, each) for i, each in enumerate(texts))

    def _encoded(self, texts: Mapping[int, str], prompt: str, parse_special: bool) -> TokenBatch:
        given = [prompt + text for text in texts.values()] if prompt else list(texts.values())
        return self._tokenizer.encode_batch(given, parse_special=parse_special)

    def _checked_ids(self, index: int, ids: Any) -> Ids:
        if isinstance(ids, (bytes, Mapping)) or not isinstance(ids, Sized):
            way_out = "; for one text of token ids, write [[1, 2, 3]]" if isinstance(ids, Integral) else ""
            raise InvalidParameterError(
                f"texts[{index}] must be text or a list of token ids, not {shown(ids)}{way_out}"
            )
        found = int32_array(f"texts[{index}]", cast("npt.ArrayLike", ids))
        outside = np.flatnonzero((found < 0) | (found >= self._model.vocab.n_tokens))
        if len(outside):
            raise InvalidParameterError(
                f"token id {found[outside[0]]} at index {outside[0]} of texts[{index}] is outside the vocabulary, 0 to "
                f"{self._model.vocab.n_tokens - 1}"
            )
        return found

    @staticmethod
    def _require_tokens(lengths: Ids) -> None:
        empty = np.flatnonzero(lengths == 0)
        if len(empty):
            raise EmptyPromptError(f"texts[{empty[0]}] has no tokens; pass some text or token ids")

    def _truncated(self, tokens: TokenBatch, limit: int, too_long: npt.NDArray[np.intp]) -> TokenBatch:
        rows = tokens.split()
        for index in too_long.tolist():
            rows[index] = self.truncated(rows[index], limit)
        return TokenBatch.join(rows)

    def _overflow(
        self, name: str, n_tokens: int, limit: int, is_default: bool, ways: Sequence[str] = (TRUNCATE,)
    ) -> ContextOverflowError:
        if limit < min(n_tokens, self._n_ctx):
            whose = " of the model's file" if is_default else ""
            return ContextOverflowError(
                f"{name} has {n_tokens} tokens, more than max_tokens={limit}{whose}: {_alternatives(ways)}"
            )
        more = ["load with a larger n_ctx"] * (self._n_ctx < self._model.n_ctx_train)
        return ContextOverflowError(
            f"{name} has {n_tokens} tokens, but the context holds only {self._n_ctx}: {_alternatives([*ways, *more])}"
        )

    def _n_prompt_tokens(self, prompt: str) -> int:
        return len(self._tokenizer.encode(prompt)) - len(self._model.vocab.around[1])


def _alternatives(ways: Sequence[str]) -> str:
    *others, last = TOO_SHORT, *ways
    return f"{', '.join(others)}, or {last}" if others else last


def as_list(name: str, texts: str | Iterable[Any]) -> list[Any]:
    """Return texts as a list; a single text is a list of one.

    Raises:
        InvalidParameterError: they are neither.
    """
    return [texts] if isinstance(texts, str) else items(name, texts, "a text or a list of texts")
