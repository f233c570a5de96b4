"""Row processors: compute the answers to rows, concurrently."""

from __future__ import annotations

import asyncio
import contextlib
import json
import warnings
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

import pyggml
from pyggml.batch.rows import OPENAI_FIELDS, InvalidRow, Row
from pyggml.options import fields_of

Json = dict[str, Any]

#: Sampling parameters of a job: all of them, some of them, or none.
Params = pyggml.SamplingParams | Mapping[str, Any] | None

# Name of a sampling parameter, here or in other libraries -> its name here.
_PARAMS = {name: own for name, own in pyggml.SamplingParams.HINTS.items() if own in fields_of(pyggml.SamplingParams)}
_PARAMS |= {name: name for name in fields_of(pyggml.SamplingParams)}

#: Rows submitted per parallel sequence, so that the engine never waits for Python.
_QUEUE_FACTOR = 2
#: Fields that a message about a row lists.
_MAX_FIELDS_SHOWN = 8
#: Errors of the engine, not of a row: the job stops, and can be resumed.
_FATAL = (
    pyggml.EngineLostError,
    pyggml.HostLostError,
    pyggml.ClosedError,
    pyggml.DeviceError,
    pyggml.OutOfMemoryError,
    pyggml.MissingPackageError,
    pyggml.QueueFullError,
)


class RowProcessor(Protocol):
    """Interface of row processors, which compute the answers to the rows of a job."""

    async def process(self, index: int, row: Row | InvalidRow) -> Json:
        """Return the answer to a row; for a row that fails, the answer contains the error.

        Args:
            index: the row's index, from 0.
            row: the row.

        Raises:
            InferError: the engine failed.
        """


def answer_fields(column: str) -> dict[str, type]:
    """Return the fields that an answer adds to a prompt row, with their types; ``object`` for lists.

    Args:
        column: name of the field with the answer.
    """
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
class FieldNames:
    """Names of the fields of prompt rows.

    Attributes:
        prompt: the prompt: text or token ids.
        messages: the conversation.
        params: the row's own sampling parameters.
        column: the answer; see :func:`answer_fields`.
    """

    prompt: str = "prompt"
    messages: str = "messages"
    params: str = "params"
    column: str = "answer"


@contextlib.asynccontextmanager
async def open_row_processor(
    llm: pyggml.LLM, params: Params, names: FieldNames, is_openai: bool
) -> AsyncIterator[RowProcessor]:
    """Open the row processor for a format, with an open model.

    Args:
        llm: the open model.
        params: default sampling parameters.
        names: names of the rows' fields.
        is_openai: the rows are in the format of OpenAI's batch API.

    Raises:
        MissingPackageError: requests in OpenAI's format need the packages of the server.
    """
    if not is_openai:
        yield PromptRowProcessor(llm, params, names)
        return
    from pyggml.batch.openai_rows import RequestRowProcessor

    async with RequestRowProcessor.open(llm) as processor:
        yield processor


async def process_rows(
    processor: RowProcessor,
    rows: Iterable[tuple[int, Row | InvalidRow]],
    n_parallel: int,
    add: Callable[[int, Json], object],
) -> None:
    """Process rows concurrently, and pass each answer to ``add`` as soon as it is computed.

    Args:
        processor: computes the answers.
        rows: the rows, each with its index.
        n_parallel: number of parallel sequences of the model; twice as many rows are in flight.
        add: called with the index and the answer of each row.
    """
    queue = iter(rows)

    async def work() -> None:
        for index, row in queue:
            add(index, await processor.process(index, row))

    workers = [asyncio.create_task(work()) for _ in range(_QUEUE_FACTOR * n_parallel)]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


async def engine_responds(llm: pyggml.LLM) -> bool:
    """Check whether the engine still generates, to tell its failure from a row's."""
    try:
        await llm.agenerate("a", max_tokens=1)
    except (pyggml.EngineError, *_FATAL):
        return False
    except pyggml.InferError:  # a model that cannot generate, such as an embedding model
        return True
    return True


