"""Fields of chats that several protocols have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AliasChoices
from pydantic import Field as BodyField

#: How long a reasoning model thinks, as OpenAI's clients and others say it. "none": not at all.
ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]

#: Additional variables of a chat template, under llama-server's and vLLM's name or the library's.
TemplateVariables = Annotated[
    dict[str, Any] | None, BodyField(validation_alias=AliasChoices("chat_template_kwargs", "template_kwargs"))
]

#: The library's terms in messages about these variables.
TEMPLATE_TERMS: Mapping[str, str] = {"template_kwargs": "chat_template_kwargs"}
