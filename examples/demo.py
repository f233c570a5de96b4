"""A story and one chat answer from the model that ships with pyggml, streamed as they are generated."""

from __future__ import annotations

import pyggml

STORY = "Once upon a time, there was a little fox"
QUESTION = "What colour is the sky?"


def show(stream: pyggml.Stream | pyggml.ChatStream) -> None:
    """Print the text as it is generated, then the speed."""
    for chunk in stream:
        print(chunk.text, end="", flush=True)
    done = stream.completion
    print(
        f"\n[{len(done.token_ids)} tokens, {done.timings.tokens_per_s:.0f} tokens/s, "
        f"first token after {done.timings.ttft_s * 1000:.1f} ms, ended by {done.finish_reason}]\n"
    )


def main() -> None:
    """Run both."""
    with pyggml.load() as llm:
        print(f"pyggml {pyggml.__version__}, {llm.model.desc}, {llm.n_ctx} cells of context\n")

        print(STORY, end="")
        show(llm.stream(STORY, max_tokens=200))

        print(f"User: {QUESTION}\nModel: ", end="")
        show(llm.stream_chat([{"role": "user", "content": QUESTION}]))


if __name__ == "__main__":
    main()
