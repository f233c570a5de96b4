"""pyggml as its documentation uses it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from side import Answer

import pyggml


class Library:
    distribution = "pyggml"
    public = pyggml.LLM

    def load(self, path: str, *, n_ctx: int = 512, n_parallel: int = 1, gpu: bool = False) -> None:
        device = "gpu" if gpu else "auto"
        self.llm = pyggml.load(path, n_ctx=n_ctx, n_parallel=n_parallel, device=device)

    def generate(self, prompt: str | list[int], max_tokens: int) -> Answer:
        done = self.llm.generate(prompt, max_tokens=max_tokens)
        return Answer(done.text, done.finish_reason)

    def chat(self, question: str, max_tokens: int, schema: dict[str, Any] | None = None) -> Answer:
        done = self.llm.chat([{"role": "user", "content": question}], max_tokens=max_tokens, json_schema=schema)
        return Answer(done.message.content or "", done.finish_reason)

    async def agenerate(self, prompt: str, max_tokens: int) -> Answer:
        done = await self.llm.agenerate(prompt, max_tokens=max_tokens)
        return Answer(done.text, done.finish_reason)

    def start(self, prompt: list[int], max_tokens: int) -> Callable[[], None]:
        return self.llm.stream(prompt, max_tokens=max_tokens).cancel
