// Adapter of a llama_context's memory to the scheduler's KvCache interface.
#pragma once

#include "boundary/handles.hpp"
#include "boundary/log.hpp"
#include "context/forward.hpp"
#include "engine/scheduling/released_lock.hpp"
#include "engine/scheduling/scheduler.hpp"
#include "llama-model.h"

#include <algorithm>

namespace pyg {

class ContextKvCache : public KvCache {
  public:
    // `lock` is released while whole sequences are copied; if it is not null, callers hold it then.
    explicit ContextKvCache(const Context & context, std::mutex * lock = nullptr)
        : context_(context), lock_(lock), n_swa_(llama_model_n_swa(context.model->raw)),
          is_recurrent_(llama_model_is_recurrent(context.model->raw) || llama_model_is_hybrid(context.model->raw)),
          is_chunked_(context.model->raw->hparams.swa_type == LLAMA_SWA_TYPE_CHUNKED),
          rewinds_(n_swa_ == 0 && !is_recurrent_), is_on_device_(device_use_of(context.raw).any_on_device) {}

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
    StateBytes save(int32_t seq_id) const override { return copied(seq_id, LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY); }

    bool restore(int32_t seq_id, uint32_t n, const StateBytes & state) override {
        LogBuffer  log;  // upstream logs an error if there are too few cells
        const bool restored = set(seq_id, state, LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY) &&
                              llama_memory_seq_rm(memory(), seq_id, static_cast<llama_pos>(n), -1) &&
                              can_truncate_to(seq_id, n);
        if (!restored) {
            log.drop();
        }
        return restored;
    }

    // A device copies each run of consecutive cells by itself, for each layer: with many of them that takes longer than
    // computing the tokens again.
    size_t snapshot_size(int32_t seq_id) const override {
        constexpr uint32_t MAX_RUNS_ON_DEVICE = 16;
        if (is_on_device_ && n_cell_runs(context_.raw, seq_id) > MAX_RUNS_ON_DEVICE) {
            return 0;
        }
        return llama_state_seq_get_size_ext(context_.raw, seq_id, LLAMA_STATE_SEQ_FLAGS_NONE);
    }

    StateBytes take_snapshot(int32_t seq_id) override {
        const ReleasedLock released(lock_);
        finish_shares();
        return copied(seq_id, LLAMA_STATE_SEQ_FLAGS_NONE);
    }

    bool load_snapshot(int32_t seq_id, uint32_t n, const StateBytes & state) override {
        const ReleasedLock released(lock_);
        LogBuffer          log;  // as in restore
        finish_shares();
        const bool loaded = set(seq_id, state, LLAMA_STATE_SEQ_FLAGS_NONE) &&
                            llama_memory_seq_pos_max(memory(), seq_id) + 1 == static_cast<llama_pos>(n) &&
                            can_truncate_to(seq_id, n);
        if (!loaded) {
            log.drop();
        }
        return loaded;
    }

    void clear() { llama_memory_clear(memory(), /*data=*/false); }

    // True if a sequence can be truncated to any length.
    bool rewinds() const { return rewinds_; }
    // True if the last cells of the last step can be dropped. In a sliding window, the cells that a step takes over are
    // those that its first position no longer sees, so the others do not need them either. At the end of a chunk of
    // attention, all earlier cells may go.
    bool can_drop_last_cells() const { return !is_recurrent_ && !is_chunked_; }

  private:
    llama_memory_t memory() const { return llama_get_memory(context_.raw); }

    // Return the state of a sequence; empty if upstream fails, or the host of a device is lost.
    StateBytes copied(int32_t seq_id, llama_state_seq_flags flags) const {
        StateBytes   state(llama_state_seq_get_size_ext(context_.raw, seq_id, flags));
        const size_t n = llama_state_seq_get_data_ext(context_.raw, state.data(), state.size(), seq_id, flags);
        return n == state.size() && !any_lost(context_.model->hosts) ? std::move(state) : StateBytes();
    }

    bool set(int32_t seq_id, const StateBytes & state, llama_state_seq_flags flags) const {
        return llama_state_seq_set_data_ext(context_.raw, state.data(), state.size(), seq_id, flags) == state.size();
    }

    // Copies between streams are carried out by the next decode, which is too late if a stream is read or overwritten.
    void finish_shares() const {
        if (!context_.shares_cells()) {
            finish_stream_copies(context_.raw);
        }
    }

    const Context & context_;
    std::mutex *    lock_;
    int32_t         n_swa_;
    bool            is_recurrent_;  // fully or partly
    bool            is_chunked_;    // attention
    bool            rewinds_;
    bool            is_on_device_;  // any of its cells may be
};

}  // namespace pyg
