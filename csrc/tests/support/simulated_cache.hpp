// A simulated KV cache without tensors: it tracks the tokens of each sequence and rejects every invalid edit.
#pragma once

#include "engine/scheduling/scheduler.hpp"
#include "tests/support/testing.hpp"

#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

// Hash of a sequence of tokens.
using History = uint64_t;

constexpr History NO_HISTORY = 0;

inline History grown(History history, int32_t token_id) {
    uint64_t x = history * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(token_id) + 1;
    x          = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    return x ^ (x >> 27);
}

// The model's next token after a history: few different ones, so that outputs sometimes share a prefix.
inline int32_t next_token(History history) { return static_cast<int32_t>((history >> 32) % 3); }

class SimulatedCache : public pyg::KvCache {
  public:
    enum class Kind {
        PLAIN,      // rewinds to any length, shares cells
        WINDOW,     // drops cells before the last WINDOW tokens
        RECURRENT,  // one state for all tokens
    };

    static constexpr uint32_t WINDOW = 8;

    SimulatedCache(Kind kind, uint32_t n_cells, int32_t n_seq)
        : kind_(kind), n_cells_(n_cells), sequences_(static_cast<size_t>(n_seq)) {}

    bool can_truncate_to(int32_t seq_id, uint32_t n) const override {
        const Sequence & sequence = of(seq_id);
        CHECK(n > 0 && n <= n_used(seq_id));
        switch (kind_) {
        case Kind::PLAIN:
            return true;
        case Kind::WINDOW:
            return sequence.n_forgotten == 0 || sequence.n_forgotten + WINDOW <= n;
        case Kind::RECURRENT:
            return n == n_used(seq_id) && !sequence.damaged;
        }
        return false;
    }

    bool can_share_cells() const override { return kind_ == Kind::PLAIN; }

    void truncate(int32_t seq_id, uint32_t n) override {
        CHECK(n == 0 || can_truncate_to(seq_id, n));
        Sequence & sequence = of(seq_id);
        n_dropped_ += n_used(seq_id) - n;
        sequence.cells.resize(n);
        if (n == 0) {
            sequence = {};
        }
    }

    void share(int32_t from, int32_t to, uint32_t n) override {
        CHECK(can_share_cells() && from != to && n > 0 && n <= n_used(from) && n_used(to) == 0);
        of(to).cells.assign(of(from).cells.begin(), of(from).cells.begin() + n);
        if (n_per_stream_) {
            for (auto & cell : of(to).cells) {
                cell = std::make_shared<Cell>(cell->history, n_used_);
            }
        }
    }

    // Replace it by an empty one of streams with so many cells each, or by a unified one: 0.
    void replace(uint32_t n_per_stream) {
        CHECK(n_used_ == 0);
        n_per_stream_ = n_per_stream;
    }

    // The length, what cannot be rewound, and the history, to find out whether a state belongs to its sequence.
    pyg::StateBytes save(int32_t seq_id) const override {
        if (kind_ == Kind::PLAIN) {
            return {};
        }
        const Saved     saved = {n_used(seq_id), of(seq_id).n_forgotten, history(seq_id)};
        pyg::StateBytes state(sizeof(saved));
        std::memcpy(state.data(), &saved, sizeof(saved));
        return state;
    }

    bool restore(int32_t seq_id, uint32_t n, const pyg::StateBytes & state) override {
        Saved saved;
        CHECK(state.size() == sizeof(saved));
        std::memcpy(&saved, state.data(), sizeof(saved));
        CHECK(saved.n == n && n <= n_used(seq_id) && saved.history == history(seq_id, n));
        if (restores_fail_ > 0) {
            restores_fail_--;
            of(seq_id).damaged = true;
            return false;
        }
        Sequence & sequence  = of(seq_id);
        sequence.n_forgotten = saved.n_forgotten;
        sequence.damaged     = false;
        n_dropped_ += n_used(seq_id) - n;
        sequence.cells.resize(n);
        return true;
    }

    // The history after each token, and what cannot be rewound. As in real caches, a window is all that a snapshot has.
    size_t snapshot_size(int32_t seq_id) const override {
        return snapshots_fail_ ? 0 : sizeof(Saved) + n_used(seq_id) * sizeof(History);
    }

    pyg::StateBytes take_snapshot(int32_t seq_id) override {
        const uint32_t n = n_used(seq_id);
        CHECK(!of(seq_id).damaged && n > 0);
        Saved saved = {n, of(seq_id).n_forgotten, history(seq_id)};
        if (kind_ == Kind::WINDOW && n > WINDOW) {
            saved.n_forgotten = n - WINDOW;
        }
        pyg::StateBytes state(sizeof(saved) + n * sizeof(History));
        std::memcpy(state.data(), &saved, sizeof(saved));
        for (uint32_t i = 0; i < n; i++) {
            const History each = history(seq_id, i + 1);
            std::memcpy(state.data() + sizeof(saved) + i * sizeof(each), &each, sizeof(each));
        }
        n_snapshots_taken_++;
        meanwhile();
        return state;
    }

