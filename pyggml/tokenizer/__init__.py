"""Conversion of text to token ids and back.

:mod:`~pyggml.tokenizer.base`: the model's own vocabulary as a tokenizer;
:mod:`~pyggml.tokenizer.hugging_face`: a tokenizer from a file instead;
:mod:`~pyggml.tokenizer.stream_decoder`: text of a stream of tokens, and stop strings.
"""

from pyggml.tokenizer.base import Tokenizer
from pyggml.tokenizer.stream_decoder import StopStrings, StreamDecoder

__all__ = ["StopStrings", "StreamDecoder", "Tokenizer"]
