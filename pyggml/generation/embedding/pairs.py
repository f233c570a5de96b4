"""Pairs of a query and a document as token ids, as a reranker expects them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pyggml._core.cached_property import cached_property
from pyggml._core.checks import shown
from pyggml._native.model import Model
from pyggml._native.token_batch import TokenBatch
from pyggml.errors import ContextOverflowError, InvalidParameterError
from pyggml.generation.embedding.texts import TextReader, as_list
from pyggml.tokenizer import Tokenizer

#: A document: text, or a mapping with its text under "text".
Document = str | Mapping[str, Any]
LongDocuments = Literal["refuse", "truncate", "windows"]

_QUERY, _DOCUMENT = "{query}", "{document}"
# Neighbouring windows of a document share a quarter of their tokens, so that few sentences are cut in all windows.
_STEP = 0.75


class PairReader:
    """Converts pairs of a query and a document to token ids.

    Each pair is formatted by the model's "rerank" template, whose special tokens are interpreted, with the caller's
    texts, whose are not. Without one, it is BOS query EOS SEP document EOS, with only those special tokens that the
    vocabulary adds to texts. BERT's vocabulary has no EOS but ends a text with SEP, so that a single SEP separates the
    two.
    """

    def __init__(self, model: Model, tokenizer: Tokenizer, texts: TextReader, second_text_ids: int | None) -> None:
        """Read for a model, which the caller keeps open, with the limits of its reader of texts.

        ``second_text_ids`` as in :class:`~pyggml.options.embedding_profile.EmbeddingProfile`.
        """
        self._model, self._tokenizer, self._texts = model, tokenizer, texts
        self._second_text_ids = second_text_ids or 0

    def read(self, query: str, documents: Iterable[Document], long: LongDocuments) -> tuple[TokenBatch, list[int]]:
        """Return the token ids of the pairs, and the number of pairs of each document.

        Args:
            query: the query.
            documents: the documents.
            long: what to do with documents that are too long: see :meth:`LLM.rerank <pyggml.LLM.rerank>`.

        Raises:
            ContextOverflowError: a pair is too long.
            InvalidParameterError: a document is not text.
        """
        texts = [_text(index, each) for index, each in enumerate(as_list("documents", documents))]
        pairs: list[list[list[int]]] = [[pair] for pair in self._pairs(query, texts)]
        for index, (pair,) in enumerate(pairs):
            if long == "refuse" or len(pair) <= self._texts.limit:
                ways = ['pass long_documents="windows" or "truncate"']
                self._texts.require_fitting(f"the query with document {index}", len(pair), ways)
            else:
                windows = self._windows(query, index, texts[index])
                pairs[index] = windows if long == "windows" else windows[:1]
        return TokenBatch.join(pair for each in pairs for pair in each), [len(each) for each in pairs]

    # --- inside -----------------------------------------------------------------------------------------------

    def _pairs(self, query: str, documents: list[str]) -> list[list[int]]:
        if not documents:
            return []
        if self._template is None:
            return self._joined(query, self._plain(documents))
        return self._filled(query, documents)

    def _windows(self, query: str, index: int, document: str) -> list[list[int]]:
        """Return pairs of the query with overlapping parts of a document that is too long."""
        limit = self._texts.limit
        (ids,), (empty,) = self._plain([document]), self._pairs(query, [""])
        n_window = limit - len(empty)
        while n_window > 0:
            step = max(1, int(n_window * _STEP))
            starts = range(0, max(1, len(ids) - n_window + step), step)
            pairs = self._pairs_of_ids(query, [ids[start : start + n_window] for start in starts])
            excess = max(map(len, pairs)) - limit
            if excess <= 0:
                return pairs
            n_window -= excess  # text that was cut off may be tokenized to more tokens than before
        raise ContextOverflowError(
            f"the query has {len(empty)} tokens with those around it, and {limit} are the limit of a pair, so nothing "
            f"of document {index} fits: shorten the query"
        )

    def _pairs_of_ids(self, query: str, documents: list[list[int]]) -> list[list[int]]:
        if self._template is not None:
            return self._filled(query, [self._tokenizer.decode(ids) for ids in documents])
        return self._joined(query, documents)

    def _joined(self, query: str, documents: list[list[int]]) -> list[list[int]]:
        before, after = self._around(query)
        shift = self._second_text_ids  # a model that tells the texts apart has other ids for the second one
        return [before + [token_id + shift for token_id in (*ids, *after)] for ids in documents]

    @cached_property
    def _template(self) -> str | None:
        return self._model.chat_template("rerank")

    def _around(self, query: str) -> tuple[list[int], list[int]]:
        """Return the tokens before and after the document."""
        vocab = self._model.vocab
        around = self._tokenizer.encode("")
        bos = around[:1] if vocab.add_bos else []
        end = around[len(bos) :]
        ends_with_sep = vocab.eos is None and end == [vocab.sep]
        sep = [vocab.sep] if vocab.add_sep and vocab.sep is not None and not ends_with_sep else []
        return [*bos, *self._plain([query])[0], *end, *sep], end

    def _filled(self, query: str, documents: list[str]) -> list[list[int]]:
        """Fill the template with the query and each document."""
        vocab, template = self._model.vocab, self._template or ""
        template_ids = self._tokenizer.encode(template, add_special=False, parse_special=True)
        special = {vocab.text(token_id): token_id for token_id in template_ids if vocab.is_control(token_id)}
        bos = [vocab.bos] if vocab.add_bos and vocab.bos is not None and template_ids[:1] != [vocab.bos] else []
        pairs = [list(bos) for _ in documents]
        longest_first = sorted(special, key=len, reverse=True)
        parts = re.split("(" + "|".join(map(re.escape, longest_first)) + ")", template) if special else [template]
        for part in filter(None, parts):
            if part in special:
                found = [[special[part]]] * len(documents)
            elif _DOCUMENT in part:
                found = self._plain([_with_values(part, query, document) for document in documents])
            else:
                found = self._plain([_with_values(part, query, "")]) * len(documents)
            for pair, ids in zip(pairs, found, strict=True):
                pair += ids
        return pairs

    def _plain(self, texts: list[str]) -> list[list[int]]:
        """Encode a caller's texts without interpreting special tokens."""
        encoded = self._tokenizer.encode_batch(texts, add_special=False, parse_special=False)
        return [ids.tolist() for ids in encoded.split()]


def _with_values(part: str, query: str, document: str) -> str:
    values = {_QUERY: query, _DOCUMENT: document}
    return re.sub("|".join(map(re.escape, values)), lambda found: values[found[0]], part)


def _text(index: int, document: object) -> str:
    text = document.get("text") if isinstance(document, Mapping) else document
    if not isinstance(text, str):
        raise InvalidParameterError(f'documents[{index}] must be text, or a mapping with "text", not {shown(document)}')
    return text
