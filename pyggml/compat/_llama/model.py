"""The vocabulary and the properties of a model, as ``llama._model``, which many programs reach for."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import pyggml


class LlamaModel:
    """The vocabulary and the properties of an open model.

    Attributes:
        native: the :class:`pyggml.Model`.
        path_model: the model's file.
    """

    def __init__(self, native: pyggml.Model) -> None:
        """Share a model, which the caller keeps open."""
        self.native = native
        self.path_model = native.path

    # --- for functions of the C API -----------------------------------------------------------------------

    @property
    def model(self) -> ctypes.c_void_p:
        """The address of the ``struct llama_model``, borrowed until the model is closed."""
        return ctypes.c_void_p(int(pyggml.ffi.cast("uintptr_t", self.native.handle)))

    @property
    def vocab(self) -> ctypes.c_void_p:
        """The address of the ``struct llama_vocab``, borrowed until the model is closed."""
        return ctypes.c_void_p(int(pyggml.ffi.cast("uintptr_t", self.native.vocab.handle)))

    # --- text ---------------------------------------------------------------------------------------------

    def tokenize(self, text: bytes, add_bos: bool, special: bool) -> list[int]:
        """Convert UTF-8 to token ids; see :meth:`Llama.tokenize`."""
        return self.native.vocab.tokenize(text, add_special=add_bos, parse_special=special)

    def detokenize(self, tokens: Sequence[int], special: bool = False) -> bytes:
        """Convert token ids to UTF-8, without the space that some vocabularies put before a text after BOS."""
        text = b"".join(self.native.vocab.piece(token, special=special) for token in tokens)
        begins = len(tokens) > 0 and tokens[0] == self.token_bos()
        return text.removeprefix(b" ") if begins else text

    def token_get_text(self, token: int) -> str:
        """Return a token's text in the vocabulary's own spelling."""
        return self.native.vocab.text(token)

    # --- properties ---------------------------------------------------------------------------------------

    def metadata(self) -> dict[str, str]:
        """Return the file's scalar metadata."""
        return self.native.metadata

    def n_vocab(self) -> int:
        """Return the number of tokens."""
        return self.native.vocab.n_tokens

    def n_ctx_train(self) -> int:
        """Return the context length of the model's training."""
        return self.native.n_ctx_train

    def n_embd(self) -> int:
        """Return the width of the embeddings."""
        return self.native.n_embd_out

    def n_params(self) -> int:
        """Return the number of weights."""
        return self.native.n_params

    def size(self) -> int:
        """Return the size of all tensors in bytes."""
        return self.native.size_bytes

    def desc(self) -> str:
        """Return a description in one line."""
        return self.native.desc

    def is_eog(self, token: int) -> bool:
        """Return True if a token ends a generation."""
        return self.native.vocab.is_eog(token)

    def add_bos_token(self) -> bool:
        """Return True if texts begin with BOS."""
        return self.native.vocab.add_bos

    def add_eos_token(self) -> bool:
        """Return True if texts end with EOS."""
        return self.native.vocab.add_eos

    # --- special tokens; -1: there is none ----------------------------------------------------------------

    def token_bos(self) -> int:
        """Return the token that begins a text."""
        return _number(self.native.vocab.bos)

    def token_eos(self) -> int:
        """Return the token that ends a text."""
        return _number(self.native.vocab.eos)

    def token_eot(self) -> int:
        """Return the token that ends a turn."""
        return _number(self.native.vocab.eot)

    def token_cls(self) -> int:
        """Return the token that begins a text; another name of :meth:`token_bos`."""
        return _number(self.native.vocab.bos)

    def token_sep(self) -> int:
        """Return the token between sentences."""
        return _number(self.native.vocab.sep)

    def token_nl(self) -> int:
        """Return the token of a line end."""
        return _number(self.native.vocab.nl)

    def token_prefix(self) -> int:
        """Return the token before the prefix of a gap to fill."""
        return _number(self.native.vocab.fim_pre)

    def token_middle(self) -> int:
        """Return the token before the text that fills a gap."""
        return _number(self.native.vocab.fim_mid)

    def token_suffix(self) -> int:
        """Return the token before the suffix of a gap to fill."""
        return _number(self.native.vocab.fim_suf)


def _number(token: int | None) -> int:
    return -1 if token is None else token
