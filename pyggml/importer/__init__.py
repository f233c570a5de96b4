"""Conversion of a Hugging Face directory to a GGUF file.

Every step of an import raises the errors of :func:`pyggml.importer.plan.read_plan`.
"""

from pyggml.cache import CacheEntry, cache_dir, cache_entries, cache_limit, clear_cache, remove_entry
from pyggml.importer.cache import imported
from pyggml.importer.convert import Conversion, convert

__all__ = [
    "CacheEntry",
    "Conversion",
    "cache_dir",
    "cache_entries",
    "cache_limit",
    "clear_cache",
    "convert",
    "imported",
    "remove_entry",
]
