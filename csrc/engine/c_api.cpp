// Handle of the engine, and the pyg_engine_* functions.
#include "engine/engine.hpp"
#include "engine/scheduling/snapshot_bytes.hpp"

#include <algorithm>
#include <functional>
#include <tuple>

using pyg::fail;
using pyg::Request;

struct pyg_engine : pyg::PointerHandle<std::unique_ptr<pyg::Engine>, PYG_HANDLE_ENGINE> {
    const void * const identity;  // of the engine, also after it is freed

    explicit pyg_engine(std::unique_ptr<pyg::Engine> engine)
        : PointerHandle(std::move(engine)), identity(object.get()) {}
};

namespace {

// The lock may be held by a thread that closes the engine and waits for its thread, which may be this one.
template <class Body>
auto with_engine(pyg_engine * engine, Body && body) {
    if (engine) {
        pyg::RunningCallback::require_not_of(engine->identity);
    }
    return pyg::with_lock(engine, body);
}

// The same inside its own guard.
template <class Body>
pyg_status guarded(pyg_engine * engine, pyg_error * err, Body && body) noexcept {
    return pyg::guard(err, [&] { with_engine(engine, body); });
}

void require_generative(const pyg::Context & context) {
    if (!llama_get_memory(context.raw) || llama_model_has_encoder(context.model->raw)) {
        throw fail(PYG_ERR_UNSUPPORTED_ARCH,
                   "%s does not generate text token by token (an encoder or an embedding "
                   "model): use Context for it",
                   context.model->path.c_str());
    }
}

// Return the number of usable cells: at most as many as the sequences have positions.
uint32_t usable_cells(const pyg::Context & context) {
    const uint64_t n_positions = static_cast<uint64_t>(pyg::n_positions(*context.model)) * llama_n_seq_max(context.raw);
    return static_cast<uint32_t>(std::min<uint64_t>(llama_n_ctx_seq(context.raw), n_positions));
}

void require_layout(const pyg::Context & context, const pyg_engine_options & options) {
    if (options.kv_layout < PYG_KV_AUTO || options.kv_layout > PYG_KV_STREAMS) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "kv_layout is %d, which is none of pyg_kv_layout", options.kv_layout);
    }
    if (options.kv_layout != PYG_KV_STREAMS || llama_n_seq_max(context.raw) == 1) {
        return;
    }
    if (!pyg::Engine::can_divide(context)) {
        throw fail(
            PYG_ERR_INVALID_PARAMETER,
            "kv_unified is off, but sequences of this model share one KV cache: sliding windows, recurrent states "
            "and tensors divided among devices cannot be copied between streams; leave kv_unified out");
    }
    if (pyg::Engine::n_per_stream(context, options.n_ctx) == 0) {
        throw fail(PYG_ERR_INVALID_PARAMETER,
                   "kv_unified is off, and n_ctx=%u gives each of %u sequences fewer than 256 cells: use n_ctx=%u or "
                   "more, or leave kv_unified out",
                   options.n_ctx, llama_n_seq_max(context.raw), 256 * llama_n_seq_max(context.raw));
    }
}

void require_mode(int32_t mode) {
    if (mode < PYG_SPECULATIVE_DEFAULT || mode > PYG_SPECULATIVE_OFF) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "speculative is %d, which is none of pyg_speculative", mode);
    }
}

// Refuse a mode that insists on guesses if there can be none.
void require_speculation(const pyg::Engine::Speculation & speculation, bool has_draft) {
    const char * const name = speculation.mode == PYG_SPECULATIVE_FORCED   ? "forced"
                              : speculation.mode == PYG_SPECULATIVE_LOOKUP ? "lookup"
                              : speculation.mode == PYG_SPECULATIVE_DRAFT  ? "draft"
                                                                           : nullptr;
    if (name && speculation.obstacle) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "speculative=\"%s\" is not possible here: %s; use \"auto\" or \"off\"",
                   name, speculation.obstacle);
    }
    if (speculation.mode == PYG_SPECULATIVE_DRAFT && !has_draft) {
        throw fail(PYG_ERR_INVALID_PARAMETER,
                   "speculative=\"draft\" needs a draft model: load the model with draft=\"small.gguf\"");
    }
}

void start_guessing(Request & request, pyg::Engine::Speculation speculation, const pyg_request_options & options) {
    require_mode(options.speculative);
    if (options.n_guesses < 0 || options.n_guesses > static_cast<int32_t>(pyg::MAX_GUESSES)) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "n_guesses must be 0 to %zu, not %d", pyg::MAX_GUESSES,
                   options.n_guesses);
    }
    if (options.speculative != PYG_SPECULATIVE_DEFAULT) {
        speculation.mode = options.speculative;
    } else if (options.logits_callback) {
        speculation.mode = PYG_SPECULATIVE_AUTO;
    }
    if (options.logits_callback && !speculation.obstacle) {
        speculation.obstacle = "a logits processor is called for one token at a time";
    }
    require_speculation(speculation, speculation.draft != nullptr);
    if (!speculation.obstacle && speculation.mode != PYG_SPECULATIVE_OFF) {
        request.start_guessing(speculation.mode, static_cast<size_t>(options.n_guesses), std::move(speculation.draft),
                               *speculation.formats);
    }
}

