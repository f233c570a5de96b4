"""Running generations as iterators of chunks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from pyggml._core.json_forms import Origin
from pyggml._core.owner import ClosableOwner, Owner
from pyggml.cache import display_name
from pyggml.errors import InvalidParameterError
from pyggml.generation.request import Request
from pyggml.tokenizer import StopStrings, StreamDecoder
from pyggml.types import Chunk, Completion, FinishReason, Timings, TokenLogprobs

if TYPE_CHECKING:
    from pyggml.generation.pending_request import PromptRequest

C = TypeVar("C", bound=Chunk)
D = TypeVar("D", bound=Completion)


class ChunkBuilder:
    """Builds chunks from one request's tokens, and a completion from all the chunks."""

    def __init__(self, pending: PromptRequest) -> None:
        """Build the output of a request, which need not be submitted yet."""
        self._json_schema, self._min_tokens = pending.json_schema, pending.params.min_tokens
        self._decoder = StreamDecoder(pending.tokenizer)
        self._stop = StopStrings(pending.stop)
        self._texts: list[str] = []
        self._token_ids: list[int] = []
        self._logprobs: list[TokenLogprobs] = []
        self._last: Chunk | None = None
        self._origin: Origin | None = None

    def __repr__(self) -> str:
        end = "running" if self._last is None else self._last.finish_reason
        return f"{end}, {len(self._token_ids)} tokens read"

    @property
    def ended(self) -> bool:
        """True once the last chunk has been added."""
        return self._last is not None

    def add(self, request: Request, token_ids: list[int]) -> Chunk:
        """Build and append the chunk of one read's tokens; cancel the request if they complete a stop string."""
        return self.append(self.build(request, token_ids))

    def is_slow(self, token_ids: list[int]) -> bool:  # noqa: ARG002
        """Return True if building a chunk of these tokens takes too long for an event loop."""
        return False

    def build(self, request: Request, token_ids: list[int]) -> Chunk:
        """Build the chunk of one read's tokens, perhaps in another thread."""
        self._origin = self._origin or Origin(display_name(Path(request.model_path)).removesuffix(".gguf"))
        text, token_ids, reason, stop_reason = self._cut_at_stop(request, token_ids)
        logprobs = None if request.logprobs is None else request.logprobs[: len(token_ids)]
        return Chunk(text, token_ids, reason, stop_reason, logprobs, _origin=self._origin)

    def append(self, chunk: Chunk) -> Chunk:
        """Append a chunk to the completion."""
        self._logprobs += chunk.logprobs or []
        self._texts.append(chunk.text)
        self._token_ids += chunk.token_ids
        if chunk.finish_reason is not None:
            self._last = chunk
        return chunk

    def text_to_display(self, chunk: Chunk) -> str:
        """Return what :meth:`Stream.display` prints of a chunk, once it has been added."""
        return chunk.text

    def cancel(self) -> Chunk:
        """End an unfinished generation as cancelled, and return the last chunk."""
        if self._last is None:
            self._last = Chunk("", [], "cancelled", _origin=self._origin)
        return self._last

    def completion(self, request: Request | None) -> Completion:
        """Build the completion of a generation that has ended; without a request, an empty, cancelled one.

        Raises:
            InvalidParameterError: the generation has not ended.
        """
        if self._last is None or self._last.finish_reason is None:
            raise InvalidParameterError("the generation has not ended: take all its chunks first, or call finish()")
        return Completion(
            text="".join(self._texts),
            token_ids=list(self._token_ids),
            finish_reason=self._last.finish_reason,
            stop_reason=self._last.stop_reason,
            prompt_tokens=request.prompt_tokens if request else 0,
            cached_tokens=request.cached_tokens if request else 0,
            timings=request.timings if request else Timings(),
            logprobs=None if request is None or request.logprobs is None else list(self._logprobs),
            prompt_logprobs=None if request is None else request.prompt_logprobs,
            _json_schema=self._json_schema,
            _origin=self._origin,
        )

    def _cut_at_stop(
        self, request: Request, token_ids: list[int]
    ) -> tuple[str, list[int], FinishReason | None, str | int | None]:
        """Return the text and the tokens up to a stop string, and how the generation ended, if it did."""
        reason = request.finish_reason
        if not self._stop.active:
            text = self._decoder.feed(token_ids, last=reason is not None)
            return text, token_ids, reason, request.stop_reason
        text = ""
        for n, token_id in enumerate(token_ids, start=1):
            piece = self._decoder.feed([token_id])
            text += self._stop.feed(piece) if len(self._token_ids) + n > self._min_tokens else piece
            if self._stop.found is not None:
                request.cancel()
                return text, token_ids[:n], "stop", self._stop.found
        if reason is not None:
            text += self._stop.feed(self._decoder.feed([], last=True), last=True)
            if self._stop.found is not None:
                return text, token_ids, "stop", self._stop.found
        return text, token_ids, reason, request.stop_reason


