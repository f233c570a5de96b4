"""llama-cpp-python's caches of prompts, which pyggml does not need: they do nothing, and say so."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NoReturn

_TWO_GIB = 2 << 30


class BaseLlamaCache:
    """A cache without entries. The engine keeps the KV cache of finished requests by itself, for all prompts alike.

    Attributes:
        capacity_bytes: as given; nothing is stored.
    """

    def __init__(self, capacity_bytes: int = _TWO_GIB) -> None:
        """Warn that the cache has no effect."""
        warnings.warn(
            f"{type(self).__name__} has no effect in pyggml, which caches prompts with a common beginning by itself",
            UserWarning,
            stacklevel=2,
        )
        self.capacity_bytes = capacity_bytes

    @property
    def cache_size(self) -> int:
        """Size of the entries in bytes: 0."""
        return 0

    def __contains__(self, key: Sequence[int]) -> bool:
        return False

    def __getitem__(self, key: Sequence[int]) -> NoReturn:
        raise KeyError("the cache has no entries: pyggml caches prompts by itself")

    def __setitem__(self, key: Sequence[int], value: object) -> None:
        """Store nothing."""


class LlamaRAMCache(BaseLlamaCache):
    """A cache in main memory, without entries."""


class LlamaDiskCache(BaseLlamaCache):
    """A cache in files, without entries. No folder is made."""

    def __init__(self, cache_dir: str = ".cache/llama_cache", capacity_bytes: int = _TWO_GIB) -> None:
        """Warn that the cache has no effect.

        Args:
            cache_dir: not used.
            capacity_bytes: kept as an attribute.
        """
        super().__init__(capacity_bytes)
        self.cache_dir = cache_dir


LlamaCache = LlamaRAMCache
