// Contexts. Options are validated before upstream can assert on them, and memory is planned before it is allocated.
#include "boundary/backend_loader.hpp"
#include "boundary/engine_messages.hpp"
#include "boundary/handles.hpp"
#include "ggml-cpu.h"
#include "platform/platform.hpp"
#include "sampling/logprobs.hpp"

#include <algorithm>
#include <cmath>

namespace {

using pyg::Context;
using pyg::fail;
using pyg::Model;

constexpr uint32_t CELL_PAD    = 256;      // upstream rounds the number of cells up to this
constexpr uint32_t MAX_N_BATCH = 1 << 24;  // upstream allocates tables of this length

// Types that upstream's attention stores and reads; its other types are for weights.
constexpr ggml_type CACHE_TYPES[] = {
    GGML_TYPE_F32,  GGML_TYPE_F16,    GGML_TYPE_BF16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0,
    GGML_TYPE_Q4_1, GGML_TYPE_IQ4_NL, GGML_TYPE_Q5_0, GGML_TYPE_Q5_1,
};

// How long compute threads spin for the next graph before they sleep, in upstream's unit of 131,072 CPU pauses.
// Upstream's default is fifty times as long, all of it wasted after the last token.
constexpr uint32_t POLL = 1;

// Enough for the pools in use and some to be reused.
constexpr std::ptrdiff_t MAX_POOLS = 4;

std::string cache_type_names() {
    std::string names;
    for (const ggml_type type : CACHE_TYPES) {
        names += (names.empty() ? "" : ", ") + std::string(ggml_type_name(type));
    }
    return names;
}

ggml_type checked_cache_type(const char * name, int32_t type) {
    const auto * found = std::find(std::begin(CACHE_TYPES), std::end(CACHE_TYPES), type);
    if (found == std::end(CACHE_TYPES)) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "%s is %d, which is not a KV cache type; use one of %s", name, type,
                   cache_type_names().c_str());
    }
    return *found;
}

void require_between(const char * name, int64_t value, int64_t low, int64_t high) {
    if (value < low || value > high) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "%s must be between %lld and %lld, not %lld", name,
                   static_cast<long long>(low), static_cast<long long>(high), static_cast<long long>(value));
    }
}

void require_at_least_0(const char * name, float value) {
    if (!std::isfinite(value) || value < 0) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "%s must be a finite number of at least 0, not %g", name, value);
    }
}

uint32_t padded_n_ctx(const Model & model, uint32_t n_ctx) {
    const uint32_t cells = n_ctx ? n_ctx : static_cast<uint32_t>(llama_model_n_ctx_train(model.raw));
    require_between(n_ctx ? "n_ctx" : "the model's training length, used as n_ctx,", cells, 1, INT32_MAX - CELL_PAD);
    return (cells + CELL_PAD - 1) / CELL_PAD * CELL_PAD;
}

void require_sizes(const pyg_context_options & options) {
    require_between("n_batch", options.n_batch, 1, MAX_N_BATCH);
    require_between("n_ubatch", options.n_ubatch, 1, MAX_N_BATCH);
    require_between("n_seq_max", options.n_seq_max, 1, static_cast<int64_t>(llama_max_parallel_sequences()));
    // Upstream reserves a row of output for each sequence and asserts that they fit.
    if (options.n_batch < options.n_seq_max) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "n_batch is %u, but must be at least n_seq_max, %u", options.n_batch,
                   options.n_seq_max);
    }
    if (options.n_outputs_max && options.n_outputs_max < options.n_seq_max) {
        throw fail(PYG_ERR_INVALID_PARAMETER,
                   "n_outputs_max is %u, but must be at least n_seq_max, %u, or 0 for as many as n_batch",
                   options.n_outputs_max, options.n_seq_max);
    }
}

// Embeddings are computed for every token. Upstream plans for equally long sequences, and its pooling asserts that they
// are.
void output_everything(llama_context_params & params) {
    const uint32_t n_seq_max = params.n_seq_max;
    const uint32_t n_tokens  = std::min({params.n_ctx, params.n_batch, params.n_ubatch});
    params.n_ubatch          = std::max(n_tokens / n_seq_max, 1u) * n_seq_max;
    params.n_outputs_max     = 0;
}

