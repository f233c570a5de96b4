"""The Ray actor of a batch job: a process with one model, which processes rows."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyggml
from pyggml.batch import FieldNames, Params, open_row_processor, process_rows
from pyggml.ray.plan import Plan

Json = dict[str, Any]

# An estimate, which affects only how rows are grouped.
_CHARS_PER_TOKEN = 4
_USUAL_TOKENS = 256  # of an answer without a limit
# The fields that limit the generated tokens, in OpenAI's endpoints.
_LIMIT_FIELDS = ("max_completion_tokens", "max_output_tokens", "max_tokens")


@dataclass(frozen=True)
class WorkerSpec:
    """The model and settings of an actor: its options of load, and the default sampling parameters of rows."""

    model: str | os.PathLike[str] | None
    params: Params
    names: FieldNames
    is_openai: bool
    load: Mapping[str, Any] = field(default_factory=dict)

    def load_model(self) -> pyggml.LLM:
        """Load the model; errors name the host."""
        try:
            return pyggml.load(self.model, **self.load)
        except pyggml.InferError as error:
            raise type(error)(f"on {socket.gethostname()}: {error}") from None

    def with_threads(self, plan: Plan) -> WorkerSpec:
        """Return a copy with one thread per CPU of a plan's actors, unless ``load`` sets the number of threads."""
        return self if plan.n_gpus else replace(self, load={"n_threads": plan.n_cpus, **self.load})

    def estimate_tokens(self, row: Any) -> int:
        """Estimate the tokens of a row, prompt and answer together, without its tokenizer."""
        if not isinstance(row, Mapping):
            return 1
        own = row.get("body") if self.is_openai else row.get(self.names.params)
        default = vars(self.params) if isinstance(self.params, pyggml.SamplingParams) else self.params
        given = [params for params in (own, default) if isinstance(params, Mapping)]
        limits = [params.get(name) for params in given for name in _LIMIT_FIELDS]
        max_tokens = next((n for n in limits if isinstance(n, int) and n >= 0), _USUAL_TOKENS)
        return len(str(row)) // _CHARS_PER_TOKEN + max_tokens


class Actor:
    """A model that processes rows. Its methods run in the event loop of its process."""

    def __init__(self, spec: WorkerSpec) -> None:
        """Load nothing yet: a load error in a constructor would reach the caller as the actor's death."""
        self._spec = spec
        self._exit_stack = contextlib.AsyncExitStack()

    async def open(self) -> int:
        """Load the model, and return its number of parallel sequences."""
        self._llm = self._spec.load_model()
        self._processor = await self._exit_stack.enter_async_context(
            open_row_processor(self._llm, self._spec.params, self._spec.names, self._spec.is_openai)
        )
        return self._llm.n_parallel

    async def process(self, rows: list[tuple[int, Any]]) -> list[tuple[int, Json]]:
        """Return the answers to rows, each with its index."""
        found: list[tuple[int, Json]] = []
        await process_rows(self._processor, rows, self._llm.n_parallel, lambda *answer: found.append(answer))
        return found