// A request for logits.
void start_guessing(Request &, pyg::Engine::Speculation, const pyg_scaled_adapter *, int32_t, const float *) {}

pyg_engine_options checked(const pyg::Context & context, pyg_engine_options options) {
    const uint32_t all = usable_cells(context);
    if (options.n_ctx > all) {
        throw fail(PYG_ERR_INVALID_PARAMETER,
                   "n_ctx=%u, but this context and model have only %u cells: use n_ctx=%u or less", options.n_ctx, all,
                   all);
    }
    if (llama_n_seq_max(context.raw) > 1 && !context.shares_cells()) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "the engine shares KV cells between sequences: create the context with "
                                              "kv_unified");
    }
    if (context.adapters) {
        throw fail(PYG_ERR_INVALID_PARAMETER,
                   "the context has adapters, and an engine's requests name their own: make another context");
    }
    options.n_ctx = options.n_ctx ? options.n_ctx : all;
    require_layout(context, options);
    require_mode(options.speculative);
    const auto speculation = pyg::Engine::speculation_of(context, options);
    require_speculation(speculation, options.draft);
    if (options.draft && speculation.obstacle) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "a draft model is of no use here: %s; leave draft out",
                   speculation.obstacle);
    }
    const uint32_t n_ubatch = llama_n_ubatch(context.raw), n_seq = llama_n_seq_max(context.raw);
    if (pyg::Engine::steps_are_micro_batches(context) && n_ubatch < n_seq) {
        throw fail(PYG_ERR_INVALID_PARAMETER,
                   "n_ubatch is %u, and %u sequences need as many tokens in a step: a step of a model with sliding "
                   "windows has to be one micro-batch; make the context with n_ubatch=%u or more",
                   n_ubatch, n_seq, n_seq);
    }
    return options;
}

// Close the handle of a context that an engine has taken over.
void take(pyg_context & handle) {
    handle.object.reset();
    handle.closed = true;
}

// Creating a request can take long (it may compile a grammar), so the engine's lock is taken twice briefly instead of
// once for the whole call.
template <class... Options>
std::shared_ptr<Request> submit(pyg_engine * engine, const int32_t * prompt, int32_t n_prompt, Options &&... options) {
    const auto [model, n_ctx, speculation] = with_engine(
        engine, [](const pyg::Engine & self) { return std::tuple(self.model(), self.n_ctx(), self.speculation()); });
    const auto request = std::make_shared<Request>(*model, n_ctx, prompt, n_prompt, options...);
    start_guessing(*request, speculation, options...);
    with_engine(engine, [&](pyg::Engine & self) { self.submit(request); });
    return request;
}

}  // namespace

std::shared_ptr<Request> pyg::submit_request(pyg_engine * engine, const int32_t * prompt, int32_t n_prompt,
                                             const pyg_request_options & options) {
    return submit(engine, prompt, n_prompt, options);
}

pyg_engine_options pyg_engine_default_options(void) {
    pyg_engine_options options = {};
    options.prefix_cache       = true;
    options.adapt_threads      = true;
    options.prefix_cache_bytes = uint64_t{1} << 30;
    return options;
}

pyg_request_options pyg_request_default_options(void) {
    pyg_request_options options         = {};
    options.max_tokens                  = 256;
    options.timeout_s                   = -1;
    options.sampling.top_p              = 1;
    options.sampling.typical_p          = 1;
    options.sampling.repeat_penalty     = 1;
    options.sampling.penalty_last_n     = 64;
    options.sampling.dynatemp_exponent  = 1;
    options.sampling.xtc_threshold      = 0.1f;
    options.sampling.dry_base           = 1.75f;
    options.sampling.dry_allowed_length = 2;
    options.sampling.dry_penalty_last_n = 64;
    options.sampling.mirostat_tau       = 5;
    options.sampling.mirostat_eta       = 0.1f;
    options.sampling.adaptive_target    = -1;
    options.sampling.adaptive_decay     = 0.9f;
    options.sampling.grammar_root       = "root";
    options.sampling.reasoning_budget   = -1;
    return options;
}

