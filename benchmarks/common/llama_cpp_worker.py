"""llama-cpp-python behind a lock, as its users run it in threads; throughput.py and callers.py start this script.

    python llama_cpp_worker.py MODEL N_CTX N_THREADS

Each line on standard input is ``{"prompts": [[token id, ...], ...], "max_tokens": N, "n_callers": N}``; each answer is
a line ``seconds S``, the time until all are done, with a thread per caller that takes the next prompt when it is free.
"""

from __future__ import annotations

import itertools
import json
import sys
import threading
from collections.abc import Iterator

from harness import together
from llama_cpp import Llama


def main() -> None:
    model, n_ctx, n_threads = sys.argv[1:]
    llm = Llama(model, n_ctx=int(n_ctx), n_threads=int(n_threads), n_threads_batch=int(n_threads), verbose=False)
    lock = threading.Lock()
    for line in sys.stdin:
        asked = json.loads(line)
        waiting, max_tokens = iter(asked["prompts"]), asked["max_tokens"]

        def call(_caller: int, waiting: Iterator[list[int]] = waiting, max_tokens: int = max_tokens) -> None:
            for prompt in waiting:
                with lock:
                    # Not create_completion(): it continues past max_tokens until the text ends with a whole
                    # character, which a random model's text seldom does.
                    assert len(list(itertools.islice(llm.generate(prompt, temp=0.0), max_tokens))) == max_tokens

        print("seconds", together(call, asked["n_callers"]), flush=True)


if __name__ == "__main__":
    main()
