"""Streaming HTTP clients in a process of their own, as cheap as Python can make them.

Reads lines of JSON from standard input, {"port", "path", "bodies"}: sends each body on a connection of its own, all at
once, reads every answer to its end, and writes a line of JSON: the seconds until all had ended, and of each answer the
status, the seconds until each event, and its last events. It looks into the bytes only when all have arrived. A line
{"kept": true, ...} uses the connections of the line before, which is what a client that stays connected does;
{"closed": true, ...} asks the server to close each connection after its answer, which ends one that is no stream.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
import time
from typing import Any

_END = b"\r\n0\r\n\r\n"  # of a chunked body
_EVENT = b"data: "
_LAST = 4  # events that are returned: among them is the one with the usage


class Answer:
    """One answer as it arrives."""

    def __init__(self, connection: socket.socket, request: bytes) -> None:
        self.connection = connection
        self.request = request
        self.pieces: list[bytes] = []
        self.times: list[float] = []
        self._tail = b""

    def read(self) -> bool:
        """Parse received data, and return True at the end of the body."""
        piece = self.connection.recv(65536)
        self.times.append(time.perf_counter())
        self.pieces.append(piece)
        self._tail = (self._tail + piece)[-len(_END) :]
        return not piece or self._tail == _END

    def report(self, start: float) -> dict[str, Any]:
        whole = b"".join(self.pieces)
        found = whole.find(_EVENT)
        ends = iter(zip(self.times, _ends(self.pieces), strict=True))
        when, end = next(ends)
        events = []
        while found >= 0:
            while end <= found:
                when, end = next(ends)
            events.append(when - start)
            found = whole.find(_EVENT, found + 1)
        last = [each.split(b"\n", 1)[0].strip().decode() for each in whole.split(_EVENT)[1:][-_LAST:]]
        status = int(whole.split(b" ", 2)[1])
        return {
            "status": status,
            "events_s": events,
            "last": last or [whole.partition(b"\r\n\r\n")[2].decode(errors="replace")],
        }


def _ends(pieces: list[bytes]) -> list[int]:
    ends, total = [], 0
    for piece in pieces:
        total += len(piece)
        ends.append(total)
    return ends


def connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def is_closed(connection: socket.socket) -> bool:
    """Return True if the server has closed an idle connection."""
    try:
        return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False


def request(port: int, path: str, body: Any, is_closed: bool) -> bytes:
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
    if is_closed:
        head += "Connection: close\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


def run(answers: list[Answer]) -> dict[str, Any]:
    """Send all requests and read all answers."""
    with selectors.DefaultSelector() as selector:
        for answer in answers:
            selector.register(answer.connection, selectors.EVENT_READ, answer)
        start = time.perf_counter()
        for answer in answers:
            answer.connection.sendall(answer.request)
        n_running = len(answers)
        while n_running:
            for key, _ in selector.select():
                if key.data.read():
                    selector.unregister(key.fileobj)
                    n_running -= 1
    seconds = max(answer.times[-1] for answer in answers) - start
    return {"seconds": seconds, "cpu_s": time.process_time(), "answers": [each.report(start) for each in answers]}


def main() -> None:
    connections: list[socket.socket] = []
    for line in sys.stdin:
        asked = json.loads(line)
        port, path, bodies = asked["port"], asked["path"], asked["bodies"]
        if not asked.get("kept") or len(connections) != len(bodies) or any(map(is_closed, connections)):
            for connection in connections:
                connection.close()
            connections = [connect(port) for _ in bodies]
        requests = [request(port, path, body, bool(asked.get("closed"))) for body in bodies]
        answers = [Answer(*each) for each in zip(connections, requests, strict=True)]
        print(json.dumps(run(answers)), flush=True)


if __name__ == "__main__":
    main()
