"""Suggestions while a user types: pyggml's decode loop in a tool with its own tokenizer and scheduling.

python examples/embed_engine.py -m model.gguf

Several writers type in one event loop. Every keystroke makes the suggestion in flight worthless, so it is cancelled and
another one is asked for; the engine computes those of all writers together, and takes what a writer had typed before
from its cache. The tool deals in token ids only: an ``Engine`` has no tokenizer.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys

import pyggml

WRITERS = {
    "Anna": "Once upon a time, there was a little",
    "Ben": "The dog wanted to play in the",
    "Tim": "One day, Lily found a big red",
}
KEYSTROKE_S = 0.002  # real writers are slower, and so are real models


class LongestMatch:
    """The tool's own tokenizer: takes the longest token that fits, from left to right."""

    def __init__(self, vocab: pyggml.Vocab) -> None:
        """Read the bytes of every token that is text."""
        self.pieces = [vocab.piece(token_id) for token_id in range(len(vocab))]
        self._ids = {piece: token_id for token_id, piece in enumerate(self.pieces) if piece}
        self._longest = max(map(len, self._ids))
        self._start = [] if vocab.bos is None else [vocab.bos]

    def encode(self, text: str) -> list[int]:
        """The token ids of a text, with the token that begins one."""
        ids, data = list(self._start), text.encode()
        while data:
            lengths = range(min(self._longest, len(data)), 0, -1)
            size = next(n for n in lengths if data[:n] in self._ids)
            ids.append(self._ids[data[:size]])
            data = data[size:]
        return ids

    def decode(self, token_ids: list[int]) -> str:
        """The text of token ids."""
        return b"".join(self.pieces[token_id] for token_id in token_ids).decode(errors="replace")


class Writer:
    """A typing user, and the suggestion for the next words."""

    def __init__(self, engine: pyggml.Engine, tokenizer: LongestMatch) -> None:
        """Start with an empty page."""
        self.suggestion = ""
        self.n_cancelled = 0
        self._engine = engine
        self._tokenizer = tokenizer
        self._task: asyncio.Task[None] | None = None

    async def type(self, text: str) -> None:
        """Type a text, then wait for the last suggestion."""
        for n in range(1, len(text) + 1):
            await self._drop_suggestion()
            self._task = asyncio.create_task(self._suggest(text[:n]))
            await asyncio.sleep(KEYSTROKE_S)
        if self._task is not None:
            await self._task

    async def _suggest(self, typed: str) -> None:
        """Fill the suggestion as its tokens arrive, up to the end of the sentence."""
        self.suggestion, token_ids = "", []
        request = self._engine.submit(self._tokenizer.encode(typed), max_tokens=20)
        async for news in request:
            token_ids += news
            sentence, end, _ = self._tokenizer.decode(token_ids).partition(".")
            self.suggestion = sentence + end
            if end:
                request.cancel()  # the rest is not needed
                return

    async def _drop_suggestion(self) -> None:
        """Cancel the running suggestion: cancelling the task cancels its request."""
        if self._task is not None and not self._task.done():
            self.n_cancelled += 1
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task


async def write_together(engine: pyggml.Engine, tokenizer: LongestMatch) -> None:
    """Let all users type at once."""
    writers = {name: Writer(engine, tokenizer) for name in WRITERS}
    await asyncio.gather(*(writer.type(WRITERS[name]) for name, writer in writers.items()))
    for name, writer in writers.items():
        print(f"{name}: {WRITERS[name]}[{writer.suggestion}]")
    stats = engine.stats()
    print(
        f"{stats.n_requests} suggestions, {sum(writer.n_cancelled for writer in writers.values())} of them cancelled; "
        f"{stats.n_generated_tokens} tokens in {stats.n_decode_steps} forward passes, "
        f"{stats.cached_fraction:.0%} of what was typed taken from the cache"
    )


def main() -> None:
    """Load a model, and create an engine on a context of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", default=pyggml.SHIPPED_MODEL, help="GGUF file")
    args = parser.parse_args()
    with pyggml.Model(args.model) as model:
        context = pyggml.Context(model, n_ctx=2048, n_seq_max=len(WRITERS))
        with pyggml.Engine(context, adapt_threads=True) as engine:
            asyncio.run(write_together(engine, LongestMatch(model.vocab)))


if __name__ == "__main__":
    try:
        main()
    except pyggml.InferError as error:
        sys.exit(f"embed_engine.py: {error}")
