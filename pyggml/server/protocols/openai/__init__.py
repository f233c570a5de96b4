"""OpenAI's API, with the fields that llama-server and vLLM add to it."""

from __future__ import annotations

from pyggml.server.protocols.batches import OPENAI_BATCHES
from pyggml.server.protocols.endpoint import Protocol
from pyggml.server.protocols.openai.chat import CHAT
from pyggml.server.protocols.openai.cohere_embed import COHERE_EMBED
from pyggml.server.protocols.openai.completions import COMPLETIONS
from pyggml.server.protocols.openai.embeddings import EMBEDDINGS
from pyggml.server.protocols.openai.errors import error_body
from pyggml.server.protocols.openai.models import MODELS
from pyggml.server.protocols.openai.rerank import RERANK, SCORE

# The last event is without a name, as OpenAI's client expects it.
OPENAI = Protocol(
    "openai",
    (*MODELS, *CHAT, *COMPLETIONS, *EMBEDDINGS, *COHERE_EMBED, *RERANK, *SCORE, *OPENAI_BATCHES),
    error_body,
    error_event="",
)
