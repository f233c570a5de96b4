// Decoding of one batch: validates whatever upstream would assert on, and converts the result to a status.
#include "boundary/handles.hpp"
#include "context/forward.hpp"
#include "llama-model.h"

#include <algorithm>

namespace {

using pyg::Context;
using pyg::fail;

// A validated batch in upstream's layout.
struct Batch {
    std::vector<int32_t> seq_ids;
    pyg::BatchArrays     arrays;
    int32_t              n_outputs = 0;
};

void require_size(const Context & context, const pyg_batch & batch, bool whole_at_once) {
    const auto n_batch  = static_cast<int64_t>(llama_n_batch(context.raw));
    const auto n_ubatch = static_cast<int64_t>(llama_n_ubatch(context.raw));
    if (batch.n_tokens <= 0) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "a batch needs at least one token, not %d", batch.n_tokens);
    }
    if (batch.n_tokens > n_batch) {
        throw fail(
            PYG_ERR_INVALID_PARAMETER,
            "the batch has %d tokens, but n_batch is %lld: decode it in parts or create the context with a larger "
            "n_batch",
            batch.n_tokens, static_cast<long long>(n_batch));
    }
    if (whole_at_once && batch.n_tokens > n_ubatch) {
        throw fail(PYG_ERR_INVALID_PARAMETER,
                   "the batch has %d tokens, but n_ubatch is %lld: bidirectional attention needs all of them at once, "
                   "so make the context with a larger n_ubatch",
                   batch.n_tokens, static_cast<long long>(n_ubatch));
    }
}

std::vector<int32_t> checked_seq_ids(const Context & context, const pyg_batch & batch) {
    if (!batch.seq_ids) {
        return std::vector<int32_t>(static_cast<size_t>(batch.n_tokens), 0);
    }
    for (int32_t i = 0; i < batch.n_tokens; i++) {
        context.require_seq(batch.seq_ids[i]);
    }
    return {batch.seq_ids, batch.seq_ids + batch.n_tokens};
}

void require_positions(const Context & context, const std::vector<int32_t> & positions) {
    const int32_t n_positions = pyg::n_positions(*context.model);
    for (size_t i = 0; i < positions.size(); i++) {
        if (positions[i] < 0 || positions[i] >= n_positions) {
            throw fail(PYG_ERR_INVALID_PARAMETER, "position %d at index %zu is out of range, 0 to %d", positions[i], i,
                       n_positions - 1);
        }
    }
}

// Positions that continue each sequence.
std::vector<int32_t> next_positions(const Context & context, const std::vector<int32_t> & seq_ids) {
    const llama_memory_t memory = llama_get_memory(context.raw);
    std::vector<int64_t> next(llama_n_seq_max(context.raw), -1);
    std::vector<int32_t> positions;
    positions.reserve(seq_ids.size());
    for (const int32_t seq_id : seq_ids) {
        int64_t & pos = next[static_cast<size_t>(seq_id)];
        if (pos < 0) {
            pos = static_cast<int64_t>(llama_memory_seq_pos_max(memory, seq_id)) + 1;
        }
        positions.push_back(static_cast<int32_t>(std::min<int64_t>(pos++, INT32_MAX)));
    }
    return positions;
}

std::vector<int8_t> outputs(const Context & context, const pyg_batch & batch, bool all) {
    const auto          n = static_cast<size_t>(batch.n_tokens);
    std::vector<int8_t> output(n, all ? 1 : 0);
    if (!all && batch.output) {
        std::transform(batch.output, batch.output + n, output.begin(), [](int8_t wanted) { return wanted != 0; });
    } else if (!all) {
        output.back() = 1;
    }
    const auto n_wanted = static_cast<uint32_t>(std::count(output.begin(), output.end(), 1));
    if (n_wanted > context.n_outputs_max) {
        throw fail(PYG_ERR_INVALID_PARAMETER,
                   "the batch requests %u rows of output, but n_outputs_max is %u%s: ask for fewer or make the context "
                   "with a larger one",
                   n_wanted, context.n_outputs_max,
                   context.embeddings ? " (embeddings are computed for every token)" : "");
    }
    return output;
}

// `encoding`: every token has output, and all are computed in one micro-batch.
Batch checked(const Context & context, const pyg_batch & batch, bool encoding) {
    require_size(context, batch, encoding || !llama_get_causal_attn(context.raw));
    for (int32_t i = 0; i < batch.n_tokens; i++) {
        context.model->require_token(batch.token_ids[i], i);
    }
    Batch result;
    result.seq_ids       = checked_seq_ids(context, batch);
    const auto positions = batch.pos ? std::vector<int32_t>(batch.pos, batch.pos + batch.n_tokens)
                                     : next_positions(context, result.seq_ids);
    require_positions(context, positions);
    const auto output = outputs(context, batch, encoding || context.embeddings);
    result.n_outputs  = static_cast<int32_t>(std::count(output.begin(), output.end(), 1));
    for (size_t i = 0; i < positions.size(); i++) {
        result.arrays.add(batch.token_ids[i], positions[i], &result.seq_ids[i], output[i]);
    }
    return result;
}

