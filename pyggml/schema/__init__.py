"""Structured output.

:mod:`~pyggml.schema.python_types`: Python types to JSON schemas; :mod:`~pyggml.schema.grammar`: schemas to grammars.
"""

from pyggml.schema.python_types import Schema, schema_of

__all__ = ["Schema", "schema_of"]
