"""The only importer of the compiled module.

All other modules import ``ffi`` and ``lib`` from here, so that a missing or stale build is reported clearly, and the
engine is started before its first use.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyggml._version import __version__

try:
    from pyggml._pyggml import __file__ as _module_file
    from pyggml._pyggml import ffi as ffi
    from pyggml._pyggml import lib as lib
except ImportError as error:
    raise ImportError(
        "pyggml's compiled module could not be imported. If this is a source checkout, build it in place with "
        "'pip install -e .' (or 'make build'); otherwise reinstall the package."
    ) from error

if TYPE_CHECKING:
    from pyggml._pyggml import CData as CData

#: The folder of the compiled module and of loadable backends.
module_dir = Path(_module_file).resolve().parent


def _check_version() -> None:
    built_for = ffi.string(lib.pyg_version()).decode()
    if built_for != __version__:
        raise ImportError(
            f"the compiled module was built for pyggml {built_for}, but this is pyggml {__version__}: "
            "rebuild it with 'pip install -e .' or reinstall the package."
        )


def _start_engine() -> None:
    err = ffi.new("pyg_error *")
    if lib.pyg_init(os.fsencode(module_dir), os.fsencode(":".join(sys.path)), err) != 0:
        raise ImportError(f"pyggml's engine did not start: {ffi.string(err.message).decode(errors='replace')}")


_check_version()
_start_engine()
