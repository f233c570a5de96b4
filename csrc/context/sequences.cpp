// A context's memory: edits of sequences, and saving and restoring states.
#include "boundary/engine_messages.hpp"
#include "boundary/handles.hpp"
#include "boundary/out_of_memory.hpp"

#include <climits>
#include <cstring>

namespace {

using pyg::Context;
using pyg::fail;

constexpr int32_t EVERY = -1;  // sequence

llama_memory_t require_memory_of(const Context & context) {
    const llama_memory_t memory = llama_get_memory(context.raw);
    if (!memory) {
        throw fail(PYG_ERR_INVALID_PARAMETER,
                   "this model keeps no memory between batches, so it has no sequences to work on");
    }
    return memory;
}

void require_shift(llama_memory_t memory) {
    if (!llama_memory_can_shift(memory)) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "this context's memory cannot move positions (can_shift is false)");
    }
}

bool recurrent(const Context & context) {
    return llama_model_is_recurrent(context.model->raw) || llama_model_is_hybrid(context.model->raw);
}

bool is_whole(llama_memory_t memory, int32_t seq_id, int32_t p0, int32_t p1) {
    return p0 <= 0 && (p1 < 0 || p1 > llama_memory_seq_pos_max(memory, seq_id));
}

void require_no_edits(const Context & context) {
    if (context.edit_pending) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "the next decode has to carry out earlier edits of sequences: decode a "
                                              "batch before saving or restoring a state");
    }
}

}  // namespace

pyg_status pyg_context_memory_clear(pyg_context * ctx, bool data, pyg_error * err) {
    return pyg::with(ctx, err, [&](pyg_context & handle) {
        Context & context = *handle.context;
        llama_memory_clear(require_memory_of(context), data);
        // Upstream queues copies between separate buffers; clearing drops moved positions with their cells.
        context.edit_pending = context.edit_pending && !context.shares_cells();
    });
}

pyg_status pyg_context_seq_rm(pyg_context * ctx, int32_t seq_id, int32_t p0, int32_t p1, bool * removed,
                              pyg_error * err) {
    return pyg::with(ctx, err, [&](pyg_context & handle) {
        const llama_memory_t memory = require_memory_of(*handle.context);
        if (seq_id != EVERY) {
            handle.context->require_seq(seq_id);
        }
        if (seq_id == EVERY && p0 <= 0 && p1 < 0) {
            llama_memory_clear(memory, false);  // not every memory accepts -1
            *removed = true;
            return;
        }
        *removed = llama_memory_seq_rm(memory, seq_id, p0, p1);
    });
}

pyg_status pyg_context_seq_cp(pyg_context * ctx, int32_t src, int32_t dst, int32_t p0, int32_t p1, pyg_error * err) {
    return pyg::with(ctx, err, [&](pyg_context & handle) {
        Context &            context = *handle.context;
        const llama_memory_t memory  = require_memory_of(context);
        context.require_seq(src);
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
    return pyg::with(ctx, err, [&](pyg_context & handle) {
        const Context &      context = *handle.context;
        const llama_memory_t memory  = require_memory_of(context);
        context.require_seq(seq_id);
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
    return pyg::with(ctx, err, [&](pyg_context & handle) {
        Context &            context = *handle.context;
        const llama_memory_t memory  = require_memory_of(context);
        context.require_seq(seq_id);
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
    return pyg::with(ctx, err, [&](pyg_context & handle) {
        Context &            context = *handle.context;
        const llama_memory_t memory  = require_memory_of(context);
        context.require_seq(seq_id);
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
    return pyg::with(ctx, err, [&](pyg_context & handle) {
        const llama_memory_t memory = require_memory_of(*handle.context);
        handle.context->require_seq(seq_id);
        *pos_min = llama_memory_seq_pos_min(memory, seq_id);
        *pos_max = llama_memory_seq_pos_max(memory, seq_id);
    });
}

// ---------------------------------------------------------------------------------------------------------
// States
// ---------------------------------------------------------------------------------------------------------

namespace {

// Precedes upstream's bytes, which upstream barely checks: a damaged count could allocate any amount. In native byte
// order: states are for this machine.
struct StateHeader {
    char     magic[8];
    uint64_t scope;     // WHOLE or ONE_SEQUENCE
    uint64_t model;     // the model's fingerprint
    uint64_t size;      // bytes that follow
    uint64_t checksum;  // of those
};

constexpr char     STATE_MAGIC[8] = {'p', 'y', 'g', 's', 't', 'a', 't', '1'};
constexpr uint64_t WHOLE = 0, ONE_SEQUENCE = 1;

uint64_t scope_of(int32_t seq_id) { return seq_id == EVERY ? WHOLE : ONE_SEQUENCE; }

// FNV-1a over words of eight bytes: detects damage, not malice.
uint64_t checksum(const void * data, size_t size, uint64_t hash = 0xcbf29ce484222325ULL) {
    constexpr uint64_t PRIME = 0x100000001b3ULL;
    const auto *       bytes = static_cast<const unsigned char *>(data);
    size_t             i     = 0;
    for (; i + sizeof(uint64_t) <= size; i += sizeof(uint64_t)) {
        uint64_t word;
        std::memcpy(&word, bytes + i, sizeof(word));
        hash = (hash ^ word) * PRIME;
        hash ^= hash >> 32;
    }
    for (; i < size; i++) {
        hash = (hash ^ bytes[i]) * PRIME;
    }
    return hash;
}

// Metadata and sizes: enough to tell models apart, without reading weights.
uint64_t fingerprint(const pyg::Model & model) {
    const uint64_t sizes[] = {llama_model_n_params(model.raw), llama_model_size(model.raw),
                              static_cast<uint64_t>(model.n_vocab())};
    uint64_t       hash    = checksum(sizes, sizeof(sizes));
    for (int32_t i = 0; i < llama_model_meta_count(model.raw); i++) {
        char key[256] = "", value[256] = "";
        llama_model_meta_key_by_index(model.raw, i, key, sizeof(key));
        llama_model_meta_val_str_by_index(model.raw, i, value, sizeof(value));
        hash = checksum(key, std::strlen(key), hash);
        hash = checksum(value, std::strlen(value), hash);
    }
    return hash;
}

// Upstream answers 0 where something failed.
size_t done(size_t n_bytes, pyg_code otherwise, const char * what) {
    if (n_bytes > 0) {
        return n_bytes;
    }
    const std::string words = pyg::engine_words();
    if (pyg::understood(words).kind == pyg::Complaint::NO_MEMORY) {
        throw pyg::no_memory("a context's state", words);
    }
    throw fail(otherwise, "%s: %s", what, words.c_str());
}

size_t engine_size(const Context & context, int32_t seq_id) {
    return done(seq_id == EVERY ? llama_state_get_size(context.raw) : llama_state_seq_get_size(context.raw, seq_id),
                PYG_ERR_ENGINE, "the engine could not tell the size of the state");
}

void require_state(const Context & context, int32_t seq_id) {
    require_memory_of(context);
    if (seq_id != EVERY) {
        context.require_seq(seq_id);
    }
    require_no_edits(context);
}

StateHeader checked_header(const Context & context, int32_t seq_id, const uint8_t * src, size_t size) {
    StateHeader header;
    if (size < sizeof(header)) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "%zu bytes are too few for a state", size);
    }
    std::memcpy(&header, src, sizeof(header));
    if (std::memcmp(header.magic, STATE_MAGIC, sizeof(STATE_MAGIC)) != 0) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "these bytes are not a state saved by this version of pyggml");
    }
    if (header.size != size - sizeof(header) || header.checksum != checksum(src + sizeof(header), header.size)) {
        throw fail(PYG_ERR_INVALID_PARAMETER,
                   "the state is damaged or incomplete: %zu bytes were given, %llu were saved", size,
                   static_cast<unsigned long long>(header.size) + sizeof(header));
    }
    if (header.scope != scope_of(seq_id)) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "the state holds %s, but %s was to be restored",
                   header.scope == WHOLE ? "a whole context" : "one sequence",
                   seq_id == EVERY ? "a whole context" : "one sequence");
    }
    if (header.model != fingerprint(*context.model)) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "the state was saved with a model other than %s",
                   context.model->path.c_str());
    }
    return header;
}

}  // namespace

