"""References, ``hf:org/repo``, against a hub that the tests serve."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import numpy as np
import pytest
from huggingface_hub import constants, file_download
from huggingface_hub.utils import _http
from support.checkpoints import adapters
from support.checkpoints.hf_llama import HFLlama
from support.servers.hub_server import HubServer, hub_at

import pyggml
from pyggml.errors import (
    DiskFullError,
    DownloadError,
    InvalidParameterError,
    MissingPackageError,
    ModelLoadError,
    ModelNotFoundError,
)
from pyggml.gguf import GGUFReader, GGUFWriter, ValueType
from pyggml.hub.reference import Reference, parse_reference
from pyggml.importer import cache_entries
from pyggml.progress import Progress
from pyggml.source import SHIPPED_MODEL
from pyggml.source import identify as identify_files

SHIPPED = SHIPPED_MODEL.read_bytes()
NAME = SHIPPED_MODEL.name
PROMPT = "Once upon a time"
CHUNK = 100_000  # that huggingface_hub reads and tells of at once, in place of ten million


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """The hub that references mean, and empty caches."""
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", CHUNK)
    monkeypatch.setattr(file_download, "time", SimpleNamespace(sleep=lambda _seconds: None))
    monkeypatch.setattr(_http, "time", SimpleNamespace(sleep=lambda _seconds: None, time=time.time))
    with hub_at(tmp_path, monkeypatch) as server:
        yield server


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "home" / "hub"


@pytest.fixture
def gguf(hub: HubServer) -> HubServer:
    """The hub, with the shipped model."""
    hub.add("tiny/stories", {NAME: SHIPPED, "README.md": b"# Stories", "config.json": b"{}"})
    return hub


def identify(source: str, progress: Progress | None = None) -> Path:
    return identify_files(source, progress).path


def text_of(source: str | Path | None) -> str:
    with pyggml.load(source, n_ctx=128) as llm:
        return llm.generate(PROMPT, max_tokens=16, ignore_eos=True).text


def files_below(directory: Path) -> list[str]:
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file())


def halves(path: Path, directory: Path) -> dict[str, bytes]:
    """A GGUF file as a split set of two."""
    directory.mkdir()
    files = [directory / f"model-0000{i + 1}-of-00002.gguf" for i in range(2)]
    with GGUFReader(path) as reader:
        names = list(reader.tensors)
        for i, file in enumerate(files):
            with GGUFWriter(file) as writer:
                for key, value in reader.metadata.items() if i == 0 else ():
                    writer.set(key, value, reader.value_type(key))
                writer.set("split.no", i, ValueType.UINT16)
                writer.set("split.count", 2, ValueType.UINT16)
                writer.set("split.tensors.count", len(names), ValueType.INT32)
                mine = names[i::2]
                for name in mine:
                    writer.add_tensor(name, reader.tensors[name].shape, reader.tensors[name].type)
                for name in mine:
                    writer.write_tensor(name, reader.tensor(name))
    return {file.name: file.read_bytes() for file in files}


# --- checkpoints ------------------------------------------------------------------------------------------------


@pytest.mark.slow_except("3")
@pytest.mark.parametrize("n_shards", [1, 3])
def test_a_checkpoint_loads_as_its_directory_does(hub: HubServer, cache: Path, tmp_path: Path, n_shards: int) -> None:
    local = HFLlama().write(tmp_path / "llama", n_shards=n_shards)
    (local / "chat_template.jinja").write_text("{{ messages[0].content }}")
    (local / "generation_config.json").write_text('{"eos_token_id": [0, 5]}')
    (local / "additional_chat_templates").mkdir()
    (local / "additional_chat_templates" / "plain.jinja").write_text("{{ messages }}")
    needed = files_below(local)
    adjacent = {
        "pytorch_model.bin",
        "consolidated.safetensors",
        "params.json",
        "README.md",
        "original/model.safetensors",
    }
    files = {name: (local / name).read_bytes() for name in needed}
    hub.add("tiny/llama", {**files, **dict.fromkeys([*adjacent, "onnx/model.onnx", "vocab.json"], b"no")})
    expected = text_of(local)
    assert text_of("hf:tiny/llama") == expected
    snapshot = identify("hf:tiny/llama")
    assert files_below(snapshot) == needed
    with pyggml.load(snapshot, n_ctx=64) as found, pyggml.load(local, n_ctx=64) as there:
        assert found.metadata == there.metadata
        assert found.stop_tokens == there.stop_tokens

    n_imported = len(cache_entries())
    assert all(entry.path.name.startswith("llama-auto-") for entry in cache_entries())
    del hub.requests[:]
    assert text_of("hf:tiny/llama") == expected
    assert [request.path for request in hub.requests] == ["/api/models/tiny/llama"]
    assert len(cache_entries()) == n_imported
    assert snapshot.is_relative_to(cache)


@pytest.mark.slow
def test_another_revision_is_another_import(hub: HubServer, tmp_path: Path) -> None:
    hub.add("tiny/llama", HFLlama(seed=1).write(tmp_path / "1"), "v1")
    hub.add("tiny/llama", HFLlama(seed=2).write(tmp_path / "2"))
    assert text_of("hf:tiny/llama@v1") == text_of(tmp_path / "1")
    assert text_of("hf:tiny/llama") == text_of(tmp_path / "2")
    hub.add("tiny/llama", HFLlama(seed=3).write(tmp_path / "3"))
    assert text_of("hf:tiny/llama") == text_of(tmp_path / "3")
    assert text_of("hf:tiny/llama@v1") == text_of(tmp_path / "1")


def test_convert_takes_references(gguf: HubServer, tmp_path: Path) -> None:
    local = HFLlama().write(tmp_path / "llama")
    gguf.add("tiny/llama", local)
    told: list[float] = []
    pyggml.convert("hf:tiny/llama", tmp_path / "from_hub.gguf", "q8_0", progress=told.append)
    pyggml.convert(local, tmp_path / "from_disk.gguf", "q8_0")
    assert (tmp_path / "from_hub.gguf").read_bytes() == (tmp_path / "from_disk.gguf").read_bytes()
    assert sum(after < before for before, after in pairwise(told)) == 1  # downloaded, then converted
    assert told[-1] == 1
    with pytest.raises(InvalidParameterError, match="is a GGUF file: quantize changes its type"):
        pyggml.convert("hf:tiny/stories", tmp_path / "out.gguf")


def test_adapters_by_reference(gguf: HubServer, tmp_path: Path) -> None:
    """As peft saves them, and as GGUF files."""
    llama = HFLlama()
    base = llama.write(tmp_path / "llama")
    tensors = adapters.matrices(adapters.modules_of(llama))
    local = adapters.write_peft(tmp_path / "adapter", tensors)
    gguf.add("tiny/adapter", local)
    pyggml.convert("hf:tiny/adapter", tmp_path / "from_hub.gguf", base=base)
    pyggml.convert(local, tmp_path / "from_disk.gguf", base=base)
    assert (tmp_path / "from_hub.gguf").read_bytes() == (tmp_path / "from_disk.gguf").read_bytes()
    gguf.add("tiny/converted", {"adapter.gguf": (tmp_path / "from_hub.gguf").read_bytes(), "README.md": b""})
    pyggml.convert(base, tmp_path / "base.gguf", "f32")
    for name, adapter in (("a", "hf:tiny/adapter"), ("b", "hf:tiny/converted"), ("c", local)):
        pyggml.quantize(tmp_path / "base.gguf", tmp_path / f"{name}.gguf", "f32", merge=adapter)
    assert len({(tmp_path / f"{name}.gguf").read_bytes() for name in "abc"}) == 1
    with pytest.raises(ModelLoadError, match="is an adapter"):
        pyggml.load("hf:tiny/adapter")


def test_metas_own_names(hub: HubServer) -> None:
    files = ["consolidated.safetensors", "params.json", "tokenizer.model", "README.md"]
    hub.add("meta/llama", dict.fromkeys(files, b"x"))
    assert files_below(identify("hf:meta/llama")) == ["consolidated.safetensors", "params.json", "tokenizer.model"]


@pytest.mark.slow_except(every=2)
@pytest.mark.parametrize(
    ("index", "message"),
    [
        ('{"weight_map": {"a": "model-2.safetensors"}}', "no model-2.safetensors, which its"),
        ('{"weight_map": {"a": "../../model.safetensors"}}', "'../../model.safetensors', which is not a file name in"),
        ('{"weight_map": {"a": 1}}', "in 1, which is not a file name in"),
        ('{"weight_map": {"a": [1]}}', "which is not a file name in"),
        ('{"weight_map": []}', "has no weight_map"),
        ("[" * 100_000, "is not JSON"),
    ],
)
def test_an_index_is_not_believed(hub: HubServer, cache: Path, index: str, message: str) -> None:
    hub.add("tiny/llama", {"config.json": b"{}", "model.safetensors.index.json": index.encode()})
    with pytest.raises((ModelLoadError, ModelNotFoundError), match=message):
        pyggml.load("hf:tiny/llama")
    assert not list(cache.rglob("config.json"))


# --- GGUF files -------------------------------------------------------------------------------------------------


def test_the_only_gguf_file(gguf: HubServer) -> None:
    expected = text_of(None)
    assert text_of("hf:tiny/stories") == expected
    assert identify("hf:tiny/stories").read_bytes() == SHIPPED
    assert not gguf.asked("GET", "README.md")
    assert not gguf.asked("GET", "config.json")
    with pyggml.Inference.cpu().use_auto(f"hf:tiny/stories:{NAME}", n_ctx=128) as llm:
        assert llm.generate(PROMPT, max_tokens=16, ignore_eos=True).text == expected
    assert gguf.starts(NAME) == [0]


def test_one_of_several_has_to_be_named(hub: HubServer) -> None:
    names = ["stories-Q4_K_M.gguf", "stories-Q4_K_S.gguf", "big/stories-Q8_0.gguf", "mmproj-stories-F16.gguf"]
    hub.add("tiny/many", dict.fromkeys([*names, "imatrix.gguf"], SHIPPED))
    listed = r"3 models; choose one, such as 'hf:tiny/many:big/stories-Q8_0.gguf': .*, stories-Q4_K_M.gguf, .*K_S.gguf$"
    with pytest.raises(ModelLoadError, match=listed):
        pyggml.load("hf:tiny/many")
    for file, name in {
        "big/stories-Q8_0.gguf": "big/stories-Q8_0.gguf",
        "q8_0": "big/stories-Q8_0.gguf",
        "Q4_K_M": "stories-Q4_K_M.gguf",
        "stories-Q8_0.gguf": "big/stories-Q8_0.gguf",
        "mmproj-stories-F16.gguf": "mmproj-stories-F16.gguf",
    }.items():
        path = identify(f"hf:tiny/many:{file}")
        assert path.as_posix().endswith(name)
        assert path.read_bytes() == SHIPPED
    for file in ("Q4_K", "Q5_0", "F16", "nothing.gguf"):
        with pytest.raises(ModelNotFoundError, match=rf"has no .* called '{file}': it has big/stories-Q8_0.gguf, "):
            pyggml.load(f"hf:tiny/many:{file}")


def test_a_type_that_several_files_have(hub: HubServer) -> None:
    hub.add("tiny/many", {"a-Q8_0.gguf": SHIPPED, "b-Q8_0.gguf": SHIPPED})
    with pytest.raises(ModelLoadError, match=r"2 models; choose one, such as 'hf:tiny/many@main:a-Q8_0.gguf'"):
        pyggml.load("hf:tiny/many@main:q8_0")


@pytest.mark.slow_except("")
@pytest.mark.parametrize("folder", ["", "UD-Q2_K/"])
def test_split_sets_come_whole(hub: HubServer, tiny_path: Path, tmp_path: Path, folder: str) -> None:
    parts = {f"{folder}{name}": content for name, content in halves(tiny_path, tmp_path / "parts").items()}
    hub.add("tiny/split", {**parts, "other-Q8_0.gguf": SHIPPED})
    expected = text_of(tiny_path)
    assert text_of(f"hf:tiny/split:{folder}model-00001-of-00002.gguf") == expected
    assert identify(f"hf:tiny/split:{folder}model-00002-of-00002.gguf").name == "model-00001-of-00002.gguf"
    if folder:
        assert text_of("hf:tiny/split:ud-q2_k") == expected
    assert not hub.asked("GET", "other-Q8_0.gguf")


def test_a_split_set_with_a_part_missing(hub: HubServer) -> None:
    hub.add("tiny/split", {"model-00002-of-00003.gguf": SHIPPED, "model-00003-of-00003.gguf": SHIPPED})
    with pytest.raises(ModelNotFoundError, match=r"has no model-00001-of-00003.gguf, a part of"):
        pyggml.load("hf:tiny/split")
    assert not hub.asked("GET", ".gguf")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["pytorch_model.bin", "config.json"], "weights in pytorch_model.bin, .* it can run code"),
        (["README.md"], "holds no model: it has no model.safetensors"),
        (["adapter_model.safetensors"], "is an adapter"),
        ([], "holds no model: it has no model.safetensors"),
    ],
)
def test_repositories_without_a_model(hub: HubServer, files: list[str], message: str) -> None:
    hub.add("tiny/none", dict.fromkeys(files, b"x"))
    with pytest.raises(ModelLoadError, match=message):
        pyggml.load("hf:tiny/none")


# --- the grammar ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("hf:org/repo", Reference("org/repo")),
        ("hf:Org.1/re_po-2.0", Reference("Org.1/re_po-2.0")),
        ("hf:org/repo:file.gguf", Reference("org/repo", None, "file.gguf")),
        ("hf:org/repo:a/b c@2.gguf", Reference("org/repo", None, "a/b c@2.gguf")),
        ("hf:org/repo@v1.0", Reference("org/repo", "v1.0")),
        ("hf:org/repo@refs/pr/7:Q8_0", Reference("org/repo", "refs/pr/7", "Q8_0")),
    ],
)
def test_references(text: str, reference: Reference) -> None:
    assert parse_reference(text) == reference
    assert str(reference) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hf:", "does not name an organisation and a repository"),
        ("hf:repo", "does not name an organisation"),
        ("hf:org/repo/file.gguf", "does not name an organisation.* here probably hf:org/repo:file.gguf$"),
        ("hf://org/repo", "slashes after hf:.* here probably hf:org/repo$"),
        ("hf://org/repo@v1/a/b.gguf", "slashes after hf:.* here probably hf:org/repo@v1:a/b.gguf$"),
        ("hf:org/", "does not allow the name ''"),
        ("hf:../repo", "does not allow the name '..'"),
        ("hf:org/re po", "does not allow the name 're po'"),
        ("hf:org/-repo", "does not allow the name '-repo'"),
        ("hf:org/re--po", "does not allow the name 're--po'"),
        (f"hf:org/{'r' * 97}", "longer than 96"),
        ("hf:org/repo@", "'' is not a valid revision"),
        ("hf:org/repo@../main", "'../main' is not a valid revision"),
        ("hf:org/repo@a b", "'a b' is not a valid revision"),
        ("hf:org/repo:", "'' is not a valid path"),
        ("hf:org/repo:../../secret.gguf", "is not a valid path in a repository"),
        ("hf:org/repo:/etc/passwd", "is not a valid path in a repository"),
        ("hf:org/repo:a\\b.gguf", "is not a valid path in a repository"),
        ("hf:org/repo:a:b.gguf", "is not a valid path in a repository"),
    ],
)
def test_malformed_references(hub: HubServer, text: str, message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message) as raised:
        pyggml.load(text)
    assert "hf:ORG/REPO[@REVISION][:FILE]" in str(raised.value)
    assert not hub.requests


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("org/repo", "hf:org/repo"),
        ("Qwen/Qwen3-0.6B", "hf:Qwen/Qwen3-0.6B"),
        ("https://huggingface.co/org/repo", "hf:org/repo"),
        ("https://huggingface.co/org/repo/", "hf:org/repo"),
        ("https://huggingface.co/org/repo/tree/main", "hf:org/repo"),
        ("https://huggingface.co/org/repo/tree/refs%2Fpr%2F7", "hf:org/repo@refs/pr/7"),
        ("https://huggingface.co/org/repo?library=gguf", "hf:org/repo"),
        ("https://huggingface.co/org/repo/resolve/main/a%20b.gguf?download=true", "hf:org/repo:a b.gguf"),
        ("https://huggingface.co/org/repo/blob/v1/a/b.gguf", "hf:org/repo@v1:a/b.gguf"),
        ("huggingface.co/org/repo/blob/main/model.safetensors", "hf:org/repo"),
        ("hf.co/org/repo:Q4_K_M", "hf:org/repo:Q4_K_M"),
        ("org/repo:Q4_K_M", "hf:org/repo:Q4_K_M"),
        ("org/repo@v1", "hf:org/repo@v1"),
    ],
)
def test_what_lacks_only_the_scheme(hub: HubServer, tmp_path: Path, text: str, reference: str) -> None:
    for use in (pyggml.load, pyggml.inspect, lambda source: pyggml.convert(source, tmp_path / "model.gguf")):
        with pytest.raises(ModelNotFoundError, match="there is no model file at") as raised:
            use(text)
        assert f"{reference!r} downloads it" in str(raised.value)
    assert not hub.requests


@pytest.mark.parametrize(
    "text",
    [
        *(
            "repo",
            "org/repo/more",
            "org/model.gguf",
            "./org/repo",
            "/org/repo",
            "org/re po",
            "https://there.org/a/b.gguf",
        ),
        *("https://huggingface.co/org", "https://huggingface.co/datasets/org/repo", "huggingface.co/org"),
    ],
)
def test_other_paths_are_only_paths(text: str) -> None:
    with pytest.raises(ModelNotFoundError) as raised:
        pyggml.load(text)
    assert "hf:" not in str(raised.value)


def test_a_directory_that_reads_like_an_id_is_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "org" / "repo").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelLoadError, match="org/repo is a directory"):
        pyggml.load("org/repo")


# --- progress, stopping, going on -------------------------------------------------------------------------------


def test_progress_rises_to_1(hub: HubServer, tmp_path: Path) -> None:
    hub.add("tiny/llama", HFLlama().write(tmp_path / "hf", n_shards=2))
    told: list[float] = []
    identify("hf:tiny/llama", told.append)
    assert len(told) > 3
    assert told == sorted(told)
    assert told[-1] == 1
    del told[:]
    identify("hf:tiny/llama", told.append)
    assert told == []


def test_a_dropped_connection_is_taken_up_where_it_broke(gguf: HubServer) -> None:
    gguf.faults.drop_after[NAME] = 2_000_000
    told: list[float] = []
    assert identify("hf:tiny/stories", told.append).read_bytes() == SHIPPED
    assert gguf.starts(NAME) == [0, 2_000_000]
    assert told == sorted(told)


@pytest.mark.usefixtures("gguf")
def test_a_download_can_be_stopped(cache: Path) -> None:
    with pytest.raises(ModelLoadError, match="downloading hf:tiny/stories was stopped by its progress callback"):
        pyggml.load("hf:tiny/stories", progress=lambda part: part < 0.5)
    assert not list(cache.rglob("*.gguf"))
    assert not list(cache.rglob("*.incomplete"))
    told: list[float] = []
    assert identify("hf:tiny/stories", told.append).read_bytes() == SHIPPED
    assert told == sorted(told)


def test_files_that_came_before_a_stop_are_kept(hub: HubServer, tmp_path: Path) -> None:
    hub.add("tiny/llama", HFLlama().write(tmp_path / "hf", n_shards=2))
    with pytest.raises(ModelLoadError, match="was stopped by its progress callback"):
        identify("hf:tiny/llama", lambda _part: not hub.starts("model-00002-of-00002.safetensors"))
    identify("hf:tiny/llama")
    assert hub.starts("model-00001-of-00002.safetensors") == [0]


@pytest.mark.usefixtures("gguf")
def test_what_progress_raises_comes_out() -> None:
    def fail(_part: float) -> None:
        raise BrokenPipeError("of the caller's own")

    with pytest.raises(BrokenPipeError, match="of the caller's own"):
        identify("hf:tiny/stories", fail)


@pytest.mark.slow
def test_a_killed_download_is_made_good(gguf: HubServer) -> None:
    gguf.faults.stall_after[NAME] = 1_000_000
    program = "import pyggml; pyggml.load('hf:tiny/stories')"
    with subprocess.Popen([sys.executable, "-c", program]) as process:
        while not gguf.starts(NAME):
            time.sleep(0.01)
        process.kill()
    gguf.faults.go_on.set()
    assert identify("hf:tiny/stories").read_bytes() == SHIPPED


def test_a_hub_that_cannot_send_parts(gguf: HubServer) -> None:
    gguf.faults.ignores_ranges = True
    gguf.faults.drop_after[NAME] = 2_000_000
    assert identify("hf:tiny/stories").read_bytes() == SHIPPED


def test_errors_that_pass(gguf: HubServer) -> None:
    gguf.faults.answers[f"/cdn/tiny/stories/{gguf.repositories['tiny/stories'].refs['main']}/{NAME}"] = [429, 429]
    gguf.faults.drop_after[NAME] = 0
    assert identify("hf:tiny/stories").read_bytes() == SHIPPED
    assert gguf.starts(NAME) == [0] * 4


def test_errors_that_do_not_pass(gguf: HubServer, cache: Path) -> None:
    gguf.faults.answers[f"/cdn/tiny/stories/{gguf.repositories['tiny/stories'].refs['main']}/{NAME}"] = [503] * 99
    with pytest.raises(DownloadError, match="responded with status 503 for tiny/stories") as raised:
        identify("hf:tiny/stories")
    assert raised.value.is_temporary
    assert not list(cache.rglob("*.gguf"))
    del gguf.requests[:]
    gguf.faults.answers[f"/cdn/tiny/stories/{gguf.repositories['tiny/stories'].refs['main']}/{NAME}"] = [403] * 99
    with pytest.raises(DownloadError, match="access to tiny/stories is restricted"):
        identify("hf:tiny/stories")
    assert gguf.starts(NAME) == [0]


@pytest.mark.parametrize("size", [1000, len(SHIPPED) + 1])
def test_another_size_than_was_said_is_not_taken(gguf: HubServer, cache: Path, size: int) -> None:
    gguf.faults.large_size = size
    with pytest.raises(DownloadError, match=f"the download of .* is damaged: .* should be of size {size} "):
        identify("hf:tiny/stories")
    assert not list(cache.rglob("*.gguf"))
    gguf.faults.large_size = None
    assert identify("hf:tiny/stories").read_bytes() == SHIPPED


def test_two_at_once_download_once(gguf: HubServer) -> None:
    gguf.faults.stall_after[NAME] = 1_000_000
    with ThreadPoolExecutor() as executor:
        first = executor.submit(identify, "hf:tiny/stories")
        while not gguf.starts(NAME):
            time.sleep(0.01)
        n_asked = len(gguf.asked("HEAD", NAME))
        second = executor.submit(identify, "hf:tiny/stories")
        while len(gguf.asked("HEAD", NAME)) < 2 * n_asked:  # what comes next is to wait for the other one's lock
            time.sleep(0.01)
        gguf.faults.go_on.set()
        assert first.result() == second.result()
    assert first.result().read_bytes() == SHIPPED
    assert gguf.starts(NAME) == [0]


def test_a_disk_that_is_too_small(gguf: HubServer, cache: Path) -> None:
    gguf.faults.large_size = 10**18
    with pytest.raises(DiskFullError, match=f"needs {10**18} bytes, but .* has only") as raised:
        identify("hf:tiny/stories")
    assert raised.value.required_bytes == 10**18
    assert raised.value.available_bytes == pytest.approx(shutil.disk_usage(cache.parent.parent).free, rel=0.1)
    assert not gguf.starts(NAME)


def test_files_are_quantised_too(gguf: HubServer, tmp_path: Path) -> None:
    told: list[float] = []
    for source in (f"hf:tiny/stories:{NAME}", SHIPPED_MODEL):
        pyggml.quantize(source, tmp_path / f"{len(told)}.gguf", "q4_0", requantize=True, progress=told.append)
    assert len({path.read_bytes() for path in tmp_path.glob("*.gguf")}) == 1
    assert gguf.starts(NAME) == [0]


@pytest.mark.slow
@pytest.mark.usefixtures("gguf")
def test_a_disk_that_gets_full(cache: Path) -> None:
    program = (
        "import resource; from pyggml.source import identify;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000)); identify('hf:tiny/stories')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert f"DiskFullError: the disk of {cache} became full while downloading hf:tiny/stories" in done.stderr
    assert not list(cache.rglob("*.incomplete"))
    assert identify("hf:tiny/stories").read_bytes() == SHIPPED


@pytest.mark.usefixtures("gguf")
def test_a_cache_that_cannot_be(cache: Path) -> None:
    cache.parent.mkdir()
    cache.write_text("a file")
    with pytest.raises(DownloadError, match=f"hf:tiny/stories cannot be stored in {cache}"):
        identify("hf:tiny/stories")


# --- over Xet ---------------------------------------------------------------------------------------------------


@pytest.fixture
def xet(hub: HubServer, tmp_path: Path) -> bytes:
    """A file of the hub's that only Xet brings: its store is a directory here."""
    hf_xet = pytest.importorskip("hf_xet", reason="this machine has no hf_xet, which huggingface_hub works without")
    content = np.random.default_rng(0).bytes(40_000_000)
    (tmp_path / "large.gguf").write_bytes(content)
    (tmp_path / "store").mkdir()
    hub.xet_store = f"local://{tmp_path / 'store'}"
    with hf_xet.XetSession().new_upload_commit(endpoint=hub.xet_store) as commit:
        file = commit.start_upload_file(str(tmp_path / "large.gguf"))
    hub.xet_hashes["large.gguf"] = file.result().xet_info.hash
    hub.add("large/xet", {"large.gguf": content})
    return content


