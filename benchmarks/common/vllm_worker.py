"""vLLM called from coroutines, as its server calls it; callers.py starts this script.

    python vllm_worker.py DIRECTORY MAX_MODEL_LEN MAX_NUM_SEQS

The directory has a config.json only: vLLM makes up the weights. Each line on standard input is ``{"prompts": [[token
id, ...], ...], "max_tokens": N, "n_callers": N}``; each answer is a line ``seconds S``.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# By itself it keeps one CPU free for its front end, which is half of a machine with two.
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", ",".join(map(str, sorted(os.sched_getaffinity(0)))))


async def serve() -> None:
    from vllm import AsyncEngineArgs, SamplingParams  # type: ignore[import-not-found]
    from vllm.v1.engine.async_llm import AsyncLLM  # type: ignore[import-not-found]

    folder, max_model_len, max_num_seqs = sys.argv[1:]
    engine = AsyncLLM.from_engine_args(
        AsyncEngineArgs(
            model=folder,
            load_format="dummy",
            skip_tokenizer_init=True,
            dtype="bfloat16",
            max_model_len=int(max_model_len),
            max_num_seqs=int(max_num_seqs),
            enable_prefix_caching=False,
        )
    )
    n = 0

    async def ask(prompt: list[int], max_tokens: int) -> None:
        nonlocal n
        n += 1
        sampling = SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True, detokenize=False)
        answers = [done async for done in engine.generate({"prompt_token_ids": prompt}, sampling, str(n))]
        assert len(answers[-1].outputs[0].token_ids) == max_tokens

    async def call(waiting: list[list[int]], max_tokens: int) -> None:
        while waiting:
            await ask(waiting.pop(), max_tokens)

    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        asked = json.loads(line)
        waiting = list(asked["prompts"])
        start = time.perf_counter()
        await asyncio.gather(*(call(waiting, asked["max_tokens"]) for _ in range(asked["n_callers"])))
        print("seconds", time.perf_counter() - start, flush=True)
    engine.shutdown()


if __name__ == "__main__":
    asyncio.run(serve())
