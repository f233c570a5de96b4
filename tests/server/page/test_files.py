"""The files of the server's page, over real connections: contents, headers, and the content security policy."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from support.servers import servers

import pyggml.server
from pyggml.server import Settings

STATIC = Path(pyggml.server.__file__).with_name("static")
VENDOR = STATIC / "vendor"


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with servers.serving() as url, httpx.Client(base_url=url) as client:
        yield client


def test_the_page_says_what_a_browser_may_do_with_it(client: httpx.Client) -> None:
    answer = client.get("/")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    policy = dict(each.split(" ", 1) for each in answer.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert {policy[f"{kind}-src"] for kind in ("script", "style", "connect", "img")} == {"'self'"}
    assert answer.text == (STATIC / "index.html").read_text()


def test_every_file_that_the_page_names_is_there(client: httpx.Client) -> None:
    named = set(re.findall(r'(?:href|src)="(static/[^"]+)"', client.get("/").text))
    modules = set(STATIC.glob("*.js"))
    for path in modules:
        imports = re.findall(r'from "\./([^"]+)"', path.read_text())
        assert all((STATIC / each).is_file() for each in imports), path.name
        named |= {f"static/{each}" for each in imports}
    assert {f"static/{path.name}" for path in modules} <= named, "a module without importers"
    for name in named:
        answer = client.get(name)
        assert answer.status_code == 200, name
        kind = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}[name.rpartition(".")[2]]
        assert answer.headers["content-type"].partition(";")[0] == kind
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_file_that_has_not_changed_is_not_sent_again(client: httpx.Client) -> None:
    tag = client.get("/static/app.js").headers["etag"]
    for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        again = client.get("/static/app.js", headers={"If-None-Match": known})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == tag
    assert client.get("/static/app.js", headers={"If-None-Match": '"other"'}).status_code == 200


@pytest.mark.parametrize("path", ["/", "/static/app.js"])
def test_a_head_is_the_same_without_the_body(path: str, client: httpx.Client) -> None:
    whole, head = client.get(path), client.head(path)
    assert (head.status_code, head.content) == (200, b"")
    assert {**head.headers, "date": ""} == {**whole.headers, "date": ""}


@pytest.mark.parametrize(
    "path",
    [
        "/static/",
        "/static/none.js",
        "/static/index.html",
        "/static/vendor/versions.json",
        "/static/../page.py",
        "/static/%2e%2e/page.py",
        "/static/..%2fpage.py",
        "/static//etc/passwd",
        "/static/app.js/",
        "/static/app.js%00",
    ],
)
def test_nothing_else_is_to_be_had(path: str, client: httpx.Client) -> None:
    # The client would tidy the path up.
    url = client.base_url.copy_with(raw_path=path.encode())
    assert client.get(url).status_code == 404


def test_it_can_be_turned_off() -> None:
    app = pyggml.server.create_app(Settings(page=False))
    with servers.serving(app) as url:
        assert httpx.get(f"{url}/").text == "pyggml is running"  # as Ollama's clients expect
        assert httpx.get(f"{url}/static/app.js").status_code == 404
        assert httpx.get(f"{url}/health").status_code == 200


def test_it_works_under_a_prefix() -> None:
    inner = pyggml.server.create_app()

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with inner.router.lifespan_context(inner):
            yield

    app = Starlette(routes=[Mount("/llm", inner)], lifespan=lifespan)
    with servers.serving(app) as url, httpx.Client(base_url=url) as client:
        assert client.get("/llm/").status_code == 200
        assert client.get("/llm/static/app.js").status_code == 200


def test_libraries_are_what_was_published() -> None:
    versions = json.loads((VENDOR / "versions.json").read_text())
    expected = {f"{name}/{file}": hash for name, each in versions.items() for file, hash in each["sha256"].items()}
    found = {
        path.relative_to(VENDOR).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in VENDOR.rglob("*")
        if path.is_file() and path.name != "versions.json"
    }
    assert found == expected
    assert all(f"{name}/LICENSE" in found for name in versions)


def test_nothing_is_loaded_from_elsewhere_or_made_of_text() -> None:
    for path in [STATIC / "index.html", *STATIC.glob("*.js"), *STATIC.glob("*.css")]:
        text = path.read_text()
        assert set(re.findall(r"https?://[\w./]+", text)) <= {"http://www.w3.org/2000/svg"}, path.name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|Function\(", text), (
            path.name
        )
