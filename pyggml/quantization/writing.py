"""A GGUF file becomes another one with smaller weights: one tensor at a time, and it appears when it is whole."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from pyggml.imatrix import ImportanceMatrix
from pyggml.importer import Conversion
from pyggml.importer.convert import Progress


def quantize(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str],
    ftype: str,
    *,
    imatrix: ImportanceMatrix | str | os.PathLike[str] | None = None,
    tensor_types: Mapping[str, str] | None = None,
    keep: Iterable[str] = (),
    requantize: bool = False,
    progress: Progress | None = None,
    n_threads: int | None = None,
) -> Conversion:
    """Writes a GGUF file with its weights in another mixture of types, byte for byte as ``llama-quantize`` does.

    Memory holds a few rows, not the model. The file appears under its name when it is complete, and replaces what
    is there; until then it grows under another name beside it, of which nothing is left if anything fails.

    Args:
        src: a GGUF file; of a split set the first.
        dst: the file to write.
        ftype: any mixture that the engine's quantiser knows: "q8_0", "q4_k_m", "iq2_xs", "f16" ...
        imatrix: what matters in the weights: from :func:`pyggml.compute_imatrix`, or the path of a file.
        tensor_types: regular expression -> element type such as "q6_k", for tensors that shall not get what the
            mixture gives them; the first expression that is found in a tensor's name counts.
        keep: regular expressions; the tensors in whose names one is found stay as they are.
        requantize: allow sources that are quantised already, whose losses add up.
        progress: called with the part that is done, 0 to 1, after each tensor; returning False stops.
        n_threads: that encode; None: one for each core.

    Raises:
        ModelNotFoundError: there is no such file, or one of a split set is missing.
        ModelLoadError: it is broken, or ``progress`` stopped.
        UnsupportedArchitectureError: the engine does not know the architecture.
        DiskFullError: the file would not fit. Nothing was written.
        InvalidParameterError: an argument that cannot be, a mixture that needs importances and has none, or a source
            that is quantised already.
    """
    raise NotImplementedError
