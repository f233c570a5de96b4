"""Fetch the official JSON-Schema-Test-Suite from the package index into the user's cache, for tests.

    python tools/json_schema_test_suite.py     prints the folder with the tests of each draft

The suite (json-schema-org/JSON-Schema-Test-Suite, MIT) is in the source distribution of the package jsonschema. pip
downloads that and checks its digest; nothing of the package is installed.
"""

from __future__ import annotations

import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

from real_models import FetchError, folder, one_at_a_time, run

PACKAGE, VERSION = "jsonschema", "4.26.0"
SHA256 = "0c26707e2efad8aa1bfc5b7ce170f3fccc2e4918ff85989ba9ffa9facb2be326"
TOP = f"{PACKAGE}-{VERSION}/json/tests/"


def fetch(timeout_s: float = 300) -> Path:
    """Download the suite, unless it is in the cache, and return the folder with one folder per draft.

    Args:
        timeout_s: limit for the download.

    Raises:
        FetchError: the index cannot be reached or does not have the package, or the package is not the expected one.
    """
    target = folder() / f"json-schema-test-suite-{VERSION}"
    with one_at_a_time(target.parent):
        if not target.is_dir():
            with tempfile.TemporaryDirectory(prefix=".", dir=target.parent) as temporary:
                whole = Path(temporary, "tests")
                _unpack(_download(Path(temporary), timeout_s), whole)
                shutil.move(whole, target)
    return target


def _download(directory: Path, timeout_s: float) -> Path:
    requirement = directory / "requirement.txt"
    requirement.write_text(f"{PACKAGE}=={VERSION} --hash=sha256:{SHA256}\n", encoding="utf-8")
    # Even to download an sdist, pip runs its build backend, which it fetches without a digest.
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", PACKAGE, "--require-hashes"]
    command += ["--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
    run([*command, "--dest", str(directory), "--requirement", str(requirement)], PACKAGE, timeout_s, cwd=directory)
    return next(directory.glob("*.tar.gz"))


def _unpack(archive: Path, directory: Path) -> None:
    try:
        with tarfile.open(archive) as opened:
            for member in opened:
                if member.isfile() and member.name.startswith(TOP) and member.name.endswith(".json"):
                    source = opened.extractfile(member)
                    assert source is not None
                    path = directory / member.name.removeprefix(TOP)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(source.read())
    except tarfile.TarError as error:
        raise FetchError(f"{archive.name} is damaged: {error}") from None


if __name__ == "__main__":
    print(fetch())
