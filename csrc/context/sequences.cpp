// Edits of the sequences in a context's memory.
#include "boundary/handles.hpp"

namespace {

using pyg::ALL_SEQUENCES;
using pyg::Context;
using pyg::fail;

void require_shift(llama_memory_t memory) {
    if (!llama_memory_can_shift(memory)) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "this context's memory cannot move positions (can_shift is false)");
    }
}

bool recurrent(const Context & context) {
    return llama_model_is_recurrent(context.model->raw) || llama_model_is_hybrid(context.model->raw);
}

// Run body(context, memory) once the context is known to have a memory and this sequence.
template <class Body>
pyg_status with_sequence(pyg_context * ctx, int32_t seq_id, pyg_error * err, Body && body) {
    return pyg::with(ctx, err, [&](Context & context) {
        const llama_memory_t memory = context.require_memory();
        context.require_seq(seq_id);
        body(context, memory);
    });
}

bool is_whole(llama_memory_t memory, int32_t seq_id, int32_t p0, int32_t p1) {
    return p0 <= 0 && (p1 < 0 || p1 > llama_memory_seq_pos_max(memory, seq_id));
}

}  // namespace

llama_memory_t Context::require_memory() const {
    const llama_memory_t memory = llama_get_memory(raw);
    if (!memory) {
        throw fail(PYG_ERR_INVALID_PARAMETER,
                   "this model keeps no memory between batches, so it has no sequences to work on");
    }
    return memory;
}

pyg_status pyg_context_memory_clear(pyg_context * ctx, bool data, pyg_error * err) {
    return pyg::with(ctx, err, [&](Context & context) {
        llama_memory_clear(context.require_memory(), data);
        // Upstream queues copies between separate buffers; clearing drops shifted positions with their cells.
        context.edit_pending = context.edit_pending && !context.shares_cells();
    });
}

pyg_status pyg_context_seq_rm(pyg_context * ctx, int32_t seq_id, int32_t p0, int32_t p1, bool * removed,
                              pyg_error * err) {
    return pyg::with(ctx, err, [&](const Context & context) {
        const llama_memory_t memory = context.require_memory();
        if (seq_id != ALL_SEQUENCES) {
            context.require_seq(seq_id);
        } else if (p0 <= 0 && p1 < 0) {
            llama_memory_clear(memory, false);  // not every memory accepts -1
            *removed = true;
            return;
        }
        *removed = llama_memory_seq_rm(memory, seq_id, p0, p1);
    });
}

pyg_status pyg_context_seq_cp(pyg_context * ctx, int32_t src, int32_t dst, int32_t p0, int32_t p1, pyg_error * err) {
    return with_sequence(ctx, src, err, [&](Context & context, llama_memory_t memory) {
        context.require_seq(dst);
        if (src == dst) {
            return;
        }
        const bool whole = is_whole(memory, src, p0, p1);
        if (!whole && (!context.shares_cells() || recurrent(context))) {
            throw fail(
                PYG_ERR_INVALID_PARAMETER,
                "positions %d to %d are only part of sequence %d, but this context copies whole sequences only (%s)",
                p0, p1, src,
                recurrent(context) ? "a recurrent state cannot be divided" : "the context has kv_unified off");
        }
        llama_memory_seq_cp(memory, src, dst, whole ? -1 : p0, whole ? -1 : p1);
        context.edit_pending = context.edit_pending || !context.shares_cells();
    });
}

pyg_status pyg_context_seq_keep(pyg_context * ctx, int32_t seq_id, pyg_error * err) {
    return with_sequence(ctx, seq_id, err, [&](const Context & context, llama_memory_t memory) {
        llama_memory_seq_keep(memory, seq_id);
        // With one buffer per sequence, upstream checks only one of them.
        for (int32_t other = 0; !context.shares_cells() && other < static_cast<int32_t>(llama_n_seq_max(context.raw));
             other++) {
            if (other != seq_id) {
                llama_memory_seq_rm(memory, other, -1, -1);
            }
        }
    });
}

pyg_status pyg_context_seq_add(pyg_context * ctx, int32_t seq_id, int32_t p0, int32_t p1, int32_t delta,
                               pyg_error * err) {
    return with_sequence(ctx, seq_id, err, [&](Context & context, llama_memory_t memory) {
        require_shift(memory);
        const int64_t last = static_cast<int64_t>(llama_memory_seq_pos_max(memory, seq_id)) + delta;
        if (last >= INT32_MAX || (last < 0 && recurrent(context))) {
            throw fail(PYG_ERR_INVALID_PARAMETER, "adding %d would move sequence %d to position %lld", delta, seq_id,
                       static_cast<long long>(last));
        }
        llama_memory_seq_add(memory, seq_id, p0, p1, delta);
        context.edit_pending = true;
    });
}

pyg_status pyg_context_seq_div(pyg_context * ctx, int32_t seq_id, int32_t p0, int32_t p1, int32_t d, pyg_error * err) {
    return with_sequence(ctx, seq_id, err, [&](Context & context, llama_memory_t memory) {
        require_shift(memory);
        if (d < 1) {
            throw fail(PYG_ERR_INVALID_PARAMETER, "positions can be divided by 1 or more, not by %d", d);
        }
        llama_memory_seq_div(memory, seq_id, p0, p1, d);
        context.edit_pending = true;
    });
}

pyg_status pyg_context_seq_pos(pyg_context * ctx, int32_t seq_id, int32_t * pos_min, int32_t * pos_max,
                               pyg_error * err) {
    return with_sequence(ctx, seq_id, err, [&](const Context &, llama_memory_t memory) {
        *pos_min = llama_memory_seq_pos_min(memory, seq_id);
        *pos_max = llama_memory_seq_pos_max(memory, seq_id);
    });
}
