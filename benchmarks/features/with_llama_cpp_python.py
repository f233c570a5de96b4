"""llama-cpp-python as its documentation uses it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from llama_cpp import Llama, StoppingCriteriaList
from side import Answer


class Library:
    distribution = "llama_cpp_python"
    public = Llama

    def load(self, path: str, *, n_ctx: int = 512, n_parallel: int = 1, gpu: bool = False) -> None:  # noqa: ARG002
        self.llm = Llama(path, n_ctx=n_ctx, n_gpu_layers=-1 if gpu else 0, verbose=False)

    def generate(self, prompt: str | list[int], max_tokens: int) -> Answer:
        return _answer(self.llm.create_completion(prompt, max_tokens=max_tokens, temperature=0.0)["choices"][0])

    def chat(self, question: str, max_tokens: int, schema: dict[str, Any] | None = None) -> Answer:
        done = self.llm.create_chat_completion(
            [{"role": "user", "content": question}],
            max_tokens=max_tokens,
            temperature=0.0,
            response_format={"type": "json_object", "schema": schema} if schema else None,
        )
        choice = done["choices"][0]
        return Answer(choice["message"]["content"], choice["finish_reason"])

    async def agenerate(self, prompt: str, max_tokens: int) -> Answer:
        return self.generate(prompt, max_tokens)

    def start(self, prompt: list[int], max_tokens: int) -> Callable[[], None]:
        stopped = threading.Event()
        criteria = StoppingCriteriaList([lambda _ids, _logits: stopped.is_set()])

        def run() -> None:
            self.llm.create_completion(prompt, max_tokens=max_tokens, temperature=0.0, stopping_criteria=criteria)

        thread = threading.Thread(target=run)
        thread.start()

        def cancel() -> None:
            stopped.set()
            thread.join()

        return cancel


def _answer(choice: dict[str, Any]) -> Answer:
    return Answer(choice["text"], choice["finish_reason"])