// While it lives, pyg_context_cancel applies to the context. A decode with pending sequence edits is not interrupted: a
// half-applied edit could not be detected.
class Cancellable : pyg::NonCopyable {
  public:
    explicit Cancellable(pyg_context & handle) : handle_(handle) { set(!handle.object->edit_pending); }
    ~Cancellable() { set(false); }

  private:
    void set(bool decoding) {
        std::lock_guard<std::mutex> lock(handle_.cancel_mutex);
        handle_.decoding          = decoding;
        handle_.object->cancelled = false;
    }

    pyg_context & handle_;
};

// Check the memory for rows of output: upstream allocates them only when a batch requests them, so they are not
// planned.
void require_output_buffer(const Context & context, int32_t n_outputs) {
    if (n_outputs <= context.n_reserved) {
        return;
    }
    const uint64_t row = static_cast<uint64_t>(context.model->n_vocab()) +
                         (context.embeddings ? static_cast<uint64_t>(llama_model_n_embd_out(context.model->raw)) : 0);
    const uint64_t required  = row * sizeof(float) * static_cast<uint64_t>(n_outputs);
    const uint64_t available = pyg_memory_available();
    if (required > available) {
        throw pyg::fail_out_of_memory("the output of " + std::to_string(n_outputs) + " tokens", required, available);
    }
}

void require_computed(const Context & context, int32_t status, int32_t n_tokens) {
    switch (status) {
    case pyg::COMPUTED:
        return;
    case pyg::NO_CELLS:
        throw fail(PYG_ERR_CONTEXT_OVERFLOW,
                   "%d more tokens do not fit in the context's %u cells: remove sequences or create a "
                   "context with a larger n_ctx",
                   n_tokens, llama_n_ctx(context.raw));
    case pyg::ABORTED:
        throw fail(PYG_ERR_ENGINE, "the computation was cancelled; what it had finished stays in the memory");
    case pyg::INVALID_BATCH:
        throw fail(PYG_ERR_INVALID_PARAMETER, "the engine refuses this batch: %s", pyg::engine_error_text().c_str());
    default:
        throw pyg::compute_error(status);
    }
}

void run(pyg_context & handle, Batch batch, pyg::Pass pass, bool gives_logits) {
    Context &         context = *handle.object;
    const llama_batch raw     = batch.arrays.raw();
    require_output_buffer(context, batch.n_outputs);
    const int32_t before = context.n_outputs;
    context.n_outputs    = 0;
    int32_t status;
    {
        const Cancellable cancellable(handle);
        status = pyg::compute(context, raw, pass);
    }
    if (status == pyg::INVALID_BATCH) {
        context.n_outputs = before;  // upstream rejected the batch and changed nothing
    } else {
        context.edit_pending = false;
    }
    require_computed(context, status, raw.n_tokens);
    if (context.imatrix) {
        context.imatrix->require_sound();
    }
    context.n_outputs  = batch.n_outputs;
    context.n_reserved = std::max(context.n_reserved, batch.n_outputs);
    context.has_logits = gives_logits;
}

void require_decoder(const Context & context) {
    const llama_model * model = context.model->raw;
    if (!llama_model_has_decoder(model)) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "this model has only an encoder: call encode");
    }
    if (llama_model_has_encoder(model) && !context.encoded) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "this model's decoder reads its encoder's output: call encode first");
    }
}

}  // namespace

int32_t pyg::n_positions(const Model & model) {
    const ggml_tensor * table = model.raw->pos_embd;
    return table ? static_cast<int32_t>(table->ne[1]) : INT32_MAX;
}

pyg_status pyg_context_decode(pyg_context * ctx, const pyg_batch * batch, int32_t * n_outputs, pyg_error * err) {
    return pyg::with(ctx, err, [&](pyg_context & handle) {
        Context & context = *handle.object;
        require_decoder(context);
        const bool remembers = llama_get_memory(context.raw);
        run(handle, checked(context, *batch, !remembers), llama_decode,
            remembers || llama_model_is_diffusion(context.model->raw));
        *n_outputs = context.n_outputs;
    });
}

pyg_status pyg_context_encode(pyg_context * ctx, const pyg_batch * batch, int32_t * n_outputs, pyg_error * err) {
    return pyg::with(ctx, err, [&](pyg_context & handle) {
        Context & context = *handle.object;
        if (llama_get_memory(context.raw) && !llama_model_has_encoder(context.model->raw)) {
            throw fail(PYG_ERR_INVALID_PARAMETER, "this model has no encoder: call decode");
        }
        run(handle, checked(context, *batch, true), llama_encode, llama_model_is_diffusion(context.model->raw));
        context.encoded = true;
        *n_outputs      = context.n_outputs;
    });
}

void pyg_context_cancel(pyg_context * ctx) {
    if (!ctx || ctx->inherited()) {
        return;
    }
    std::lock_guard<std::mutex> lock(ctx->cancel_mutex);
    if (ctx->decoding) {
        ctx->object->cancelled = true;
    }
}