class PromptRowProcessor:
    """Row processor for rows with a prompt or messages."""

    def __init__(self, llm: pyggml.LLM, params: Params, names: FieldNames) -> None:
        """Use an open model, with default sampling parameters.

        Args:
            llm: the open model.
            params: default sampling parameters.
            names: names of the rows' fields.
        """
        self._llm, self._params, self._names = llm, params, names
        self._known = {names.prompt, names.messages}  # and the fields of which a warning was given

    async def process(self, index: int, row: Row | InvalidRow) -> Json:
        """Return the answer to a row, as every :class:`~pyggml.batch.row_processor.RowProcessor`.

        Args:
            index: the row's index, which is not used.
            row: the row.
        """
        del index
        if isinstance(row, InvalidRow):
            return self._error_fields(row)
        try:
            return await self._generate_with_retry(row)
        except _FATAL:
            raise
        except Exception as error:  # any error: one row must not stop a job of millions
            if isinstance(error, pyggml.EngineError) and not await engine_responds(self._llm):
                raise
            return self._error_fields(f"{type(error).__name__}: {error}")

    async def _generate_with_retry(self, row: Row) -> Json:
        """Generate, and retry once after a temporary error, such as a lack of file descriptors."""
        try:
            return self._fields(await self._generate(row))
        except pyggml.EngineError:
            if not await engine_responds(self._llm):
                raise
        return self._fields(await self._generate(row))

    async def _generate(self, row: Row) -> pyggml.Completion:
        names = self._names
        if taken := [name for name in answer_fields(names.column) if name in row]:
            raise pyggml.InvalidParameterError(
                f"the row already has a field {taken[0]!r}: --column NAME (column= in Python) renames the answer's"
            )
        params, own = self._params, _row_params(row.get(names.params))
        self._warn_of_params_outside(row)
        if isinstance(params, Mapping):
            own = {**params, **own}
            params = None
        messages, tools = _decoded(names.messages, row.get(names.messages)), _decoded("tools", row.get("tools"))
        prompt = row.get(names.prompt)
        if messages is not None:
            if prompt not in (None, ""):  # an empty cell of a table
                raise pyggml.InvalidParameterError(
                    f"the row has both {names.prompt!r} and {names.messages!r}: keep one of them, or name other fields "
                    "with --prompt and --messages (prompt= and messages= in Python)"
                )
            done: pyggml.ChatCompletion = await self._llm.achat(messages, tools, params, **own)
            return done
        if prompt is None and row.keys() >= OPENAI_FIELDS:
            raise pyggml.InvalidParameterError(
                "the row has the format of OpenAI's batch API, and the first row of the file has not: put rows of that "
                "format into a file of their own"
            )
        if prompt is None:
            raise pyggml.InvalidParameterError(missing_prompt_message(names, row))
        if tools:
            raise pyggml.InvalidParameterError(
                f"the row has tools, but a prompt is only continued: put the question into {names.messages!r}"
            )
        return await self._llm.agenerate(prompt, params, **own)

    def _warn_of_params_outside(self, row: Row) -> None:
        """Warn, once for each name, of fields that look like sampling parameters and are only copied."""
        ignored = [name for name in row if name in _PARAMS and name not in self._known]
        if ignored:
            self._known.update(ignored)
            warnings.warn(
                f"rows have the field {', '.join(map(repr, ignored))}, which is only copied to the output: sampling "
                f"parameters of a row are in its field {self._names.params!r}, such as "
                f"{json.dumps({_PARAMS[ignored[0]]: row[ignored[0]]}, default=str):.100}",
                stacklevel=2,
            )

    def _fields(self, done: pyggml.Completion) -> Json:
        text, reasoning, calls = done.text, None, None
        if isinstance(done, pyggml.ChatCompletion):
            message = done.message.to_dict()
            text, reasoning, calls = done.message.content, message.get("reasoning_content"), message.get("tool_calls")
        values = (text, None, done.finish_reason, done.prompt_tokens, len(done.token_ids), reasoning, calls)
        return dict(zip(answer_fields(self._names.column), values, strict=True))

    def _error_fields(self, message: str) -> Json:
        return dict.fromkeys(answer_fields(self._names.column)) | {f"{self._names.column}_error": str(message)}


def missing_prompt_message(names: FieldNames, fields: Iterable[str], what: str = "the row has") -> str:
    """Return the message for rows with neither a prompt nor messages, given the names of their fields."""
    found = ", ".join(map(repr, islice(fields, _MAX_FIELDS_SHOWN)))
    return (
        f"{what} neither {names.prompt!r} nor {names.messages!r}"
        + (f", only {found}" if found else "")
        + ": --prompt NAME (prompt= in Python) names the field with the prompt"
    )


def checked_params(params: Params) -> Params:
    """Check the sampling parameters of a job.

    Args:
        params: the parameters.

    Raises:
        InvalidParameterError: they are neither SamplingParams nor a mapping of its fields.
    """
    if isinstance(params, Mapping):
        pyggml.SamplingParams(**params)
        return dict(params)
    if not isinstance(params, (pyggml.SamplingParams, type(None))):
        raise pyggml.InvalidParameterError(
            f"params must be SamplingParams or a mapping of its fields, not {type(params).__name__}"
        )
    return params


def _decoded(name: str, given: Any) -> Any:
    """Decode a field that may be JSON text, as in CSV and Parquet files; an empty text is a missing value."""
    if not isinstance(given, str):
        return given
    try:
        return json.loads(given) if given else None
    except ValueError as error:
        raise pyggml.InvalidParameterError(f"the row's {name} are not JSON: {error}") from None


def _row_params(given: Any) -> Mapping[str, Any]:
    """Check a row's sampling parameters."""
    given = _decoded("params", given)
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise pyggml.InvalidParameterError(f"the row's params must be an object, not {type(given).__name__}")
    not_null = {name: value for name, value in given.items() if value is not None}  # Parquet pads with nulls
    pyggml.SamplingParams(**not_null)  # rejects unknown names
    return not_null


def failure(answer: Json, column: str) -> str | None:
    """Return the error message in an answer; None: the row did not fail."""
    if not _is_openai(answer):
        return answer.get(f"{column}_error")
    response = answer["response"] or {}
    if answer["error"] is None and response.get("status_code") == 200:
        return None
    error = answer["error"] or (response.get("body") or {}).get("error")
    return str(error.get("message") if isinstance(error, dict) else error)


def usage(answer: Json, column: str) -> tuple[bool, int, int]:
    """Return, for an answer: True if the row failed, the prompt tokens, and the generated tokens.

    Args:
        answer: the answer.
        column: name of the field with the answer.
    """
    failed = failure(answer, column) is not None
    if _is_openai(answer):
        used = ((answer["response"] or {}).get("body") or {}).get("usage") or {}
        n_prompt, n_generated = (used.get(a, used.get(b)) or 0 for a, b in _USAGE)
        return failed, n_prompt, n_generated
    return failed, answer.get(f"{column}_prompt_tokens") or 0, answer.get(f"{column}_tokens") or 0


def _is_openai(answer: Json) -> bool:
    return "custom_id" in answer and "response" in answer


# Field names of usage: of chat completions and completions, and of responses.
_USAGE = (("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens"))
