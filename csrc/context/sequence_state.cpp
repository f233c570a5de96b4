// Saving and restoring the state of sequences and of whole contexts.
#include "boundary/engine_messages.hpp"
#include "context/fingerprint.hpp"

#include <cstring>

namespace {

using pyg::ALL_SEQUENCES;
using pyg::Context;
using pyg::fail;

// Header before upstream's bytes, which upstream barely validates: a damaged count could allocate any amount. In native
// byte order: states are for this machine.
struct StateHeader {
    char     magic[8];
    uint64_t scope;     // WHOLE or ONE_SEQUENCE
    uint64_t model;     // the model's fingerprint
    uint64_t size;      // bytes that follow
    uint64_t checksum;  // of those bytes
};

constexpr char     STATE_MAGIC[8] = {'p', 'y', 'g', 's', 't', 'a', 't', '1'};
constexpr uint64_t WHOLE = 0, ONE_SEQUENCE = 1;

uint64_t scope_of(int32_t seq_id) { return seq_id == ALL_SEQUENCES ? WHOLE : ONE_SEQUENCE; }

// Upstream returns 0 for a failure.
size_t done(size_t n_bytes, pyg_code otherwise, const char * what) {
    if (n_bytes > 0) {
        return n_bytes;
    }
    const std::string messages = pyg::engine_error_text();
    pyg::throw_if_out_of_memory("a context's state", messages);
    throw fail(otherwise, "%s: %s", what, messages.c_str());
}

size_t engine_size(const Context & context, int32_t seq_id) {
    return done(seq_id == ALL_SEQUENCES ? llama_state_get_size(context.raw)
                                        : llama_state_seq_get_size(context.raw, seq_id),
                PYG_ERR_ENGINE, "the engine could not tell the size of the state");
}

void require_no_edits(const Context & context) {
    if (context.edit_pending) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "the next decode has to carry out earlier edits of sequences: decode a "
                                              "batch before saving or restoring a state");
    }
}

void require_state(const Context & context, int32_t seq_id) {
    context.require_memory();
    if (seq_id != ALL_SEQUENCES) {
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
    if (header.size != size - sizeof(header) || header.checksum != pyg::checksum(src + sizeof(header), header.size)) {
        throw fail(PYG_ERR_INVALID_PARAMETER,
                   "the state is damaged or incomplete: %zu bytes were given, %llu were saved", size,
                   static_cast<unsigned long long>(header.size) + sizeof(header));
    }
    if (header.scope != scope_of(seq_id)) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "the state holds %s, but %s was to be restored",
                   header.scope == WHOLE ? "a whole context" : "one sequence",
                   seq_id == ALL_SEQUENCES ? "a whole context" : "one sequence");
    }
    if (header.model != pyg::metadata_fingerprint(*context.model)) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "the state was saved with a model other than %s",
                   context.model->path.c_str());
    }
    return header;
}

}  // namespace

pyg_status pyg_context_state_size(pyg_context * ctx, int32_t seq_id, size_t * out, pyg_error * err) {
    return pyg::with(ctx, err, [&](const Context & context) {
        require_state(context, seq_id);
        *out = sizeof(StateHeader) + engine_size(context, seq_id);
    });
}

pyg_status pyg_context_state_get(pyg_context * ctx, int32_t seq_id, void * dst, size_t size, size_t * written,
                                 pyg_error * err) {
    return pyg::with(ctx, err, [&](const Context & context) {
        require_state(context, seq_id);
        const size_t needed = sizeof(StateHeader) + engine_size(context, seq_id);
        if (size < needed) {
            throw fail(PYG_ERR_INVALID_PARAMETER, "the buffer has %zu bytes, but the state takes %zu", size, needed);
        }
        auto *       body      = static_cast<uint8_t *>(dst) + sizeof(StateHeader);
        const size_t body_size = needed - sizeof(StateHeader);
        const size_t n = seq_id == ALL_SEQUENCES ? llama_state_get_data(context.raw, body, body_size)
                                                 : llama_state_seq_get_data(context.raw, body, body_size, seq_id);
        pyg::require_hosts(context.model->hosts);
        done(n, PYG_ERR_ENGINE, "the engine could not save the state");
        StateHeader header = {
            {}, scope_of(seq_id), pyg::metadata_fingerprint(*context.model), n, pyg::checksum(body, n)};
        std::memcpy(header.magic, STATE_MAGIC, sizeof(STATE_MAGIC));
        std::memcpy(dst, &header, sizeof(header));
        *written = sizeof(StateHeader) + n;
    });
}

pyg_status pyg_context_state_set(pyg_context * ctx, int32_t seq_id, const void * src, size_t size, pyg_error * err) {
    return pyg::with(ctx, err, [&](Context & context) {
        require_state(context, seq_id);
        const auto *      bytes  = static_cast<const uint8_t *>(src);
        const StateHeader header = checked_header(context, seq_id, bytes, size);
        const uint8_t *   body   = bytes + sizeof(header);
        context.n_outputs        = 0;
        const size_t n = seq_id == ALL_SEQUENCES ? llama_state_set_data(context.raw, body, header.size)
                                                 : llama_state_seq_set_data(context.raw, body, header.size, seq_id);
        pyg::require_hosts(context.model->hosts);
        if (n == 0 && seq_id == ALL_SEQUENCES) {
            llama_memory_clear(llama_get_memory(context.raw), true);
        } else if (n == 0) {
            llama_memory_seq_rm(llama_get_memory(context.raw), seq_id, -1, -1);
        }
        done(n, PYG_ERR_INVALID_PARAMETER, "the state does not fit this context");
    });
}
