"""State and lifetime of one request: from its admission to the end of its response."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from pyggml import ClosedError, EngineLostError, HostLostError, InferError, QueueFullError, RequestTimeout
from pyggml.server.http.cpu_threads import Kind
from pyggml.server.http.disconnects import ClientDisconnectedError, cancel_on_disconnect
from pyggml.server.http.errors import (
    STOPPING,
    Failure,
    RequestError,
    error_response,
    failure_from,
    in_request_terms,
    strip_folders,
)
from pyggml.server.http.request_body import read_and_validate
from pyggml.server.http.request_id import request_id, with_request_id
from pyggml.server.http.request_outcome import GeneratedChoice, RequestOutcome
from pyggml.server.models.adapters import require_adapter
from pyggml.server.protocols.endpoint import Endpoint, Protocol

if TYPE_CHECKING:
    from types import TracebackType

    from pydantic import BaseModel
    from typing_extensions import Self

    from pyggml.server.http.generation import Generation
    from pyggml.server.keys.accounts import Account
    from pyggml.server.keys.fair_queue import Turn
    from pyggml.server.models.pool import LoadedModel
    from pyggml.server.worker import Worker

T = TypeVar("T")


class ServerRequest:
    """One request. On exit, it releases its model and cancels its generations.

    Attributes:
        worker: the server.
        protocol: the protocol of the endpoint.
        endpoint: the endpoint.
        http: Starlette's request.
        id: identifies the request in logs and responses: the client's ID if it is short and plain, else a new one.
        started_s: time of arrival, by :func:`time.monotonic`.
        body: the validated body; None: not read yet, or the endpoint takes none.
        has_long_body: True if the body is so long that work proportional to its length belongs in a thread.
        model: the leased model; None: none yet.
        adapter: name of the adapter in the model's name, "model:adapter"; None: there is none.
        account: the holder of its API key; None: the server needs no keys, or the key is not known yet.
        generations: the generations submitted for it.
        outcome: status, failure and results.
        cleanup: callbacks for the end of the request.
    """

    def __init__(self, worker: Worker, protocol: Protocol, endpoint: Endpoint, http: Request) -> None:
        self.worker = worker
        self.protocol = protocol
        self.endpoint = endpoint
        self.http = http
        self.id = request_id(http.headers)
        self.started_s = time.monotonic()
        self.body: BaseModel | None = None
        self.has_long_body = False
        self.model: LoadedModel | None = None
        self.adapter: str | None = None
        self.account: Account | None = None
        self.generations: list[Generation[Any, Any]] = []
        self.outcome = RequestOutcome()
        self.cleanup = AsyncExitStack()
        self._concurrency_slot = ExitStack()
        self.cleanup.callback(self._concurrency_slot.close)
        self._has_slot = False
        self._is_counted = False
        self._turn: Turn | None = None
        self._n_other_tokens = 0
        self._is_cancelled = False
        self._is_stopped = False
        self._task = asyncio.current_task()

    async def __aenter__(self) -> Self:
        self.worker.observer.request_started(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._task = None  # stop() must not cancel the cleanup
        try:
            await self.cleanup.aclose()
        finally:
            self.worker.running_requests.discard(self)
            self.outcome.choices = [
                GeneratedChoice(each.model.name, completion, submitted_s and submitted_s - self.started_s)
                for each in self.generations
                for completion, submitted_s in zip(each.completions, each.submitted_s, strict=True)
            ]
            self._settle()
            self.outcome.duration_s = time.monotonic() - self.started_s
            self.outcome.has_crashed = value is not None
            self.worker.observer.request_ended(self)

    # --- the request from end to end ------------------------------------------------------------------------

    async def respond(self) -> Response:
        """Run the endpoint's handler. Errors become responses in the protocol's format.

        Raises:
            ClientDisconnectedError: the client disconnected.
        """
        response = with_request_id(await self._handle(), self.id)
        if self.account is not None:
            response.headers.update(self.account.headers())
        self.outcome.status = response.status_code
        return response

    async def _handle(self) -> Response:
        try:
            self.worker.admit(self)
            if (model := self.endpoint.body) is None:
                return await self.endpoint.handler(self)
            self.body, self.has_long_body = await read_and_validate(
                self.http, model, self.worker.settings, self.worker.cpu_threads
            )
            return await self.endpoint.handler(self, self.body)
        except ClientDisconnectedError:
            raise
        except asyncio.CancelledError:
            if not self._is_stopped:
                raise
            if self._task is not None and sys.version_info >= (3, 11):
                self._task.uncancel()
            return error_response(self.protocol, self.record_failure(RequestError(STOPPING)))
        except Exception as error:
            return error_response(self.protocol, self.record_failure(error))

    # --- for handlers ---------------------------------------------------------------------------------------

    @property
    def owner(self) -> str:
        """Label of the API key's account, to which jobs and stored results belong; "": the server needs no keys."""
        return "" if self.account is None else self.account.label

    def register_job(self, job_id: str) -> None:
        """Let other requests with the same API key cancel this one by ``job_id``.

        Raises:
            RequestError: 409, a running job of this key has this ID.
        """
        jobs, name = self.worker.jobs, (self.owner, job_id)
        if name in jobs:
            message = f"job_id {job_id!r} belongs to a running job: choose another one, or cancel that job"
            raise RequestError(Failure(409, "invalid", message, "job_exists", "job_id"))
        jobs[name] = self
        self.cleanup.callback(jobs.pop, name)

    def job(self, job_id: str) -> ServerRequest | None:
        """Return the running job of this name and API key; None: there is none."""
        return self.worker.jobs.get((self.owner, job_id))

    async def lease_model(self, name: str, *, takes_adapter: bool = False) -> LoadedModel:
        """Return the model of this name, loading it if necessary. It stays loaded until the request ends.

        If the endpoint ``takes_adapter``, the name may end with that of an adapter, "model:adapter".

        Raises:
            RequestError: 404, there is no such model or adapter.
            InferError: it cannot be loaded.
            ClientDisconnectedError: the client disconnected during loading.
        """
        base, adapter = self.worker.models.split(name) if takes_adapter else (name, None)
        lease = self.cleanup.enter_async_context(self.worker.models.lease(base))
        self.model = await self.cancel_on_disconnect(lease)
        if adapter is not None:
            require_adapter(self.model, adapter)
            self.adapter = adapter
        return self.model

    async def run_in_thread(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Run a slow function in a thread, such as rendering; errors as :meth:`await_outside_engine_queue`."""
        return await self.run_for("prompts", function, *args, **kwargs)

    async def run_for(self, kind: Kind, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """As :meth:`run_in_thread`, in a thread for CPU work of this kind."""
        return await self.await_outside_engine_queue(self.worker.cpu_threads.run, kind, function, *args, **kwargs)

    async def run_in_thread_if_long(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Run a function whose time is proportional to the body's length: in a thread if the body is long."""
        return await self.run_for_if_long("prompts", function, *args, **kwargs)

    async def run_for_if_long(self, kind: Kind, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """As :meth:`run_in_thread_if_long`, in a thread for CPU work of this kind."""
        if self.has_long_body:
            return await self.run_for(kind, function, *args, **kwargs)
        return function(*args, **kwargs)

    async def await_outside_engine_queue(self, function: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any) -> T:
        """Await work that the engine's queue does not count, such as embeddings.

        The request holds a slot of the model's concurrency limit until it ends or enters the engine's queue.

        Raises:
            QueueFullError: no slot is free.
            ClientDisconnectedError: the client disconnected; the work is cancelled.
        """
        if self.model is not None and not self.generations and not self._has_slot:
            self._concurrency_slot.enter_context(self.model.concurrency.slot())
            self._has_slot = True
        return await self.cancel_on_disconnect(function(*args, **kwargs))

    async def cancel_on_disconnect(self, work: Awaitable[T]) -> T:
        """Await ``work``; cancel it if the client disconnects.

        Raises:
            ClientDisconnectedError: the client disconnected.
        """
        return await cancel_on_disconnect(work, self.http.receive)

    async def wait_for_turn(self, n: int) -> None:
        """Wait until fair queueing between accounts lets ``n`` generations enter the engine's queue.

        Raises:
            QueueFullError: too many requests are waiting.
            RequestTimeout: they are not over in time.
            ClientDisconnectedError: the client disconnected.
        """
        if self.account is None or self.model is None or len(self.worker.api_keys.accounts) < 2:
            return
        # Each account has a queue of its own: one that fills it does not keep the others out.
        turns, limit = self.model.turns, self.model.concurrency.limit
        if limit is not None and turns.n_waiting(self.account) >= limit:
            raise QueueFullError(f"{limit} requests of this API key are already waiting: try again later")
        self._concurrency_slot.close()
        self._turn = turn = turns.enqueue(self.account, n)  # ended with the request
        try:
            await self.cancel_on_disconnect(asyncio.wait_for(turn.granted, self.worker.settings.request_timeout))
        except asyncio.TimeoutError:
            raise RequestTimeout("the request was still waiting for its turn: try again later") from None

    def count_tokens(self, n_tokens: int) -> None:
        """Count tokens that no generation of the request has, such as those of texts to embed."""
        self._n_other_tokens += n_tokens

    def add_generation(self, generation: Generation[Any, Any]) -> None:
        """Add a submitted generation, which the engine's queue counts from now on."""
        self.generations.append(generation)
        self._concurrency_slot.close()
        if self._is_cancelled:
            generation.cancel()

    def record_failure(self, error: Exception) -> Failure:
        """Record an error in the outcome, notify the observers, and return the failure for the response."""
        is_stopping = self.worker.is_draining and isinstance(error, ClosedError)
        failure = STOPPING if is_stopping else failure_from(error)
        message = failure.message
        if isinstance(error, InferError):
            message = in_request_terms(message, {} if self.endpoint.body is None else self.endpoint.body.terms)
        if self.model is not None:
            message = strip_folders(message, self.model.llm.model.path)
            if failure.code == "context_length_exceeded":  # in words that clients such as LiteLLM look for
                message += f" (this model's maximum context length is {self.model.llm.n_ctx} tokens)"
            if isinstance(error, (EngineLostError, HostLostError)):
                self.worker.models.discard_failed(self.model)
        failure = dataclasses.replace(failure, message=message, request_id=self.id)
        if failure.status >= 500 and failure.code != STOPPING.code:
            self.worker.observer.request_failed(self, error)
        self.outcome.failure = failure
        return failure

    # --- for the worker -------------------------------------------------------------------------------------

    def count_for_account(self) -> None:
        """Count the request for the limits of its API key, unless its endpoint is free.

        Raises:
            RequestError: 429, a limit is reached.
        """
        if self.account is not None and not self.endpoint.is_free:
            self.account.admit()
            self._is_counted = True

    def _settle(self) -> None:
        """Count the tokens of the request for its account."""
        completions = [choice.completion for choice in self.outcome.choices]
        n_generated = sum(len(each.token_ids) for each in completions)
        n_prompt = sum(each.prompt_tokens for each in completions) + self._n_other_tokens
        self.outcome.n_tokens = n_prompt + n_generated
        if self._turn is not None:
            self._turn.end(self.outcome.n_tokens - sum(each.cached_tokens for each in completions))
        if self.account is not None and self._is_counted:
            self.account.release(self.outcome.n_tokens)

    def cancel(self) -> None:
        """Cancel all generations, also those not submitted yet; their finish reason becomes "cancelled"."""
        self._is_cancelled = True
        for generation in self.generations:
            generation.cancel()

    def stop(self) -> None:
        """Respond with 503 "stopping", unless the response has begun."""
        if self.outcome.status is None and self._task is not None:
            self._is_stopped = True
            self._task.cancel()
