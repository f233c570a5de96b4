"""Detection of a model's family by its architecture, its required tokens, and then its signs.

The candidates are the families of the architecture whose required tokens are in the vocabulary, or, if there are none,
those with one of their stop tokens in it: some files lack the token of the end of a turn. Among these, the strongest
sign wins: the name, then the chat template, then the family's own tokens, then the vocabulary size. In a tie, the first
in the list wins (which ``precedence`` decides); the others are kept as rivals: a user's choice of one is accepted.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyggml._core.checks import shown
from pyggml._native.model import Model
from pyggml._native.vocab import TokenAttr, TokenType, is_markup
from pyggml.errors import InvalidParameterError
from pyggml.families._family import Family, Signs
from pyggml.families._stop_tokens import named_ends

_NAME_KEYS = ("general.name", "general.basename", "general.finetune")
_CONFIG_NAME_KEYS = ("_name_or_path", "name_or_path")


@dataclass(frozen=True)
class Match:
    """The detected family of a model.

    Attributes:
        architecture: the architecture by the GGUF file, or the name that stands for it in a ``config.json``.
        family: the family.
        reasons: the evidence, each a clause: "its architecture is 'llama'".
        rivals: families that fit just as well.
    """

    architecture: str
    family: Family
    reasons: tuple[str, ...]
    rivals: tuple[Family, ...] = ()

    def among(self, families: Sequence[Family]) -> Family | None:
        """Return which of ``families`` the model belongs to; None if it belongs to another.

        A choice of one family is accepted if the model may belong to it. A choice among several does not decide which:
        without any sign, the model stays of no known family.

        Args:
            families: the families.
        """
        fitting = [family for family in families if family in (self.family, *self.rivals)]
        is_undecided = len(families) > 1 and self.family not in fitting
        if fitting and is_undecided and all(family.needs_sign for family in fitting):
            return self.family
        return next(iter(fitting), None)


@dataclass(frozen=True)
class _Traits:
    """A file's properties other than its architecture; ``has_token`` is None if the vocabulary is unknown."""

    names: str
    template: str
    n_vocab: int
    has_token: Callable[[str], bool] | None


class Detector:
    """Detector of a model's family."""

    def __init__(self, families: Sequence[Family], generic: Family) -> None:
        """Take the families, preferred ones first, and the fallback."""
        self._families = families
        self._generic = generic

    def of_model(self, model: Model) -> Match:
        """Return the family of a loaded model.

        Args:
            model: the model.
        """
        metadata, vocab = model.metadata, model.vocab
        named = named_ends(metadata)

        def has_token(text: str) -> bool:
            token_id = vocab.find(text)
            if token_id is None:
                return False
            return token_id in named or not is_markup(text, bool(vocab.attr(token_id) & TokenAttr.NORMAL))

        names, template = words_of(map(metadata.get, _NAME_KEYS)), model.chat_template() or ""
        return self._of_architecture(model.arch, _Traits(names, template, vocab.n_tokens, has_token))

    def of_gguf(self, metadata: Mapping[str, object]) -> Match:
        """Return the family of a GGUF file by its :attr:`metadata <pyggml.gguf.GGUFReader.metadata>`.

        Args:
            metadata: the file's metadata.
        """
        tokens = _sequence(metadata.get("tokenizer.ggml.tokens"))
        types: Iterable[int] = _sequence(metadata.get("tokenizer.ggml.token_type"))
        types = itertools.chain(types, itertools.repeat(TokenType.NORMAL))
        special = {
            text for text, kind in zip(tokens, types, strict=False) if not is_markup(text, kind == TokenType.NORMAL)
        }
        special |= {tokens[token_id] for token_id in named_ends(metadata) if 0 <= token_id < len(tokens)}
        return self.of_vocabulary(metadata, len(tokens), special.__contains__)

    def of_vocabulary(self, metadata: Mapping[str, object], n_vocab: int, has_token: Callable[[str], bool]) -> Match:
        """Return the family of a GGUF file, or of a model to import, whose vocabulary has already been read.

        Args:
            metadata: as for :meth:`of_gguf`; of ``tokenizer.*``, only the chat template is used.
            n_vocab: number of tokens.
            has_token: whether a text is a token that is more than plain text, such as a special token.
        """
        names, template = words_of(map(metadata.get, _NAME_KEYS)), str(metadata.get("tokenizer.chat_template", ""))
        traits = _Traits(names, template, n_vocab, has_token)
        return self._of_architecture(str(metadata.get("general.architecture", "")), traits)

    def of_config(self, config: Mapping[str, object], special_tokens: Collection[str] | None = None) -> Match:
        """Return the family of a Hugging Face model, by its ``model_type``, or else by its ``architectures``.

        Args:
            config: the content of its ``config.json``.
            special_tokens: texts of its tokenizer's special tokens; None: unknown. Several families share the
                ``model_type`` "llama", and only their tokens distinguish them reliably.

        Raises:
            InvalidParameterError: the config is not a mapping.
        """
        if not isinstance(config, Mapping):
            raise InvalidParameterError(
                f"config must be a mapping, such as the content of config.json, not {type(config).__name__}"
            )
        has_token = None if special_tokens is None else special_tokens.__contains__
        names = words_of(config.get(key) for key in _CONFIG_NAME_KEYS)
        traits = _Traits(names, "", _vocab_size(config), has_token)
        model_type = config.get("model_type")
        candidates = [f for f in self._families if any(build.model_type(model_type) for build in f.builds)]
        if not candidates:
            for name in _sequence(config.get("architectures")):
                fitting = [f for f in self._families if any(build.is_hf_architecture(name) for build in f.builds)]
                if fitting:
                    return self._best(fitting, traits, str(name), "architecture")
        return self._best(candidates, traits, str(model_type), "model_type")

    def _of_architecture(self, architecture: str, traits: _Traits) -> Match:
        candidates = [family for family in self._families if architecture in family.architectures]
        return self._best(candidates, traits, architecture, "architecture")

    def _best(self, candidates: Sequence[Family], traits: _Traits, name: str, kind: str) -> Match:
        reason = f"its {kind} is {shown(name)}"
        fitting = [family for family in candidates if _fits(family, traits)]
        fitting = fitting or [family for family in candidates if _has_an_end(family, traits)]
        strengths = {family.name: _strength(family.signs, traits) for family in fitting}
        likely = [family for family in fitting if any(strengths[family.name]) or not family.needs_sign]
        if len(candidates) == 1:
            likely = fitting  # no other family to confuse it with
        if not likely:
            return Match(name, self._generic, (reason, *_ambiguity(candidates, fitting)), tuple(fitting))
        best = max(strengths[family.name] for family in likely)
        first, *rivals = (family for family in likely if strengths[family.name] == best)
        return Match(name, first, (reason, *_reasons(first, traits)), tuple(rivals))


