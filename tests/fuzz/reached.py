"""Code coverage of a case in the engine and the core, in an instrumented build (csrc/tests/support/reached.c)."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

N_PLACES = 1 << 22  # several times as many as there are blocks


class Reached:
    """Places in the code, each with a byte of a file that is shared with the process that runs cases."""

    def __init__(self) -> None:
        self._file = tempfile.NamedTemporaryFile(prefix="reached-")  # noqa: SIM115 -- as long as this is used
        self.path = Path(self._file.name)
        self._file.truncate(N_PLACES)
        self._places = np.memmap(self.path, np.uint8, "r+")
        self._seen = np.zeros(N_PLACES, np.bool_)

    def n_new(self) -> int:
        """Count the places reached for the first time since the last call."""
        reached = np.flatnonzero(self._places.view(np.uint64))  # eights of places: hardly any are, and there are many
        places, seen = self._places.reshape(-1, 8)[reached] != 0, self._seen.reshape(-1, 8)[reached]
        self._seen.reshape(-1, 8)[reached] |= places
        self._places.reshape(-1, 8)[reached] = 0
        return int(np.count_nonzero(places & ~seen))

    def n_seen(self) -> int:
        return int(np.count_nonzero(self._seen))
