"""vendor/sync.py: the engine's tree is complete or absent at every moment, and has the right files.

Each test runs a copy of the real script with its own lock file and a small sdist that it makes. No
network: pip gets a folder instead of an index.
"""

from __future__ import annotations

import hashlib
import io
import os
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.paths import ROOT

TOP = "enginepackage-1.0"
ENGINE = f"{TOP}/thirdparty/llama.cpp"

#: What the script must lay of the sample sdist.
KEPT = {
    "CMakeLists.txt": b"project(llama)\n",
    "LICENSE": b"MIT\n",
    "AUTHORS": b"many\n",
    "licenses/LICENSE-jsonhpp": b"MIT too\n",
    "include/llama.h": b"#pragma once\n",
    "src/llama.cpp": b"int x;\n",
    "ggml/src/ggml.c": b"int y;\n",
    "models/ggml-vocab-gpt-2.gguf": b"GGUF",
    "models/ggml-vocab-gpt-2.gguf.inp": b"hello\n",
    "models/templates/some.jinja": b"{{ messages }}\n",
    "vendor/cpp-httplib/LICENSE": b"MIT as well\n",
}

#: What it must leave out.
LEFT_OUT = {
    "docs/build.md": b"words\n",
    "tests/test-sampling.cpp": b"int main() {}\n",
    "tools/ui/index.html": b"<html>\n",
    "examples/simple/simple.cpp": b"int main() {}\n",
    ".github/workflows/build.yml": b"on: push\n",
    "convert_hf_to_gguf.py": b"print()\n",
}


def make_sdist(path: Path, files: dict[str, bytes], extra: list[tarfile.TarInfo] | None = None) -> Path:
    """Writes an sdist that has `files` in its llama.cpp, and the entries `extra` after them."""
    with tarfile.open(path, "w:gz", compresslevel=1) as tar:
        for name, content in {f"{ENGINE}/{name}": content for name, content in files.items()}.items():
            add_file(tar, name, content)
        add_file(tar, f"{TOP}/src/binding.pyx", b"not the engine\n")
        for member in extra or []:
            tar.addfile(member, io.BytesIO(b"x" * member.size))
    return path


def add_file(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


@dataclass
class Checkout:
    """A folder with a vendor/ that holds the real script and a lock."""

    root: Path

    @property
    def vendor(self) -> Path:
        return self.root / "vendor"

    @property
    def tree(self) -> Path:
        return self.vendor / "llama.cpp"

    def lock(self, archive: Path, build: str = "b1", sha256: str | None = None) -> None:
        digest = sha256 or hashlib.sha256(archive.read_bytes()).hexdigest()
        (self.vendor / "llama.cpp.lock").write_text(
            "# a comment\n"
            "package = enginepackage\n"
            "version = 1.0\n"
            f"sha256 = {digest}\n"
            "folder = thirdparty/llama.cpp\n"
            f"build = {build}\n"
        )

    def command(self, *arguments: str | Path) -> list[str]:
        return [sys.executable, str(self.vendor / "sync.py"), *map(str, arguments)]

    def sync(self, *arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments),
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )

    def start(self, *arguments: str | Path) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.command(*arguments), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self.root
        )

    def laid(self) -> dict[str, bytes]:
        """The files of the tree with their contents, without the stamp."""
        files = (path for path in self.tree.rglob("*") if path.is_file() and path.name != ".sync-stamp")
        return {path.relative_to(self.tree).as_posix(): path.read_bytes() for path in files}

    def leftovers(self) -> list[str]:
        """Files in vendor/ other than the script, the lock and the tree."""
        return sorted({path.name for path in self.vendor.iterdir()} - {"sync.py", "llama.cpp.lock", "llama.cpp"})


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    checkout = Checkout(tmp_path / "checkout")
    checkout.vendor.mkdir(parents=True)
    shutil.copy(ROOT / "vendor" / "sync.py", checkout.vendor)
    return checkout


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return make_sdist(tmp_path / "enginepackage-1.0.tar.gz", {**KEPT, **LEFT_OUT})


def test_lays_what_a_build_needs_and_nothing_else(checkout: Checkout, archive: Path) -> None:
    checkout.lock(archive)
    done = checkout.sync("--archive", archive)
    assert done.returncode == 0, done.stderr
    assert checkout.laid() == KEPT
    assert checkout.leftovers() == []


