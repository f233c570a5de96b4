#include "engine/proposers/draft_model.hpp"

#include "boundary/log.hpp"
#include "engine/deadline.hpp"
#include "llama-context.h"

#include <algorithm>
#include <cmath>

namespace {

using pyg::fail;

// A sequence that lacks more tokens than this waits for those that lack fewer, and looks for a prefix to share.
constexpr size_t MANY = 32;

// Fewest tokens of a prompt to read in a step: fewer cost more than they save.
constexpr double MIN_READ = 64;

// The likelier the draft finds a token, the likelier the model chooses it.
uint8_t evidence_of(double probability) {
    return static_cast<uint8_t>((probability >= 0.4) + (probability >= 0.7) + (probability >= 0.9));
}

std::shared_ptr<pyg::Context> checked(std::shared_ptr<pyg::Context> context, const pyg::Context & of_model) {
    const std::string & path = context->model->path;
    if (!llama_get_memory(context->raw) || llama_model_has_encoder(context->model->raw)) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "%s cannot draft: it does not generate text token by token",
                   path.c_str());
    }
    if (!pyg::ContextKvCache(*context).can_drop_last_cells()) {
        throw fail(PYG_ERR_INVALID_PARAMETER,
                   "%s cannot draft: its recurrent layers or chunked attention cannot drop wrong guesses; use a draft "
                   "with attention only",
                   path.c_str());
    }
    if (llama_n_seq_max(context->raw) < llama_n_seq_max(of_model.raw) ||
        context->n_outputs_max < llama_n_seq_max(of_model.raw)) {
        throw fail(PYG_ERR_INVALID_PARAMETER,
                   "the draft's context has %u sequences and rows of output, but the model's has %u sequences: create "
                   "it with n_seq_max=%u",
                   std::min(llama_n_seq_max(context->raw), context->n_outputs_max), llama_n_seq_max(of_model.raw),
                   llama_n_seq_max(of_model.raw));
    }
    if (llama_n_ctx(context->raw) < llama_n_ctx(of_model.raw)) {
        throw fail(PYG_ERR_INVALID_PARAMETER,
                   "the draft's context has %u cells, but the model's has %u: create it with n_ctx=%u",
                   llama_n_ctx(context->raw), llama_n_ctx(of_model.raw), llama_n_ctx(of_model.raw));
    }
    return context;
}

}  // namespace

