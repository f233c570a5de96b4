"""``pyggml cache``: what imported models are there, and away with them."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path

import pytest
from command import called, fails, pyggml
from hf_llama import HFLlama
from terminal import Terminal

from pyggml.files.model_files import checkpoint_at
from pyggml.importer import CacheEntry, cache_entries, imported
from pyggml.units import ago_text


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With two models in it, and another of the first in the making that was stopped."""
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


def test_it_is_listed(cache: Path) -> None:
    done = pyggml("cache")
    assert (done.code, done.err) == (0, "")
    assert re.search(r"first-model, auto, 200 kB, used 2 hours ago\n  first-model-auto-[0-9a-f]{24}.gguf\n", done.out)
    assert "second, q8_0, " in done.out
    assert re.search(r"first-model, q4_k_m, .*, used just now, unfinished\n", done.out)
    assert done.out.splitlines()[-1].startswith("3 models, ")
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


def test_an_empty_one_is_no_error(tmp_path: Path) -> None:
    env = {"PYGGML_CACHE": str(tmp_path / "nothing")}
    assert called("cache", env=env).out == f"0 models, 0 B of at most 64.0 GB, in {tmp_path / 'nothing'}\n"
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
    assert "nobody to ask: add --yes" in fails(2, "cache", "clear")
    assert len(sizes()) == 3
    assert called("cache", "clear", "--yes").out.endswith(" freed\n")
    assert list(cache.iterdir()) == []


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(("answer", "code", "n_left"), [("y\r", 0, 0), ("n\r", 1, 3), ("\x03", 130, 3)])
def test_it_asks_before_it_is_cleared(answer: str, code: int, n_left: int) -> None:
    with Terminal("cache", "clear") as terminal:
        terminal.wait_for("? [y/N]:")
        assert terminal.rows[0].startswith("Remove 3 models, ")
        terminal.send(answer)
        assert terminal.wait_for_exit(again=answer if answer == "\x03" else "") == code
    assert len(sizes()) == n_left


def test_it_refuses_in_one_line(cache: Path) -> None:
    assert f"nothing called x is in {cache}" in fails(1, "cache", "remove", "x")
    assert "Missing argument 'NAME'" in fails(2, "cache", "remove")
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
