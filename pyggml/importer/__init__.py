"""A Hugging Face directory becomes a GGUF file."""

from pyggml.importer.cache import CacheEntry, Imported, cache_dir, cache_entries, clear_cache, imported
from pyggml.importer.convert import Conversion, convert

__all__ = [
    "CacheEntry",
    "Conversion",
    "Imported",
    "cache_dir",
    "cache_entries",
    "clear_cache",
    "convert",
    "imported",
]
