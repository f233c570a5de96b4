"""The documentation as a site, built as ``make docs`` does: complete, connected, searchable, from one host."""

from __future__ import annotations

import inspect
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urljoin, urlsplit

import filelock
import pytest
from support.paths import ROOT
from support.public_api import UNIMPORTED, documented_names, value_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.version_info < (3, 11), reason="Sphinx 9 needs Python 3.11"),
]

DOCS = ROOT / "docs"
# Sphinx's own, which the search box and the links above a page lead to.
GENERATED = {"genindex.html", "py-modindex.html", "search.html"}
# What a browser loads without a click: element -> the attribute with the address.
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
NOT_LOADED = {"author", "canonical", "index", "next", "prev", "search"}  # relations of links

# What a newcomer may type into the search box -> the page with the answer, which must be among the first three.
QUESTIONS = {
    "run a GGUF file": "tutorial/getting-started",
    "load a Hugging Face directory": "tutorial/getting-started",
    "how much memory": "how-to/fit-models-in-memory",
    "VRAM": "how-to/fit-models-in-memory",
    "why is my GPU not used": "how-to/diagnose-an-installation",
    "serve many users": "explanation/continuous-batching",
    "cancel": "how-to/use-asyncio",
    "cancel a running answer": "how-to/use-asyncio",
    "streaming FastAPI": "how-to/embed-in-fastapi",
    "stop at a word": "reference/sampling",
    "JSON output": "how-to/generate-structured-output",
    "pydantic model JSON": "how-to/generate-structured-output",
    "count tokens": "reference/tokenizers",
    "keep a conversation within the context": "how-to/chat-and-call-tools",
    "semantic search": "how-to/embed-and-rerank",
    "LangChain": "how-to/use-with-frameworks",
    "Docker": "how-to/deploy-the-server",
    "nginx": "how-to/deploy-the-server",
    "quantize": "how-to/quantize-models",
    "seed": "reference/sampling",
    "same answer again": "reference/sampling",
    "log probabilities": "how-to/get-logprobs",
    "offline": "how-to/download-from-the-hub",
    "ContextOverflowError": "reference/api/errors",
    "LoRA": "how-to/use-adapters",
    "exceptions": "reference/errors",
    "move from llama-cpp-python": "how-to/migrate-from-other-libraries",
}


class Page(HTMLParser):
    """A page.

    Attributes:
        links: addresses of its links.
        text_links: those in its text, without the navigation.
        loads: addresses that a browser loads with it.
        anchors: its ids.
    """

    def __init__(self, address: str, html: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.text_links: set[str] = set()
        self.loads: set[str] = set()
        self.anchors: set[str] = set()
        self._address = address
        self._is_text = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.anchors.add(found.get("id", ""))
        self._is_text = self._is_text or tag == "article"
        address = urljoin(self._address, found.get(LOADED.get(tag, "href"), ""))
        if tag == "a" and "href" in found:
            self.links.add(address)
            self.text_links |= {address} if self._is_text else set()
        elif LOADED.get(tag) in found and not NOT_LOADED & {*found.get("rel", "").split()}:
            self.loads.add(address)

    def handle_endtag(self, tag: str) -> None:
        self._is_text = self._is_text and tag != "article"


@pytest.fixture(scope="module")
def site(shared_dir: Path) -> Path:
    """The site, built once by the command of ``make docs``, with another folder for its output."""
    folder = shared_dir / "site"
    with filelock.FileLock(f"{folder}.lock"):
        if not folder.exists():
            listed = subprocess.run(["make", "--dry-run", "docs"], cwd=ROOT, capture_output=True, text=True, check=True)
            line = next(line for line in listed.stdout.splitlines() if " -m sphinx " in line)
            _, *arguments, _ = shlex.split(line)
            unfinished = f"{folder}.part"
            command = [sys.executable, *arguments, unfinished]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            Path(unfinished).rename(folder)
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Page]:
    names = [file.relative_to(site).as_posix() for file in site.rglob("*.html")]
    return {name: Page(f"/{name}", (site / name).read_text("utf-8")) for name in names}


