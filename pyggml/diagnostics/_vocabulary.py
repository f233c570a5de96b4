"""The vocabulary of a model, as the engine reads it."""

from __future__ import annotations

from pyggml import families
from pyggml._native.model import Model
from pyggml.diagnostics.report import SpecialToken, VocabularyReport
from pyggml.errors import TokenizerError
from pyggml.families import Family

_ROLES = ("bos", "eos", "eot", "sep", "nl", "pad", "mask")
_INFILL_ROLES = ("fim_pre", "fim_suf", "fim_mid", "fim_pad", "fim_rep", "fim_sep")


def vocabulary_of(model: Model, family: Family, pre_tokenizer: str, tokenizer: str | None = None) -> VocabularyReport:
    """The vocabulary of a model that the engine has read; the other arguments are as in the report."""
    vocab = model.vocab
    ids = {role: getattr(vocab, role) for role in (*_ROLES, *_INFILL_ROLES)}
    try:
        stop_tokens = families.stop_tokens(model, family)
    except TokenizerError:  # there is none
        stop_tokens = {}
    return VocabularyReport(
        type=vocab.type,
        pre_tokenizer=pre_tokenizer,
        n_tokens=vocab.n_tokens,
        special={
            role: SpecialToken(i, vocab.text(i)) for role, i in ids.items() if i is not None and i < vocab.n_tokens
        },
        stop_tokens=stop_tokens,
        add_bos=vocab.add_bos,
        add_eos=vocab.add_eos,
        tokenizer=tokenizer,
    )
