#include "engine/context_kv_cache.hpp"

#include <algorithm>

namespace pyg {

ContextKvCache::ContextKvCache(const Context & context)
    : memory_(llama_get_memory(context.raw)), n_swa_(llama_model_n_swa(context.model->raw)),
      is_recurrent_(llama_model_is_recurrent(context.model->raw) || llama_model_is_hybrid(context.model->raw)),
      rewinds_(n_swa_ == 0 && !is_recurrent_) {}

bool ContextKvCache::can_truncate_to(int32_t seq_id, uint32_t n) const {
    if (rewinds_) {
        return true;
    }
    const auto n_keep = static_cast<llama_pos>(n);
    if (is_recurrent_ && llama_memory_seq_pos_max(memory_, seq_id) != n_keep - 1) {
        return false;
    }
    // The next position attends to the whole window, so all of its cells must still be there.
    return llama_memory_seq_pos_min(memory_, seq_id) <= std::max(0, n_keep - n_swa_);
}

void ContextKvCache::truncate(int32_t seq_id, uint32_t n) {
    if (!llama_memory_seq_rm(memory_, seq_id, static_cast<llama_pos>(n), -1)) {
        throw fail(PYG_ERR_ENGINE, "the engine could not truncate sequence %d to %u tokens", seq_id, n);
    }
}

void ContextKvCache::clear() { llama_memory_clear(memory_, /*data=*/false); }

void ContextKvCache::share(int32_t from, int32_t to, uint32_t n) {
    llama_memory_seq_cp(memory_, from, to, 0, static_cast<llama_pos>(n));
}

}  // namespace pyg