def test_a_tree_in_place_is_left_alone(checkout: Checkout, archive: Path, tmp_path: Path) -> None:
    checkout.lock(archive)
    assert checkout.sync("--check").returncode == 1
    checkout.sync("--archive", archive)
    before = checkout.tree.stat().st_ino
    assert checkout.sync("--check").returncode == 0
    # No archive and no index: only a tree that is left alone lets this pass.
    done = checkout.sync(PIP_NO_INDEX="1", PIP_FIND_LINKS=str(tmp_path / "nowhere"))
    assert done.returncode == 0, done.stderr
    assert checkout.tree.stat().st_ino == before


@pytest.mark.slow
def test_a_stale_stamp_means_a_new_tree(checkout: Checkout, archive: Path, tmp_path: Path) -> None:
    checkout.lock(archive)
    checkout.sync("--archive", archive)
    newer = make_sdist(tmp_path / "newer.tar.gz", {"CMakeLists.txt": b"project(newer)\n"})
    checkout.lock(newer, build="b2")
    refused = checkout.sync("--check")
    assert refused.returncode == 1
    assert "b2" in refused.stderr
    done = checkout.sync("--archive", newer)
    assert done.returncode == 0, done.stderr
    assert checkout.laid() == {"CMakeLists.txt": b"project(newer)\n"}
    assert checkout.leftovers() == []


def test_a_tree_without_a_stamp_is_replaced(checkout: Checkout, archive: Path) -> None:
    checkout.lock(archive)
    (checkout.tree / "src").mkdir(parents=True)
    (checkout.tree / "src" / "half.cpp").write_text("int half")
    assert checkout.sync("--archive", archive).returncode == 0
    assert checkout.laid() == KEPT


def test_a_wrong_hash_stops_and_leaves_nothing_behind(checkout: Checkout, archive: Path) -> None:
    checkout.lock(archive, sha256="0" * 64)
    done = checkout.sync("--archive", archive)
    assert done.returncode == 1
    assert "0" * 64 in done.stderr
    assert hashlib.sha256(archive.read_bytes()).hexdigest() in done.stderr
    assert "Traceback" not in done.stderr
    assert not checkout.tree.exists()
    assert checkout.leftovers() == []


def test_a_wrong_hash_keeps_the_tree_that_was_there(checkout: Checkout, archive: Path) -> None:
    checkout.lock(archive)
    checkout.sync("--archive", archive)
    checkout.lock(archive, build="b2", sha256="0" * 64)
    assert checkout.sync("--archive", archive).returncode == 1
    assert checkout.laid() == KEPT


@pytest.mark.slow_except("0", "1", "100")
@pytest.mark.parametrize("cut", [0, 1, 100, 400])
def test_a_damaged_archive_stops_and_leaves_nothing_behind(
    checkout: Checkout, archive: Path, tmp_path: Path, cut: int
) -> None:
    damaged = tmp_path / "damaged.tar.gz"
    damaged.write_bytes(archive.read_bytes()[:cut])
    checkout.lock(damaged)
    done = checkout.sync("--archive", damaged)
    assert done.returncode == 1
    assert str(damaged) in done.stderr
    assert "Traceback" not in done.stderr
    assert not checkout.tree.exists()
    assert checkout.leftovers() == []


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", size: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, size
    return info


@pytest.mark.slow_except("inner-dots", "leading-dots", "absolute")
@pytest.mark.parametrize(
    "evil",
    [
        member(f"{ENGINE}/src/../../../../../escaped", size=4),
        member("../escaped", size=4),
        member("/tmp/../escaped", size=4),
        member(f"{ENGINE}/src/link", tarfile.SYMTYPE, "/"),
        member(f"{ENGINE}/src/link", tarfile.SYMTYPE, "../../../../.."),
        member(f"{ENGINE}/src/link", tarfile.LNKTYPE, f"{ENGINE}/LICENSE"),
        member(f"{ENGINE}/src/pipe", tarfile.FIFOTYPE),
    ],
    ids=["inner-dots", "leading-dots", "absolute", "symlink", "relative-symlink", "hardlink", "fifo"],
)
def test_an_archive_cannot_write_outside_of_the_tree(checkout: Checkout, tmp_path: Path, evil: tarfile.TarInfo) -> None:
    archive = make_sdist(tmp_path / "evil.tar.gz", KEPT, [evil])
    checkout.lock(archive)
    done = checkout.sync("--archive", archive)
    assert done.returncode == 1
    assert evil.name in done.stderr
    assert not list(tmp_path.rglob("escaped"))
    assert not checkout.tree.exists()
    assert checkout.leftovers() == []


