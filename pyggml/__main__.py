"""``python -m pyggml``: the command."""

from __future__ import annotations

from pyggml.cli import main

main()
