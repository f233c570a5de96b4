// The batch of a step.
#include "engine/engine.hpp"

#include <algorithm>

namespace {

// Sequences without a request that get a token in a batch of streams, in ascending order. Upstream computes only
// consecutive sequences in one micro-batch, so that a gap would cost another pass over all weights. And a batch whose
// size changes with each request that ends cannot reuse its graph: more than ROWS rows are rounded up to a multiple,
// which takes no longer than the rows that it has.
std::vector<int32_t> fillers_of(const pyg::Step & step, const pyg::Scheduler & scheduler, uint32_t n_batch) {
    constexpr int32_t    ROWS = 8, MAX_GAP = 16;
    std::vector<int32_t> fillers;
    int32_t              first = -1, last = -1, n_decodes = 0;
    const auto           is_usable = [&](int32_t seq_id) {
        return !scheduler.is_running(seq_id) && scheduler.n_cells_of(seq_id) < scheduler.n_per_stream();
    };
    const auto n_rows = [&] { return n_decodes + static_cast<int32_t>(fillers.size()); };
    for (const pyg::Slice & slice : step.slices) {
        if (slice.n > 1) {
            break;
        }
        const int32_t seq_id = slice.task->seq_id;
        if (last >= 0 && seq_id - last - 1 <= MAX_GAP) {
            const size_t before = fillers.size();
            for (int32_t gap = last + 1; gap < seq_id; gap++) {
                fillers.push_back(gap);
            }
            if (!std::all_of(fillers.begin() + static_cast<std::ptrdiff_t>(before), fillers.end(), is_usable)) {
                fillers.resize(before);
            }
        }
        first = first < 0 ? seq_id : first;
        last  = seq_id;
        n_decodes++;
    }
    const bool only_decodes = n_decodes == static_cast<int32_t>(step.slices.size());
    if (only_decodes && n_rows() > ROWS) {
        while (n_rows() % ROWS != 0 && last + 1 < scheduler.n_slots() && is_usable(last + 1)) {
            fillers.push_back(++last);
        }
        while (n_rows() % ROWS != 0 && first > 0 && is_usable(first - 1)) {
            fillers.insert(fillers.begin(), --first);
        }
    }
    return step.n_tokens + fillers.size() <= n_batch ? fillers : std::vector<int32_t>();
}

}  // namespace

namespace pyg {

llama_batch Engine::batch_of(const Step & step) {
    batch_.clear();
    rows_.clear();
    n_rows_ = 0;
    fillers_ =
        scheduler_.n_per_stream() ? fillers_of(step, scheduler_, llama_n_batch(context_->raw)) : std::vector<int32_t>();
    auto filler = fillers_.begin();
    for (const Slice & slice : step.slices) {
        for (; slice.n == 1 && filler != fillers_.end() && *filler < slice.task->seq_id; ++filler) {
            add_filler(*filler);
        }
        add_slice(slice);
    }
    for (; filler != fillers_.end(); ++filler) {
        add_filler(*filler);
    }
    return batch_.raw();
}

void Engine::add_slice(const Slice & slice) {
    Task &         task = *slice.task;
    const uint32_t last = slice.first + slice.n - 1;
    for (uint32_t i = slice.first; i <= last; i++) {
        const bool has_output = task.needs_all_logits || (i == last && slice.reaches_end());
        batch_.add(task.tokens[i], static_cast<llama_pos>(i), &task.seq_id, has_output);
        n_rows_ += has_output;
    }
    rows_.push_back(batch_.n_tokens() - 1);
}

// Add a token after those that are cached in a slot; remove_fillers drops its cell.
void Engine::add_filler(int32_t & seq_id) {
    constexpr llama_token ANY = 0;
    batch_.add(ANY, static_cast<llama_pos>(scheduler_.n_cells_of(seq_id)), &seq_id, false);
}

void Engine::remove_fillers() {
    for (const int32_t seq_id : fillers_) {
        cache_.truncate(seq_id, scheduler_.n_cells_of(seq_id));
    }
    fillers_.clear();
}

}  // namespace pyg
