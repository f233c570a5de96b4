"""Tokenizers: the model's own, and those of transformers."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyggml

if TYPE_CHECKING:
    from pyggml.compat.llama_cpp.llama import Llama


class BaseLlamaTokenizer(abc.ABC):
    """A tokenizer of UTF-8 text."""

    @abc.abstractmethod
    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = True) -> list[int]:
        """Convert text to token ids.

        Args:
            text: the text, UTF-8.
            add_bos: add the special tokens that the model expects around a text.
            special: read the texts of special tokens as those tokens.
        """

    @abc.abstractmethod
    def detokenize(
        self, tokens: Sequence[int], prev_tokens: Sequence[int] | None = None, special: bool = False
    ) -> bytes:
        """Convert token ids to text.

        Args:
            tokens: the tokens.
            prev_tokens: the tokens before them, where the text depends on those.
            special: write special tokens as their texts; otherwise they are left out.
        """


class LlamaTokenizer(BaseLlamaTokenizer):
    """The vocabulary of a model."""

    def __init__(self, llama: Llama) -> None:
        """Share a model's vocabulary.

        Args:
            llama: the model.
        """
        self._model = llama._model

    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = True) -> list[int]:
        """Convert text to token ids."""
        return self._model.tokenize(text, add_bos=add_bos, special=special)

    def detokenize(
        self,
        tokens: Sequence[int],
        prev_tokens: Sequence[int] | None = None,  # noqa: ARG002
        special: bool = False,
    ) -> bytes:
        """Convert token ids to text."""
        return self._model.detokenize(tokens, special=special)

    def encode(self, text: str, add_bos: bool = True, special: bool = True) -> list[int]:
        """Convert text to token ids.

        Args:
            text: the text.
            add_bos: as for :meth:`tokenize`.
            special: as for :meth:`tokenize`.
        """
        return self.tokenize(text.encode("utf-8", errors="ignore"), add_bos=add_bos, special=special)

    def decode(self, tokens: Sequence[int]) -> str:
        """Convert token ids to text, without incomplete characters.

        Args:
            tokens: the tokens.
        """
        return self.detokenize(tokens).decode("utf-8", errors="ignore")

    @classmethod
    def from_ggml_file(cls, path: str) -> LlamaTokenizer:
        """Return the vocabulary of a GGUF file, without its weights.

        Args:
            path: the file.
        """
        from pyggml.compat.llama_cpp.llama import Llama  # which needs this module

        return cls(Llama(model_path=path, vocab_only=True))


class LlamaHFTokenizer(BaseLlamaTokenizer):
    """A tokenizer of transformers. Pass it as ``Llama(..., tokenizer=...)``; it must be a fast one.

    Attributes:
        hf_tokenizer: the tokenizer.
    """

    def __init__(self, hf_tokenizer: Any) -> None:
        """Wrap a tokenizer.

        Args:
            hf_tokenizer: a ``PreTrainedTokenizerFast``.
        """
        self.hf_tokenizer = hf_tokenizer

    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = True) -> list[int]:  # noqa: ARG002
        """Convert text to token ids; ``special`` adds special tokens around the text, as in llama-cpp-python."""
        ids: list[int] = self.hf_tokenizer.encode(text.decode("utf-8", errors="ignore"), add_special_tokens=special)
        return ids

    def detokenize(
        self, tokens: Sequence[int], prev_tokens: Sequence[int] | None = None, special: bool = False
    ) -> bytes:
        """Convert token ids to text; with ``prev_tokens``, what the tokens add to the text of those."""
        before = self._decode(prev_tokens or (), special)
        return self._decode([*(prev_tokens or ()), *tokens], special)[len(before) :]

    def _decode(self, tokens: Sequence[int], special: bool) -> bytes:
        text: str = self.hf_tokenizer.decode(list(tokens), skip_special_tokens=not special)
        return text.encode("utf-8", errors="ignore")

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str) -> LlamaHFTokenizer:
        """Return the tokenizer of a repository or a folder.

        Args:
            pretrained_model_name_or_path: as for ``AutoTokenizer.from_pretrained``.

        Raises:
            MissingPackageError: transformers is not installed.
        """
        try:
            from transformers import AutoTokenizer
        except ImportError as error:
            raise pyggml.MissingPackageError(
                f"LlamaHFTokenizer needs transformers, which cannot be imported ({error}): pip install transformers"
            ) from None
        return cls(AutoTokenizer.from_pretrained(pretrained_model_name_or_path))