pyg_status pyg_engine_new(pyg_context * ctx, const pyg_engine_options * options, pyg_engine ** out, pyg_error * err) {
    return pyg::guard(err, [&] {
        const auto create = [&](std::shared_ptr<pyg::Context> draft) {
            require_generative(*ctx->object);
            *out = new pyg_engine(
                std::make_unique<pyg::Engine>(ctx->object, std::move(draft), checked(*ctx->object, *options)));
            take(*ctx);
        };
        if (!options->draft) {
            pyg::with_lock(ctx, [&](pyg_context &) { create(nullptr); });
            return;
        }
        if (options->draft == ctx) {
            throw fail(PYG_ERR_INVALID_PARAMETER, "the draft model needs a context of its own, not that of the model");
        }
        // In the order of addresses, so that two calls with the same contexts, swapped, do not wait for each other.
        const auto [first, second] = std::minmax(ctx, options->draft, std::less<pyg_context *>());
        pyg::with_lock(first, [&, last = second](pyg_context &) {
            pyg::with_lock(last, [&](pyg_context &) {
                create(options->draft->object);
                take(*options->draft);
            });
        });
    });
}

pyg_status pyg_engine_close(pyg_engine * engine, pyg_error * err) {
    const pyg_status status = pyg::guard(err, [&] {
        if (engine) {
            pyg::RunningCallback::require_not_of(engine->identity);
        }
    });
    return status == PYG_OK ? pyg::close(engine, err) : status;
}

void pyg_engine_free(pyg_engine * engine) {
    pyg::RunningCallback::run_outside([=] { pyg::free_handle(engine); });
}

pyg_status pyg_engine_submit(pyg_engine * engine, const int32_t * prompt, int32_t n_prompt,
                             const pyg_request_options * options, pyg_request ** out, pyg_error * err) {
    return pyg::guard(err, [&] { *out = new pyg_request(submit(engine, prompt, n_prompt, *options)); });
}

pyg_status pyg_engine_submit_logits(pyg_engine * engine, const int32_t * prompt, int32_t n_prompt,
                                    const pyg_scaled_adapter * adapters, int32_t n_adapters, float * dst,
                                    pyg_request ** out, pyg_error * err) {
    return pyg::guard(err,
                      [&] { *out = new pyg_request(submit(engine, prompt, n_prompt, adapters, n_adapters, dst)); });
}

pyg_status pyg_engine_notify_when_queue_has_capacity(pyg_engine * engine, pyg_waker * waker, uint64_t tag,
                                                     pyg_error * err) {
    return pyg::guard(err, [&] {
        const auto shared = pyg::shared_object(waker);
        with_engine(engine, [&](pyg::Engine & self) { self.notify_when_queue_has_capacity(shared, tag); });
    });
}

pyg_status pyg_engine_reset(pyg_engine * engine, pyg_error * err) {
    return guarded(engine, err, [&](pyg::Engine & self) { self.reset(); });
}

pyg_status pyg_engine_get_slots(pyg_engine * engine, pyg_slot * out, int32_t n_slots, pyg_error * err) {
    return guarded(engine, err, [&](const pyg::Engine & self) {
        const auto slots = self.slots();
        std::copy_n(slots.begin(), std::min(slots.size(), static_cast<size_t>(std::max(n_slots, 0))), out);
    });
}

pyg_status pyg_engine_slot_tokens(pyg_engine * engine, uint32_t slot, uint64_t cache_salt, int32_t * token_ids,
                                  int32_t max_tokens, int32_t * n_out, pyg_error * err) {
    return guarded(engine, err, [&](const pyg::Engine & self) {
        const auto tokens = self.cached_tokens(slot, cache_salt);
        std::copy_n(tokens.begin(), std::min(tokens.size(), static_cast<size_t>(std::max(max_tokens, 0))), token_ids);
        *n_out = static_cast<int32_t>(tokens.size());
    });
}

pyg_status pyg_engine_erase_slot(pyg_engine * engine, uint32_t slot, uint64_t cache_salt, int32_t * n_out,
                                 pyg_error * err) {
    return guarded(engine, err,
                   [&](pyg::Engine & self) { *n_out = static_cast<int32_t>(self.erase_slot(slot, cache_salt)); });
}

pyg_status pyg_engine_restore_prefix(pyg_engine * engine, const void * data, size_t size, uint64_t cache_salt,
                                     int32_t * n_tokens, pyg_error * err) {
    return pyg::guard(err, [&] {
        const uint64_t fingerprint =
            with_engine(engine, [](const pyg::Engine & self) { return self.fingerprint_of_prefixes(); });
        const auto snapshot = pyg::decode(data, size, fingerprint);  // without the lock: it may take seconds
        *n_tokens           = with_engine(engine, [&](pyg::Engine & self) {
            return static_cast<int32_t>(self.restore_prefix(snapshot, cache_salt));
        });
    });
}

pyg_status pyg_engine_get_stats(pyg_engine * engine, pyg_engine_stats * out, pyg_error * err) {
    return guarded(engine, err, [&](const pyg::Engine & self) { *out = self.stats(); });
}
