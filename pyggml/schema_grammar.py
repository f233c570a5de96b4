"""JSON schemas to grammars whose every text parses and validates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyggml import chat
from pyggml.schema import schema_of


def grammar_of(schema: Mapping[str, Any] | str | object) -> str:
    return chat.schema_to_grammar(schema if isinstance(schema, (str, Mapping)) else schema_of(schema))
