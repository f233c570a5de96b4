"""Engines that follow JSON schemas, behind one small interface, on one vocabulary.

Each engine gets the same vocabulary and the same token ids, so that only its grammars and masks are compared.
"""

from __future__ import annotations

import ctypes
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib import metadata
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

import pyggml
from pyggml.schema.grammar import EVERYTHING_VALID

Words = npt.NDArray[np.int32]


class Engine(ABC):
    """An engine, with the schema that it has compiled last.

    Attributes:
        name: its name, which is that of its package.
        mask: the last mask, (n_words,): bit i % 32 of word i // 32 is token i.
    """

    name: ClassVar[str]
    mask: Words

    @abstractmethod
    def __init__(self, model: pyggml.Model) -> None: ...

    @abstractmethod
    def compile(self, schema: Any) -> None:
        """Compile a schema, and go to the start of a text. Any exception means that it is refused."""

    @abstractmethod
    def start(self) -> None:
        """Go to the start of another text."""

    @abstractmethod
    def compute_mask(self) -> None:
        """Compute :attr:`mask`."""

    @abstractmethod
    def accept(self, token_id: int) -> None:
        """Advance by a token that the mask allows."""

    def allows(self, token_id: int) -> bool:
        """Return True if the mask has the token."""
        return bool(self.mask[token_id // 32] >> (token_id % 32) & 1)

    @classmethod
    def version(cls) -> str:
        """Version of the package."""
        return metadata.version(cls.name)


class Pyggml(Engine):
    """pyggml's matcher."""

    name = "pyggml"

    def __init__(self, model: pyggml.Model) -> None:
        self.model = model

    def compile(self, schema: Any) -> None:
        text = pyggml.grammar_of(schema, **EVERYTHING_VALID)
        self.grammar = pyggml.Grammar.compile(text, self.model)
        self.mask = np.zeros(self.grammar.n_mask_words, np.int32)
        self.start()

    def start(self) -> None:
        self.matcher = self.grammar.matcher()

    def compute_mask(self) -> None:
        self.matcher.mask(out=self.mask)

    def accept(self, token_id: int) -> None:
        self.matcher.accept(token_id)

    @classmethod
    def version(cls) -> str:
        return pyggml.__version__


class Llguidance(Engine):
    """Guidance's engine, as MaskBench drives it."""

    name = "llguidance"

    def __init__(self, model: pyggml.Model) -> None:
        import llguidance
        from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask

        self.library, self.fill = llguidance, fill_next_token_bitmask
        self.tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(_LlguidanceVocabulary(model.vocab)))
        self.masks = allocate_token_bitmask(1, self.tokenizer.vocab_size)
        self.mask = self.masks[0]

    def compile(self, schema: Any) -> None:
        grammar = json.dumps({"grammars": [{"json_schema": schema}]})
        self.first = self.matcher = self.library.LLMatcher(self.tokenizer, grammar)
        self._check()

    def start(self) -> None:
        self.matcher = self.first.deep_copy()

    def compute_mask(self) -> None:
        self.fill(self.matcher, self.masks, 0)
        self._check()

    def accept(self, token_id: int) -> None:
        self.matcher.consume_token(token_id)
        self._check()

    def _check(self) -> None:
        if self.matcher.is_error():
            raise ValueError(self.matcher.get_error())


class _LlguidanceVocabulary:
    """The attributes that it reads from a tokenizer."""

    def __init__(self, vocab: pyggml.Vocab) -> None:
        self.vocab = vocab
        self.tokens = [vocab.piece(i, special=True) for i in range(vocab.n_tokens)]
        self.special_token_ids = _special_ids(vocab)
        self.bos_token_id, self.eos_token_id = vocab.bos, end_of(vocab)

    def __call__(self, text: bytes | str) -> list[int]:
        return self.vocab.tokenize(text, add_special=False, parse_special=False)


class Xgrammar(Engine):
    """MLC's engine, with any white space, and members as the schema says: MaskBench's "compliant" mode."""

    name = "xgrammar"

    def __init__(self, model: pyggml.Model) -> None:
        import xgrammar

        vocab = model.vocab
        special = set(_special_ids(vocab))
        tokens = [b"" if i in special else vocab.piece(i) for i in range(vocab.n_tokens)]
        self.library = xgrammar
        tokenizer = xgrammar.TokenizerInfo(tokens, xgrammar.VocabType.RAW, stop_token_ids=list(vocab.eog_ids))
        self.compiler = xgrammar.GrammarCompiler(tokenizer, max_threads=1, cache_enabled=False)
        self.masks = xgrammar.allocate_token_bitmask(1, tokenizer.vocab_size)
        self.mask = self.masks.numpy()[0]

    def compile(self, schema: Any) -> None:
        self.grammar = self.compiler.compile_json_schema(json.dumps(schema), any_whitespace=True, strict_mode=False)
        self.start()

    def start(self) -> None:
        self.matcher = self.library.GrammarMatcher(self.grammar)

    def compute_mask(self) -> None:
        self.matcher.fill_next_token_bitmask(self.masks)

    def accept(self, token_id: int) -> None:
        self.matcher.accept_token(token_id)


class LlamaCpp(Engine):
    """llama.cpp's converter of schemas and its grammar sampler, as llama-cpp-python drives them."""

    name = "llama_cpp_python"

    def __init__(self, model: pyggml.Model) -> None:
        import llama_cpp
        from llama_cpp.llama_grammar import json_schema_to_gbnf

        self.library, self.convert = llama_cpp, json_schema_to_gbnf
        parameters = llama_cpp.llama_model_default_params()
        parameters.vocab_only = True
        self.model = llama_cpp.llama_model_load_from_file(str(model.path).encode(), parameters)
        self.vocab = llama_cpp.llama_model_get_vocab(self.model)
        n = model.vocab.n_tokens
        self.ids = np.arange(n, dtype=np.int32)
        dtype = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)], align=True)
        self.candidates = np.zeros(n, dtype)
        self.data = llama_cpp.llama_token_data_array(
            self.candidates.ctypes.data_as(llama_cpp.llama_token_data_p), n, -1, False
        )
        self.sampler: Any = None

    def compile(self, schema: Any) -> None:
        self.grammar = self.convert(json.dumps(schema)).encode()
        self.start()

    def start(self) -> None:
        if self.sampler:
            self.library.llama_sampler_free(self.sampler)
        self.sampler = self.library.llama_sampler_init_grammar(self.vocab, self.grammar, b"root")
        if not self.sampler:
            raise ValueError("llama.cpp does not parse the grammar")

    def compute_mask(self) -> None:
        self.candidates["id"], self.candidates["logit"] = self.ids, 0
        self.data.size = len(self.ids)
        self.library.llama_sampler_apply(self.sampler, ctypes.byref(self.data))

    def allows(self, token_id: int) -> bool:
        return bool(self.candidates["logit"][token_id] == 0)

    def accept(self, token_id: int) -> None:
        self.library.llama_sampler_accept(self.sampler, token_id)


ENGINES: dict[str, type[Engine]] = {engine.name: engine for engine in (Pyggml, Llguidance, Xgrammar, LlamaCpp)}


def end_of(vocab: pyggml.Vocab) -> int:
    """The token that ends a text, for all engines."""
    return vocab.eos if vocab.eos is not None else vocab.eog_ids[0]


def _special_ids(vocab: pyggml.Vocab) -> Sequence[int]:
    return [i for i in range(vocab.n_tokens) if vocab.piece(i) == b""]
