"""Opening of the model that a source names: files, import, placement and weights."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pyggml._core.fields import fields_of
from pyggml._native.model import Model
from pyggml._native.placement import Placement, resolve_placement
from pyggml.chat.template_selection import require_template_file
from pyggml.errors import InferError, InvalidParameterError, ModelLoadError, TokenizerNotFoundError
from pyggml.files.model_files import gguf_at
from pyggml.hub import is_reference
from pyggml.importer.adapter import is_adapter
from pyggml.importer.cache import imported
from pyggml.importer.convert import Accept
from pyggml.importer.encoding import require_outtype
from pyggml.memory.draft import draft_placement, draft_planner
from pyggml.memory.estimate import require_memory, resolve
from pyggml.memory.llm_context import generates
from pyggml.memory.planner import Planner
from pyggml.options import LoadOptions, PlacementOptions
from pyggml.progress import Progress, progress_function
from pyggml.remote import connected
from pyggml.source import Source, identify
from pyggml.tokenizer import Tokenizer
from pyggml.tokenizer import files as tokenizer_files

if TYPE_CHECKING:
    from typing import TypeAlias

    from tokenizers import Tokenizer as HuggingFace

    from pyggml._native.backend import Device

    TokenizerChoice: TypeAlias = str | os.PathLike[str] | Tokenizer | HuggingFace | None

# Options that cannot change once a model is open.
_BEFORE_OPENING = (*fields_of(PlacementOptions), "rpc", "rpc_key", "outtype", "progress", "isolate")


class Opened(NamedTuple):
    """An open model, and settings resolved while opening it.

    Attributes:
        model: the model, with its weights.
        tokenizer: replaces the tokenizer in the model's file, if not None.
        n_ctx: context size in tokens; None: the default.
        draft: the draft model, with its weights; None: there is none.
    """

    model: Model
    tokenizer: TokenizerChoice
    n_ctx: int | None
    draft: Model | None = None

    def release_draft(self, options: LoadOptions) -> None:
        """Close the draft model, whose context keeps the weights, unless the caller has opened it."""
        if self.draft is not None and self.draft is not options.draft:
            self.draft.close()


def open_model(source: Source, options: LoadOptions, accept: Accept | None = None) -> Opened:
    """Open the model that a source names, with its weights.

    Args and errors as for :func:`pyggml.load`; ``accept`` as for :func:`model_file`.
    """
    tokenizer = _require_files(source, options)
    with connected(options.rpc, options.rpc_key) as devices_of_hosts:
        placement = resolve_placement(options, devices_of_hosts)
        path = model_file(source, progress_function(options.progress), tokenizer, accept, options.outtype)
        draft = _draft_file(options)
        n_ctx, placement = _plan_or_explain(path, options, placement, draft, devices_of_hosts)
        model = Model(path, placement=placement, progress=progress_function(options.progress))
        try:
            return Opened(model, tokenizer, n_ctx, _open_draft(model, options, draft, devices_of_hosts))
        except BaseException:
            model.close()
            raise


def fetch_file(source: Source, options: LoadOptions, accept: Accept | None = None) -> tuple[Path, TokenizerChoice]:
    """Return the GGUF file that a source names, for another process to open, and the tokenizer to use with it.

    Args and errors as :func:`open_model`.
    """
    tokenizer = _require_files(source, options)
    return model_file(source, progress_function(options.progress), tokenizer, accept, options.outtype), tokenizer


def take_over(model: Model, options: LoadOptions) -> Opened:
    """Wrap a model that the caller has opened.

    Raises:
        InvalidParameterError: an option can only be chosen before a model is opened.
    """
    late = [name for name in _BEFORE_OPENING if getattr(options, name) != fields_of(LoadOptions)[name].default]
    if late:
        raise InvalidParameterError(f"{', '.join(late)} has no effect on an open Model: pass the model's path instead")
    if options.n_ctx == "auto":
        raise InvalidParameterError(
            'n_ctx="auto" does not work with an open Model: pass the model\'s path instead, or give n_ctx a number'
        )
    return Opened(model, options.tokenizer, options.n_ctx, _open_draft(model, options, _draft_file(options)))


def model_file(
    source: Source,
    progress: Progress | None = None,
    tokenizer: object = None,
    accept: Accept | None = None,
    outtype: str = "auto",
) -> Path:
    """Return the GGUF file that ``source`` names. A Hugging Face directory is imported first, unless it is cached.

    Args:
        source: as for :func:`pyggml.load`.
        progress: called while a directory is imported.
        tokenizer: the tokenizer to use; a wrong one is refused before the import, which may take minutes.
        accept: called with the GGUF file, and before an import with one without weights; raises to refuse a file.
        outtype: type of the weights that a directory is imported with.

    Raises:
        As :func:`pyggml.load`.
    """
    outtype = require_outtype(outtype)
    found = identify(source, progress)
    if found.format == "huggingface":
        path = imported(found, outtype, progress, tokenizer, accept)
    elif outtype != "auto":
        raise InvalidParameterError(
            f"outtype={outtype!r} is for directories, and {found.path} is a GGUF file: pyggml.quantize(path, out, "
            f"{outtype!r}) writes a file of that type"
        )
    else:
        path = found.path
    if accept is not None:
        accept(path)
    return path


def _require_files(source: Source, options: LoadOptions) -> TokenizerChoice:
    """Refuse options that name missing files, and return the tokenizer to use."""
    require_template_file(options.chat_template)
    tokenizer = options.tokenizer
    return _find_tokenizer(tokenizer, source) if isinstance(tokenizer, (str, os.PathLike)) else tokenizer


def _find_tokenizer(path: str | os.PathLike[str], source: Source) -> Path:
    """Find a tokenizer's file before the model is downloaded or imported."""
    try:
        return tokenizer_files.find(path)
    except TokenizerNotFoundError:
        if not is_reference(source):
            identify(source)  # if the model is missing too, its error is more important
        raise


