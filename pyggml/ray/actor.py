"""What runs on the nodes: a process with one model, which answers rows of a job."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyggml
from pyggml.batch import Names, answer_all, open_answering
from pyggml.ray.plan import Plan

Json = dict[str, Any]

# Of texts that no tokenizer has seen yet; a guess decides only how rows are grouped.
_CHARS_PER_TOKEN = 4
# What requests call the most tokens of their answer.
_LIMITS = ("max_completion_tokens", "max_output_tokens", "max_tokens")


@dataclass(frozen=True)
class Work:
    """What an actor is to do.

    Attributes:
        model: what to load.
        params: sampling parameters of rows that set none.
        names: names of fields.
        is_openai: whether rows are requests in OpenAI's format.
        load: options of load.
    """

    model: str | os.PathLike[str] | None
    params: pyggml.SamplingParams | None
    names: Names
    is_openai: bool
    load: Mapping[str, Any] = field(default_factory=dict)

    def loaded(self) -> pyggml.LLM:
        """The model.

        Raises:
            InferError: as for :func:`pyggml.load`; the message says on which host.
        """
        try:
            return pyggml.load(self.model, **self.load)
        except pyggml.InferError as error:
            raise type(error)(f"on {socket.gethostname()}: {error}") from None

    def on(self, plan: Plan) -> Work:
        """The same with as many threads as an actor of a plan has CPUs, unless options say otherwise."""
        return self if plan.n_gpus else replace(self, load={"n_threads": plan.n_cpus, **self.load})

    def n_tokens(self, row: Any) -> int:
        """About how many tokens a row takes, its answer included, by what can be seen without its model."""
        if not isinstance(row, Mapping):
            return 1
        own = row.get("body") if self.is_openai else row.get(self.names.params)
        given = [own.get(name) for name in _LIMITS] if isinstance(own, Mapping) else []
        most = next((n for n in given if isinstance(n, int) and n >= 0), None)
        if most is None:
            most = (self.params or pyggml.SamplingParams()).max_tokens
        return len(str(row)) // _CHARS_PER_TOKEN + most


class Actor:
    """A model that answers rows. Its methods run in the event loop of its process."""

    def __init__(self, work: Work) -> None:
        """Takes what is to be done; nothing is loaded yet, so that errors of loading come as what they are."""
        self._work = work
        self._held = contextlib.AsyncExitStack()

    async def open(self) -> int:
        """Loads the model, and says how many rows it computes together."""
        self._llm = self._work.loaded()
        self._answering = await self._held.enter_async_context(
            open_answering(self._llm, self._work.params, self._work.names, self._work.is_openai)
        )
        return self._llm.n_parallel

    async def answers(self, rows: list[tuple[int, Any]]) -> list[tuple[int, Json]]:
        """The answers to rows, each with its index."""
        found: list[tuple[int, Json]] = []
        await answer_all(self._answering, rows, self._llm.n_parallel, lambda *answer: found.append(answer))
        return found
