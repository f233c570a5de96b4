// Adapter of a llama_context's memory to the scheduler's KvCache interface.
#pragma once

#include "boundary/handles.hpp"
#include "engine/scheduler.hpp"

namespace pyg {

class ContextKvCache : public KvCache {
  public:
    explicit ContextKvCache(const Context & context);

    bool can_truncate_to(int32_t seq_id, uint32_t n) const override;
    bool can_share_cells() const override { return rewinds_; }
    void truncate(int32_t seq_id, uint32_t n) override;
    void share(int32_t from, int32_t to, uint32_t n) override;

    void clear();

    // True if a sequence can be truncated to any length.
    bool rewinds() const { return rewinds_; }

  private:
    llama_memory_t memory_;
    int32_t        n_swa_;
    bool           is_recurrent_;  // fully or partly
    bool           rewinds_;
};

}  // namespace pyg
