"""Compiled grammars and matchers, for programs that sample tokens themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from pyggml import errors
from pyggml._core import c_calls
from pyggml._core.c_values import int32_array, pointer
from pyggml._core.checks import INT32_MAX, c_string, integer
from pyggml._core.ffi import ffi, lib
from pyggml._core.owner import ClosableOwner
from pyggml._native.model import Model
from pyggml._native.vocab import Vocab

if TYPE_CHECKING:
    from pyggml._core.ffi import CData

_WORD_BITS = 32
_MASK_TYPES = (np.dtype(np.uint32), np.dtype(np.int32))


class CompiledGrammar(ClosableOwner):
    """A grammar that is compiled for a vocabulary: see :meth:`pyggml.Grammar.compile`.

    The grammar is compiled once per model, shared with its requests, and kept while it is among the 64 used last.
    Token masks that one matcher has computed are reused by all others of the grammar. Thread-safe. It keeps the
    vocabulary alive, its matchers keep the grammar's data alive. Close it, or use it as a context manager.

    Attributes:
        text: the grammar, in GBNF.
        n_vocab: number of tokens in the vocabulary.
        n_mask_words: length of a mask in 32-bit words: ``n_vocab / 32``, rounded up.
    """

    _instead_of_a_copy = "share this one between threads; another process compiles its own"

    def __init__(
        self,
        vocab: Vocab | Model,
        text: str,
        root: str = "root",
        prefix: str = "",
        stop_token_ids: Sequence[int] = (),
    ) -> None:
        """Compile a grammar; :meth:`pyggml.Grammar.compile` also takes schemas and models.

        Args:
            vocab: the vocabulary, or its model.
            text: the grammar, in GBNF.
            root: name of the start rule.
            prefix: text that the grammar consumes before a matcher's text.
            stop_token_ids: ids of tokens that end a text, in addition to the vocabulary's end-of-generation tokens.

        Raises:
            GrammarError: the grammar cannot be used, or does not match the prefix.
            InvalidParameterError: an argument is invalid.
            TokenizerError: the model has no vocabulary.
            ClosedError: the model was closed.
        """
        if not isinstance(vocab, (Vocab, Model)):
            raise errors.InvalidParameterError(f"vocab must be a Vocab or a Model, not {type(vocab).__name__}")
        self.text = text
        stop_ids = int32_array("stop_token_ids", stop_token_ids)
        self._handle: CData = c_calls.create(
            "pyg_grammar",
            lib.pyg_grammar_free,
            lib.pyg_grammar_compile,
            vocab._handle,
            c_string("grammar", text),
            c_string("root", root),
            c_string("prefix", prefix),
            pointer("int32_t[]", stop_ids),
            stop_ids.size,
        )
        self.n_vocab: int = c_calls.call_for_value("int32_t", lib.pyg_grammar_vocab_size, self._handle)
        self.n_mask_words: int = -(-self.n_vocab // _WORD_BITS)

    def matcher(self) -> GrammarMatcher:
        """Return a new matcher, at the start of a text.

        Raises:
            ClosedError: the grammar was closed.
        """
        return GrammarMatcher(self)

    def close(self) -> None:
        """Free the object. Its matchers stay usable."""
        self._is_closed = True
        c_calls.call(lib.pyg_grammar_close, self._handle)

    def __repr__(self) -> str:
        return f"CompiledGrammar(n_vocab={self.n_vocab}{', closed' * self._is_closed})"


class GrammarMatcher(ClosableOwner):
    """The position of one text in a grammar, which tells what tokens may follow.

    >>> matcher = pyggml.Grammar.compile({"type": "integer"}, llm).matcher()
    >>> mask = matcher.mask()  # of the first token
    >>> matcher.accept(token_id)

    Methods release the GIL and run without it, so that matchers of a batch can be used on several threads at once.
    Thread-safe: calls of one matcher run one at a time. Methods raise ClosedError after :meth:`close`, and GrammarError
    for a grammar that is too ambiguous to follow: the matcher is then where it was, and usable.

    Attributes:
        grammar: the grammar that it follows.
    """

    _instead_of_a_copy = "copy() returns a copy; another process makes its own"

    def __init__(self, grammar: CompiledGrammar) -> None:
        """Start a text; the same as :meth:`CompiledGrammar.matcher`.

        Args:
            grammar: the grammar that it follows.

        Raises:
            InvalidParameterError: ``grammar`` is none.
            ClosedError: the grammar was closed.
        """
        if not isinstance(grammar, CompiledGrammar):
            raise errors.InvalidParameterError(f"a CompiledGrammar was expected, not {type(grammar).__name__}")
        self._handle: CData = c_calls.create("pyg_matcher", lib.pyg_matcher_free, lib.pyg_matcher_new, grammar._handle)
        self.grammar = grammar

    def mask(self, out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
        """Return the set of tokens that are allowed next, one bit each.

        Bit ``i % 32`` of word ``i // 32`` is token ``i``; unused bits of the last word are 0. Where the text may end,
        the tokens that end it are included. After one of these, only they are allowed, so that a finished row of a
        batch still has a token.

        Args:
            out: array to write to, and to return: uint32 or int32, shape (n_mask_words,), contiguous and writable, such
                as a row of a batch's masks. None: a new uint32 array.
        """
        words = np.empty(self.grammar.n_mask_words, np.uint32) if out is None else self._checked(out)
        c_calls.call(lib.pyg_matcher_mask, self._handle, pointer("uint32_t[]", words), words.size)
        return words

    def _checked(self, out: npt.NDArray[Any]) -> npt.NDArray[Any]:
        shape = (self.grammar.n_mask_words,)
        if not isinstance(out, np.ndarray) or out.dtype not in _MASK_TYPES or out.shape != shape:
            raise errors.InvalidParameterError(f"out must be an array of uint32 or int32 of the shape {shape}")
        if not (out.flags.c_contiguous and out.flags.writeable):
            raise errors.InvalidParameterError("out must be contiguous and writable")
        return out

    def accept(self, token_id: SupportsIndex) -> bool:
        """Advance by a token. Return False, and stay, if it is not allowed here.

        Args:
            token_id: id of the token.

        Raises:
            InvalidParameterError: the id is outside the vocabulary.
        """
        one = ffi.new("int32_t[1]", (integer("token_id", token_id, 0, INT32_MAX),))  # without numpy, which takes longer
        return bool(c_calls.call_for_value("size_t", lib.pyg_matcher_accept, self._handle, one, 1))

    def accept_tokens(self, token_ids: npt.ArrayLike) -> int:
        """Advance by several tokens, up to the first that is not allowed.

        Args:
            token_ids: ids, (n,).

        Returns:
            The number of tokens accepted, such as of a speculated continuation.

        Raises:
            InvalidParameterError: an id is outside the vocabulary; nothing was accepted.
        """
        ids = int32_array("token_ids", token_ids)
        n: int = c_calls.call_for_value(
            "size_t", lib.pyg_matcher_accept, self._handle, pointer("int32_t[]", ids), ids.size
        )
        return n

    def rollback(self, n: SupportsIndex = 1) -> None:
        """Take back the last accepted tokens, including one that ended the text.

        Each accepted token can be taken back; its state takes about 50 bytes until the matcher is closed or reset.

        Args:
            n: number of tokens.

        Raises:
            InvalidParameterError: fewer tokens were accepted.
        """
        c_calls.call(lib.pyg_matcher_rollback, self._handle, integer("n", n, 0, INT32_MAX))

    def forced(self, max_tokens: SupportsIndex = 256) -> list[int]:
        """Return the tokens that must follow, for a caller to append without computing logits.

        The text that every continuation begins with, such as ``{"name": "`` at the start of an object, as
        :meth:`Vocab.tokenize <pyggml.Vocab.tokenize>` splits it on its own. The last tokens are left out if a longer
        token, which begins in the forced text and ends after it, may follow instead: the model may prefer
        ``"name`` and then ``":``, where the text alone would be split differently. If a single token is allowed, it is
        forced. Each id is allowed by the mask after those before it. Tokens that end the text are never included, and
        nothing is forced where the text may end.

        Args:
            max_tokens: most tokens to return, at least 1.

        Returns:
            Token ids, (n,), often none. The matcher does not advance: pass those that you use to
            :meth:`accept_tokens`.
        """
        n_max = integer("max_tokens", max_tokens, 1, INT32_MAX)
        token_ids = ffi.new("int32_t[]", min(n_max, _MOST_FORCED))
        n = c_calls.call_for_value("size_t", lib.pyg_matcher_forced, self._handle, token_ids, len(token_ids))
        return list(token_ids[0:n])

    @property
    def n_accepted(self) -> int:
        """Number of tokens accepted since the start."""
        n: int = self._state().n_accepted
        return n

    @property
    def is_complete(self) -> bool:
        """True if the text may end here."""
        is_complete: bool = self._state().is_complete
        return is_complete

    @property
    def is_terminated(self) -> bool:
        """True if a token that ends the text was accepted."""
        is_terminated: bool = self._state().is_terminated
        return is_terminated

    def reset(self) -> None:
        """Return to the start of a text."""
        c_calls.call(lib.pyg_matcher_reset, self._handle)

    def copy(self) -> GrammarMatcher:
        """Return an independent matcher at the same position, with the same history."""
        copied = object.__new__(GrammarMatcher)
        copied._handle = c_calls.create("pyg_matcher", lib.pyg_matcher_free, lib.pyg_matcher_copy, self._handle)
        copied.grammar = self.grammar
        return copied

    def close(self) -> None:
        """Free the matcher. Can be called repeatedly."""
        self._is_closed = True
        c_calls.call(lib.pyg_matcher_close, self._handle)

    def __repr__(self) -> str:
        if self._is_closed:
            return "GrammarMatcher(closed)"
        state = self._state()
        where = ", terminated" if state.is_terminated else ", complete" if state.is_complete else ""
        return f"GrammarMatcher(n_accepted={state.n_accepted}{where})"

    def _state(self) -> CData:
        state = ffi.new("pyg_matcher_state *")
        c_calls.call(lib.pyg_matcher_get_state, self._handle, state)
        return state


_MOST_FORCED = 1 << 16  # bytes of forced text that are considered at once, so at least as many tokens