@pytest.mark.slow
def test_xet_is_used_where_the_hub_has_it(hub: HubServer, xet: bytes) -> None:
    told: list[float] = []
    assert identify("hf:large/xet", told.append).read_bytes() == xet
    assert told == sorted(told)
    assert told[-1] == 1
    assert not hub.asked("GET", "large.gguf")


@pytest.mark.slow
def test_a_download_over_xet_can_be_stopped(
    hub: HubServer, cache: Path, xet: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ModelLoadError, match="downloading hf:large/xet was stopped by its progress callback"):
        identify("hf:large/xet", lambda _part: False)
    assert not list(cache.rglob("*.incomplete"))
    assert "Traceback" not in capfd.readouterr().err
    assert identify("hf:large/xet").read_bytes() == xet
    assert not hub.asked("GET", "large.gguf")


# --- the cache is everybody's -----------------------------------------------------------------------------------


def test_other_tools_find_what_was_downloaded(gguf: HubServer, cache: Path, tmp_path: Path) -> None:
    commit = gguf.add("tiny/llama", HFLlama().write(tmp_path / "hf"), "v1")
    path = identify("hf:tiny/stories")
    found = huggingface_hub.hf_hub_download("tiny/stories", NAME, cache_dir=cache, local_files_only=True)
    assert found == str(path)
    assert path.resolve().parent == cache / "models--tiny--stories" / "blobs"
    directory = identify("hf:tiny/llama@v1")
    assert directory == cache / "models--tiny--llama" / "snapshots" / commit
    found = huggingface_hub.snapshot_download("tiny/llama", revision="v1", cache_dir=cache, local_files_only=True)
    assert found == str(directory)
    (repository,) = (r for r in huggingface_hub.scan_cache_dir(cache).repos if r.repo_id == "tiny/stories")
    assert repository.size_on_disk == len(SHIPPED)
    assert not huggingface_hub.scan_cache_dir(cache).warnings


