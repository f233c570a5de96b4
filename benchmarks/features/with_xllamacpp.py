"""xllamacpp as its documentation uses it: llama-server's requests and answers, without HTTP."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import xllamacpp  # type: ignore[import-not-found]
from side import Answer


class ServerError(Exception):
    """An answer that is an error."""


class Library:
    distribution = "xllamacpp"
    public = xllamacpp.Server

    def load(self, path: str, *, n_ctx: int = 512, n_parallel: int = 1, gpu: bool = False) -> None:
        params = xllamacpp.CommonParams()
        params.model.path = path
        params.n_ctx = n_ctx
        params.n_parallel = n_parallel
        params.n_gpu_layers = 99 if gpu else 0
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = len(os.sched_getaffinity(0))
        params.warmup = False
        self.server = xllamacpp.Server(params)

    def generate(self, prompt: str | list[int], max_tokens: int) -> Answer:
        done = _checked(
            self.server.handle_completions({"prompt": prompt, "max_tokens": max_tokens, "temperature": 0.0})
        )["choices"][0]
        return Answer(done["text"], done["finish_reason"])

    def chat(self, question: str, max_tokens: int, schema: dict[str, Any] | None = None) -> Answer:
        request: dict[str, Any] = {"messages": [{"role": "user", "content": question}], "temperature": 0.0}
        request["max_tokens"] = max_tokens
        if schema:
            request["response_format"] = {"type": "json_schema", "json_schema": {"name": "it", "schema": schema}}
        done = _checked(self.server.handle_chat_completions(request))["choices"][0]
        return Answer(done["message"]["content"], done["finish_reason"])

    async def agenerate(self, prompt: str, max_tokens: int) -> Answer:
        return self.generate(prompt, max_tokens)

    def start(self, prompt: list[int], max_tokens: int) -> Callable[[], None]:
        stopped = threading.Event()
        request = {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0.0, "stream": True,
                   "return_progress": True}  # fmt: skip

        def run() -> None:
            self.server.handle_completions(request, lambda _chunk: stopped.is_set())

        thread = threading.Thread(target=run)
        thread.start()

        def cancel() -> None:
            stopped.set()
            thread.join()

        return cancel


def _checked(answer: Any) -> Any:
    if "choices" not in answer:
        raise ServerError(answer.get("message") or answer)
    return answer
