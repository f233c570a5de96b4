"""Frameworks that use pyggml as their model, each in a module of its own that imports it.

Nothing else of pyggml imports them, and importing this package imports none of them.
"""

from __future__ import annotations
