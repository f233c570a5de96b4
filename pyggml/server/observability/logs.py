"""A line of the log for each request, and for what goes wrong: as text, or as JSON.

The logger is "pyggml.server". An application that mounts the server sets up logging as it likes; ``pyggml serve`` has
:func:`configure`. No line has text of a prompt or an answer, unless the settings ask for it.
"""

from __future__ import annotations

import json
import logging
import re
import time
from typing import TYPE_CHECKING, Any

from pyggml.server.observability.observer import Ended, Observer

if TYPE_CHECKING:
    from starlette.types import Scope

    from pyggml.server.http.errors import Failure
    from pyggml.server.http.request import Call
    from pyggml.server.settings.options import Settings

logger = logging.getLogger("pyggml.server")

# What is shown as it is; anything else is quoted, so that no value looks like another field or another line.
_PLAIN = re.compile(r"[\w./:@+\-,{}]+", re.ASCII)

_LONGEST_PATH = 200


class Logs(Observer):
    """Writes a line when a call ends, and the stack of what the server did not expect."""

    def __init__(self, with_texts: bool) -> None:
        """Writes prompts and answers too if ``with_texts``."""
        self._with_texts = with_texts

    def failed(self, call: Call, error: Exception) -> None:
        """Writes the stack, which the client does not get."""
        _write(logging.ERROR, "failure", {"id": call.id, "route": call.endpoint.path}, error)

    def call_ended(self, call: Call, ended: Ended) -> None:
        """Writes the call's line."""
        level = logging.WARNING if ended.outcome == "server_error" else logging.INFO
        if call.endpoint.is_probe and ended.outcome == "ok":
            level = logging.DEBUG
        if logger.isEnabledFor(level):
            _write(level, "request", _about(call, ended) | (_texts(call, ended) if self._with_texts else {}))

    def refused(self, scope: Scope, failure: Failure) -> None:
        """Writes a line."""
        about = {
            "id": failure.request_id,
            "method": scope["method"],
            "path": scope["path"][:_LONGEST_PATH],
            "status": failure.status,
            "outcome": "refused",
            "error": failure.code or failure.kind,
            "client": _client(scope),
        }
        _write(logging.INFO, "request", about)

    def model_loaded(self, name: str, seconds: float) -> None:
        """Writes a line."""
        _write(logging.INFO, "model_loaded", {"model": name, "duration_s": round(seconds, 3)})

    def model_failed(self, name: str, error: Exception) -> None:
        """Writes a line that says why."""
        _write(logging.ERROR, "model_failed", {"model": name, "error": f"{type(error).__name__}: {error}"})

    def model_unloaded(self, name: str) -> None:
        """Writes a line."""
        _write(logging.INFO, "model_unloaded", {"model": name})


def _about(call: Call, ended: Ended) -> dict[str, Any]:
    completions = [answer.completion for answer in ended.answers]
    first = min((answer.ttft_s for answer in ended.answers if answer.ttft_s is not None), default=None)
    about: dict[str, Any] = {
        "id": call.id,
        "method": call.request.method,
        "route": call.endpoint.path,
        "status": ended.status,
        "outcome": ended.outcome,
        "error": ended.failure and (ended.failure.code or ended.failure.kind),
        "model": call.served and call.served.name,
        "duration_s": round(ended.duration_s, 6),
        "client": _client(call.request.scope),
    }
    if completions:
        about |= {
            "ttft_s": None if first is None else round(first, 6),
            "queue_s": round(max(each.timings.queue_s for each in completions), 6),
            "prompt_tokens": sum(each.prompt_tokens for each in completions),
            "cached_tokens": sum(each.cached_tokens for each in completions),
            "generated_tokens": sum(len(each.token_ids) for each in completions),
            "finish_reasons": ",".join(each.finish_reason for each in completions),
        }
    return about


def _texts(call: Call, ended: Ended) -> dict[str, Any]:
    body = None if call.received is None else call.received.model_dump(mode="json", exclude_unset=True)
    return {"body": body, "answers": [answer.completion.text for answer in ended.answers] or None}


def _client(scope: Scope) -> str | None:
    client = scope.get("client")
    return client and client[0]


def _write(level: int, event: str, fields: dict[str, Any], error: Exception | None = None) -> None:
    fields = {"event": event} | {name: value for name, value in fields.items() if value is not None}
    logger.log(level, "%s", _Line(fields), extra={"fields": fields}, exc_info=error)


class _Line:
    """Fields as text, made when somebody writes it."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields

    def __str__(self) -> str:
        event, *others = self._fields.items()
        return " ".join([event[1], *(f"{name}={_shown(value)}" for name, value in others)])


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(value)


# --- for "pyggml serve" -----------------------------------------------------------------------------------------


def configure_logs(settings: Settings) -> None:
    """Writes the server's log to standard error, as the settings say, and warnings of the engine and of uvicorn.

    What the engine says of a model that it loads is a hundred lines; those are for the level "debug". So is asyncio's
    warning of each piece that was to be sent to a client that has left: of asyncio only errors are written.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(JSONFormatter() if settings.log_format == "json" else TextFormatter())
    handler.addFilter(Repeated())
    logger.setLevel(settings.log_level.upper())
    for name, least in (("pyggml", logging.WARNING), ("uvicorn", logging.WARNING), ("asyncio", logging.ERROR)):
        others = logging.getLogger(name)
        others.setLevel(logger.level if logger.level == logging.DEBUG else max(logger.level, least))
        others.addHandler(handler)


class Repeated(logging.Filter):
    """Leaves out what the engine has just said: it says it again of each context by which it plans."""

    def __init__(self) -> None:
        super().__init__()
        self._last = ""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record says something else than the one before it. Those of requests always do."""
        last, self._last = self._last, record.getMessage()
        return hasattr(record, "fields") or self._last != last


class TextFormatter(logging.Formatter):
    """A line for people: when, how grave, what, and its fields."""

    default_msec_format = "%s.%03dZ"
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    converter = staticmethod(time.gmtime)

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")


class JSONFormatter(TextFormatter):
    """A line for programs: one JSON object, in ASCII."""

    def format(self, record: logging.LogRecord) -> str:
        """Makes the line."""
        entry: dict[str, Any] = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        entry |= getattr(record, "fields", None) or {"message": record.getMessage()}
        if record.exc_info:
            entry["stack"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)
