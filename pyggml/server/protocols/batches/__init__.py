"""Batches of requests, which the server computes between others: OpenAI's with files, and Anthropic's."""

from __future__ import annotations

from pyggml.server.protocols.batches import anthropic_batches, files, openai_batches
from pyggml.server.protocols.endpoint import Endpoint

OPENAI_BATCHES = (*files.ENDPOINTS, *openai_batches.ENDPOINTS)
ANTHROPIC_BATCHES: tuple[Endpoint, ...] = anthropic_batches.ENDPOINTS
