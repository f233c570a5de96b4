"""A hub on loopback: as much of Hugging Face's HTTP interface as downloading takes, and the faults of networks.

Large files (those of weights) are redirected to another host name, as the hub does, and call themselves by their
SHA-256; small ones come directly and call themselves by git's hash.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import huggingface_hub
import pytest
from huggingface_hub import constants

if TYPE_CHECKING:
    from typing_extensions import Self

_LARGE = (".gguf", ".safetensors", ".bin")


@dataclass(frozen=True)
class Request:
    """A received request.

    Attributes:
        method: "GET" or "HEAD".
        path: unquoted, without the query.
        start: first byte asked for.
        token: that came along.
    """

    method: str
    path: str
    start: int
    token: str | None


@dataclass
class Repository:
    """One on the hub.

    Attributes:
        commits: hash -> path -> content.
        refs: branch or tag -> commit.
        token: the only one that may read it; None: everybody may.
        is_gated: everybody may see what there is, and only whoever has the token may read it.
    """

    commits: dict[str, Mapping[str, bytes]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    token: str | None = None
    is_gated: bool = False


@dataclass
class Faults:
    """Faults to produce, by the end of a file's name.

    Attributes:
        drop_after: the connection breaks once after so many bytes.
        stall_after: nothing comes any more after so many bytes, until :attr:`go_on` is set.
        go_on: lets what is stalled go on.
        answers: this status is what the next requests get, one each, for the API "api".
        ignores_ranges: everything comes from its beginning.
        large_size: large files claim to have so many bytes.
        commit: commits are called so.
        not_a_hub: whatever is asked for, this page comes.
    """

    drop_after: dict[str, int] = field(default_factory=dict)
    stall_after: dict[str, int] = field(default_factory=dict)
    go_on: threading.Event = field(default_factory=threading.Event)
    answers: dict[str, list[int]] = field(default_factory=dict)
    ignores_ranges: bool = False
    large_size: int | None = None
    commit: str | None = None
    not_a_hub: bytes | None = None


class HubServer:
    """The hub, running from ``with`` on.

    Attributes:
        url: of it, what HF_ENDPOINT is to be.
        repositories: id -> repository.
        requests: all there were.
        faults: the errors to produce.
        xet_store: address of the Xet server.
        xet_hashes: name -> hash of the file there.
    """

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.requests: list[Request] = []
        self.faults = Faults()
        self.xet_store = ""
        self.xet_hashes: dict[str, str] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, self))
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        # Another host to a browser: a token must not go there.
        self.cdn = f"http://localhost:{self.port}/cdn"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    def add(self, repo_id: str, files: Mapping[str, bytes] | Path, revision: str = "main") -> str:
        """Makes files, or those of a directory, a commit of a repository, and returns its hash."""
        if isinstance(files, Path):
            files = {
                path.relative_to(files).as_posix(): path.read_bytes() for path in files.rglob("*") if path.is_file()
            }
        repository = self.repositories.setdefault(repo_id, Repository())
        commit = hashlib.sha1(repr((len(repository.commits), sorted(files.items()))).encode()).hexdigest()
        repository.commits[commit] = dict(files)
        repository.refs[revision] = commit
        return commit

    def asked(self, method: str, end: str = "") -> list[Request]:
        """The requests for paths that end so."""
        return [request for request in self.requests if request.method == method and request.path.endswith(end)]

    def starts(self, end: str) -> list[int]:
        """From which byte on files were sent, in order; of redirected ones what the other host was asked for."""
        return [request.start for request in self.asked("GET", end) if not self.redirects(request.path)]

    @staticmethod
    def redirects(path: str) -> bool:
        return path.endswith(_LARGE) and not path.startswith("/cdn/")

    def stop(self) -> None:
        """Stop the server; its address no longer answers."""
        self.faults.go_on.set()
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.stop()


@contextmanager
def hub_at(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """The hub that references mean, in this process and in those that it starts, with empty caches in a folder."""
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        patch.delenv(name, raising=False)
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        patch.delenv(name, raising=False)
    patch.setenv("HF_HOME", str(folder / "home"))
    patch.setenv("PYGGML_CACHE", str(folder / "imported"))
    # What huggingface_hub has read from the environment long ago, among it leave to look up on the real hub which tool
    # is calling.
    patch.setattr(constants, "HF_TOKEN_PATH", str(folder / "home" / "token"))
    patch.setattr(constants, "HF_HUB_CACHE", str(folder / "home" / "hub"))
    patch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
    patch.setattr(constants, "HF_HUB_OFFLINE", False)
    with HubServer() as server:
        patch.setenv("HF_ENDPOINT", server.url)
        template = server.url + constants.HUGGINGFACE_CO_URL_TEMPLATE.removeprefix(constants.ENDPOINT)
        patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        patch.setattr(constants, "ENDPOINT", server.url)
        yield server
        huggingface_hub.close_session()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, hub: HubServer, *arguments: object) -> None:
        self._hub = hub
        super().__init__(*arguments)  # type: ignore[arg-type]

    def handle(self) -> None:
        with suppress(ConnectionError):  # who stops a download hangs up
            super().handle()

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        ranges, token = self.headers.get("Range", "bytes=0-"), self.headers.get("Authorization")
        start = int(ranges.removeprefix("bytes=").removesuffix("-"))
        token = None if token is None else token.removeprefix("Bearer ")
        self._hub.requests.append(Request(self.command, path, start, token))
        faults = self._hub.faults
        if faults.not_a_hub is not None:
            return self._send(200, faults.not_a_hub, {"Content-Type": "text/html"})
        for end, statuses in faults.answers.items():
            if statuses and (path.endswith(end) or (end == "api" and path.startswith("/api/"))):
                return self._send(statuses.pop(0))
        if path == "/xet-token":
            granted = {
                "X-Xet-Cas-Url": self._hub.xet_store,
                "X-Xet-Access-Token": "t",
                "X-Xet-Token-Expiration": "9" * 10,
            }
            return self._send(200, b"", granted)
        if path.startswith("/api/models/"):
            return self._tell(path.removeprefix("/api/models/"), token)
        if path.startswith("/cdn/"):
            return self._send_content(path, self._content(path), start)
        return self._resolve(path.lstrip("/"), start, token)

    def _tell(self, path: str, token: str | None) -> None:
        repo_id, _, revision = path.partition("/revision/")
        repository = self._hub.repositories.get(repo_id)
        if repository is not None and repository.is_gated:
            token = repository.token
        found = self._find(repo_id, revision or "main", token)
        if found is not None:
            commit, files = found
            told = {"id": repo_id, "sha": self._hub.faults.commit or commit}
            self._send(200, json.dumps({**told, "siblings": [{"rfilename": name} for name in files]}).encode())

    def _resolve(self, path: str, start: int, token: str | None) -> None:
        repo_id, _, rest = path.partition("/resolve/")
        repository = self._hub.repositories.get(repo_id)
        revisions = [*repository.refs, *repository.commits] if repository else ["main"]
        revision = next((known for known in revisions if rest.startswith(f"{known}/")), rest.partition("/")[0])
        name = rest.removeprefix(f"{revision}/")
        found = self._find(repo_id, revision, token)
        if found is None:
            return None
        commit, files = found
        headers = {"X-Repo-Commit": commit}
        if name not in files:
            return self._send(404, b"Entry not found", {**headers, "X-Error-Code": "EntryNotFound"})
        content = files[name]
        if not self._hub.redirects(name):
            etag = hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()
            return self._send_content(name, content, start, {**headers, "ETag": f'"{etag}"'})
        etag = hashlib.sha256(content).hexdigest()
        size = self._hub.faults.large_size or len(content)
        if name in self._hub.xet_hashes:
            headers |= {"X-Xet-Hash": self._hub.xet_hashes[name], "X-Xet-Refresh-Route": f"{self._hub.url}/xet-token"}
        headers |= {"X-Linked-Etag": f'"{etag}"', "X-Linked-Size": str(size)}
        return self._send(302, b"", {**headers, "Location": f"{self._hub.cdn}/{repo_id}/{commit}/{name}?signature=1"})

    def _content(self, path: str) -> bytes:
        owner, repo, commit, name = path.removeprefix("/cdn/").split("/", 3)
        return self._hub.repositories[f"{owner}/{repo}"].commits[commit][name]

    def _find(self, repo_id: str, revision: str, token: str | None) -> tuple[str, Mapping[str, bytes]] | None:
        """A commit, if it may be seen; otherwise the answer is sent."""
        repository = self._hub.repositories.get(repo_id)
        if repository is None or (repository.token is not None and token != repository.token):
            if token is not None and all(token != each.token for each in self._hub.repositories.values()):
                self._send(401, b"", {"X-Error-Message": "Invalid credentials in Authorization header"})
            elif repository is not None and repository.is_gated:
                self._send(403 if token else 401, b"", {"X-Error-Code": "GatedRepo"})
            else:
                self._send(404 if token else 401, b"", {"X-Error-Code": "RepoNotFound"})
            return None
        commit = repository.refs.get(revision, revision)
        if commit not in repository.commits:
            self._send(404, b"", {"X-Error-Code": "RevisionNotFound"})
            return None
        return commit, repository.commits[commit]

    def _send_content(self, name: str, content: bytes, start: int, headers: Mapping[str, str] | None = None) -> None:
        faults = self._hub.faults
        all_headers = dict(headers or {})
        status = 200
        if "Range" in self.headers and not faults.ignores_ranges:
            if start >= len(content) > 0:
                return self._send(416)
            all_headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
            content, status = content[start:], 206
        for end, n_bytes in faults.drop_after.items():
            if name.endswith(end) and self.command == "GET":
                del faults.drop_after[end]
                self._send(status, content, all_headers, n_bytes)
                self.close_connection = True
                return None
        for end, n_bytes in faults.stall_after.items():
            if name.endswith(end) and self.command == "GET" and not faults.go_on.is_set():
                self._send(status, content, all_headers, n_bytes)
                faults.go_on.wait()
                content = content[n_bytes:]
                self.wfile.write(content)
                return None
        return self._send(status, content, all_headers)

    def _send(
        self, status: int, content: bytes = b"", headers: Mapping[str, str] | None = None, n_bytes: int | None = None
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content[:n_bytes])
            self.wfile.flush()
