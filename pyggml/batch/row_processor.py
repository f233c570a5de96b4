"""Answers rows: plain ones through the library, requests in OpenAI's format through the server's own application."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pyggml
from pyggml.batch.rows import Broken, Row

Json = dict[str, Any]

#: Rows that are submitted for each that is computed, so that the engine never waits for Python.
_AHEAD = 2
#: What concerns the engine and not a row: the job stops, and can go on later.
_FATAL = (
    pyggml.EngineLostError,
    pyggml.HostLostError,
    pyggml.ClosedError,
    pyggml.DeviceError,
    pyggml.OutOfMemoryError,
    pyggml.MissingPackageError,
    pyggml.QueueFullError,
)


class Answering(Protocol):
    """What answers the rows of a job."""

    async def answer(self, index: int, row: Row | Broken) -> Json:
        """The answer to a row, which says what is wrong with one that cannot be answered.

        Raises:
            InferError: the engine failed, so that no row can be answered.
        """


def answer_fields(column: str) -> dict[str, type]:
    """The fields that a plain row gets, with their types; lists and the like are ``object``."""
    return {
        column: str,
        f"{column}_error": str,
        f"{column}_finish_reason": str,
        f"{column}_prompt_tokens": int,
        f"{column}_tokens": int,
        f"{column}_reasoning": str,
        f"{column}_tool_calls": object,
    }


@dataclass(frozen=True)
class Names:
    """Names of the fields of plain rows.

    Attributes:
        prompt: the text to continue, or its token ids.
        messages: the conversation to answer, which goes before the prompt.
        params: the sampling parameters of the row alone.
        column: the answer; see :func:`answer_fields`.
    """

    prompt: str = "prompt"
    messages: str = "messages"
    params: str = "params"
    column: str = "answer"


@contextlib.asynccontextmanager
async def open_answering(
    llm: pyggml.LLM, params: pyggml.SamplingParams | None, names: Names, is_openai: bool
) -> AsyncIterator[Answering]:
    """What answers rows with a model, as long as the context is entered.

    Raises:
        MissingPackageError: requests in OpenAI's format need the packages of the server.
    """
    if not is_openai:
        yield PlainAnswering(llm, params, names)
        return
    from pyggml.batch.openai_rows import RequestAnswering

    async with RequestAnswering.opened(llm) as answering:
        yield answering


async def answer_all(
    answering: Answering, rows: Iterable[tuple[int, Row | Broken]], n_parallel: int, add: Callable[[int, Json], object]
) -> None:
    """Answers rows, a few more at a time than the engine computes together, and gives each answer to ``add``."""
    waiting = iter(rows)

    async def work() -> None:
        for index, row in waiting:
            add(index, await answering.answer(index, row))

    workers = [asyncio.create_task(work()) for _ in range(_AHEAD * n_parallel)]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


async def works(llm: pyggml.LLM) -> bool:
    """Whether the engine still answers: what failed once may have been the row's fault."""
    try:
        await llm.agenerate("a", max_tokens=1)
    except (pyggml.EngineError, *_FATAL):
        return False
    except pyggml.InferError:  # a model that generates nothing says so
        return True
    return True


class PlainAnswering:
    """Answers rows with a prompt or messages."""

    def __init__(self, llm: pyggml.LLM, params: pyggml.SamplingParams | None, names: Names) -> None:
        """Takes an open model, and the parameters of rows that set none."""
        self._llm, self._params, self._names = llm, params, names

    async def answer(self, index: int, row: Row | Broken) -> Json:
        """As :meth:`Answering.answer`."""
        del index
        if isinstance(row, Broken):
            return self._failed(row)
        try:
            return await self._answered_or_again(row)
        except _FATAL:
            raise
        except Exception as error:  # of whatever kind: one row must not keep a million others from their answers
            if isinstance(error, pyggml.EngineError) and not await works(self._llm):
                raise
            return self._failed(f"{type(error).__name__}: {error}")

    async def _answered_or_again(self, row: Row) -> Json:
        """The answer, if need be of a second try: the engine may have lacked a descriptor just then."""
        try:
            return self._answered(await self._completion(row))
        except pyggml.EngineError:
            if not await works(self._llm):
                raise
        return self._answered(await self._completion(row))

    async def _completion(self, row: Row) -> pyggml.Completion:
        names = self._names
        if taken := [name for name in answer_fields(names.column) if name in row]:
            raise pyggml.InvalidParameterError(f"the row has {taken[0]!r} already: choose another column for answers")
        own = _own_params(row.get(names.params))
        if row.get(names.messages) is not None:
            return await self._llm.achat(row[names.messages], row.get("tools"), self._params, **own)
        if row.get(names.prompt) is None:
            raise pyggml.InvalidParameterError(f"the row has neither {names.prompt!r} nor {names.messages!r}")
        return await self._llm.agenerate(row[names.prompt], self._params, **own)

    def _answered(self, done: pyggml.Completion) -> Json:
        text, reasoning, calls = done.text, None, None
        if isinstance(done, pyggml.ChatCompletion):
            message = done.message.to_dict()
            text, reasoning, calls = done.message.content, message.get("reasoning_content"), message.get("tool_calls")
        values = (text, None, done.finish_reason, done.prompt_tokens, len(done.token_ids), reasoning, calls)
        return dict(zip(answer_fields(self._names.column), values, strict=True))

    def _failed(self, message: str) -> Json:
        return dict.fromkeys(answer_fields(self._names.column)) | {f"{self._names.column}_error": str(message)}


def _own_params(given: Any) -> Mapping[str, Any]:
    """The sampling parameters of a row; also as JSON text, as Parquet files may have them."""
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError as error:
            raise pyggml.InvalidParameterError(f"the row's params are not JSON: {error}") from None
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise pyggml.InvalidParameterError(f"the row's params are {type(given).__name__}, and must be an object")
    set_ones = {name: value for name, value in given.items() if value is not None}  # Parquet fills up with nulls
    pyggml.SamplingParams(**set_ones)  # names that are not parameters are refused here
    return set_ones


def usage(answer: Json, column: str) -> tuple[bool, int, int]:
    """Of an answer: whether the row failed, tokens of its prompt, and tokens generated."""
    if "custom_id" in answer and "response" in answer:
        response = answer["response"] or {}
        used = (response.get("body") or {}).get("usage") or {}
        failed = answer["error"] is not None or response.get("status_code") != 200
        n_prompt, n_generated = (used.get(a, used.get(b)) or 0 for a, b in _USAGE)
        return failed, n_prompt, n_generated
    return (
        answer.get(f"{column}_error") is not None,
        answer.get(f"{column}_prompt_tokens") or 0,
        answer.get(f"{column}_tokens") or 0,
    )


# What the endpoints call them: that of chats and completions, and that of responses.
_USAGE = (("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens"))
