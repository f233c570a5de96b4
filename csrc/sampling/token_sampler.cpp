#include "sampling/token_sampler.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace {

using pyg::fail;

// Candidates, possibly hundreds of thousands, allocated once per thread, where they are still in the CPU's cache from
// the last request.
thread_local std::vector<llama_token_data> t_candidates;
thread_local pyg::BlockMaxima              t_maxima;
thread_local pyg::Shortlist                t_shortlist;

// Upstream's samplers sort and exponentiate the logits; NaN and +infinity break both.
void require_usable(const float * row, int32_t n) {
    if (!std::all_of(row, row + n, [](float logit) { return logit < INFINITY; })) {
        pyg::fail_invalid_logits();
    }
}

// Adds biases to a row, forbids tokens, and undoes both, because raw logprobs are of the model's own logits. Copying
// the row would take far longer than the argmax.
class Biased : pyg::NonCopyable {
  public:
    Biased(float * row, const std::vector<llama_logit_bias> & biases, const std::vector<int32_t> & forbidden)
        : row_(row) {
        before_.reserve(biases.size() + forbidden.size());
        for (const llama_logit_bias & each : biases) {
            add(each.token, each.bias);
        }
        for (const int32_t token_id : forbidden) {
            add(token_id, -INFINITY);
        }
    }
    ~Biased() {
        for (size_t i = before_.size(); i-- > 0;) {  // in reverse: a token may have several
            row_[before_[i].first] = before_[i].second;
        }
    }

  private:
    void add(int32_t token_id, float bias) {
        before_.emplace_back(token_id, row_[token_id]);
        row_[token_id] += bias;
    }

    float * const                          row_;
    std::vector<std::pair<int32_t, float>> before_;
};

// Biases of a shortlist's candidates, none of them positive.
class Lowered {
  public:
    explicit Lowered(pyg::Shortlist & shortlist) : shortlist_(shortlist), largest_(largest()) {}

    void add(int32_t token_id, float bias) {
        const auto same = [&](const llama_token_data & each) { return each.id == token_id; };
        const auto each = std::find_if(shortlist_.candidates.begin(), shortlist_.candidates.end(), same);
        if (each == shortlist_.candidates.end()) {
            n_others_++;
            return;
        }
        const float before = each->logit;
        each->logit += bias;
        change_ += probability(each->logit) - probability(before);
    }

    // Correct the sum. Return false if too little of it is left to be exact, or tokens that are not candidates could be
    // as likely as what its rounding errors amount to.
    bool correct_sum() {
        constexpr double LEAST_LEFT = 0.01, MOST_UNKNOWN = 1e-4;
        const double     sum = shortlist_.sum + change_;
        if (!(sum > LEAST_LEFT * shortlist_.sum) || n_others_ * probability(shortlist_.bound) > MOST_UNKNOWN * sum) {
            return false;
        }
        shortlist_.sum = static_cast<float>(sum / probability(largest()));
        return true;
    }

  private:
    float largest() const {
        float result = -INFINITY;
        for (const llama_token_data & each : shortlist_.candidates) {
            result = std::max(result, each.logit);
        }
        return result;
    }
    double probability(float logit) const { return std::exp(static_cast<double>(logit) - largest_); }

    pyg::Shortlist & shortlist_;
    const float      largest_;
    double           change_   = 0;  // of the sum
    double           n_others_ = 0;  // tokens that are not candidates
};

// Logprobs of token `token_id` and the `n_top` likeliest of the candidates, -1 and -infinity where there are fewer.
void logprobs_among(const llama_token_data * candidates, size_t n, int32_t token_id, int32_t n_top,
                    pyg::Logprobs & out) {
    thread_local std::vector<float>   logits;
    thread_local std::vector<int32_t> ids;
    logits.clear();
    ids.clear();
    for (size_t i = 0; i < n; i++) {
        if (std::isfinite(candidates[i].logit)) {
            logits.push_back(candidates[i].logit);
            ids.push_back(candidates[i].id);
        }
    }
    const auto index = std::find(ids.begin(), ids.end(), token_id) - ids.begin();
    pyg::logprobs_of(logits.data(), static_cast<int32_t>(ids.size()), static_cast<int32_t>(index), n_top, out);
    for (int32_t & top : out.top_ids) {
        top = ids[static_cast<size_t>(top)];
    }
    out.top_ids.resize(static_cast<size_t>(n_top), -1);
    out.top.resize(static_cast<size_t>(n_top), -INFINITY);
}

}  // namespace

