"""llama-cpp-python behind a lock, as its users run it in threads; throughput.py starts this script.

    python llama_cpp_worker.py MODEL N_CTX N_THREADS

Each line on standard input is ``{"prompts": [[token id, ...], ...], "max_tokens": N}``; each line on standard output
is the seconds until all are done, with one thread per prompt.
"""

from __future__ import annotations

import itertools
import json
import sys
import threading

from llama_cpp import Llama  # type: ignore[import-not-found]
from measure import together


def main() -> None:
    model, n_ctx, n_threads = sys.argv[1:]
    llm = Llama(model, n_ctx=int(n_ctx), n_threads=int(n_threads), n_threads_batch=int(n_threads), verbose=False)
    lock = threading.Lock()
    for line in sys.stdin:
        asked = json.loads(line)
        prompts, max_tokens = asked["prompts"], asked["max_tokens"]

        def generate(index: int, prompts: list[list[int]] = prompts, max_tokens: int = max_tokens) -> None:
            with lock:
                # Not create_completion(): it continues past max_tokens until the text ends with a whole character,
                # which a random model's text seldom does.
                assert len(list(itertools.islice(llm.generate(prompts[index], temp=0.0), max_tokens))) == max_tokens

        print(together(generate, len(prompts)), flush=True)


if __name__ == "__main__":
    main()
