"""Slots of the KV cache, with llama-server's paths and fields."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.checkpoints import lora_files
from support.servers import servers

from pyggml import SHIPPED_MODEL
from pyggml.server import ModelSpec, Settings, create_app

PROMPT = "Once upon a time there was a dog who lived in a small house with a boy. " * 3
LOAD = {"n_ctx": 16384, "n_parallel": 2, "n_threads": 1}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "slots").mkdir()
    return tmp_path / "slots"


@pytest.fixture
def http(folder: Path) -> Iterator[httpx.Client]:
    settings = Settings(models=(ModelSpec(None, name="demo"),), load=LOAD, slot_save_path=folder)
    with servers.serving(create_app(settings)) as url, httpx.Client(base_url=url, timeout=60) as client:
        yield client


def complete(http: httpx.Client, **more: Any) -> dict[str, Any]:
    body = {"prompt": PROMPT, "max_tokens": 8, "temperature": 0, **more}
    answer: dict[str, Any] = http.post("/v1/completions", json=body).raise_for_status().json()
    return answer


def cached(answer: dict[str, Any]) -> int:
    return int(answer["usage"]["prompt_tokens_details"]["cached_tokens"])


def used_slot(http: httpx.Client) -> int:
    (index,) = (slot["id"] for slot in http.get("/slots").json() if slot["n_tokens"])
    return int(index)


def test_slots_are_listed(http: httpx.Client) -> None:
    empty = {"n_ctx": 16384, "speculative": False, "is_processing": False, "n_tokens": 0}
    assert http.get("/slots").json() == [{"id": 0, **empty}, {"id": 1, **empty}]
    complete(http)
    (slot,) = (slot for slot in http.get("/slots", params={"model": "demo"}).json() if slot["n_tokens"])
    assert slot["n_tokens"] > 60
    assert "dog" not in http.get("/slots").text
    assert http.get("/slots", params={"model": "no such"}).status_code == 404


def test_no_slot_is_free(http: httpx.Client) -> None:
    both_run = threading.Barrier(3, timeout=60)

    def stream() -> None:
        endless = {"max_tokens": 10**6, "overflow": "shift", "ignore_eos": True}
        body = {"prompt": PROMPT, "stream": True, **endless}
        with http.stream("POST", "/v1/completions", json=body) as answer:
            lines = answer.iter_lines()  # dropping it would close the stream
            next(lines)
            both_run.wait()
            both_run.wait()

    threads = [threading.Thread(target=stream) for _ in range(2)]
    for thread in threads:
        thread.start()
    both_run.wait()
    assert [slot["is_processing"] for slot in http.get("/slots").json()] == [True, True]
    assert http.get("/slots", params={"fail_on_no_slot": 1}).status_code == 503
    assert http.post("/slots/0", params={"action": "erase"}).status_code == 400
    both_run.wait()
    for thread in threads:
        thread.join()
    assert http.get("/slots").status_code == 200


def test_save_erase_and_restore(http: httpx.Client, folder: Path) -> None:
    first = complete(http)
    slot = used_slot(http)
    saved = http.post(f"/slots/{slot}", params={"action": "save"}, json={"filename": "dog.bin"}).json()
    file = folder / "dog.bin"
    assert saved.keys() == {"id_slot", "filename", "n_saved", "n_written", "timings"}
    assert (saved["id_slot"], saved["filename"], saved["n_written"]) == (slot, "dog.bin", file.stat().st_size)
    assert saved["n_saved"] >= first["usage"]["prompt_tokens"]
    assert saved["timings"]["save_ms"] > 0

    erased = http.post(f"/slots/{used_slot(http)}", params={"action": "erase"})
    assert erased.json()["n_erased"] >= saved["n_saved"]
    assert cached(complete(http, prompt=PROMPT + " It", max_tokens=1)) < 5
    for slot in range(2):
        http.post(f"/slots/{slot}?action=erase")

    restored = http.post("/slots/1", params={"action": "restore"}, json={"filename": "dog.bin"}).json()
    timings = restored.pop("timings")
    assert restored == {
        "id_slot": 1,
        "filename": "dog.bin",
        "n_restored": saved["n_saved"],
        "n_read": file.stat().st_size,
    }
    assert timings["restore_ms"] > 0
    again = complete(http)
    assert cached(again) == first["usage"]["prompt_tokens"] - 1
    assert again["choices"][0]["text"] == first["choices"][0]["text"]


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/slots/0?action=save", {}, 400, "filename '' is not plain"),
        ("/slots/0?action=save", {"filename": "../dog"}, 400, "not plain"),
        ("/slots/0?action=save", {"filename": "/tmp/dog"}, 400, "not plain"),
        ("/slots/0?action=restore", {"filename": ".dog"}, 400, "not plain"),
        ("/slots/0?action=restore", {"filename": "a\\b"}, 400, "not plain"),
        ("/slots/0?action=restore", {"filename": "a" * 300}, 400, "not plain"),
        ("/slots/0?action=restore", {"filename": "none"}, 404, "there is no saved file none"),
        ("/slots/0?action=restore", {"filename": "link"}, 404, "there is no saved file link"),
        ("/slots/0?action=restore", {"filename": "foreign"}, 400, "foreign is not a saved state"),
        ("/slots/0?action=save", {"filename": "dog"}, 400, "the slot 0 is empty"),
        ("/slots/2?action=erase", {}, 400, "there is no slot '2'; slots are 0 to 1"),
        ("/slots/-1?action=erase", {}, 400, "there is no slot '-1'"),
        ("/slots/x?action=erase", {}, 400, "there is no slot 'x'"),
        ("/slots/0?action=fly", {}, 400, "'fly' is none of save, restore, erase"),
        ("/slots/0", {}, 400, "is none of save"),
        ("/slots/0?action=erase", {"model": "no such"}, 404, "no such"),
    ],
)
def test_what_is_refused(
    http: httpx.Client, folder: Path, path: str, body: dict[str, Any], status: int, message: str
) -> None:
    (folder.parent / "outside").write_bytes(b"secret")
    (folder / "link").symlink_to(folder.parent / "outside")
    (folder / "foreign").write_bytes(b"something else")
    refused = http.post(path, json=body)
    assert (refused.status_code, message in refused.text) == (status, True), refused.text
    assert str(folder) not in refused.text
    assert sorted(each.name for each in folder.iterdir()) == ["foreign", "link"]


def test_without_a_directory_there_are_no_actions() -> None:
    with servers.serving(create_app(Settings(load=LOAD))) as url, httpx.Client(base_url=url, timeout=60) as http:
        refused = http.post("/slots/0?action=erase")
        assert refused.status_code == 501
        assert "start it with --slot-save-path DIRECTORY" in refused.text
        assert len(http.get("/slots").json()) == 2


def test_each_key_has_its_own_files(folder: Path) -> None:
    settings = Settings(load=LOAD, slot_save_path=folder, api_keys=("a", "b"), prefix_cache_scope="key")
    with servers.serving(create_app(settings)) as url:
        clients = [httpx.Client(base_url=url, timeout=60, headers={"x-api-key": key}) for key in ("a", "b")]
        ours, theirs = clients
        assert httpx.get(f"{url}/slots").status_code == 401
        complete(ours)
        slot = used_slot(ours)
        save: dict[str, Any] = {"params": {"action": "save"}, "json": {"filename": "dog"}}
        assert "is empty" in theirs.post(f"/slots/{slot}", **save).text
        assert theirs.post(f"/slots/{slot}?action=erase").json()["n_erased"] == 0
        assert ours.post(f"/slots/{slot}", **save).status_code == 200
        restore: dict[str, Any] = {"params": {"action": "restore"}, "json": {"filename": "dog"}}
        assert theirs.post("/slots/0", **restore).status_code == 404
        for each in range(2):
            ours.post(f"/slots/{each}?action=erase")
        assert ours.post("/slots/0", **restore).status_code == 200
        assert cached(complete(theirs)) == 0
        assert cached(complete(ours)) > 0
        for client in clients:
            client.close()


def test_a_directory_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="slot_save_path must be a directory that exists"):
        create_app(Settings(slot_save_path=tmp_path / "no"))


def test_cells_of_adapters(folder: Path, tmp_path: Path) -> None:
    """They are erased as those of the defaults, or of the model's name, and not saved."""
    file = lora_files.write_adapter(tmp_path / "law.gguf", SHIPPED_MODEL)
    load: dict[str, Any] = {**LOAD, "n_parallel": 1, "lora": file}
    settings = Settings(models=(ModelSpec(None, name="demo"),), load=load, slot_save_path=folder)
    erase = "/slots/0?action=erase"
    with servers.serving(create_app(settings)) as url, httpx.Client(base_url=url, timeout=60) as http:
        complete(http)
        saved = http.post("/slots/0?action=save", json={"filename": "dog.bin"})
        assert saved.status_code == 400
        assert "or a request with adapters used it" in saved.text
        assert http.post(erase).json()["n_erased"] > 60
        http.post("/lora-adapters", json=[])
        complete(http, model="demo:law")
        assert http.post(erase).json()["n_erased"] == 0
        assert http.post(erase, json={"model": "demo:law"}).json()["n_erased"] > 60
        assert http.post(erase, json={"model": "demo:tax"}).status_code == 404
