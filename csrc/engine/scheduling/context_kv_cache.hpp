// Adapter of a llama_context's memory to the scheduler's KvCache interface.
#pragma once

#include "boundary/handles.hpp"
#include "boundary/log.hpp"
#include "engine/scheduling/scheduler.hpp"

#include <algorithm>

namespace pyg {

class ContextKvCache : public KvCache {
  public:
    explicit ContextKvCache(const Context & context)
        : context_(context), n_swa_(llama_model_n_swa(context.model->raw)),
          is_recurrent_(llama_model_is_recurrent(context.model->raw) || llama_model_is_hybrid(context.model->raw)),
          rewinds_(n_swa_ == 0 && !is_recurrent_) {}

    bool can_truncate_to(int32_t seq_id, uint32_t n) const override {
        if (rewinds_) {
            return true;
        }
        const auto n_keep = static_cast<llama_pos>(n);
        if (is_recurrent_ && llama_memory_seq_pos_max(memory(), seq_id) != n_keep - 1) {
            return false;
        }
        // The next position attends to the whole window, so all of its cells must still be there.
        return llama_memory_seq_pos_min(memory(), seq_id) <= std::max(0, n_keep - n_swa_);
    }

    void truncate(int32_t seq_id, uint32_t n) override {
        if (!llama_memory_seq_rm(memory(), seq_id, static_cast<llama_pos>(n), -1)) {
            throw fail(PYG_ERR_ENGINE, "the engine could not truncate sequence %d to %u tokens", seq_id, n);
        }
    }

    bool can_share_cells() const override { return rewinds_; }
    void share(int32_t from, int32_t to, uint32_t n) override {
        if (context_.shares_cells()) {
            llama_memory_seq_cp(memory(), from, to, 0, static_cast<llama_pos>(n));
            return;
        }
        llama_memory_seq_cp(memory(), from, to, -1, -1);  // copied on the device by the next decode
        truncate(to, n);
    }

    // Only what cannot be rewound: the states of recurrent layers, the cells of layers with a sliding window.
    std::vector<uint8_t> save(int32_t seq_id) const override {
        constexpr llama_state_seq_flags PARTIAL = LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY;
        std::vector<uint8_t>            state(llama_state_seq_get_size_ext(context_.raw, seq_id, PARTIAL));
        state.resize(llama_state_seq_get_data_ext(context_.raw, state.data(), state.size(), seq_id, PARTIAL));
        return state;
    }

    bool restore(int32_t seq_id, uint32_t n, const std::vector<uint8_t> & state) override {
        LogBuffer  log;  // upstream logs an error if there are too few cells
        const bool restored = llama_state_seq_set_data_ext(context_.raw, state.data(), state.size(), seq_id,
                                                           LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY) == state.size() &&
                              llama_memory_seq_rm(memory(), seq_id, static_cast<llama_pos>(n), -1) &&
                              can_truncate_to(seq_id, n);
        if (!restored) {
            log.drop();
        }
        return restored;
    }

    void clear() { llama_memory_clear(memory(), /*data=*/false); }

    // True if a sequence can be truncated to any length.
    bool rewinds() const { return rewinds_; }

  private:
    llama_memory_t memory() const { return llama_get_memory(context_.raw); }

    const Context & context_;
    int32_t         n_swa_;
    bool            is_recurrent_;  // fully or partly
    bool            rewinds_;
};

}  // namespace pyg