pyg_status pyg_context_state_size(pyg_context * ctx, int32_t seq_id, size_t * out, pyg_error * err) {
    return pyg::with(ctx, err, [&](pyg_context & handle) {
        require_state(*handle.context, seq_id);
        *out = sizeof(StateHeader) + engine_size(*handle.context, seq_id);
    });
}

pyg_status pyg_context_state_get(pyg_context * ctx, int32_t seq_id, void * dst, size_t size, size_t * written,
                                 pyg_error * err) {
    return pyg::with(ctx, err, [&](pyg_context & handle) {
        const Context & context = *handle.context;
        require_state(context, seq_id);
        const size_t needed = sizeof(StateHeader) + engine_size(context, seq_id);
        if (size < needed) {
            throw fail(PYG_ERR_INVALID_PARAMETER, "the buffer has %zu bytes, but the state takes %zu", size, needed);
        }
        auto *       body      = static_cast<uint8_t *>(dst) + sizeof(StateHeader);
        const size_t body_size = needed - sizeof(StateHeader);
        const size_t n         = seq_id == EVERY ? llama_state_get_data(context.raw, body, body_size)
                                                 : llama_state_seq_get_data(context.raw, body, body_size, seq_id);
        pyg::require_hosts(context.model->hosts);
        done(n, PYG_ERR_ENGINE, "the engine could not save the state");
        StateHeader header = {{}, scope_of(seq_id), fingerprint(*context.model), n, checksum(body, n)};
        std::memcpy(header.magic, STATE_MAGIC, sizeof(STATE_MAGIC));
        std::memcpy(dst, &header, sizeof(header));
        *written = sizeof(StateHeader) + n;
    });
}

pyg_status pyg_context_state_set(pyg_context * ctx, int32_t seq_id, const void * src, size_t size, pyg_error * err) {
    return pyg::with(ctx, err, [&](pyg_context & handle) {
        Context & context = *handle.context;
        require_state(context, seq_id);
        const auto *      bytes  = static_cast<const uint8_t *>(src);
        const StateHeader header = checked_header(context, seq_id, bytes, size);
        const uint8_t *   body   = bytes + sizeof(header);
        context.n_outputs        = 0;
        const size_t n           = seq_id == EVERY ? llama_state_set_data(context.raw, body, header.size)
                                                   : llama_state_seq_set_data(context.raw, body, header.size, seq_id);
        pyg::require_hosts(context.model->hosts);
        if (n == 0 && seq_id == EVERY) {
            llama_memory_clear(llama_get_memory(context.raw), true);
        } else if (n == 0) {
            llama_memory_seq_rm(llama_get_memory(context.raw), seq_id, -1, -1);
        }
        done(n, PYG_ERR_INVALID_PARAMETER, "the state does not fit this context");
    });
}
