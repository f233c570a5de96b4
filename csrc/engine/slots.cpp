// The slots of the engine, for callers who look at them, save or erase them.
#include "engine/engine.hpp"

#include <utility>

namespace pyg {

std::vector<pyg_slot> Engine::slots() const {
    std::lock_guard<std::mutex> lock(mutex_);
    std::vector<pyg_slot>       slots(n_parallel_);
    for (int32_t seq_id = 0; seq_id < scheduler_.n_slots(); seq_id++) {
        slots[seq_id] = {scheduler_.is_running(seq_id), scheduler_.n_cells_of(seq_id)};
    }
    return slots;
}

std::vector<int32_t> Engine::cached_tokens(uint32_t slot, uint64_t cache_salt) const {
    std::lock_guard<std::mutex> lock(mutex_);
    return cached_tokens_locked(slot, cache_salt);
}

const std::vector<int32_t> & Engine::cached_tokens_locked(uint32_t slot, uint64_t cache_salt) const {
    if (slot >= n_parallel_) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "there is no slot %u; slots are 0 to %u", slot, n_parallel_ - 1);
    }
    const auto seq_id = static_cast<int32_t>(slot);
    if (scheduler_.is_running(seq_id)) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "a request is running in slot %u: wait for its end", slot);
    }
    return scheduler_.cached_tokens(seq_id, cache_salt);
}

size_t Engine::erase_slot(uint32_t slot, uint64_t cache_salt) {
    size_t n = 0;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (n = cached_tokens_locked(slot, cache_salt).size(); n > 0) {
            erased_slots_.push_back(static_cast<int32_t>(slot));
        }
    }
    work_.notify_one();
    return n;
}

// Only the engine's thread changes the KV cache.
void Engine::erase_requested_slots() {
    if (erased_slots_.empty()) {
        return;
    }
    for (const int32_t seq_id : std::exchange(erased_slots_, {})) {
        scheduler_.erase(seq_id);
    }
    count_saved_states();
}

}  // namespace pyg