def test_what_other_tools_downloaded_is_found(gguf: HubServer, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    huggingface_hub.hf_hub_download("tiny/stories", NAME, cache_dir=cache, endpoint=gguf.url)
    del gguf.requests[:]
    assert identify("hf:tiny/stories").read_bytes() == SHIPPED
    assert [request.path for request in gguf.requests] == ["/api/models/tiny/stories"]
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert identify("hf:tiny/stories").read_bytes() == SHIPPED


def test_a_link_without_its_blob_is_mended(gguf: HubServer) -> None:
    path = identify("hf:tiny/stories")
    path.resolve().unlink()
    path.unlink()
    path.symlink_to("../../blobs/nothing")
    assert identify("hf:tiny/stories").read_bytes() == SHIPPED
    assert gguf.starts(NAME) == [0, 0]


def test_equal_files_of_two_commits_are_downloaded_once(gguf: HubServer) -> None:
    first = identify("hf:tiny/stories")
    gguf.add("tiny/stories", {NAME: SHIPPED, "README.md": b"# Changed"})
    second = identify("hf:tiny/stories")
    assert first != second
    assert first.resolve() == second.resolve()
    assert gguf.starts(NAME) == [0]


# --- who may ----------------------------------------------------------------------------------------------------


def test_private_repositories(gguf: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    gguf.repositories["tiny/stories"].token = "hf_right"
    with pytest.raises(ModelNotFoundError, match=r"no tiny/stories at .*; if it is private, set HF_TOKEN"):
        identify("hf:tiny/stories")
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(DownloadError, match="requires a valid token for tiny/stories: set HF_TOKEN"):
        identify("hf:tiny/stories")
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    gguf.faults.drop_after[NAME] = 1000
    assert identify("hf:tiny/stories").read_bytes() == SHIPPED
    elsewhere = [request for request in gguf.requests if request.path.startswith("/cdn/")]
    assert len(elsewhere) == 2
    assert {request.token for request in elsewhere} == {None}


def test_gated_repositories(gguf: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    gguf.repositories["tiny/stories"].token = "hf_right"
    gguf.repositories["tiny/stories"].is_gated = True
    gguf.add("other/private", {"a.gguf": SHIPPED})
    gguf.repositories["other/private"].token = "hf_of_somebody"
    message = f"access to tiny/stories is restricted: request it at {gguf.url}/tiny/stories, then set HF_TOKEN or run"
    for token in (None, "hf_of_somebody"):
        if token:
            monkeypatch.setenv("HF_TOKEN", token)
        with pytest.raises(DownloadError, match=message) as raised:
            identify("hf:tiny/stories")
        assert not raised.value.is_temporary
    with pytest.raises(ModelNotFoundError, match="there is no tiny/nothing at"):
        identify("hf:tiny/nothing")


@pytest.mark.slow
def test_a_login_and_the_environment_of_a_process(gguf: HubServer, tmp_path: Path) -> None:
    gguf.repositories["tiny/stories"].token = "hf_login"
    home = tmp_path / "another home"
    home.mkdir()
    (home / "token").write_text("hf_login")
    program = (
        "import pyggml; from pyggml.source import identify; print(identify('hf:tiny/stories').path);"
        "pyggml.load('hf:tiny/stories', n_ctx=64).close()"
    )
    environment = {**os.environ, "HF_HOME": str(home), "HF_HUB_DISABLE_TELEMETRY": "1"}
    for extra in ({}, {"HF_HUB_OFFLINE": "1"}):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program],
            env={**environment, **extra},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.startswith(str(home / "hub"))
        assert done.stderr == ""
    assert {request.token for request in gguf.asked("GET") if request.path.startswith("/api")} == {"hf_login"}
    assert gguf.starts(NAME) == [0]


# --- no hub -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_offline(gguf: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gguf.add("tiny/llama", HFLlama().write(tmp_path / "hf", n_shards=2))
    expected = text_of("hf:tiny/llama")
    path = identify("hf:tiny/stories")
    del gguf.requests[:]
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert text_of("hf:tiny/llama") == expected
    assert identify("hf:tiny/stories") == path
    assert identify(f"hf:tiny/stories@{path.parent.name}:{NAME}") == path
    with pytest.raises(DownloadError, match=r"HF_HUB_OFFLINE is set, and hf:tiny/nothing is not in .*hub"):
        identify("hf:tiny/nothing")
    with pytest.raises(DownloadError, match="HF_HUB_OFFLINE is set, and hf:tiny/stories@v2 is not in"):
        identify("hf:tiny/stories@v2")
    shard = identify("hf:tiny/llama") / "model-00002-of-00002.safetensors"
    shard.resolve().unlink()
    with pytest.raises((DownloadError, ModelNotFoundError), match=r"model-00002-of-00002.safetensors"):
        identify("hf:tiny/llama")
    assert not gguf.requests
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    assert text_of("hf:tiny/llama") == expected  # the missing file is downloaded again


def test_a_hub_that_is_not_there(gguf: HubServer, caplog: pytest.LogCaptureFixture) -> None:
    path = identify("hf:tiny/stories")
    gguf.stop()
    huggingface_hub.close_session()  # what is connected stays so
    with pytest.raises(DownloadError, match=f"{gguf.url} cannot be reached: ConnectError") as raised:
        identify("hf:tiny/nothing")
    assert raised.value.is_temporary
    assert isinstance(raised.value, ConnectionError)
    with caplog.at_level("WARNING", "pyggml"):
        assert identify("hf:tiny/stories") == path
    assert "cannot be reached" in caplog.text


def test_a_hub_that_fails(gguf: HubServer, caplog: pytest.LogCaptureFixture) -> None:
    gguf.faults.answers["api"] = [500]
    with pytest.raises(DownloadError, match=f"{gguf.url} responded with status 500 for tiny/stories"):
        identify("hf:tiny/stories")
    path = identify("hf:tiny/stories")
    gguf.faults.answers["api"] = [503]
    with caplog.at_level("WARNING", "pyggml"):
        assert identify("hf:tiny/stories") == path
    assert "responded with status 503" in caplog.text


def test_a_hub_that_does_not_answer(gguf: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 0.05)
    gguf.faults.stall_after[NAME] = 0
    with pytest.raises(DownloadError, match="cannot be reached: ReadTimeout"):
        identify("hf:tiny/stories")


def test_what_is_not_there(gguf: HubServer) -> None:
    with pytest.raises(ModelNotFoundError, match=f"there is no tiny/nothing at {gguf.url}; if it is private"):
        identify("hf:tiny/nothing")
    with pytest.raises(ModelNotFoundError, match=r"tiny/stories at .* has no revision 'v2'"):
        identify("hf:tiny/stories@v2")
    with pytest.raises(ModelNotFoundError, match=rf"hf:tiny/stories has no .* called 'none.gguf': it has {NAME}"):
        identify("hf:tiny/stories:none.gguf")
    with pytest.raises(ModelLoadError, match=r"README.md is not a GGUF file; hf:tiny/stories is the whole"):
        identify("hf:tiny/stories:README.md")


@pytest.mark.slow_except(every=2)
@pytest.mark.parametrize("page", [b"<html>Please log in to this network</html>", b"[]", b"{}", b'{"id": 1}', b""])
def test_something_that_is_no_hub(gguf: HubServer, page: bytes) -> None:
    gguf.faults.not_a_hub = page
    with pytest.raises(DownloadError, match="does not respond like a hub"):
        identify("hf:tiny/stories")


@pytest.mark.parametrize("endpoint", ["huggingface.co", "ftp://hub", "http://", "http://[", "http://hub:x"])
def test_an_endpoint_that_is_no_address(hub: HubServer, monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    with pytest.raises(InvalidParameterError, match="HF_ENDPOINT is"):
        identify("hf:tiny/stories")
    assert not hub.requests


def test_a_hub_of_evil(gguf: HubServer, cache: Path) -> None:
    gguf.add("tiny/evil", {"../../../evil.gguf": SHIPPED, "/evil.gguf": SHIPPED, "a\\b.gguf": SHIPPED})
    with pytest.raises(ModelLoadError, match="holds no model"):
        identify("hf:tiny/evil")
    gguf.faults.commit = "../../../evil"
    with pytest.raises(DownloadError, match=r"'\.\./\.\./\.\./evil' is not a commit"):
        identify("hf:tiny/stories")
    assert not list(cache.parent.parent.rglob("*evil*"))


# --- the extra --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("hub")
def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'huggingface_hub>=1\.24'") as raised:
        pyggml.load("hf:tiny/stories")
    assert isinstance(raised.value, ImportError)


@pytest.mark.usefixtures("hub")
def test_an_old_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub, "__version__", "1.9.0")
    with pytest.raises(MissingPackageError, match=r"1.24 or later, but 1.9.0 is installed: pip install "):
        pyggml.load("hf:tiny/stories")


@pytest.mark.slow
def test_nothing_of_it_is_imported_unless_needed() -> None:
    program = (
        "import sys, pyggml; pyggml.load(n_ctx=64).close()\n"
        "try: pyggml.load('hf:malformed')\n"
        "except pyggml.InvalidParameterError: pass\n"
        "assert not {'huggingface_hub', 'httpx', 'httpx2', 'filelock'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
