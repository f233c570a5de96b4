"""``python -m pyggml.server``: the same as ``pyggml serve``."""

from __future__ import annotations

import runpy
import sys

sys.argv.insert(1, "serve")
runpy.run_module("pyggml", run_name="__main__", alter_sys=True)
