"""Print the changes of a version, from CHANGELOG.md, for the page of its release.

    python3 tools/release_notes.py v0.1.0

Fails unless that is the package's version, and the changelog has a dated section for it, and none of unreleased
changes, which the release would contain as well. Needs no package.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def package_version() -> str:
    """Return the version in pyggml/_version.py."""
    text = (ROOT / "pyggml" / "_version.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "(.*)"$', text, re.MULTILINE)
    assert found, "pyggml/_version.py sets __version__"
    return found[1]


def notes(changelog: str, version: str) -> str | None:
    """Return the text below the heading of a version; None if it has none with a date."""
    heading = rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)\n"
    found = re.search(rf"{heading}(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    return found[1].strip() if found else None


def main() -> None:
    """Print the notes of the tag that is given."""
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} TAG")
    tag, version = sys.argv[1], package_version()
    if tag != f"v{version}":
        sys.exit(f"the tag is {tag}, but pyggml/_version.py has {version}: expected v{version}")
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    if re.search(r"^## Unreleased$", changelog, re.MULTILINE):
        sys.exit('CHANGELOG.md has a section "Unreleased": the release would contain its changes; give it the version')
    text = notes(changelog, version)
    if text is None:
        sys.exit(f'CHANGELOG.md has no section "## {version} (YYYY-MM-DD)": date the one of the changes')
    print(text)


if __name__ == "__main__":
    main()