void require_kinds(const Model & model, const pyg_context_options & options) {
    require_between("flash_attn", options.flash_attn, LLAMA_FLASH_ATTN_TYPE_AUTO, LLAMA_FLASH_ATTN_TYPE_ENABLED);
    require_between("pooling", options.pooling, LLAMA_POOLING_TYPE_UNSPECIFIED, LLAMA_POOLING_TYPE_RANK);
    require_between("attention", options.attention, LLAMA_ATTENTION_TYPE_UNSPECIFIED, LLAMA_ATTENTION_TYPE_NON_CAUSAL);
    require_between("rope_scaling_type", options.rope_scaling_type, LLAMA_ROPE_SCALING_TYPE_UNSPECIFIED,
                    LLAMA_ROPE_SCALING_TYPE_MAX_VALUE);
    require_at_least_0("rope_freq_base", options.rope_freq_base);
    require_at_least_0("rope_freq_scale", options.rope_freq_scale);
    for (const float value :
         {options.yarn_ext_factor, options.yarn_attn_factor, options.yarn_beta_fast, options.yarn_beta_slow}) {
        require_at_least_0("a yarn option", std::max(value, 0.0f));  // negative: the model's
    }
    if (options.pooling == LLAMA_POOLING_TYPE_RANK && !pyg::has_classifier(model.raw)) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "rank pooling needs a model with a classification head, but %s has none",
                   model.path.c_str());
    }
    if (ggml_is_quantized(checked_cache_type("type_v", options.type_v)) &&
        options.flash_attn == LLAMA_FLASH_ATTN_TYPE_DISABLED) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "a V cache of type %s needs flash attention, which is switched off",
                   ggml_type_name(static_cast<ggml_type>(options.type_v)));
    }
}

int32_t checked_threads(const char * name, int32_t n, int32_t otherwise) {
    require_between(name, n, 0, GGML_MAX_N_THREADS);
    return n ? n : otherwise;
}

bool is_cancelled(void * context) {
    return static_cast<const Context *>(context)->cancelled.load(std::memory_order_relaxed);
}

std::shared_ptr<Context> create(std::shared_ptr<Model> model, const pyg_context_options & options) {
    model->require_weights();
    llama_context_params params = pyg::context_params(*model, options);
    pyg::require_memory(pyg::estimate_memory(*model, params),
                        "a context of " + std::to_string(params.n_ctx) + " cells");
    pyg::require_dry_run(*model, params);
    auto context               = std::make_shared<Context>();
    params.abort_callback      = is_cancelled;
    params.abort_callback_data = context.get();
    if (options.imatrix) {
        context->imatrix         = pyg::shared_object(options.imatrix);
        params.cb_eval           = pyg::ImatrixCollector::on_node;
        params.cb_eval_user_data = context->imatrix.get();
    }
    context->model = std::move(model);
    context->open(params);
    const uint32_t n_batch = llama_n_batch(context->raw);
    const bool     all     = params.n_outputs_max == 0 || llama_model_has_encoder(context->model->raw);
    context->n_outputs_max = all ? n_batch : std::min(params.n_outputs_max, n_batch);
    context->embeddings    = params.embeddings;
    context->set_threads(params.n_threads, params.n_threads_batch);
    return context;
}

void require_rows(const Context & context, int32_t first, int32_t n_rows) {
    if (context.n_outputs == 0) {
        throw fail(PYG_ERR_ENGINE, "there is no output to read: decode a batch that asks for some first");
    }
    if (first < 0 || n_rows < 0 || n_rows > context.n_outputs - first) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "rows %d to %lld were requested, but the last batch left rows 0 to %d",
                   first, static_cast<long long>(first) + n_rows - 1, context.n_outputs - 1);
    }
}

void require_logits(const Context & context, int32_t first, int32_t n_rows) {
    require_rows(context, first, n_rows);
    if (!context.has_logits) {
        throw fail(PYG_ERR_ENGINE, "this model computes embeddings, not logits");
    }
}

void require_embeddings(const Context & context) {
    if (!context.embeddings) {
        throw fail(PYG_ERR_ENGINE, "this context computes no embeddings: make one with embeddings on");
    }
}

size_t n_floats(int32_t n_rows, int32_t n_columns) { return static_cast<size_t>(n_rows) * n_columns; }

