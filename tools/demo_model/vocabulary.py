"""The shipped model's tokenizer: byte-level BPE with digits kept apart."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from .corpus import END_OF_TEXT, END_OF_TURN, START_OF_TURN, Document

PRE_TOKENIZER = "smollm"
"""The engine's name for the pre-tokenizer built below: single digits, then GPT-2's pattern."""

SPECIAL_TOKENS = (END_OF_TEXT, START_OF_TURN, END_OF_TURN)


@dataclass(frozen=True)
class EncodedDocument:
    """Token ids of a document, with a flag per token: whether the model has to write it itself."""

    ids: list[int]
    own: list[bool]
    is_chat: bool


def train_tokenizer(texts: Iterable[str], n_vocab: int) -> Tokenizer:
    """A tokenizer of exactly ``n_vocab`` tokens. Each of the 256 bytes is one, so any text has token ids.

    Raises:
        ValueError: If the texts are too few to fill the vocabulary.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\p{N}"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=n_vocab,
        min_frequency=2,
        show_progress=False,
        special_tokens=[AddedToken(token, special=True) for token in SPECIAL_TOKENS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    tokenizer.train_from_iterator(texts, trainer)
    if tokenizer.get_vocab_size() != n_vocab:
        raise ValueError(f"the corpus filled {tokenizer.get_vocab_size()} of {n_vocab} tokens: lower n_vocab")
    return tokenizer


def special_id(tokenizer: Tokenizer, token: str) -> int:
    """The id of one of :data:`SPECIAL_TOKENS`."""
    found = tokenizer.token_to_id(token)
    if found is None:
        raise KeyError(token)
    return int(found)


def merges(tokenizer: Tokenizer) -> list[str]:
    """The merges in order of rank, each as "left right"."""
    return [" ".join(pair) for pair in json.loads(tokenizer.to_str())["model"]["merges"]]


def encode(tokenizer: Tokenizer, document: Document) -> EncodedDocument:
    """Token ids of a document, each segment encoded for itself as the engine sees prompt and answer apart."""
    ids: list[int] = []
    own: list[bool] = []
    for segment in document.segments:
        piece = tokenizer.encode(segment.text, add_special_tokens=False).ids
        ids += piece
        own += [segment.own] * len(piece)
    return EncodedDocument(ids, own, document.is_chat)
