"""The vocabulary of a model, as the engine reads it."""

from __future__ import annotations

from pyggml import families
from pyggml._native.model import Model
from pyggml._native.vocab import Vocab
from pyggml.diagnostics.report import SpecialToken, VocabularyReport
from pyggml.errors import TokenizerError
from pyggml.families import Family

_PARTS = (
    "bos",
    "eos",
    "eot",
    "sep",
    "nl",
    "pad",
    "mask",
    "fim_pre",
    "fim_suf",
    "fim_mid",
    "fim_pad",
    "fim_rep",
    "fim_sep",
)


def vocabulary_of(model: Model, family: Family, pre_tokenizer: str, tokenizer: str | None = None) -> VocabularyReport:
    """The vocabulary of a model that the engine has read; the other arguments are as in the report."""
    vocab = model.vocab
    return VocabularyReport(
        type=vocab.type,
        pre_tokenizer=pre_tokenizer,
        n_tokens=vocab.n_tokens,
        special=special_tokens(vocab),
        stop_tokens=stop_tokens(model, family),
        add_bos=vocab.add_bos,
        add_eos=vocab.add_eos,
        tokenizer=tokenizer,
    )


def special_tokens(vocab: Vocab) -> dict[str, SpecialToken]:
    """Role -> token, for the roles that the engine knows."""
    ids = {part: getattr(vocab, part) for part in _PARTS}
    return {part: SpecialToken(i, vocab.text(i)) for part, i in ids.items() if i is not None and i < vocab.n_tokens}


def stop_tokens(model: Model, family: Family) -> dict[int, str]:
    """The tokens that end a generation; empty if none does."""
    try:
        return families.stop_tokens(model, family)
    except TokenizerError:
        return {}
