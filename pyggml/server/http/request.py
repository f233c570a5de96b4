"""One request on its way: what it holds, what it started, and how its answer is sent."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from pyggml import (
    AsyncChatStream,
    AsyncStream,
    ChatChunk,
    ChatCompletion,
    Chunk,
    ClosedError,
    Completion,
    EngineLostError,
    HostLostError,
    Message,
    QueueFullError,
)
from pyggml.server.http import errors
from pyggml.server.http.concurrency_limit import queue_full
from pyggml.server.http.errors import STOPPING, ClientGone, Failure, RequestError, failure_of, without_folders
from pyggml.server.http.generation import Generation
from pyggml.server.http.request_body import read_body, require_reasonable
from pyggml.server.http.request_id import refusal, request_id, with_request_id
from pyggml.server.http.request_outcome import Course
from pyggml.server.http.streaming import PING, Pieces, framed, lined, watched
from pyggml.server.observability.observer import Answer
from pyggml.server.protocols.endpoint import EVENTS, LINES, Endpoint, Event, Protocol

if TYPE_CHECKING:
    from types import TracebackType

    from pydantic import BaseModel
    from typing_extensions import Self

    from pyggml.server.models.pool import Served
    from pyggml.server.worker import Worker

T = TypeVar("T")
C = TypeVar("C", Chunk, ChatChunk)
D = TypeVar("D", Completion, ChatCompletion)


class Call:
    """One request. What it leases and starts is given back when its answer has been sent, or nobody reads it.

    Attributes:
        worker: the server.
        protocol: the language of the request.
        endpoint: what was asked for.
        request: Starlette's request.
        id: names the request in logs and answers: the client's own if it is short and plain, else a new one.
        began_s: when it arrived, by :func:`time.monotonic`.
        received: its body, once validated; None: there is none.
        served: the model that it uses; None: none so far.
        generations: what was started for it.
    """

    def __init__(self, worker: Worker, protocol: Protocol, endpoint: Endpoint, request: Request) -> None:
        self.worker = worker
        self.protocol = protocol
        self.endpoint = endpoint
        self.request = request
        self.id = request_id(request.headers)
        self.began_s = time.monotonic()
        self.received: BaseModel | None = None
        self.served: Served | None = None
        self.generations: list[Generation[Any, Any]] = []
        self._held = AsyncExitStack()
        self._place = ExitStack()
        self._held.callback(self._place.close)
        self._has_place = False
        self._course = Course()
        self._is_cancelled = False
        self._is_long = False
        self._is_stopped = False
        self._task = asyncio.current_task()

    async def __aenter__(self) -> Self:
        self.worker.observer.call_began(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._task = None  # it only cleans up, which nobody may stop
        try:
            await self._held.aclose()
        finally:
            self.worker.calls.leave(self)
            ended = self._course.ended([*self._answers()], time.monotonic() - self.began_s, value)
            self.worker.observer.call_ended(self, ended)

    # --- what handlers use ----------------------------------------------------------------------------------

    async def body(self) -> Any:
        """The validated body; None if the endpoint takes none.

        Raises:
            RequestError: it is too large, or did not come in time.
            ValidationError: it is not JSON, or does not validate.
        """
        if self.endpoint.body is None:
            return None
        settings = self.worker.settings
        self.received, self._is_long = await read_body(
            self.request, self.endpoint.body, settings.max_body_bytes, settings.body_timeout
        )
        return self.received

    def named(self, job_id: str) -> str:
        """Lets others cancel the call by this name, which must be new. Returns it.

        Raises:
            RequestError: 409, a call of that name is running.
        """
        self.worker.jobs.enter(job_id, self)
        self._held.callback(self.worker.jobs.leave, job_id)
        return job_id

    async def model(self, name: str) -> Served:
        """The model of that name, which stays loaded until the call ends. Loads it if it has to.

        Raises:
            RequestError: 404, there is no such model.
            InferError: it cannot be loaded.
            ClientGone: the client left while it was loaded.
        """
        self.served = await self.watched(self._held.enter_async_context(self.worker.models.lease(name)))
        return self.served

    async def chat(
        self, served: Served, messages: Sequence[Message], sampling: Mapping[str, Any], *, n: int = 1, **options: Any
    ) -> Generation[ChatChunk, ChatCompletion]:
        """Submits a conversation.

        Args:
            served: the model.
            messages: as for :meth:`pyggml.LLM.chat`.
            sampling: the fields of SamplingParams that the request sets.
            n: number of answers.
            **options: the other parameters of :meth:`pyggml.LLM.chat`.

        Raises:
            InferError: as :meth:`pyggml.LLM.chat`.
            ClientGone: the client left meanwhile.
        """
        self._require_at_most("messages", len(messages), self.worker.settings.max_messages)
        if self._is_long:
            await self.aside(require_reasonable, served.llm.n_ctx, _texts(messages), {**sampling, **options})
        self._require_at_most("choices", n, self._max_choices(served))

        def streams() -> list[AsyncChatStream]:
            params = served.choices(sampling, n, self.worker.settings)
            return [served.llm.astream_chat(messages, params=each, **options) for each in params]

        return await self._submitted(served, streams)

    async def complete(
        self,
        served: Served,
        prompts: Sequence[str | Sequence[int]],
        sampling: Mapping[str, Any],
        *,
        n: int = 1,
        parse_special: bool = True,
    ) -> Generation[Chunk, Completion]:
        """Submits texts, or token ids, to be continued.

        Args:
            served: the model.
            prompts: the texts; the choices of the first come first.
            sampling: the fields of SamplingParams that the request sets.
            n: number of choices for each.
            parse_special: as for :meth:`pyggml.LLM.generate`.

        Raises:
            InferError: as :meth:`pyggml.LLM.generate`.
            ClientGone: the client left meanwhile.
        """
        self._require_at_most("choices", n * len(prompts), self._max_choices(served))
        if self._is_long:
            await self.aside(require_reasonable, served.llm.n_ctx, prompts, sampling)

        def streams() -> list[AsyncStream]:
            params = served.choices(sampling, n, self.worker.settings)
            astream = functools.partial(served.llm.astream, parse_special=parse_special)
            return [astream(prompt, each) for prompt in prompts for each in params]

        return await self._submitted(served, streams)

    async def finish(self, generation: Generation[C, D]) -> list[D]:
        """Runs a generation to its end, and returns its choices.

        Raises:
            ClientGone: the client left meanwhile.
            InferError: as :meth:`pyggml.LLM.chat`.
        """
        return await self.watched(generation.finish())

    def cancel(self) -> None:
        """Ends what the call has started soon, or is about to start; its answers then end as cancelled."""
        self._is_cancelled = True
        for generation in self.generations:
            generation.cancel()

    def stop(self) -> None:
        """Has the call answer that the server is stopping, unless its answer has begun."""
        if self._course.status is None and self._task is not None:
            self._is_stopped = True
            self._task.cancel()

    async def aside(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Calls something that may take a while, such as tokenizing a long text, in a thread.

        Raises:
            As :meth:`beside`.
        """
        return await self.beside(asyncio.to_thread, function, *args, **kwargs)

    async def prepared(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Calls something that takes as long as the body is long: in a thread if that is what it is.

        Raises:
            As :meth:`beside`.
        """
        return await self.aside(function, *args, **kwargs) if self._is_long else function(*args, **kwargs)

    async def beside(self, function: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any) -> T:
        """Awaits what the engine's queue does not count, such as embeddings.

        The call is counted until it ends, or the engine's queue has it.

        Raises:
            QueueFullError: too many requests do so with this model.
            ClientGone: the client left meanwhile; the work is cancelled.
        """
        if self.served is not None and not self.generations and not self._has_place:
            self._place.enter_context(self.served.beside.place())
            self._has_place = True
        return await self.watched(function(*args, **kwargs))

    async def watched(self, work: Awaitable[T]) -> T:
        """Awaits something for as long as the client is there.

        Raises:
            ClientGone: the client left; the work is cancelled.
        """
        return await watched(work, self.request.receive)

    def events(self, events: AsyncIterator[Event]) -> Response:
        """Streams server-sent events. What goes wrong on the way is the last one."""
        ping = PING if self.protocol.ping is None else framed(self.protocol.ping)
        return Pieces(self._pieces(events, framed, self.protocol.last_event), EVENTS, ping, self.worker.settings.ping_s)

    def lines(self, values: AsyncIterator[Any]) -> Response:
        """Streams JSON values, a line each. What goes wrong on the way is the last one."""
        return Pieces(self._pieces(values, lined, self.protocol.error_body), LINES)

    def failed(self, error: Exception) -> Failure:
        """What an exception means. The observers hear of it."""
        is_stopping = self.worker.is_draining and isinstance(error, ClosedError)
        failure = STOPPING if is_stopping else failure_of(error)
        message = failure.message
        if self.served is not None:
            message = without_folders(message, self.served.llm.model.path)
            if isinstance(error, (EngineLostError, HostLostError)):
                self.worker.models.lost(self.served)
        failure = dataclasses.replace(failure, message=message, request_id=self.id)
        if failure.status >= 500 and failure.code != STOPPING.code:
            self.worker.observer.failed(self, error)
        self._course.failure = failure
        return failure

    # --- inside ---------------------------------------------------------------------------------------------

    async def answer(self) -> Response:
        """What the handler answers, or what went wrong in the protocol's words.

        Raises:
            ClientGone: nobody reads an answer.
        """
        response = with_request_id(await self._answer(), self.id)
        self._course.status = response.status_code
        return response

    async def _answer(self) -> Response:
        try:
            self.worker.admit(self)
            return await self.endpoint.handler(self, await self.body())
        except ClientGone:
            raise
        except asyncio.CancelledError:
            if not self._is_stopped:
                raise
            if self._task is not None and sys.version_info >= (3, 11):
                self._task.uncancel()
            return refusal(self.protocol, self.failed(RequestError(STOPPING)))
        except Exception as error:
            return refusal(self.protocol, self.failed(error))

    def _require_at_most(self, what: str, number: int, limit: int) -> None:
        if number > limit:
            message = f"{number} {what} are more than the {limit} that this server allows in one request"
            raise errors.invalid(message, code=f"too_many_{what}")

    def _max_choices(self, served: Served) -> int:
        """How many answers a request may ask for: no more than the queue can ever hold."""
        limit, n_places = self.worker.settings.max_choices, served.beside.limit
        return limit if n_places is None else min(limit, n_places)

    async def _submitted(
        self, served: Served, streams: Callable[[], Sequence[AsyncStream] | Sequence[AsyncChatStream]]
    ) -> Generation[Any, Any]:
        """Submits streams, which check what they are asked: that takes a while for a long body."""
        generation: Generation[Any, Any] = Generation(served, await self.prepared(streams))
        self._held.push_async_callback(generation.aclose)
        try:
            await self.watched(generation.submit())
        except QueueFullError as error:
            raise queue_full(served, error) from error
        self.generations.append(generation)
        self._place.close()  # it has one in the engine's queue
        if self._is_cancelled:
            generation.cancel()
        return generation

    async def _pieces(
        self, values: AsyncIterator[T], sent: Callable[[T], bytes], last: Callable[[Failure], T]
    ) -> AsyncGenerator[bytes, None]:
        """An answer as it is sent.

        Args:
            values: what it is made of.
            sent: how one of them is sent.
            last: makes the last one, if something goes wrong on the way.
        """
        self._course.is_streaming = True
        try:
            async for value in values:
                yield sent(value)
        except Exception as error:
            yield sent(last(self.failed(error)))
        self._course.is_streaming = False  # which it stays when the client leaves

    def _answers(self) -> Iterator[Answer]:
        """What was generated."""
        for generation in self.generations:
            for completion, at in zip(generation.completions, generation.submitted_s, strict=True):
                yield Answer(generation.served.name, completion, None if at is None else at - self.began_s)


def _texts(messages: Sequence[Message]) -> Iterator[object]:
    """The texts of a conversation, of which some may be no texts yet."""
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, list):
            yield from (part.get("text") for part in content if isinstance(part, dict))
        else:
            yield content
