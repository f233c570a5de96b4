"""Generate a first text with the installed package and its demonstration model, as someone who has just installed it.

    python tools/first_text.py [--device cpu]

Prints one line of JSON: the text, the version, the CPU backend and the seconds from the import on. Run it where no
folder pyggml is, so that the installed package is tested. Fails if that generates another text than expected.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time

PROMPT = "Once upon a time"
#: The beginning of the text, which every kernel must agree on (docs/index.md shows more of it).
EXPECTED = ", there was a little boy"


def main() -> None:
    """Load, generate, and compare."""
    parser = argparse.ArgumentParser(description="Generates a first text with the installed package.")
    parser.add_argument("--device", default="auto", help="as load() takes it (default: auto)")
    options = parser.parse_args()
    started = time.monotonic()
    import pyggml

    with pyggml.load(None, device=options.device) as llm:
        text = llm.generate(PROMPT, max_tokens=19).text
    result = {
        "version": pyggml.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "build": pyggml.system.build_info().compiler,
        "seconds": round(time.monotonic() - started, 2),
        "text": text,
    }
    print(json.dumps(result))
    if not text.startswith(EXPECTED):
        sys.exit(f"the text does not begin as expected: {EXPECTED!r}")


if __name__ == "__main__":
    main()
