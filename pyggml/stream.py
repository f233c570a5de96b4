"""A running generation, from token ids to chunks of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from pyggml.engine import Request
from pyggml.errors import InvalidParameterError
from pyggml.tokenizer import StopStrings, StreamDecoder, Tokenizer
from pyggml.types import Chunk, Completion

if TYPE_CHECKING:
    from typing_extensions import Self


class Stream(Iterator[Chunk]):
    """A running generation, as an iterator of chunks.

    One thread iterates; any thread may :meth:`cancel`. Closing it, leaving its ``with`` block or dropping it
    cancels what still runs.
    """

    def __init__(self, request: Request, tokenizer: Tokenizer, stop: Sequence[str], min_tokens: int) -> None:
        """Takes a submitted request over; wakes for each ``min_tokens`` tokens."""
        self._request = request
        self._decoder = StreamDecoder(tokenizer)
        self._stop = StopStrings(stop)
        self._min_tokens = min_tokens
        self._texts: list[str] = []
        self._token_ids: list[int] = []
        self._last: Chunk | None = None

    def __next__(self) -> Chunk:
        if self._last is not None:
            raise StopIteration
        try:
            chunk = self._cut_at_stop(self._request.read(self._min_tokens))
        except BaseException:
            self.cancel()  # tokens may be lost with it, so there is no going on
            raise
        self._texts.append(chunk.text)
        self._token_ids += chunk.token_ids
        if chunk.finish_reason is not None:
            self._last = chunk
        return chunk

    def finish(self) -> Completion:
        """Runs to the end, and returns everything generated, chunks already taken included.

        Raises:
            As :meth:`LLM.generate`.
        """
        for _ in self:
            pass
        return self.completion

    @property
    def completion(self) -> Completion:
        """The whole generation, once the last chunk has been taken.

        Raises:
            InvalidParameterError: it has not ended yet.
        """
        if self._last is None or self._last.finish_reason is None:
            raise InvalidParameterError("the generation has not ended: take all its chunks first, or call finish()")
        return Completion(
            text="".join(self._texts),
            token_ids=list(self._token_ids),
            finish_reason=self._last.finish_reason,
            stop_reason=self._last.stop_reason,
            prompt_tokens=self._request.prompt_tokens,
            cached_tokens=self._request.cached_tokens,
            timings=self._request.timings,
        )

    def cancel(self) -> None:
        """Ends the generation soon; the iterator then ends with a chunk of ``finish_reason="cancelled"``."""
        self._request.cancel()

    def close(self) -> None:
        """Cancels; the iterator is over."""
        self._request.cancel()
        if self._last is None:
            self._last = Chunk("", [], "cancelled")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _cut_at_stop(self, token_ids: list[int]) -> Chunk:
        """Tokens to a chunk; ends the request when a stop string is complete."""
        reason = self._request.finish_reason
        if not self._stop.active:
            text = self._decoder.feed(token_ids, last=reason is not None)
            return Chunk(text, token_ids, reason, self._request.stop_token_id)
        text = ""
        for n, token_id in enumerate(token_ids, start=1):
            text += self._stop.feed(self._decoder.feed([token_id]))
            if self._stop.found is not None:
                self._request.cancel()
                return Chunk(text, token_ids[:n], "stop", self._stop.found)
        if reason is not None:
            text += self._stop.feed(self._decoder.feed([], last=True), last=True)
            if self._stop.found is not None:
                return Chunk(text, token_ids, "stop", self._stop.found)
        return Chunk(text, token_ids, reason, self._request.stop_token_id)