pyg_context_info context_info(const Context & context) {
    pyg_context_info info = {};
    info.n_ctx            = llama_n_ctx(context.raw);
    info.n_ctx_seq        = llama_n_ctx_seq(context.raw);
    info.n_batch          = llama_n_batch(context.raw);
    info.n_ubatch         = llama_n_ubatch(context.raw);
    info.n_seq_max        = llama_n_seq_max(context.raw);
    info.n_outputs_max    = context.n_outputs_max;
    info.n_threads        = llama_n_threads(context.raw);
    info.n_threads_batch  = llama_n_threads_batch(context.raw);
    info.n_vocab          = context.model->n_vocab();
    info.n_embd_out       = llama_model_n_embd_out(context.model->raw);
    info.pooling          = llama_pooling_type(context.raw);
    info.n_outputs        = context.n_outputs;
    info.can_shift        = llama_memory_can_shift(llama_get_memory(context.raw));
    return info;
}

}  // namespace

namespace pyg {

Failure context_failure() {
    const std::string messages = engine_error_text();
    throw_if_out_of_memory("this context", messages);
    return fail(PYG_ERR_INVALID_PARAMETER, "the engine refuses this context: %s",
                messages.empty() ? "it gave no reason" : messages.c_str());
}

ggml_threadpool * new_threads(int32_t n, bool spins) {
    const platform::SignalsBlocked signals_go_to_the_callers_threads;
    ggml_threadpool_params         params = ggml_threadpool_params_default(n);
    params.paused                         = true;  // sleep until the first graph instead of spinning
    params.poll                           = spins ? POLL : 0;
    return cpu_function_as<decltype(&ggml_threadpool_new)>("ggml_threadpool_new")(&params);
}

void free_threads(ggml_threadpool * pool) {
    cpu_function_as<decltype(&ggml_threadpool_free)>("ggml_threadpool_free")(pool);
}

Context::~Context() {
    llama_free(raw);
    free_pools(pools_.end());
}

void Context::free_pools(Pools::iterator end) {
    for (auto pool = pools_.begin(); pool != end; ++pool) {
        free_threads(pool->second);
    }
    pools_.erase(pools_.begin(), end);
}

ggml_threadpool * Context::threads(int32_t n) {
    const auto found = std::find_if(pools_.begin(), pools_.end(), [&](const auto & pool) { return pool.first == n; });
    if (found != pools_.end()) {
        std::rotate(found, found + 1, pools_.end());
        return pools_.back().second;
    }
    pools_.reserve(pools_.size() + 1);  // so that emplace_back cannot throw and leak the pool
    pools_.emplace_back(n, new_threads(n));
    return pools_.back().second;
}

void Context::set_threads(int32_t n_threads, int32_t n_threads_batch) {
    llama_attach_threadpool(raw, threads(n_threads), threads(n_threads_batch));
    llama_set_n_threads(raw, n_threads, n_threads_batch);
}

void Context::free_unused_threads() {
    if (static_cast<std::ptrdiff_t>(pools_.size()) > MAX_POOLS) {
        free_pools(pools_.end() - MAX_POOLS);
    }
}

void Context::require_seq(int32_t seq_id) const {
    const uint32_t n_seq_max = llama_n_seq_max(raw);
    if (seq_id < 0 || static_cast<uint32_t>(seq_id) >= n_seq_max) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "sequence id %d is out of range: this context was made with n_seq_max %u",
                   seq_id, n_seq_max);
    }
}

bool Context::shares_cells() const { return llama_n_ctx_seq(raw) == llama_n_ctx(raw); }

void Context::open(const llama_context_params & params) {
    {
        const std::shared_lock<std::shared_mutex> lock(model->adapters_mutex);
        raw = create_context(model->raw, params);
    }
    require_hosts(model->hosts);
    if (!raw) {
        throw context_failure();
    }
    params_   = params;
    positions = attach_cell_positions(raw);
}

void Context::replace_kv_cache(bool unified, uint32_t n_ctx) {
    const llama_context_params before = params_;
    llama_context_params       after  = before;
    after.kv_unified                  = unified;
    after.n_ctx                       = n_ctx;
    const int32_t n_threads = llama_n_threads(raw), n_threads_batch = llama_n_threads_batch(raw);
    const auto    reopen = [&](const llama_context_params & params) {
        open(params);
        set_threads(n_threads, n_threads_batch);
    };
    n_outputs  = 0;
    n_reserved = 0;
    llama_free(std::exchange(raw, nullptr));  // first: both at once might not fit into the device's memory
    try {
        reopen(after);
    } catch (...) {
        pyg_error error;
        if (guard(&error, [&] { reopen(before); }) != PYG_OK) {
            throw EngineAbort{error.message};
        }
        throw;
    }
}