namespace pyg {

DraftModel::DraftModel(std::shared_ptr<Context> context, const Context & of_model)
    : context_(checked(std::move(context), of_model)), cache_(*context_),
      vocab_(of_model.model->vocab, context_->model->vocab, context_->model->path),
      shares_cells_(context_->shares_cells() && cache_.can_share_cells()), n_positions_(n_positions(*context_->model)),
      n_threads_(llama_n_threads(context_->raw)), n_threads_batch_(llama_n_threads_batch(context_->raw)),
      cells_(llama_n_seq_max(of_model.raw)) {
    for (size_t i = 0; i < cells_.size(); i++) {
        seq_ids_.push_back(static_cast<int32_t>(i));
    }
}

DraftModel::~DraftModel() {
    pyg_error error;
    if (guard(&error, [&] { attach_threads(*context_, n_threads_, n_threads_batch_); }) != PYG_OK) {
        llama_detach_threadpool(context_->raw);
    }
}

void DraftModel::share_threads(Context & owner) {
    attach_threads(owner, llama_n_threads(owner.raw), llama_n_threads_batch(owner.raw));
}

void DraftModel::attach_threads(Context & owner, int32_t n, int32_t n_batch) {
    llama_attach_threadpool(context_->raw, owner.threads(n), owner.threads(n_batch));
    llama_set_n_threads(context_->raw, n, n_batch);
    // A backend that gets another pool puts the last one to sleep, which the owner may have freed by then.
    static const auto set_threads =
        cpu_function_as<decltype(&ggml_backend_cpu_set_threadpool)>("ggml_backend_cpu_set_threadpool");
    ggml_backend_sched_t const scheduler = context_->raw->get_sched();
    for (int i = 0; i < ggml_backend_sched_get_n_backends(scheduler); i++) {
        ggml_backend_t const backend = ggml_backend_sched_get_backend(scheduler, i);
        if (ggml_backend_dev_type(ggml_backend_get_device(backend)) == GGML_BACKEND_DEVICE_TYPE_CPU) {
            set_threads(backend, owner.threads(n));
        }
    }
}

double DraftModel::seconds_of_pass(size_t n) const {
    return costs_.seconds_of_one() * costs_.of(static_cast<uint32_t>(n)) / static_cast<double>(n);
}

double DraftModel::seconds_to_read(const Job & job) const {
    const size_t n = job.tokens->size() - n_common(job.seq_id, job);
    return n > MANY && s_per_token_ > 0 ? static_cast<double>(n) * s_per_token_
                                        : costs_.seconds_of_one() * costs_.of(static_cast<uint32_t>(n + 1));
}

// Return how many tokens of a job the cells of a sequence can serve.
size_t DraftModel::n_common(int32_t seq_id, const Job & job) const {
    const Cells & cells  = cells_[static_cast<size_t>(seq_id)];
    const auto &  cached = cells.tokens;
    const auto &  tokens = *job.tokens;
    if (cells.cache_salt != job.cache_salt) {
        return 0;
    }
    return static_cast<size_t>(std::mismatch(cached.begin(), cached.end(), tokens.begin(), tokens.end()).first -
                               cached.begin());
}

void DraftModel::truncate(int32_t seq_id, size_t n_tokens) {
    Cells & cells = cells_[static_cast<size_t>(seq_id)];
    cells.tokens.resize(n_tokens);
    cells.ends.resize(n_tokens);
    cells.n_computed = std::min(cells.n_computed, n_tokens);
    if (!cache_.can_truncate_to(seq_id, cells.n_past())) {
        cells = {};  // its window has passed them
    }
    cache_.truncate(seq_id, cells.n_past());
}

// Start from the cells of the sequence that has the longest prefix, if that saves much.
void DraftModel::share_prefix(const Job & job) {
    const size_t n_own = n_common(job.seq_id, job);
    size_t       n = n_own, from = 0;
    for (size_t i = 0; i < cells_.size(); i++) {
        const size_t n_other = std::min(n_common(seq_ids_[i], job), cells_[i].n_computed);
        if (n_other > n) {
            n    = n_other;
            from = i;
        }
    }
    if (shares_cells_ && n > n_own + MANY) {
        truncate(job.seq_id, 0);
        Cells & cells = cells_of(job);
        cells         = cells_[from];
        cells.tokens.resize(n);
        cells.ends.resize(n);
        cells.n_computed = n;
        cache_.share(seq_ids_[from], job.seq_id, cells.n_past());
    }
}

// Add the tokens of a job that have no cells to the batch, at most about `n_budget`, which it reduces. Return the index
// of the last in the batch; -1 if some are left.
int32_t DraftModel::read(const Job & job, size_t & n_budget) {
    const auto & tokens = *job.tokens;
    if (tokens.size() - n_common(job.seq_id, job) > MANY) {
        share_prefix(job);
    }
    // The row of the last token is needed, and a special token may have none.
    size_t n = std::min(n_common(job.seq_id, job), tokens.size() - 1);
    while (n > 0 && std::all_of(tokens.begin() + static_cast<std::ptrdiff_t>(n), tokens.end(),
                                [&](int32_t id) { return vocab_.n_of(id) == 0; })) {
        n--;
    }
    truncate(job.seq_id, n);
    Cells &        cells  = cells_of(job);
    const uint32_t n_past = cells.n_past();
    cells.cache_salt      = job.cache_salt;
    ids_.clear();
    for (n = cells.tokens.size(); n < tokens.size() && ids_.size() < n_budget; n++) {
        append(cells, n_past, tokens[n]);
    }
    const bool is_whole = n == tokens.size() && !ids_.empty();
    add_to_batch(job.seq_id, n_past, is_whole);
    n_budget -= std::min(n_budget, ids_.size());
    return is_whole ? batch_.n_tokens() - 1 : -1;
}

// Append a token of the model to a sequence, and those of the draft to `ids_`.
void DraftModel::append(Cells & cells, uint32_t n_past, int32_t token_id) {
    vocab_.append(token_id, ids_);
    cells.tokens.push_back(token_id);
    cells.ends.push_back(n_past + static_cast<uint32_t>(ids_.size()));
}

void DraftModel::add_to_batch(int32_t seq_id, uint32_t n_past, bool has_output) {
    for (size_t i = 0; i < ids_.size(); i++) {
        batch_.add(ids_[i], static_cast<llama_pos>(n_past + i), &seq_ids_[static_cast<size_t>(seq_id)],
                   has_output && i + 1 == ids_.size());
    }
}

void DraftModel::draft(std::vector<Job> & jobs, double max_seconds, const ShouldContinue & should_continue) {
    std::vector<Row> rows;
    batch_.clear();
    const double n_readable = s_per_token_ > 0 ? std::max(max_seconds / s_per_token_, MIN_READ) : MIN_READ;
    size_t n_budget = std::min<size_t>(llama_n_batch(context_->raw) / 2, jobs.size() + static_cast<size_t>(n_readable));
    for (const bool lacks_many : {false, true}) {
        for (size_t i = 0; i < jobs.size() && n_budget > 0; i++) {
            const Job & job = jobs[i];
            if ((job.tokens->size() - n_common(job.seq_id, job) > MANY) != lacks_many || !fits(job)) {
                continue;
            }
            const int32_t index = read(job, n_budget);
            if (index >= 0) {
                rows.push_back({i, index});
            }
        }
    }
    while (batch_.n_tokens() > 0 && compute(jobs)) {
        std::vector<size_t> next;
        for (const Row & row : rows) {
            Job & job = jobs[row.job];
            if (guess(job, row.index) && job.proposal.size() < job.n_max &&
                should_continue(row.job, seconds_of_pass(rows.size()))) {
                next.push_back(row.job);
            }
        }
        batch_.clear();
        rows.clear();
        for (const size_t i : next) {
            Cells &        cells  = cells_of(jobs[i]);
            const uint32_t n_past = cells.n_past();
            ids_.clear();
            append(cells, n_past, jobs[i].proposal.back().token_id);
            add_to_batch(jobs[i].seq_id, n_past, true);
            rows.push_back({i, batch_.n_tokens() - 1});
        }
    }
}

// Some models look up positions in a table.
bool DraftModel::fits(const Job & job) const {
    if (n_positions_ == INT32_MAX) {
        return true;
    }
    size_t n = job.n_max;
    for (const int32_t id : *job.tokens) {
        n += vocab_.n_of(id);
    }
    return n <= static_cast<size_t>(n_positions_);
}

// Return false, with the cells as before, if the batch could not be computed now.
bool DraftModel::compute(const std::vector<Job> & jobs) {
    const auto start = Clock::now();
    LogBuffer  log;  // upstream logs an error if there are too few cells
    int32_t    status = pyg::compute(*context_, batch_.raw(), llama_decode);
    if (status == NO_CELLS) {
        evict_others(jobs);
        status = pyg::compute(*context_, batch_.raw(), llama_decode);
    }
    if (status == COMPUTED) {
        measured(seconds_since(start));
        for (const Job & job : jobs) {
            cells_of(job).n_computed = cells_of(job).tokens.size();
        }
        return true;
    }
    log.drop();
    if (status != NO_CELLS && status != ABORTED && status != NO_MEMORY) {
        throw compute_error(status);
    }
    for (const Job & job : jobs) {
        truncate(job.seq_id, cells_of(job).n_computed);
    }
    return false;
}

void DraftModel::measured(double seconds) {
    const auto n = static_cast<uint32_t>(batch_.n_tokens());
    if (n <= MANY) {
        costs_.measured(n, seconds);
    } else {
        const double each = seconds / n;
        s_per_token_      = s_per_token_ == 0 ? each : (s_per_token_ + each) / 2;
    }
}

void DraftModel::evict_all() {
    std::fill(cells_.begin(), cells_.end(), Cells());
    cache_.clear();
}

// Free the cells of sequences that none of the jobs has.
void DraftModel::evict_others(const std::vector<Job> & jobs) {
    for (const int32_t seq_id : seq_ids_) {
        if (std::none_of(jobs.begin(), jobs.end(), [&](const Job & job) { return job.seq_id == seq_id; })) {
            truncate(seq_id, 0);
        }
    }
}

// Add the draft's likeliest token to a proposal. Return false if there is none that the model may choose.
bool DraftModel::guess(Job & job, int32_t index) {
    logprobs_of(logits_of_last(*context_, index), context_->model->n_vocab(), 0, 1, likeliest_);
    const int32_t draft_id = likeliest_.top_ids.front();
    const int32_t token_id = vocab_.to_model(draft_id);
    if (token_id < 0 || llama_vocab_is_eog(context_->model->vocab, draft_id)) {
        return false;
    }
    job.proposal.push_back({token_id, evidence_of(std::exp(likeliest_.top.front()))});
    return vocab_.n_of(token_id) > 0;
}

}  // namespace pyg
