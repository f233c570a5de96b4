"""Creation of a model's engine from the options of :func:`pyggml.load`."""

from __future__ import annotations

from collections.abc import Iterable

from pyggml._native.batch_invariance import require_batch_invariance
from pyggml._native.context import Context
from pyggml._native.model import Model
from pyggml.generation.engine import Engine
from pyggml.memory.llm_context import context_options, draft_context_options
from pyggml.memory.planner import memory_used_by
from pyggml.memory.search import DeviceMemory, memory_of_both
from pyggml.options import LoadOptions


def start_engine(
    model: Model, options: LoadOptions, n_ctx: int, stop_token_ids: Iterable[int], draft: Model | None = None
) -> tuple[Engine, tuple[DeviceMemory, ...]]:
    """Start an engine with a context of its own, and one of the draft model, and return it with the memory of both.

    Raises:
        OutOfMemoryError: the context does not fit.
        InvalidParameterError: an option is out of range, or ``deterministic`` cannot be kept.
        UnsupportedArchitectureError: the model does not generate token by token.
    """
    context = Context(model, **vars(context_options(options, n_ctx)))
    drafting: Context | None = None
    try:
        if options.deterministic:
            require_batch_invariance(context)
        memory = memory_used_by(context)
        drafting = None if draft is None else Context(draft, **vars(draft_context_options(options, n_ctx)))
        if drafting is not None:
            memory = memory_of_both(memory, memory_used_by(drafting))
        engine = Engine(
            context,
            n_ctx,
            draft=drafting,
            prefix_cache=options.prefix_cache,
            prefix_cache_bytes=options.prefix_cache_bytes,
            prefix_cache_dir=options.prefix_cache_dir,
            prefix_cache_disk_bytes=options.prefix_cache_disk_bytes,
            max_queue=options.max_queue,
            adapt_threads=options.n_threads is None and _may_adapt(context, options),
            kv_unified=options.kv_unified,
            backend_sampling=options.backend_sampling,
            speculative=options.speculative,
            stop_token_ids=stop_token_ids,
        )
    except BaseException:
        context.close()
        if drafting is not None:
            drafting.close()
        raise
    return engine, memory


def _may_adapt(context: Context, options: LoadOptions) -> bool:
    """Return False if results are reproducible as loaded, but would depend on the number of threads."""
    return options.n_parallel > 1 or options.prefix_cache or not context.not_batch_invariant()