def fetch_draft(options: LoadOptions) -> LoadOptions:
    """Return the options with the draft model's GGUF file, for another process to open.

    Raises:
        As :func:`open_model`.
    """
    draft = _draft_file(options)
    return options if draft is None else replace(options, draft=os.fspath(draft))


def _draft_file(options: LoadOptions) -> Path | None:
    draft = options.draft
    if draft is None:
        return None
    return Path(draft.path) if isinstance(draft, Model) else model_file(draft, progress_function(options.progress))


def _open_draft(model: Model, options: LoadOptions, file: Path | None, hosts: Sequence[Device] = ()) -> Model | None:
    if file is None:
        return None
    if not generates(model):
        raise InvalidParameterError(f"draft has no effect on {model.path}, which does not generate text: leave it out")
    if isinstance(options.draft, Model):
        options.draft.require_weights()
        return options.draft
    return Model(file, placement=draft_placement(options, hosts), progress=progress_function(options.progress))


def _plan_or_explain(
    path: Path, options: LoadOptions, placement: Placement, draft: Path | None, hosts: Sequence[Device]
) -> tuple[int, Placement]:
    try:
        return _plan(path, options, placement, draft, hosts)
    except InferError:
        if not is_adapter(path):
            raise
        raise ModelLoadError(
            f"{path} is a LoRA adapter, not a model: load the model that it was made for, then "
            f"llm.load_adapter({str(path)!r})"
        ) from None


def _plan(
    path: Path, options: LoadOptions, placement: Placement, draft: Path | None, hosts: Sequence[Device]
) -> tuple[int, Placement]:
    """Resolve "auto" to a context size and a placement, and require that the model and its draft model fit."""
    with Planner(gguf_at(path), placement, draft_planner(options, hosts, draft)) as planner:
        settings = resolve(planner, options)
        require_memory(planner, settings)
        return settings.n_ctx, planner.placement_of(settings)