def test_an_archive_without_the_engine_is_refused(checkout: Checkout, tmp_path: Path) -> None:
    archive = make_sdist(tmp_path / "empty.tar.gz", {})
    checkout.lock(archive)
    done = checkout.sync("--archive", archive)
    assert done.returncode == 1
    assert "thirdparty/llama.cpp" in done.stderr


@pytest.mark.parametrize("text", ["", "package = x\n", "build = b1\nsurprise = 1\n"])
def test_a_broken_lock_says_what_it_must_set(checkout: Checkout, text: str) -> None:
    (checkout.vendor / "llama.cpp.lock").write_text(text)
    done = checkout.sync()
    assert done.returncode == 1
    assert "package, version, sha256, folder, build" in done.stderr


def test_full_lays_everything_and_overwrites_nothing(checkout: Checkout, archive: Path, tmp_path: Path) -> None:
    checkout.lock(archive)
    full = tmp_path / "full"
    assert checkout.sync("--full", full, "--archive", archive).returncode == 0
    laid = {path.relative_to(full).as_posix(): path.read_bytes() for path in full.rglob("*") if path.is_file()}
    assert laid == {**KEPT, **LEFT_OUT}
    assert not checkout.tree.exists()
    again = checkout.sync("--full", full, "--archive", archive)
    assert again.returncode == 1
    assert "exists" in again.stderr


@pytest.fixture(scope="module")
def big_archive(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, bytes]]:
    """An sdist that takes long enough to unpack for a signal to arrive in between."""
    noise = random.Random(0)
    files = {f"src/part{n // 50}/file{n}.cpp": noise.randbytes(40_000) for n in range(600)}
    files["CMakeLists.txt"] = b"project(big)\n"
    return make_sdist(tmp_path_factory.mktemp("big") / "big.tar.gz", files), files


def wait_for_half(checkout: Checkout, process: subprocess.Popen[bytes], files: int) -> None:
    """Returns when the running sync has unpacked at least `files` files."""
    while process.poll() is None and len(list(checkout.vendor.glob(".llama.cpp-sync-*/**/*.cpp"))) < files:
        time.sleep(0.001)
    assert process.poll() is None, "the sync ended before it could be interrupted"


@pytest.mark.slow
@pytest.mark.parametrize("files", [0, 1, 50, 200, 450])
def test_a_killed_sync_leaves_no_half_tree(
    checkout: Checkout, big_archive: tuple[Path, dict[str, bytes]], files: int
) -> None:
    archive, content = big_archive
    checkout.lock(archive)
    process = checkout.start("--archive", archive)
    wait_for_half(checkout, process, files)
    process.send_signal(signal.SIGKILL)
    assert process.wait(240) == -signal.SIGKILL
    assert not checkout.tree.exists()
    # The next sync clears up and finishes the work.
    assert checkout.sync("--archive", archive).returncode == 0
    assert checkout.laid() == content
    assert checkout.leftovers() == []


@pytest.mark.slow
def test_a_kill_at_any_time_leaves_the_tree_right_or_absent(
    checkout: Checkout, big_archive: tuple[Path, dict[str, bytes]]
) -> None:
    archive, content = big_archive
    checkout.lock(archive)
    started = time.monotonic()
    assert checkout.sync("--archive", archive).returncode == 0
    duration = time.monotonic() - started
    for step in range(20):
        shutil.rmtree(checkout.tree, ignore_errors=True)
        process = checkout.start("--archive", archive)
        time.sleep(duration * (0.5 + step / 20))  # also around the end, where the renames are
        process.kill()
        process.wait(240)
        if checkout.tree.exists():
            assert checkout.laid() == content
            assert checkout.sync("--check").returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("files", [1, 300])
