"""``pyggml cache``: listing and removing imported models."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants
from support.checkpoints.hf_llama import HFLlama
from support.command import called, fails, pyggml
from support.servers.hub_server import HubServer, hub_at
from support.terminal import Terminal

from pyggml.files.model_files import checkpoint_at
from pyggml.importer import CacheEntry, cache_entries, imported
from pyggml.source import SHIPPED_MODEL
from pyggml.units import ago_text, bytes_text


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With two models in it, and another of the first in the making that was stopped; without downloads."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("PYGGML_CACHE", str(tmp_path / "cache"))
    first = HFLlama().write(tmp_path / "first-model", stored="BF16")
    second = HFLlama(seed=1).write(tmp_path / "second", stored="F32")
    path = imported(checkpoint_at(first))
    imported(checkpoint_at(second), "q8_0")
    (path.parent / re.sub("-auto-.*", f"-q4_k_m-{'0' * 24}.gguf.part", path.name)).write_bytes(bytes(5000))
    os.utime(path, (time.time() - 7300,) * 2)
    return tmp_path / "cache"


def sizes() -> dict[str, int]:
    """Model and type -> bytes."""
    return {f"{entry.model} {entry.outtype}": entry.n_bytes for entry in cache_entries()}


@pytest.mark.slow
def test_it_is_listed(cache: Path) -> None:
    done = pyggml("cache")
    assert (done.code, done.err) == (0, "")
    assert re.search(r"first-model, auto, 200 kB, used 2 hours ago\n  first-model-auto-[0-9a-f]{24}.gguf\n", done.out)
    assert "second, q8_0, " in done.out
    assert re.search(r"first-model, q4_k_m, .*, used just now, unfinished\n", done.out)
    assert done.out.splitlines()[-1].startswith("3 imports, ")
    assert done.out.endswith(f" of at most 64.0 GB, in {cache}\n")


def test_it_is_listed_as_json(cache: Path) -> None:
    found = json.loads(called("cache", "--json", env={"PYGGML_CACHE_GB": "1.5"}).out)
    assert (found["path"], found["limit_bytes"]) == (str(cache), 1_500_000_000)
    models = {f"{model['model']} {model['outtype']}": model for model in found["models"]}
    assert {name: model["n_bytes"] for name, model in models.items()} == sizes()
    assert found["n_bytes"] == sum(sizes().values())
    assert not models["first-model q4_k_m"]["is_complete"]
    assert Path(models["second q8_0"]["path"]).is_file()
    assert models["first-model auto"]["used"] == pytest.approx(time.time() - 7300, abs=200)


def test_an_empty_one_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    env = {"PYGGML_CACHE": str(tmp_path / "nothing")}
    assert called("cache", env=env).out == f"0 imports, 0 B of at most 64.0 GB, in {tmp_path / 'nothing'}\n"
    assert called("cache", "clear", env=env).out == "0 B freed\n"
    assert not (tmp_path / "nothing").exists()


@pytest.mark.usefixtures("cache")
def test_one_is_removed_by_the_name_of_its_directory() -> None:
    before = sizes()
    assert called("cache", "remove", "first-model").code == 0
    assert sizes() == {"second q8_0": before["second q8_0"]}


@pytest.mark.usefixtures("cache")
def test_one_is_removed_by_its_own_name() -> None:
    name = next(entry.path.name for entry in cache_entries() if entry.outtype == "auto")
    assert called("cache", "remove", name).out == "200 kB freed\n"
    assert sorted(sizes()) == ["first-model q4_k_m", "second q8_0"]


def test_it_is_cleared(cache: Path) -> None:
    assert "cannot ask for confirmation without a terminal: add --yes" in fails(2, "cache", "clear")
    assert len(sizes()) == 3
    assert called("cache", "clear", "--yes").out.endswith(" freed\n")
    assert list(cache.iterdir()) == []


@pytest.mark.slow_except(every=3)
@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(("answer", "code", "n_left"), [("y\r", 0, 0), ("n\r", 1, 3), ("\x03", 130, 3)])
def test_it_asks_before_it_is_cleared(answer: str, code: int, n_left: int) -> None:
    with Terminal("cache", "clear") as terminal:
        terminal.wait_for("? [y/N]:")
        assert terminal.rows[0].startswith("Remove 3 models, ")
        terminal.send(answer)
        assert terminal.wait_for_exit(again=answer if answer == "\x03" else "") == code
    assert len(sizes()) == n_left


@pytest.mark.usefixtures("cache")
def test_it_refuses_in_one_line() -> None:
    assert "there is no model x in the cache" in fails(1, "cache", "remove", "x")
    assert "Missing argument 'NAME...'" in fails(2, "cache", "remove")
    assert "No such command 'empty'" in fails(2, "cache", "empty")
    assert "--json" in fails(2, "cache", "--json", "clear", "--yes")
    for limit in ("many", "inf", "nan", "-1"):
        assert f"PYGGML_CACHE_GB is '{limit}'" in fails(1, "cache", env={"PYGGML_CACHE_GB": limit})
    assert len(sizes()) == 3


def test_other_files_are_named_as_they_are() -> None:
    entry = CacheEntry(Path("/cache/mine.gguf"), 1, 0.0)
    assert (entry.model, entry.outtype) == ("mine", "")
    entry = CacheEntry(Path(f"/cache/a-b-q4_0-c-iq1_s-{'f' * 24}.gguf"), 1, 0.0)
    assert (entry.model, entry.outtype) == ("a-b-q4_0-c", "iq1_s")


def test_times_are_short() -> None:
    assert [ago_text(s) for s in (-5, 59, 61, 7300, 86400 * 9)] == [
        *("just now", "just now", "1 minute ago", "2 hours ago", "9 days ago")
    ]


# --- downloads --------------------------------------------------------------------------------------------------

MODEL = SHIPPED_MODEL.read_bytes()


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """With a repository of two GGUF files, and one of a checkpoint."""
    with hub_at(tmp_path, monkeypatch) as server:
        server.add("tiny/stories", {"a-Q8_0.gguf": MODEL, "a-Q4_0.gguf": MODEL[:-1], "README.md": b"# Stories"})
        server.add("tiny/checkpoint", HFLlama().write(tmp_path / "hf", stored="BF16"))
        yield server


def listed() -> dict[str, int]:
    """Reference -> bytes."""
    found = json.loads(called("cache", "list", "--json").out)["downloads"]
    return {model["reference"]: model["n_bytes"] for model in found["models"]}


@pytest.mark.slow
@pytest.mark.usefixtures("hub")
def test_a_download_is_got_listed_and_removed(tmp_path: Path) -> None:
    done = pyggml("cache", "get", "hf:tiny/stories:q8_0")
    assert (done.code, done.err) == (0, "")
    path = Path(done.out.removesuffix("\n"))
    assert path.read_bytes() == MODEL
    shown = pyggml("cache", "list").out
    size = bytes_text(len(MODEL))
    assert shown.startswith(f"hf:tiny/stories:a-Q8_0.gguf, {size}, used just now\n  {path}\n1 download, {size}, in ")
    assert shown.endswith(f"\n\n0 imports, 0 B of at most 64.0 GB, in {tmp_path / 'imported'}\n")
    assert called("cache").out == shown
    assert called("inspect", "-hf", "tiny/stories:q8_0").code == 0
    assert called("cache", "rm", "hf:tiny/stories:q8_0").out == f"{size} freed\n"
    assert not path.exists()
    assert listed() == {}


@pytest.mark.usefixtures("hub")
def test_each_model_of_a_repository_is_one_of_its_own(tmp_path: Path) -> None:
    for reference in ("hf:tiny/stories:q8_0", "tiny/stories:a-Q4_0.gguf", "https://huggingface.co/tiny/checkpoint"):
        assert called("cache", "get", reference).code == 0
    size = len(MODEL)
    assert listed().keys() == {"hf:tiny/stories:a-Q8_0.gguf", "hf:tiny/stories:a-Q4_0.gguf", "hf:tiny/checkpoint"}
    assert called("cache", "rm", "a-Q4_0.gguf", "tiny/checkpoint").code == 0
    assert listed() == {"hf:tiny/stories:a-Q8_0.gguf": size}
    assert "there is no model hf:tiny/stories:q4_0 in the cache" in fails(1, "cache", "rm", "hf:tiny/stories:q4_0")
    assert called("cache", "get", "hf:tiny/stories:q4_0").code == 0
    assert called("cache", "remove", "hf:tiny/stories").out == f"{bytes_text(2 * size)} freed\n"
    assert listed() == {}
    left = [path for path in (tmp_path / "home" / "hub").rglob("*") if path.is_file() and path.stat().st_size > 1000]
    assert left == []


def test_data_that_revisions_share_stays(hub: HubServer) -> None:
    hub.add("tiny/stories", {"a-Q8_0.gguf": MODEL, "new.txt": b""}, revision="next")
    for reference in ("hf:tiny/stories:q8_0", "hf:tiny/stories@next:q8_0"):
        assert called("cache", "get", reference).code == 0
    assert called("cache", "rm", "hf:tiny/stories@next:q8_0").out == "0 B freed\n"
    assert listed() == {"hf:tiny/stories:a-Q8_0.gguf": len(MODEL)}
    assert called("inspect", "hf:tiny/stories:q8_0").code == 0


@pytest.mark.usefixtures("hub")
@pytest.mark.skipif(sys.platform == "win32", reason="needs symbolic links")
def test_files_elsewhere_that_the_cache_links_to_stay(tmp_path: Path) -> None:
    path = Path(called("cache", "get", "hf:tiny/stories:q8_0").out.removesuffix("\n"))
    for name in ("mine.gguf", "notes.md"):
        (tmp_path / name).write_bytes(MODEL)
        (path.parent / name).symlink_to(tmp_path / name)
    assert called("cache", "rm", "mine.gguf").out == "0 B freed\n"
    assert listed() == {"hf:tiny/stories:a-Q8_0.gguf": len(MODEL)}
    assert called("cache", "rm", "hf:tiny/stories").out == f"{bytes_text(len(MODEL))} freed\n"
    assert listed() == {}
    assert [(tmp_path / name).read_bytes() == MODEL for name in ("mine.gguf", "notes.md")] == [True, True]


@pytest.mark.slow
@pytest.mark.usefixtures("hub")
def test_what_cannot_be_got() -> None:
    assert "choose one, such as 'hf:tiny/stories:a-Q4_0.gguf'" in fails(1, "cache", "get", "hf:tiny/stories")
    assert "use hf:org/repo[:file]" in fails(2, "cache", "get", "llama3.2")
    assert "HF:ORG/REPO[:FILE]" in fails(2, "cache", "get")
