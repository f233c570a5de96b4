"""Text to token ids and back.

:mod:`~pyggml.tokenizer.base`: by the model's own vocabulary;
:mod:`~pyggml.tokenizer.hugging_face`: by a tokenizer from a file in its place.
"""

from pyggml.tokenizer.base import StopStrings, StreamDecoder, Tokenizer

__all__ = ["StopStrings", "StreamDecoder", "Tokenizer"]
