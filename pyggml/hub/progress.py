"""Progress and cancellation of downloads, through huggingface_hub's progress bars."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from huggingface_hub.utils import tqdm

from pyggml.errors import DownloadError, ModelLoadError
from pyggml.hub.reference import Reference
from pyggml.progress import Progress

# Number of aborted downloads over Xet. Each aborts all other downloads over Xet in this process.
_n_aborted = 0


class Transfer:
    """The download of several files, one after the other."""

    def __init__(self, reference: Reference, n_bytes: int, progress: Progress | None) -> None:
        """Prepare the download of ``n_bytes`` bytes. ``progress`` returns False, or raises, to stop it."""
        self._reference = reference
        self._n_bytes = max(n_bytes, 1)
        self._n_before = self._n_file = 0
        self._progress = progress
        self._is_xet = False
        self._error: BaseException | None = None

    @contextlib.contextmanager
    def track_file(self, n_bytes: int) -> Iterator[type[tqdm]]:
        """Yield the class of progress bars for the next file, of ``n_bytes`` bytes.

        Raises:
            ModelLoadError: the progress callback stopped the download.
            DownloadError: another download over Xet was stopped, and this one with it.
        """
        n_aborted, self._n_file = _n_aborted, 0
        try:
            yield self._bar_class(n_bytes)
        except BaseException as error:
            if self._error is not None:
                raise self._error from None
            if isinstance(error, KeyboardInterrupt) and n_aborted != _n_aborted:
                message = f"downloading {self._reference} ended when another download was stopped"
                raise DownloadError(message, is_temporary=True) from None
            raise
        if self._error is not None:  # the file was complete before it could be stopped
            raise self._error
        self._n_before, self._n_file = self._n_before + n_bytes, 0
        self._report()

    def _bar_class(self, n_bytes: int) -> type[tqdm]:
        transfer = self

        class Bar(tqdm):
            """An invisible progress bar. Over Xet there are two, for the network and the disk."""

            monitor_interval = 0  # no monitor thread for invisible bars

            def __init__(self, *args: Any, **kwargs: Any) -> None:
                transfer._is_xet = "xet" in str(kwargs.get("name"))
                super().__init__(*args, **{**kwargs, "disable": True})  # type: ignore[no-untyped-call]

            def update(self, n: float | None = 1) -> None:
                self.n += n or 0
                transfer._update(min(int(self.n), n_bytes))

        return Bar

    def _update(self, n_bytes: int) -> None:
        """Set the file's downloaded size. Over Xet, the caller prints and swallows exceptions."""
        global _n_aborted
        if n_bytes <= self._n_file or self._error is not None:
            return
        self._n_file = n_bytes
        try:
            self._report()
        except BaseException as error:
            self._error = error
            if not self._is_xet:
                raise
            _n_aborted += 1
            _abort_xet()

    def _report(self) -> None:
        if self._progress is not None and self._progress((self._n_before + self._n_file) / self._n_bytes) is False:
            raise ModelLoadError(f"downloading {self._reference} was stopped by its progress callback")


def _abort_xet() -> None:
    """Abort all transfers over Xet. The function is private; without it, the download continues."""
    with contextlib.suppress(ImportError):
        from huggingface_hub.utils._xet import abort_xet_session

        abort_xet_session()  # type: ignore[no-untyped-call]
