"""Write the table of the server's own options into `docs/reference/server.md`, from where they are declared.

    python tools/make_server_options.py       after a change to pyggml/server/settings/options.py

A test compares the table with the page in the repository.
"""

from __future__ import annotations

import re
from pathlib import Path

from pyggml.options import Field
from pyggml.server import SERVING

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "server.md"
BEGIN, END = "<!-- made by tools/make_server_options.py -->", "<!-- end -->"


def refreshed(text: str) -> str:
    """The page's text with the table of today."""
    return re.sub(
        f"(?<={re.escape(BEGIN)}\n).*?(?={re.escape(END)})", lambda _: f"\n{table()}\n", text, flags=re.DOTALL
    )


def table() -> str:
    """The table, a line for each option."""
    rows = [f"| `{field.name}` | {_default(field)} | {_meaning(field)} |" for field in SERVING.values()]
    return "\n".join(["| Option | Default | Meaning |", "| --- | --- | --- |", *rows])


def _default(field: Field) -> str:
    if isinstance(field.default, bool):
        return "yes" if field.default else "no"
    if field.is_size and field.default is not None:
        return f"{field.default:,}"
    if isinstance(field.default, float):
        return f"{field.default:g}"
    return f"`{field.default}`" if field.default or field.default == 0 else ""


def _meaning(field: Field) -> str:
    text = field.help.replace("``", "`").rstrip(".").replace("*", r"\*")
    text = re.sub(r"\. (None|\(\)): ", "; otherwise: ", text)
    return text[:1].upper() + text[1:]


def main() -> None:
    PAGE.write_text(refreshed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"{PAGE.name}: {len(SERVING)} options")


if __name__ == "__main__":
    main()
