"""Interface of a library for the probes: a few calls, each made as in the library's documentation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass
class Answer:
    """A text and why it ended, in the side's own word."""

    text: str
    finish_reason: str | None


class NotOffered(Exception):
    """The side has nothing of the kind; the message says what it has instead."""


class Side(Protocol):
    """A library as its own documentation uses it."""

    distribution: str
    public: type  # the class whose methods users call

    def load(self, path: str, *, n_ctx: int = 512, n_parallel: int = 1, gpu: bool = False) -> None: ...
    def generate(self, prompt: str | list[int], max_tokens: int) -> Answer: ...
    def chat(self, question: str, max_tokens: int, schema: dict[str, Any] | None = None) -> Answer: ...
    async def agenerate(self, prompt: str, max_tokens: int) -> Answer: ...
    def start(self, prompt: list[int], max_tokens: int) -> Callable[[], None]:
        """Start a generation, and return a function that cancels it and waits for its end."""
        ...
