"""A program for a new process: continues a saved session or prefix, and prints what comes."""

from __future__ import annotations

import json
import sys

import pyggml


def main() -> None:
    """Arguments: a model, its options in JSON, "session" or "prefix", the file, and the next message or prompt."""
    model, options, kind, path, text = sys.argv[1:]
    with pyggml.load(model, **json.loads(options)) as llm:
        if kind == "session":
            session = llm.session(path)
            done: pyggml.Completion | pyggml.ChatCompletion = session.chat(text)
            messages = session.messages
        else:
            llm.restore(path)
            done = llm.generate(json.loads(text), max_tokens=20, ignore_eos=True, logprobs=3)
            messages = []
        computed = llm.stats().n_prompt_tokens
    print(json.dumps([done.token_ids, done.cached_tokens, done.prompt_tokens, computed, messages, repr(done.logprobs)]))


if __name__ == "__main__":
    main()
