"""The server's figures, for Prometheus to fetch."""

from __future__ import annotations

from starlette.responses import Response

from pyggml.server.http.request import Call
from pyggml.server.protocols.endpoint import Endpoint, Protocol
from pyggml.server.protocols.execute import EXECUTE


async def metrics(call: Call, body: None) -> Response:  # noqa: ARG001
    """Says all figures, in the format that the client prefers."""
    text, content_type = await call.aside(call.worker.metrics.exposition, call.request.headers.get("accept", ""))
    return Response(text, headers={"Content-Type": content_type})


METRICS = Protocol(
    "metrics",
    (Endpoint("GET", "/metrics", metrics, "Figures for Prometheus", events="text/plain", is_probe=True),),
    EXECUTE.error_body,
)
