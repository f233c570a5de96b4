"""What an output has to look like.

:mod:`~pyggml.schema.python_types`: Python types as JSON schemas; :mod:`~pyggml.schema.grammar`: those as grammars.
"""

from pyggml.schema.python_types import Schema, schema_of

__all__ = ["Schema", "schema_of"]
