"""``/metrics``: the endpoint for Prometheus."""

from __future__ import annotations

from starlette.responses import Response

from pyggml.server.http.request import ServerRequest
from pyggml.server.protocols.endpoint import Endpoint, Protocol
from pyggml.server.protocols.execute import EXECUTE


async def metrics(request: ServerRequest) -> Response:
    """Return all metrics in the format that the client prefers."""
    accept = request.http.headers.get("accept", "")
    text, content_type = await request.run_in_thread(request.worker.metrics.exposition, accept)
    return Response(text, headers={"Content-Type": content_type})


METRICS = Protocol(
    "metrics",
    (Endpoint("GET", "/metrics", metrics, stream_type="text/plain", is_probe=True),),
    EXECUTE.error_body,
)