def test_an_interrupt_clears_up(checkout: Checkout, big_archive: tuple[Path, dict[str, bytes]], files: int) -> None:
    archive, _ = big_archive
    checkout.lock(archive)
    process = checkout.start("--archive", archive)
    wait_for_half(checkout, process, files)
    process.send_signal(signal.SIGINT)
    assert process.wait(240) == 130
    assert not checkout.tree.exists()
    assert checkout.leftovers() == []


@pytest.mark.slow
def test_syncs_at_the_same_time_do_not_disturb_each_other(
    checkout: Checkout, big_archive: tuple[Path, dict[str, bytes]]
) -> None:
    archive, content = big_archive
    checkout.lock(archive)
    processes = [checkout.start("--archive", archive) for _ in range(4)]
    assert [process.wait(240) for process in processes] == [0, 0, 0, 0]
    assert checkout.laid() == content
    assert checkout.leftovers() == []


BACKEND = """
import os
open(os.environ["BACKEND_RAN"], "w").close()
def prepare_metadata_for_build_wheel(folder, settings=None):
    name = "enginepackage-1.0.dist-info"
    os.mkdir(os.path.join(folder, name))
    with open(os.path.join(folder, name, "METADATA"), "w") as file:
        file.write("Metadata-Version: 2.1\\nName: enginepackage\\nVersion: 1.0\\n")
    return name
def build_wheel(folder, settings=None, metadata=None):
    raise SystemExit("building is not allowed")
"""


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """A folder for pip that offers the sample as a real sdist, whose build backend tells when it runs."""
    folder = tmp_path / "index"
    folder.mkdir()
    with tarfile.open(folder / f"{TOP}.tar.gz", "w:gz") as tar:
        for name, content in {**KEPT, **LEFT_OUT}.items():
            add_file(tar, f"{ENGINE}/{name}", content)
        system = b'[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        add_file(tar, f"{TOP}/pyproject.toml", system)
        add_file(tar, f"{TOP}/backend.py", BACKEND.encode())
        add_file(tar, f"{TOP}/PKG-INFO", b"Metadata-Version: 2.1\nName: enginepackage\nVersion: 1.0\n")
    return folder


def only(index: Path, tmp_path: Path) -> dict[str, str]:
    """The environment in which pip knows that folder and no index."""
    return {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_EXTRA_INDEX_URL": "",
        "PIP_FIND_LINKS": str(index),
        "PIP_NO_CACHE_DIR": "1",
        "BACKEND_RAN": str(tmp_path / "backend-ran"),
    }


@pytest.mark.slow
def test_pip_fetches_the_sdist(checkout: Checkout, index: Path, tmp_path: Path) -> None:
    checkout.lock(index / f"{TOP}.tar.gz")
    done = checkout.sync(**only(index, tmp_path))
    assert done.returncode == 0, done.stderr
    assert checkout.laid() == KEPT
    assert checkout.leftovers() == []


@pytest.mark.slow
def test_nothing_of_a_wrong_sdist_is_run(checkout: Checkout, index: Path, tmp_path: Path) -> None:
    checkout.lock(index / f"{TOP}.tar.gz", sha256="0" * 64)
    done = checkout.sync(**only(index, tmp_path))
    assert done.returncode == 1
    assert "0" * 64 in done.stderr
    assert not (tmp_path / "backend-ran").exists()
    assert not checkout.tree.exists()
    assert checkout.leftovers() == []


@pytest.mark.slow
def test_no_index_names_the_way_out(checkout: Checkout, archive: Path, tmp_path: Path) -> None:
    checkout.lock(archive)
    done = checkout.sync(**only(tmp_path / "nowhere", tmp_path))
    assert done.returncode == 1
    assert "--archive" in done.stderr
    assert checkout.leftovers() == []


@pytest.mark.slow
def test_the_tree_of_this_checkout_is_the_locked_one_with_its_licences() -> None:
    subprocess.run([sys.executable, ROOT / "vendor" / "sync.py", "--check"], check=True)
    tree = ROOT / "vendor" / "llama.cpp"
    for kept in ("LICENSE", "AUTHORS", "licenses/LICENSE-jsonhpp", "models/templates", "ggml/src/ggml-cuda"):
        assert (tree / kept).exists(), kept
    assert list((tree / "models").glob("ggml-vocab-*.gguf"))
    for left_out in ("tests", "docs", "tools", "examples", ".github"):
        assert not (tree / left_out).exists(), left_out
