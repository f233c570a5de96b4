"""Text to token ids and back.

:mod:`~pyggml.tokenizer.base`: with the model's own vocabulary;
:mod:`~pyggml.tokenizer.hugging_face`: with a tokenizer from a file instead.
"""

from pyggml.tokenizer.base import StopStrings, StreamDecoder, Tokenizer

__all__ = ["StopStrings", "StreamDecoder", "Tokenizer"]
