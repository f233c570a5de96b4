// KV cells in upstream's caches: their positions, for our attention kernel (csrc/kernels/), and their layout.
#include "boundary/handles.hpp"
#include "llama-context.h"
#include "llama-kv-cache-iswa.h"
#include "llama-kv-cache.h"
#include "llama-memory-hybrid-iswa.h"
#include "llama-memory-hybrid.h"

namespace {

const llama_kv_cells & cells_of(const void * cache, int64_t stream) {
    // Without shared cells, sequences and streams have the same numbers.
    return static_cast<const llama_kv_cache *>(cache)->get_cells(static_cast<llama_seq_id>(stream));
}

// Cells with the same position belong to an image, in row-major order.
int64_t key_of(const llama_kv_cells & cells, int32_t cell) {
    const llama_kv_cell_ext & place = cells.ext_get(cell);
    return int64_t(cells.pos_get(cell)) * (int64_t(1) << 32) + (int64_t(place.y & 0xFFFF) << 16) + (place.x & 0xFFFF);
}

void write_keys(const void * cache, int64_t stream, const int32_t * listed, int64_t n, int64_t * keys) {
    const llama_kv_cells & cells = cells_of(cache, stream);
    for (int64_t i = 0; i < n; ++i) {
        keys[i] = key_of(cells, listed[i]);
    }
}

int are_in_order(const void * cache, int64_t stream, const int32_t * listed, int64_t n) {
    const llama_kv_cells & cells  = cells_of(cache, stream);
    llama_pos              before = cells.pos_get(listed[0]);
    for (int64_t i = 1; i < n; ++i) {
        const llama_pos position = cells.pos_get(listed[i]);
        if (position <= before && key_of(cells, listed[i]) < key_of(cells, listed[i - 1])) {
            return 0;
        }
        before = position;
    }
    return 1;
}

int32_t sequence_of(const void * cache, int64_t cell) {
    const int64_t n_per_stream = static_cast<const llama_kv_cache *>(cache)->get_size();
    return cells_of(cache, cell / n_per_stream).seq_get(static_cast<uint32_t>(cell % n_per_stream));
}

std::vector<const llama_kv_cache *> caches_of(llama_memory_t memory) {
    if (const auto * const hybrid = dynamic_cast<const llama_memory_hybrid *>(memory)) {
        return {hybrid->get_mem_attn()};
    }
    if (const auto * const hybrid = dynamic_cast<const llama_memory_hybrid_iswa *>(memory)) {
        memory = hybrid->get_mem_attn();
    }
    if (const auto * const two = dynamic_cast<const llama_kv_cache_iswa *>(memory)) {
        return {two->get_base(), two->get_swa()};
    }
    if (const auto * const one = dynamic_cast<const llama_kv_cache *>(memory)) {
        return {one};
    }
    return {};
}

bool is_on_cpu(const ggml_tensor * tensor) {
    return tensor->buffer && ggml_backend_buffer_get_type(tensor->buffer) == ggml_backend_cpu_buffer_type();
}

}  // namespace

uint32_t pyg::n_cell_runs(llama_context * context, int32_t seq_id) {
    uint32_t n = 0;
    for (const llama_kv_cache * const cache : caches_of(llama_get_memory(context))) {
        const llama_kv_cells & cells  = cache->get_cells(seq_id);
        bool                   before = false;
        for (uint32_t i = 0; i < cells.size(); i++) {
            const bool now = cells.seq_has(i, seq_id);
            n += now && !before;
            before = now;
        }
    }
    return n;
}

void pyg::finish_stream_copies(llama_context * context) { context->memory_update(/*optimize=*/false); }

std::vector<pyg_positions> pyg::attach_cell_positions(llama_context * context) {
    const std::vector<const llama_kv_cache *> caches = caches_of(llama_get_memory(context));
    std::vector<pyg_positions>                positions;
    positions.reserve(caches.size());  // tensors point into it
    for (const llama_kv_cache * const cache : caches) {
        positions.push_back({PYG_POSITIONS_MAGIC, write_keys, are_in_order, cache, sequence_of});
        for (const uint32_t layer : cache->get_layer_ids()) {
            ggml_tensor * const keys = cache->get_k_storage(static_cast<int32_t>(layer));
            if (is_on_cpu(keys)) {
                keys->extra = &positions.back();
            }
        }
    }
    return positions;
}