def _fits(family: Family, traits: _Traits) -> bool:
    return traits.has_token is None or all(map(traits.has_token, family.required_tokens))


def _has_an_end(family: Family, traits: _Traits) -> bool:
    """Check for one of its stop tokens, and for all required tokens that are not stop tokens."""
    if traits.has_token is None:
        return False
    others = (token for token in family.required_tokens if token not in family.stop_tokens)
    return any(map(traits.has_token, family.stop_tokens)) and all(map(traits.has_token, others))


def _ambiguity(candidates: Sequence[Family], fitting: Sequence[Family]) -> tuple[str, ...]:
    if fitting:
        return ("nothing shows which family of this architecture it belongs to",)
    return ("its vocabulary matches no family of this architecture",) if candidates else ()


def _strength(signs: Signs, traits: _Traits) -> tuple[bool, ...]:
    """The presence of each kind of sign, the strongest first."""
    return (
        _name_in(signs, traits) is not None,
        _template_in(signs, traits) is not None,
        traits.has_token is not None and bool(signs.tokens) and all(map(traits.has_token, signs.tokens)),
        traits.n_vocab in signs.n_vocab,
    )


def _reasons(family: Family, traits: _Traits) -> Iterator[str]:
    name, template = _name_in(family.signs, traits), _template_in(family.signs, traits)
    if name is not None:
        yield f"its name says {name!r}"
    if template is not None:
        yield f"its chat template has {template!r}"
    if traits.has_token is not None:
        tokens = family.required_tokens if _fits(family, traits) else filter(traits.has_token, family.stop_tokens)
        yield f"its vocabulary has {', '.join(map(repr, tokens))}"
    elif traits.n_vocab in family.signs.n_vocab:
        yield f"its vocabulary has {traits.n_vocab} tokens"


def _name_in(signs: Signs, traits: _Traits) -> str | None:
    return next((name for name in signs.names if f" {name} " in traits.names), None)


def _template_in(signs: Signs, traits: _Traits) -> str | None:
    return next((text for text in signs.template if text in traits.template), None)


def words_of(names: Iterable[object]) -> str:
    """Convert names to lower-case words, separated and surrounded by spaces."""
    texts = (name.lower() for name in names if isinstance(name, str))
    return f" {' '.join(re.findall('[a-z0-9]+', ' '.join(texts)))} "


def _vocab_size(config: Mapping[str, object]) -> int:
    text_config = config.get("text_config")  # in multimodal models
    inner = text_config.get("vocab_size") if isinstance(text_config, Mapping) else None
    size = config.get("vocab_size", inner)
    return size if isinstance(size, int) else 0


def _sequence(value: object) -> Sequence[Any]:
    if isinstance(value, np.ndarray):
        value = value.tolist()
    return value if isinstance(value, (list, tuple)) else ()
