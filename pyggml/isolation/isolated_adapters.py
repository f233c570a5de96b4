"""Proxies of the adapters of a model in the engine's process."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pyggml._core.checks import finite
from pyggml._core.ffi import ffi
from pyggml._core.log import logger
from pyggml._native.adapter import Adapter, checked_name
from pyggml.errors import ClosedError, EngineError, InferError
from pyggml.generation.adapters import Adapters
from pyggml.isolation import protocol

if TYPE_CHECKING:
    from pyggml.isolation.process import EngineProcess
    from pyggml.isolation.supervisor import Isolated

_numbers = itertools.count(1)


class IsolatedAdapter(Adapter):
    """An adapter in the engine's process, which loads it again after a restart.

    Attributes:
        name_in_process: its name there: others may have its name here later, while requests still use it.
    """

    def __init__(self, isolated: Isolated, path: str | os.PathLike[str], name: str, scale: float) -> None:
        """Load it; arguments and errors as for :meth:`pyggml.LLM.load_adapter`."""
        self.name = checked_name(path, name)
        self.scale = finite("scale", scale, -math.inf)
        self.path = str(Path(path).absolute())
        self.name_in_process = f"{next(_numbers)}:{self.name}"
        self.when_closed = None
        self._is_closing = False
        self._handle = ffi.NULL  # requests send its name
        self._isolated = isolated
        self._failure = ""  # why it could not be loaded again
        self._load_in(isolated.process())

    def load_again(self, process: EngineProcess) -> None:
        """Load it in a process that was started again. If that fails, requests that name it fail."""
        self._failure = ""
        try:
            self._load_in(process)
        except InferError as error:
            self._failure = str(error)
            logger.warning("the adapter %r could not be loaded again: %s", self.name, self._failure)

    def require_loaded(self) -> None:
        """Raise EngineError if the process that runs has not loaded it."""
        if self._failure:
            raise EngineError(
                f"the adapter {self.name!r} could not be loaded again when the engine's process was restarted: "
                f"{self._failure}"
            )

    @property
    def size_bytes(self) -> int:
        """See the base class."""
        if self._is_closed:
            raise ClosedError("the adapter was closed")
        request = protocol.encode_request("adapter_bytes", name=self.name_in_process)
        return int(self._isolated.process().call(request)[0]["n_bytes"])

    def close(self) -> None:
        """See the base class."""
        self._is_closing = True
        if self._is_closed:
            return
        process = self._isolated.last
        try:
            if not process.has_exited():
                process.call(protocol.encode_request("close_adapter", name=self.name_in_process))
        except ClosedError:  # with the process
            pass
        except EngineError:
            if not process.is_exiting():
                raise
        self._is_closed = True
        notify, self.when_closed = self.when_closed, None
        if notify is not None:
            notify()

    def _load_in(self, process: EngineProcess) -> None:
        request = protocol.encode_request("load_adapter", path=self.path, name=self.name_in_process, scale=self.scale)
        facts, _ = process.call(request)
        self.rank, self.alpha, self.n_targets = int(facts["rank"]), float(facts["alpha"]), int(facts["n_targets"])
        self.content = str(facts["content"])


class IsolatedAdapters(Adapters):
    """The adapters of a model in the engine's process."""

    takes_sources = True

    def __init__(self, isolated: Isolated) -> None:
        """Create an empty collection for a process with a model."""
        super().__init__(isolated.model)
        self._isolated = isolated

    def load_again(self, process: EngineProcess) -> None:
        """Load all of them in a process that was started again."""
        for adapter in self.by_name().values():
            if isinstance(adapter, IsolatedAdapter):
                adapter.load_again(process)

    def _load(self, path: str | os.PathLike[str], name: str, scale: float) -> Adapter:
        return IsolatedAdapter(self._isolated, path, name, scale)


def names_in_process(adapters: Mapping[Adapter, float]) -> dict[str, float]:
    """Return the names of adapters in the engine's process, with their scales.

    Raises:
        EngineError: the process was restarted and could not load one again.
    """
    names = {}
    for adapter, scale in adapters.items():
        assert isinstance(adapter, IsolatedAdapter), "an IsolatedAdapters has no others"
        adapter.require_loaded()
        names[adapter.name_in_process] = scale
    return names
