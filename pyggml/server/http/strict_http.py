"""HTTP/1.1 without the forms that parsers read differently, by which a request can be smuggled past a proxy.

h11 accepts lines that end with a bare LF, folded headers, and Content-Length with Transfer-Encoding, which RFC 9112
allows. With httptools the server relies on that parser, which pyggml's tests do not cover. The class here uses an
undocumented attribute of h11 that has not changed from 0.12 to 0.16.
"""

from __future__ import annotations

import h11
from h11._receivebuffer import ReceiveBuffer

_HTTP_1_0 = b"HTTP/1.0"


class StrictConnection(h11.Connection):
    """A server's connection that refuses ambiguous requests as a RemoteProtocolError."""

    def __init__(self, max_incomplete_event_size: int) -> None:
        """Expect requests whose headers have at most so many bytes."""
        super().__init__(h11.SERVER, max_incomplete_event_size)
        self._receive_buffer = _StrictBuffer(self)


class _StrictBuffer(ReceiveBuffer):
    """h11's buffer of received bytes, with checks of headers and trailers."""

    def __init__(self, connection: h11.Connection) -> None:
        super().__init__()
        self._connection = connection

    def maybe_extract_lines(self) -> list[bytearray] | None:
        """Extract the lines up to an empty one. None: they have not arrived."""
        size = len(self)
        lines = super().maybe_extract_lines()
        if lines is None:
            return None
        if size - len(self) != sum(len(line) + 2 for line in lines) + 2:
            raise _refusal("a line ends with LF alone")
        if any(line.startswith((b" ", b"\t")) for line in lines):
            raise _refusal("a header is folded")
        if self._connection.their_state is h11.IDLE:
            names = {bytes(line.partition(b":")[0]).lower() for line in lines[1:]}
            if b"transfer-encoding" in names and (b"content-length" in names or lines[0].endswith(_HTTP_1_0)):
                raise _refusal("Transfer-Encoding with Content-Length, or in HTTP/1.0")
        return lines

    def maybe_extract_next_line(self) -> bytearray | None:
        """Extract a line that begins a chunk. None: it has not arrived."""
        line = super().maybe_extract_next_line()
        if b"\n" in (bytes(self) if line is None else line[:-2]):
            raise _refusal("a line ends with LF alone")
        return line


def _refusal(reason: str) -> h11.RemoteProtocolError:
    return h11.RemoteProtocolError(reason, error_status_hint=400)