    bool load_snapshot(int32_t seq_id, uint32_t n, const pyg::StateBytes & state) override {
        Saved saved;
        std::memcpy(&saved, state.data(), sizeof(saved));
        meanwhile();
        CHECK(saved.n == n && n_used(seq_id) == 0 && state.size() == sizeof(saved) + n * sizeof(History));
        Sequence & sequence = of(seq_id);
        for (uint32_t i = 0; i < n; i++) {
            History each;
            std::memcpy(&each, state.data() + sizeof(saved) + i * sizeof(each), sizeof(each));
            sequence.cells.push_back(std::make_shared<Cell>(each, n_used_));
        }
        CHECK(n_used_ <= n_cells_ && (n_per_stream_ == 0 || n <= n_per_stream_));
        sequence.n_forgotten = saved.n_forgotten;
        if (restores_fail_ > 0) {
            restores_fail_--;
            sequence.damaged = true;
            return false;
        }
        return true;
    }

    // Called while a snapshot is taken or loaded.
    std::function<void()> meanwhile = [] {};

    void     fail_snapshots(bool fail) { snapshots_fail_ = fail; }
    uint32_t n_snapshots_taken() const { return n_snapshots_taken_; }

    void fail_restores(uint32_t n) { restores_fail_ = n; }

    // Compute one token.
    void compute(int32_t seq_id, int32_t token_id) {
        Sequence & sequence = of(seq_id);
        CHECK(!sequence.damaged);
        sequence.cells.push_back(std::make_shared<Cell>(grown(history(seq_id), token_id), n_used_));
        if (kind_ == Kind::WINDOW && n_used(seq_id) % 3 == 0 && n_used(seq_id) > WINDOW) {
            sequence.n_forgotten = n_used(seq_id) - WINDOW;  // not at once, as in real caches
        }
        CHECK(n_used_ <= n_cells_ && (n_per_stream_ == 0 || n_used(seq_id) <= n_per_stream_));
    }

    // An abort during a step: the state is neither the old nor the new one.
    void damage(int32_t seq_id) { of(seq_id).damaged = kind_ == Kind::RECURRENT; }

    uint32_t n_used(int32_t seq_id) const { return static_cast<uint32_t>(of(seq_id).cells.size()); }

    History history(int32_t seq_id) const { return history(seq_id, n_used(seq_id)); }
    History history(int32_t seq_id, uint32_t n) const { return n == 0 ? NO_HISTORY : of(seq_id).cells[n - 1]->history; }

    // Cells in use, each counted once: all, or those of some sequences.
    uint32_t n_used() const { return n_used_; }
    uint32_t n_used_by(const std::vector<int32_t> & seq_ids) const {
        n_counts_++;
        uint32_t n = 0;
        for (const int32_t seq_id : seq_ids) {
            for (const auto & cell : of(seq_id).cells) {
                n += cell->counted != n_counts_;
                cell->counted = n_counts_;
            }
        }
        return n;
    }

    // Tokens removed from sequences so far.
    uint64_t n_dropped() const { return n_dropped_; }

  private:
    // Free when no sequence holds it any more.
    struct Cell {
        const History history;
        uint64_t      counted = 0;
        uint32_t &    n_used;

        Cell(History until_here, uint32_t & used) : history(until_here), n_used(used) { n_used++; }
        ~Cell() { n_used--; }
        Cell(const Cell &)             = delete;
        Cell & operator=(const Cell &) = delete;
    };
    struct Sequence {
        std::vector<std::shared_ptr<Cell>> cells;
        uint32_t                           n_forgotten = 0;
        bool                               damaged     = false;
    };

    struct Saved {
        uint32_t n, n_forgotten;
        History  history;
    };

    const Sequence & of(int32_t seq_id) const {
        CHECK(seq_id >= 0 && seq_id < static_cast<int32_t>(sequences_.size()));
        return sequences_[static_cast<size_t>(seq_id)];
    }
    Sequence & of(int32_t seq_id) { return const_cast<Sequence &>(std::as_const(*this).of(seq_id)); }

    const Kind            kind_;
    const uint32_t        n_cells_;
    uint32_t              n_per_stream_ = 0;  // 0: sequences share all cells
    uint32_t              n_used_       = 0;  // outlives the cells, which count themselves
    std::vector<Sequence> sequences_;
    uint64_t              n_dropped_         = 0;
    uint32_t              restores_fail_     = 0;
    bool                  snapshots_fail_    = false;
    uint32_t              n_snapshots_taken_ = 0;
    mutable uint64_t      n_counts_          = 0;
};