def test_every_page_is_there(pages: dict[str, Page]) -> None:
    assert pages.keys() - GENERATED == {address_of(page) for page in DOCS.rglob("*.md")}


def test_every_public_name_is_there(site: Path) -> None:
    from sphinx.util.inventory import InventoryFile

    kinds = InventoryFile.loads((site / "objects.inv").read_bytes(), uri="").data
    objects = {name for kind, items in kinds.items() if kind.startswith("py:") for name in items}
    assert not [name for name in required_objects() if name not in objects]


def test_every_page_is_two_clicks_from_the_first(pages: dict[str, Page]) -> None:
    """By links in the text; the navigation has them all."""
    reached = {"index.html"}
    for _ in range(2):
        reached |= {urlsplit(link).path[1:] for page in reached & pages.keys() for link in pages[page].text_links}
    assert not pages.keys() - reached - GENERATED


def test_links_lead_somewhere(site: Path, pages: dict[str, Page]) -> None:
    for name, page in pages.items():
        for link in page.links | page.loads:
            parts = urlsplit(link)
            target = unquote(parts.path)[1:]
            if not parts.netloc and not parts.scheme:
                assert (site / target).is_file(), f"{name} links to {link}"
                if target in pages:
                    assert unquote(parts.fragment) in {"", *pages[target].anchors}, f"{name} links to {link}"


def test_links_to_the_repository_lead_to_files(pages: dict[str, Page]) -> None:
    prefix = re.compile(r"https://github\.com/pyggml/pyggml/(?:blob|tree)/main/([^?#]+)(?!.*\?)")
    files = {found[1] for page in pages.values() for link in page.text_links if (found := prefix.match(link))}
    assert len(files) > 20
    assert not [file for file in files if not (ROOT / file).exists()]


def test_nothing_comes_from_other_hosts(site: Path, pages: dict[str, Page]) -> None:
    addresses = {address for page in pages.values() for address in page.loads}
    for style in site.rglob("*.css"):
        addresses |= set(re.findall(r"(?:url\(|@import )[\"']?([^\"')]+)", style.read_text("utf-8")))
    assert not [address for address in addresses if urlsplit(address).netloc]


def test_questions_of_newcomers_are_answered_by_one_search(site: Path, browser: Browser) -> None:
    page = browser.new_page()
    for question, answer in QUESTIONS.items():
        page.goto(f"{(site / 'search.html').as_uri()}?q={question}")
        page.locator("#search-results h2", has_text="Search Results").wait_for()
        page.locator(".search-summary", has_text="found").wait_for()
        found = page.locator("#search-results li a").evaluate_all("links => links.map(link => link.href)")
        first = [link.partition(f"{site.as_uri()}/")[2].partition(".html")[0] for link in found[:3]]
        assert answer in first, f"{question}: {first}"


def address_of(page: Path) -> str:
    return page.relative_to(DOCS).with_suffix(".html").as_posix()


def required_objects() -> Iterator[str]:
    """Every name that the API reference lists, and the public members of the classes among them."""
    values: dict[str, Any] = {
        name: None if name.startswith(UNIMPORTED) else value_of(name) for name in documented_names()
    }
    classes = {value for value in values.values() if inspect.isclass(value)}
    for name, value in values.items():
        yield name
        if inspect.isclass(value):
            yield from (f"{name}.{member}" for member in members_of(value, classes - {value}))


def members_of(cls: type, documented: set[Any]) -> Iterator[str]:
    """The methods and properties of a class, with those of bases that are not documented themselves."""
    for each in cls.__mro__:
        if each in documented or not each.__module__.startswith("pyggml"):
            return
        for name, member in vars(each).items():
            function = getattr(member, "fget", None) or getattr(member, "__func__", member)
            is_own = getattr(function, "__name__", name) == name  # rather than the name in earlier versions
            if not name.startswith("_") and is_own and (inspect.isfunction(function) or isinstance(member, property)):
                yield name