llama_context_params context_params(const Model & model, const pyg_context_options & options) {
    model.require_shape();
    require_sizes(options);
    require_kinds(model, options);

    llama_context_params params = llama_context_default_params();
    params.n_ctx                = padded_n_ctx(model, options.n_ctx);
    params.n_batch              = options.n_batch;
    params.n_ubatch             = options.n_ubatch;
    params.n_seq_max            = options.n_seq_max;
    params.n_outputs_max        = options.n_outputs_max;
    if (options.embeddings) {
        output_everything(params);
    }
    params.n_threads         = checked_threads("n_threads", options.n_threads, pyg_cpu_count());
    params.n_threads_batch   = checked_threads("n_threads_batch", options.n_threads_batch, params.n_threads);
    params.type_k            = checked_cache_type("type_k", options.type_k);
    params.type_v            = checked_cache_type("type_v", options.type_v);
    params.flash_attn_type   = static_cast<llama_flash_attn_type>(options.flash_attn);
    params.pooling_type      = static_cast<enum llama_pooling_type>(options.pooling);
    params.attention_type    = static_cast<llama_attention_type>(options.attention);
    params.rope_scaling_type = static_cast<llama_rope_scaling_type>(options.rope_scaling_type);
    params.rope_freq_base    = options.rope_freq_base;
    params.rope_freq_scale   = options.rope_freq_scale;
    params.yarn_ext_factor   = options.yarn_ext_factor;
    params.yarn_attn_factor  = options.yarn_attn_factor;
    params.yarn_beta_fast    = options.yarn_beta_fast;
    params.yarn_beta_slow    = options.yarn_beta_slow;
    params.yarn_orig_ctx     = options.yarn_orig_ctx;
    params.embeddings        = options.embeddings;
    params.offload_kqv       = options.offload_kqv;
    params.op_offload        = options.op_offload;
    params.swa_full          = options.swa_full;
    params.kv_unified        = options.kv_unified;
    return params;
}

}  // namespace pyg

pyg_context_options pyg_context_default_options(void) {
    const llama_context_params upstream = llama_context_default_params();
    pyg_context_options        options  = {};
    options.n_batch                     = upstream.n_batch;
    options.n_ubatch                    = upstream.n_ubatch;
    options.n_seq_max                   = upstream.n_seq_max;
    options.type_k                      = upstream.type_k;
    options.type_v                      = upstream.type_v;
    options.flash_attn                  = upstream.flash_attn_type;
    options.pooling                     = upstream.pooling_type;
    options.attention                   = upstream.attention_type;
    options.rope_scaling_type           = upstream.rope_scaling_type;
    options.yarn_ext_factor             = upstream.yarn_ext_factor;
    options.yarn_attn_factor            = upstream.yarn_attn_factor;
    options.yarn_beta_fast              = upstream.yarn_beta_fast;
    options.yarn_beta_slow              = upstream.yarn_beta_slow;
    options.offload_kqv                 = upstream.offload_kqv;
    options.op_offload                  = upstream.op_offload;
    options.kv_unified                  = true;  // sequences share all cells instead of each having a fixed part
    return options;
}

pyg_status pyg_context_new(pyg_model * model, const pyg_context_options * options, pyg_context ** out,
                           pyg_error * err) {
    return pyg::guard(err, [&] { *out = new pyg_context(create(pyg::shared_object(model), *options)); });
}

pyg_status pyg_context_close(pyg_context * ctx, pyg_error * err) { return pyg::close(ctx, err); }
void       pyg_context_free(pyg_context * ctx) { pyg::free_handle(ctx); }

pyg_status pyg_context_get(pyg_context * ctx, struct llama_context ** out, pyg_error * err) {
    return pyg::with(ctx, err, [&](const Context & context) { *out = context.raw; });
}

pyg_status pyg_context_get_info(pyg_context * ctx, pyg_context_info * out, pyg_error * err) {
    return pyg::with(ctx, err, [&](const Context & context) { *out = context_info(context); });
}

