// A small model that guesses the next tokens of a larger one, of several requests in one forward pass.
//
// Its context has a sequence for each slot of the engine. What their cells hold is compared with the tokens of the
// requests whenever these are guessed for: what differs is dropped, and what is missing is computed. So nothing has to
// be told of cancelled, preempted or shifted requests, nor of the prefix cache, and right guesses need not be computed
// again.
#pragma once

#include "context/forward.hpp"
#include "engine/proposers/drafted_tokens.hpp"
#include "engine/proposers/vocab_map.hpp"
#include "engine/scheduling/context_kv_cache.hpp"
#include "engine/speculation/column_costs.hpp"
#include "sampling/logprobs.hpp"

#include <functional>
#include <memory>
#include <vector>

namespace pyg {

// Used by the engine's thread only.
class DraftModel : NonCopyable {
  public:
    // A request's share of the guesses of a step.
    struct Job {
        int32_t                      seq_id;
        uint64_t                     cache_salt;  // cells are reused for the same one only
        const std::vector<int32_t> * tokens;
        size_t                       n_max;  // guesses
        Proposal                     proposal;
    };
    // Called after each guess: return true if the job, by its index, should get another, which takes a share of a
    // forward pass of `seconds`.
    using ShouldContinue = std::function<bool(size_t job, double seconds)>;

    // PYG_ERR_INVALID_PARAMETER as pyg_engine_options.draft.
    DraftModel(std::shared_ptr<Context> context, const Context & of_model);
    ~DraftModel();  // gives the context its own threads back

    Context &                    context() { return *context_; }
    std::shared_ptr<DraftRecord> record() const { return record_; }

    // Compute with the threads of `owner`, since threads of two pools would wait for each other's cores. Call it again
    // whenever their number changes.
    void share_threads(Context & owner);

    // Seconds that a request takes of a forward pass in which `n` of them get a token; 0: it has not been measured.
    double seconds_of_pass(size_t n) const;
    // Seconds to read the tokens of a job that its sequence has no cells for, as far as that is known.
    double seconds_to_read(const Job & job) const;

    // Guess for several requests. A job gets no guesses if its tokens were not all read, which takes at most
    // `max_seconds` of a step, or if there was no memory or no cell. Throws if the model cannot be used any more.
    void draft(std::vector<Job> & jobs, double max_seconds, const ShouldContinue & should_continue);

    // Drop all cells, as after std::bad_alloc.
    void evict_all();

  private:
    // What the cells of a sequence hold.
    struct Cells {
        std::vector<int32_t>  tokens;          // of the model
        std::vector<uint32_t> ends;            // positions after each, in tokens of the draft
        size_t                n_computed = 0;  // the others are in the batch
        uint64_t              cache_salt = 0;

        uint32_t n_past() const { return ends.empty() ? 0 : ends.back(); }
    };
    struct Row {
        size_t  job;
        int32_t index;  // in the batch
    };

    Cells & cells_of(const Job & job) { return cells_[static_cast<size_t>(job.seq_id)]; }
    void    attach_threads(Context & owner, int32_t n, int32_t n_batch);
    size_t  n_common(int32_t seq_id, const Job & job) const;
    void    truncate(int32_t seq_id, size_t n_tokens);
    void    share_prefix(const Job & job);
    bool    fits(const Job & job) const;
    int32_t read(const Job & job, size_t & n_budget);
    void    append(Cells & cells, uint32_t n_past, int32_t token_id);
    void    add_to_batch(int32_t seq_id, uint32_t n_past, bool has_output);
    bool    compute(const std::vector<Job> & jobs);
    void    measured(double seconds);
    void    evict_others(const std::vector<Job> & jobs);
    bool    guess(Job & job, int32_t index);

    std::shared_ptr<Context>     context_;
    ContextKvCache               cache_;
    const VocabMap               vocab_;
    const bool                   shares_cells_;
    const int32_t                n_positions_;
    const int32_t                n_threads_, n_threads_batch_;  // that the context had
    std::shared_ptr<DraftRecord> record_ = std::make_shared<DraftRecord>();
    std::vector<Cells>           cells_;    // by sequence
    std::vector<int32_t>         seq_ids_;  // 0, 1, 2 ...: batches point to them
    BatchArrays                  batch_;
    ColumnCosts                  costs_;
    double                       s_per_token_ = 0;  // of reading many; 0: not measured
    std::vector<int32_t>         ids_;              // scratch buffers
    Logprobs                     likeliest_;
};

}  // namespace pyg
