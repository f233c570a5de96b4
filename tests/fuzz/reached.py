"""What a case reaches of the engine and the core, in a build that notes it (csrc/tests/reached.c)."""

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
        """How many places were reached for the first time since this was asked."""
        new = self._places.astype(np.bool_) & ~self._seen
        self._seen |= new
        self._places[:] = 0
        return int(np.count_nonzero(new))

    def n_seen(self) -> int:
        return int(np.count_nonzero(self._seen))