pyg_status pyg_context_set_threads(pyg_context * ctx, int32_t n_threads, int32_t n_threads_batch, pyg_error * err) {
    return pyg::with(ctx, err, [&](Context & context) {
        const int32_t n = checked_threads("n_threads", n_threads, pyg_cpu_count());
        context.set_threads(n, checked_threads("n_threads_batch", n_threads_batch, n));
    });
}

// Upstream's negative indices count rows from the end, independently of their place in the batch.
pyg_status pyg_context_logits(pyg_context * ctx, int32_t first, int32_t n_rows, float * dst, pyg_error * err) {
    return pyg::with(ctx, err, [&](const Context & context) {
        require_logits(context, first, n_rows);
        if (n_rows) {
            const float * rows = llama_get_logits_ith(context.raw, first - context.n_outputs);
            std::copy_n(rows, n_floats(n_rows, context.model->n_vocab()), dst);
        }
    });
}

pyg_status pyg_context_logprobs(pyg_context * ctx, int32_t first, int32_t n_rows, const int32_t * token_ids,
                                float * dst, pyg_error * err) {
    return pyg::with(ctx, err, [&](const Context & context) {
        require_logits(context, first, n_rows);
        pyg::Logprobs one;
        for (int32_t i = 0; i < n_rows; i++) {
            context.model->require_token(token_ids[i], i);
            const float * row = llama_get_logits_ith(context.raw, first + i - context.n_outputs);
            pyg::logprobs_of(row, context.model->n_vocab(), token_ids[i], 0, one);
            dst[i] = one.logprob;
        }
    });
}

pyg_status pyg_context_scores(pyg_context * ctx, int32_t n, const int32_t * rows, const int32_t * token_ids,
                              float * logprobs, bool * is_likeliest, pyg_error * err) {
    return pyg::with(ctx, err, [&](const Context & context) {
        pyg::Logprobs one;
        for (int32_t i = 0; i < n; i++) {
            require_logits(context, rows[i], 1);
            context.model->require_token(token_ids[i], i);
            const float * row = llama_get_logits_ith(context.raw, rows[i] - context.n_outputs);
            pyg::logprobs_of(row, context.model->n_vocab(), token_ids[i], 1, one);
            logprobs[i]     = one.logprob;
            is_likeliest[i] = one.top_ids.front() == token_ids[i];
        }
    });
}

pyg_status pyg_context_embeddings(pyg_context * ctx, int32_t first, int32_t n_rows, float * dst, pyg_error * err) {
    return pyg::with(ctx, err, [&](const Context & context) {
        require_embeddings(context);
        require_rows(context, first, n_rows);
        if (llama_pooling_type(context.raw) != LLAMA_POOLING_TYPE_NONE) {
            throw fail(PYG_ERR_ENGINE, "this context pools: it has one embedding per sequence, not one per token");
        }
        if (n_rows) {
            const float * rows = llama_get_embeddings_ith(context.raw, first - context.n_outputs);
            std::copy_n(rows, n_floats(n_rows, llama_model_n_embd_out(context.model->raw)), dst);
        }
    });
}

pyg_status pyg_context_embeddings_seq(pyg_context * ctx, int32_t seq_id, float * dst, int32_t n, pyg_error * err) {
    return pyg::with(ctx, err, [&](const Context & context) {
        const llama_model * model = context.model->raw;
        require_embeddings(context);
        context.require_seq(seq_id);
        const auto pooling = llama_pooling_type(context.raw);
        if (pooling == LLAMA_POOLING_TYPE_NONE) {
            throw fail(PYG_ERR_ENGINE,
                       "this context does not pool: it has one embedding per token, not one per sequence");
        }
        const int32_t length = pooling == LLAMA_POOLING_TYPE_RANK ? static_cast<int32_t>(llama_model_n_cls_out(model))
                                                                  : llama_model_n_embd_out(model);
        if (n != length) {
            throw fail(PYG_ERR_INVALID_PARAMETER, "the buffer holds %d numbers, but a sequence's embedding has %d", n,
                       length);
        }
        const float * row = context.n_outputs ? llama_get_embeddings_seq(context.raw, seq_id) : nullptr;
        if (!row) {
            throw fail(PYG_ERR_ENGINE, "sequence %d was not part of the last batch, so it has no embedding", seq_id);
        }
        std::copy_n(row, length, dst);
    });
}