namespace pyg {

TokenSampler::TokenSampler(const Model & model, uint32_t n_ctx, const pyg_sampling & options,
                           const std::vector<int32_t> & stop_token_ids)
    : chain_(make_sampler_chain(model, n_ctx, options)),
      truncation_(chain_ ? Truncation(chain_.get(), options) : Truncation()), biases_(make_biases(model, options)),
      constraints_(model, options, stop_token_ids) {
    if (options.grammar) {
        grammar_ = std::make_unique<GrammarConstraint>(model, options, stop_token_ids);
    }
    if (options.reasoning_budget >= 0) {
        reasoning_.emplace(model, options);
    }
}

template <class Body>
auto TokenSampler::guard_chain(Body && body) {
    try {
        return body();
    } catch (const EngineAbort & abort) {
        // The chain is in an unknown state and is leaked; the context was only read.
        (void) chain_.release();
        throw fail(PYG_ERR_ENGINE, "a check inside the sampler failed: %s", abort.message.c_str());
    }
}

int32_t TokenSampler::sample(float * row, int32_t n_vocab, int32_t n_top, Logprobs * processed) {
    if (const std::optional<int32_t> forced = forced_token()) {
        if (processed) {
            logprobs_of(row, n_vocab, *forced, n_top, *processed);
        }
        accept_unsampled(*forced);
        return *forced;
    }
    const Biased  biased(row, biases_, forbidden());
    const int32_t token_id = guard_chain([&] {
        return chain_ ? sample_chain(row, n_vocab, n_top, processed) : sample_greedy(row, n_vocab, n_top, processed);
    });
    accept(token_id);
    return token_id;
}

std::optional<int32_t> TokenSampler::sample(Shortlist & shortlist) {
    if (const std::optional<int32_t> forced = forced_token()) {
        accept_unsampled(*forced);
        return forced;
    }
    if (need() == LogitsNeed::ALL) {
        return std::nullopt;
    }
    if (!lower(shortlist)) {
        return std::nullopt;
    }
    if (!truncation_.sorts()) {
        std::sort(shortlist.candidates.begin(), shortlist.candidates.end(),
                  [](const auto & a, const auto & b) { return a.id < b.id; });
    }
    const std::optional<int32_t> token_id = guard_chain([&] { return choose(shortlist); });
    if (token_id) {
        accept(*token_id);
    }
    return token_id;
}

int32_t TokenSampler::take(int32_t token_id, const float * row, int32_t n_vocab, int32_t n_top, Logprobs * processed) {
    const int32_t taken = forced_token().value_or(token_id);
    if (taken == token_id && !is_possible(token_id)) {
        throw fail(grammar_ ? PYG_ERR_GRAMMAR : PYG_ERR_INVALID_PARAMETER,
                   "the logits processor chose token %d, which grammar, allowed_token_ids, bad_words or min_tokens "
                   "rule out here",
                   token_id);
    }
    if (processed) {
        logprobs_of(row, n_vocab, taken, n_top, *processed);
    }
    accept_unsampled(taken);
    return taken;
}

// Return true if grammar and constraints allow a token.
bool TokenSampler::is_possible(int32_t token_id) {
    const std::vector<int32_t> & banned = forbidden();
    return (!is_constrained() || grammar_->allows(token_id)) && constraints_.allows(token_id) &&
           std::find(banned.begin(), banned.end(), token_id) == banned.end();
}

// Return the token that ends reasoning at the end of its budget, unless the grammar does not allow it.
std::optional<int32_t> TokenSampler::forced_token() {
    const std::optional<int32_t> forced = reasoning_ ? reasoning_->forced() : std::nullopt;
    if (forced && is_constrained() && !grammar_->allows(*forced)) {
        reasoning_.reset();
        return std::nullopt;
    }
    return forced;
}

void TokenSampler::accept_unsampled(int32_t token_id) {
    if (chain_) {
        guard_chain([&] { llama_sampler_accept(chain_.get(), token_id); });
    }
    accept(token_id);
}

// A shortlist tells nothing about tokens that a grammar, or the caller, picks, or that a bias raises; and the sum of
// all probabilities is that without biases.
LogitsNeed TokenSampler::need() const {
    const bool is_biased = !biases_.empty() || !constraints_.none();
    const bool is_raised =
        std::any_of(biases_.begin(), biases_.end(), [](const llama_logit_bias & each) { return each.bias > 0; });
    if (is_constrained() || !constraints_.allowed().empty() || is_raised ||
        (chain_ && !truncation_.bounds_candidates())) {
        return LogitsNeed::ALL;
    }
    const bool follows = grammar_ || reasoning_;  // and must see each token
    return !chain_ && !is_biased && !follows ? LogitsNeed::LARGEST : LogitsNeed::LIKELIEST;
}

const std::vector<int32_t> & TokenSampler::forbidden() {
    return constraints_.forbidden(constraints_.needs_more() && grammar_ && grammar_->must_end());
}

void TokenSampler::accept(int32_t token_id) {
    if (grammar_) {
        grammar_->accept(token_id);
    }
    constraints_.accept(token_id);
    if (reasoning_) {
        reasoning_->accept(token_id);
    }
}

// Apply biases and forbid tokens. Return false if the row is needed for that.
bool TokenSampler::lower(Shortlist & shortlist) {
    const std::vector<int32_t> & forbidden_ids = forbidden();
    if (biases_.empty() && forbidden_ids.empty()) {
        return true;
    }
    Lowered lowered(shortlist);
    for (const llama_logit_bias & each : biases_) {
        lowered.add(each.token, each.bias);
    }
    for (const int32_t token_id : forbidden_ids) {
        lowered.add(token_id, -INFINITY);
    }
    return !truncation_.needs_sum() || lowered.correct_sum();
}

std::optional<int32_t> TokenSampler::choose(Shortlist & shortlist) {
    if (chain_) {
        llama_token_data_array candidates;
        return truncation_.apply(chain_.get(), shortlist, candidates)
                   ? std::optional<int32_t>(accept_selected(candidates, 0, nullptr))
                   : std::nullopt;
    }
    const auto best = std::max_element(shortlist.candidates.begin(), shortlist.candidates.end(),
                                       [](const auto & a, const auto & b) { return a.logit < b.logit; });
    return best != shortlist.candidates.end() && best->logit > shortlist.bound ? std::optional<int32_t>(best->id)
                                                                               : std::nullopt;
}

// Greedy sampling. Checks the top token first: if it is allowed, the mask of allowed tokens is not needed.
int32_t TokenSampler::sample_greedy(const float * row, int32_t n_vocab, int32_t n_top, Logprobs * processed) {
    t_maxima.scan(row, n_vocab);
    int32_t chosen = t_maxima.first_of_largest();
    if (chosen < 0) {
        require_usable(row, n_vocab);
        biases_.empty() && constraints_.none() ? fail_invalid_logits() : fail_no_token();
    }
    const bool is_allowed = constraints_.allows(chosen) && (!is_constrained() || grammar_->allows(chosen));
    if (is_allowed && !processed) {
        return chosen;
    }
    require_usable(row, n_vocab);
    collect(row, n_vocab);
    if (!is_allowed) {
        const auto best = std::max_element(t_candidates.begin(), t_candidates.end(),
                                           [](const auto & a, const auto & b) { return a.logit < b.logit; });
        if (!std::isfinite(best->logit)) {
            fail_no_token();
        }
        chosen = best->id;
    }
    if (processed) {
        logprobs_among(t_candidates.data(), t_candidates.size(), chosen, n_top, *processed);
    }
    return chosen;
}

int32_t TokenSampler::sample_chain(const float * row, int32_t n_vocab, int32_t n_top, Logprobs * processed) {
    llama_token_data_array candidates;
    if (!apply_to_shortlist(row, n_vocab, processed, candidates)) {
        require_usable(row, n_vocab);
        collect(row, n_vocab);
        candidates = {t_candidates.data(), t_candidates.size(), -1, false};
        llama_sampler_apply(chain_.get(), &candidates);
    }
    return accept_selected(candidates, n_top, processed);
}

// Run the chain on the few candidates that matter. Return false, with nothing changed, if that takes the whole row.
bool TokenSampler::apply_to_shortlist(const float * row, int32_t n_vocab, const Logprobs * processed,
                                      llama_token_data_array & candidates) {
    const bool keeps_all = processed && !truncation_.truncates();
    if (!truncation_.bounds_candidates() || keeps_all || is_constrained() || !constraints_.allowed().empty()) {
        return false;
    }
    return t_maxima.scan(row, n_vocab) && truncation_.apply(chain_.get(), t_maxima, t_shortlist, candidates);
}

int32_t TokenSampler::accept_selected(const llama_token_data_array & candidates, int32_t n_top, Logprobs * processed) {
    const llama_token_data & chosen = candidates.data[candidates.selected];
    if (!std::isfinite(chosen.logit) || std::isnan(chosen.p)) {
        fail_no_token();
    }
    if (processed) {
        logprobs_among(candidates.data, candidates.size, chosen.id, n_top, *processed);
    }
    llama_sampler_accept(chain_.get(), chosen.id);
    return chosen.id;
}

void TokenSampler::fail_no_token() const {
    throw fail(
        grammar_ ? PYG_ERR_GRAMMAR : PYG_ERR_INVALID_PARAMETER,
        "grammar, allowed_token_ids, bad_words, logit_bias, logits_processor, penalties and temperature together leave "
        "no token to choose");
}

// Collect the candidate tokens and their logits.
void TokenSampler::collect(const float * row, int32_t n_vocab) {
    t_candidates.clear();
    const auto add = [&](int32_t id) { t_candidates.push_back({id, row[id], 0}); };
    if (is_constrained()) {
        grammar_->for_each_allowed([&](int32_t id) {
            if (constraints_.allows(id)) {
                add(id);
            }
        });
    } else if (!constraints_.allowed().empty()) {
        std::for_each(constraints_.allowed().begin(), constraints_.allowed().end(), add);
    } else {
        t_candidates.resize(static_cast<size_t>(n_vocab));
        for (int32_t id = 0; id < n_vocab; id++) {
            t_candidates[static_cast<size_t>(id)] = {id, row[id], 0};
        }
    }
    if (t_candidates.empty()) {
        throw fail(PYG_ERR_GRAMMAR, constraints_.allowed().empty()
                                        ? "no token in the vocabulary can come next under the grammar"
                                        : "no token of allowed_token_ids can come next under the grammar");
    }
}

void TokenSampler::accept_prompt(const std::vector<int32_t> & prompt) {
    for (size_t i = 0; chain_ && i < prompt.size(); i++) {
        llama_sampler_accept(chain_.get(), prompt[i]);
    }
}

}  // namespace pyg
