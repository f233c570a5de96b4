// The batch of a step.
#include "engine/engine.hpp"

#include <algorithm>

namespace {

// The sequences of a batch of streams: those that decode, and fillers, which have no request. Upstream computes only
// consecutive sequences in one micro-batch, so a gap would cost another pass over all weights. And a batch whose size
// changes with each request that ends cannot reuse its graph: more than ROWS rows are rounded up to a multiple, which
// takes no longer than the rows that it has.
class Rows {
  public:
    explicit Rows(const pyg::Scheduler & scheduler) : scheduler_(scheduler) {}

    const std::vector<int32_t> & fillers() const { return fillers_; }  // in ascending order

    // Add a sequence that decodes, after those with smaller numbers, and fill the gap before it.
    void add(int32_t seq_id) {
        if (n_decodes_ == 0) {
            first_ = seq_id;
        } else {
            fill(last_ + 1, seq_id);
        }
        last_ = seq_id;
        n_decodes_++;
    }

    void round_up() {
        if (n_rows() <= ROWS) {
            return;
        }
        while (n_rows() % ROWS != 0 && last_ + 1 < scheduler_.n_slots() && is_usable(last_ + 1)) {
            fillers_.push_back(++last_);
        }
        while (n_rows() % ROWS != 0 && first_ > 0 && is_usable(first_ - 1)) {
            fillers_.insert(fillers_.begin(), --first_);
        }
    }

  private:
    static constexpr int32_t ROWS = 8, MAX_GAP = 16;

    int32_t n_rows() const { return n_decodes_ + static_cast<int32_t>(fillers_.size()); }

    bool is_usable(int32_t seq_id) const {
        return !scheduler_.is_running(seq_id) && scheduler_.n_cells_of(seq_id) < scheduler_.n_per_stream();
    }

    // Fill the gap [begin, end), wholly or not at all.
    void fill(int32_t begin, int32_t end) {
        if (end - begin > MAX_GAP) {
            return;
        }
        for (int32_t seq_id = begin; seq_id < end; seq_id++) {
            if (!is_usable(seq_id)) {
                return;
            }
        }
        for (int32_t seq_id = begin; seq_id < end; seq_id++) {
            fillers_.push_back(seq_id);
        }
    }

    const pyg::Scheduler & scheduler_;
    std::vector<int32_t>   fillers_;
    int32_t                n_decodes_ = 0;
    int32_t                first_ = 0, last_ = 0;
};

std::vector<int32_t> fillers_of(const pyg::Step & step, const pyg::Scheduler & scheduler, uint32_t n_batch) {
    const auto is_prefill = [](const pyg::Slice & slice) { return slice.n > 1; };
    const auto prefill    = std::find_if(step.slices.begin(), step.slices.end(), is_prefill);
    Rows       rows(scheduler);
    std::for_each(step.slices.begin(), prefill, [&](const pyg::Slice & slice) { rows.add(slice.task->seq_id); });
    if (prefill == step.slices.end()) {
        rows.round_up();
    }
    return step.n_tokens + rows.fillers().size() <= n_batch ? rows.fillers() : std::vector<int32_t>();
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
    for (size_t i = 0; i < task.guesses.size(); i++) {
        batch_.add(task.guesses[i], static_cast<llama_pos>(last + 1 + i), &task.seq_id, true);
    }
    n_rows_ += task.guesses.size();
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
