"""Logs: a line for each request and each error, as text or as JSON.

The logger is "pyggml.server". An application that mounts the server configures logging itself; ``pyggml serve`` calls
:func:`configure_logs`. Prompts and generated text are logged only with the setting ``log_prompts``.
"""

from __future__ import annotations

import json
import logging
import re
import time
from typing import TYPE_CHECKING, Any

from pyggml.server.observability.observer import Observer

if TYPE_CHECKING:
    from starlette.types import Scope

    from pyggml.server.http.errors import Failure
    from pyggml.server.http.request import ServerRequest
    from pyggml.server.settings.options import Settings

logger = logging.getLogger("pyggml.server")

# Values logged without quotes. All others are quoted, so that a value cannot imitate another field or line.
_PLAIN = re.compile(r"[\w./:@+\-,{}]+", re.ASCII)

_MAX_PATH = 200


class Logs(Observer):
    """Log lines for requests, server errors and models."""

    def __init__(self, with_texts: bool) -> None:
        """Set up the observer; ``with_texts`` also logs prompts and generated text."""
        self._with_texts = with_texts

    def request_failed(self, request: ServerRequest, error: Exception) -> None:
        """Log the stack trace, which the client does not get."""
        _write(logging.ERROR, "failure", {"id": request.id, "route": request.endpoint.path}, error)

    def request_ended(self, request: ServerRequest) -> None:
        """Log the request."""
        outcome = request.outcome.name
        level = logging.WARNING if outcome == "server_error" else logging.INFO
        if request.endpoint.is_probe and outcome == "ok":
            level = logging.DEBUG
        if logger.isEnabledFor(level):
            _write(level, "request", _request_fields(request) | (_texts(request) if self._with_texts else {}))

    def request_refused(self, scope: Scope, failure: Failure) -> None:
        """Log the request."""
        fields = {
            "id": failure.request_id,
            "method": scope["method"],
            "path": scope["path"][:_MAX_PATH],
            "status": failure.status,
            "outcome": "refused",
            "error": failure.code or failure.kind,
            "client": _client(scope),
        }
        _write(logging.INFO, "request", fields)

    def model_loaded(self, name: str, seconds: float) -> None:
        """Log the model."""
        _write(logging.INFO, "model_loaded", {"model": name, "duration_s": round(seconds, 3)})

    def model_failed(self, name: str, error: Exception) -> None:
        """Log the error."""
        _write(logging.ERROR, "model_failed", {"model": name, "error": f"{type(error).__name__}: {error}"})

    def model_unloaded(self, name: str) -> None:
        """Log the model."""
        _write(logging.INFO, "model_unloaded", {"model": name})


def _request_fields(request: ServerRequest) -> dict[str, Any]:
    outcome = request.outcome
    completions = [choice.completion for choice in outcome.choices]
    ttft_s = min((choice.ttft_s for choice in outcome.choices if choice.ttft_s is not None), default=None)
    fields: dict[str, Any] = {
        "id": request.id,
        "method": request.http.method,
        "route": request.endpoint.path,
        "status": outcome.status,
        "outcome": outcome.name,
        "error": outcome.failure and (outcome.failure.code or outcome.failure.kind),
        "model": request.model and request.model.name,
        "key": request.account and request.account.label,
        "duration_s": round(outcome.duration_s, 6),
        "client": _client(request.http.scope),
    }
    if completions:
        fields |= {
            "ttft_s": None if ttft_s is None else round(ttft_s, 6),
            "queue_s": round(max(each.timings.queue_s for each in completions), 6),
            "prompt_tokens": sum(each.prompt_tokens for each in completions),
            "cached_tokens": sum(each.cached_tokens for each in completions),
            "generated_tokens": sum(len(each.token_ids) for each in completions),
            "finish_reasons": ",".join(each.finish_reason for each in completions),
        }
    return fields


def _texts(request: ServerRequest) -> dict[str, Any]:
    body = None if request.body is None else request.body.model_dump(mode="json", exclude_unset=True)
    return {"body": body, "answers": [choice.completion.text for choice in request.outcome.choices] or None}


def _client(scope: Scope) -> str | None:
    client = scope.get("client")
    return client and client[0]


def _write(level: int, event: str, fields: dict[str, Any], error: Exception | None = None) -> None:
    fields = {name: value for name, value in fields.items() if value is not None}
    line = " ".join([event, *(f"{name}={_quote(value)}" for name, value in fields.items())])
    logger.log(level, "%s", line, extra={"fields": {"event": event, **fields}}, exc_info=error)


def _quote(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(value)


# --- for "pyggml serve" -----------------------------------------------------------------------------------------


def configure_logs(settings: Settings) -> None:
    """Log to standard error, as the settings say, with warnings of the engine and of uvicorn.

    The engine's hundred lines about each model are logged at level "debug". Of asyncio only errors are logged, as it
    warns of each chunk that is sent to a disconnected client.

    Args:
        settings: the level and format of messages.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(JSONFormatter() if settings.log_format == "json" else TextFormatter())
    handler.addFilter(RepeatFilter())
    logger.setLevel(settings.log_level.upper())
    for name, least in (("pyggml", logging.WARNING), ("uvicorn", logging.WARNING), ("asyncio", logging.ERROR)):
        others = logging.getLogger(name)
        others.setLevel(logger.level if logger.level == logging.DEBUG else max(logger.level, least))
        others.addHandler(handler)


class RepeatFilter(logging.Filter):
    """Filter for repetitions of the previous message, such as the engine's for each context of a dry run."""

    def __init__(self) -> None:
        super().__init__()
        self._last = ""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True if the record belongs to a request, or differs from the one before it."""
        last, self._last = self._last, record.getMessage()
        return hasattr(record, "fields") or self._last != last


class TextFormatter(logging.Formatter):
    """A line of text: time, level, message and fields."""

    default_msec_format = "%s.%03dZ"
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    converter = staticmethod(time.gmtime)

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")


class JSONFormatter(TextFormatter):
    """A line with one JSON object, in ASCII."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        entry: dict[str, Any] = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        entry |= getattr(record, "fields", None) or {"message": record.getMessage()}
        if record.exc_info:
            entry["stack"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)