class StreamResult(Owner, Generic[D]):
    """The request of a stream, and its completion; base class of streams and asynchronous streams."""

    _request: Request | None
    _builder: ChunkBuilder
    _is_cancelled = False

    @property
    def completion(self) -> D:
        """The whole completion, once the last chunk has been taken.

        Raises:
            InvalidParameterError: the generation has not ended yet.
        """
        return cast("D", self._builder.completion(self._request))

    @property
    def prompt_tokens(self) -> int:
        """Length of the prompt in tokens, as of the last chunk; 0 before the first."""
        return 0 if self._request is None else self._request.prompt_tokens

    @property
    def cached_tokens(self) -> int:
        """Number of prompt tokens taken from the cache, as of the last chunk; 0 before the first."""
        return 0 if self._request is None else self._request.cached_tokens

    @property
    def _is_over(self) -> bool:
        return self._is_cancelled or self._builder.ended


class BaseStream(StreamResult[D], ClosableOwner, Iterator[C], Generic[C, D]):
    """Base class of streams, for any kind of chunk."""

    _request: Request

    _instead_of_a_copy = "finish() returns a completion, which can be"

    def __init__(self, request: Request, builder: ChunkBuilder, min_tokens: int) -> None:
        """Read a request in flight, waking up for ``min_tokens`` new tokens."""
        self._request = request
        self._builder = builder
        self._min_tokens = min_tokens

    def __next__(self) -> C:
        if self._builder.ended:
            raise StopIteration
        try:
            return cast("C", self._builder.add(self._request, self._request.read(self._min_tokens)))
        except BaseException:
            self.close()  # tokens may have been lost, so the stream cannot continue
            raise

    def poll(self) -> bool:
        """Read the available tokens without waiting. Returns True once the generation has ended.

        Until then, the request's waker is notified of more tokens. Errors as :meth:`LLM.generate`.
        """
        while not self._builder.ended:
            token_ids = self._request.read_now(self._min_tokens)
            if not token_ids and self._request.finish_reason is None:
                return False
            self._builder.add(self._request, token_ids)
        return True

    def finish(self) -> D:
        """Run to the end and return the whole completion, including chunks already taken.

        Errors as :meth:`LLM.generate`.
        """
        try:
            for _ in self:
                pass
            return self.completion
        finally:
            self.close()  # Ctrl-C may arrive between two chunks

    def display(self) -> None:
        """Print the text as it is generated, in a notebook or a terminal, to the end; then read :attr:`completion`.

        Prints only what no chunk taken before has. A chat's reasoning is followed by an empty line, and tool calls come
        last. Ctrl-C, or interrupting the cell, cancels the generation. A stream in the last line of a cell is displayed
        like this without the call.

        Errors as :meth:`LLM.generate`.
        """
        try:
            for chunk in self:
                print(self._builder.text_to_display(chunk), end="", flush=True)
            print()
        finally:
            self.close()

    def _ipython_display_(self) -> None:
        """Display the stream in a notebook or in IPython."""
        if self._builder.ended:
            print(repr(self))
        else:
            self.display()

    def cancel(self) -> None:
        """End the generation soon; the last chunk then has ``finish_reason="cancelled"``."""
        self._is_cancelled = True
        self._request.cancel()

    def close(self) -> None:
        """Cancel the generation and end the iterator."""
        self._request.cancel()
        self._builder.cancel()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._builder!r})"


class Stream(BaseStream[Chunk, Completion]):
    """A running generation as an iterator of chunks.

    Only one thread may iterate; any thread may call :meth:`cancel`. Closing or dropping the stream, or leaving its
    ``with`` block, cancels the generation. After an exception the stream has ended.
    """

    def __init__(self, pending: PromptRequest, request: Request) -> None:
        """Read a request, which was submitted as ``pending``.

        Args:
            pending: the request as it was prepared: prompt, parameters, tokenizer.
            request: the same request in flight.
        """
        super().__init__(request, pending.builder(), pending.min_tokens)
