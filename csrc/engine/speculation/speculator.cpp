#include "engine/speculation/speculator.hpp"

#include <algorithm>

namespace {

constexpr double   LEARNING_RATE = 0.1;
constexpr double   LEAST_CHANCE  = 0.001;  // of a guess: it may become better
constexpr double   LEAST_GAIN    = 1.02;   // times as many tokens per second: less may be an error of the measurements
constexpr uint32_t LONGEST_PAUSE = 15;     // steps

// Tokens that a request is expected to generate yet, if it may: as many as it has generated, and some more.
constexpr size_t EXPECTED_TOKENS = 64;

}  // namespace

namespace pyg {

void Speculator::add(ProposerKind kind, std::unique_ptr<Proposer> proposer) {
    const ByEvidence prior  = proposer->prior();
    const double     chance = proposer->prior_chance();
    sources_.push_back({kind, std::move(proposer), prior, {}, 0, 0, chance});
}

void Speculator::propose(const std::vector<int32_t> & tokens, size_t n_max) {
    for (Source & source : sources_) {
        source.proposal.clear();
        if (source.kind == DRAFT_MODEL) {
            continue;
        }
        if (source.n_skips > 0) {
            source.n_skips--;
        } else if (n_max > 0) {
            source.proposer->propose(tokens, std::min(n_max, MAX_GUESSES), source.proposal);
        }
    }
}

const Speculator::Source * Speculator::drafting() const {
    const auto found = std::find_if(sources_.begin(), sources_.end(),
                                    [](const Source & source) { return source.kind == DRAFT_MODEL; });
    return found == sources_.end() ? nullptr : &*found;
}

Speculator::Ask Speculator::ask_of_draft(size_t n_max, const ColumnCosts & costs, const Load & load,
                                         const DraftCosts & draft) {
    Source * const source = drafting();
    n_max                 = std::min(n_max, MAX_GUESSES);
    if (!source || n_max == 0) {
        return {};
    }
    if (n_fixed_) {
        return {std::min(n_max, n_fixed_)};
    }
    if (costs.seconds_of_one() == 0) {
        return {};  // nothing to compare its time with
    }
    double least = LEAST_GAIN * load.n_tokens / costs.of(load.n_columns);  // with the other proposers' guesses
    for (const Source & each : sources_) {
        least = std::max(least, worthwhile(each, n_max, costs, load).value);
    }
    double best = 0, all = 1, n_expected = 0;
    for (size_t n = 1; n <= n_max; n++) {
        all *= source->chance;
        n_expected += all;
        const auto n_all = static_cast<double>(draft.n_alike);
        best             = std::max(best, (load.n_tokens + n_all * n_expected) /
                                              (costs.of(load.n_columns + static_cast<uint32_t>(draft.n_alike * n)) +
                                               n_all * static_cast<double>(n) * draft.pass));
    }
    const auto   n_to_come = static_cast<double>(std::min(draft.n_left, EXPECTED_TOKENS + n_generated_));
    const double saved     = best > least ? n_to_come * (1 / least - 1 / best) : 0;
    if (saved > draft.catch_up) {
        return {n_max};
    }
    if (source->n_skips > 0) {
        source->n_skips--;
        return {};
    }
    return draft.catch_up + draft.pass <= draft.affordable ? Ask{1, true} : Ask{};
}

double Speculator::chance_of(const Proposal & drafted) const {
    double all = 1;
    for (const Guess & guess : drafted) {
        all *= drafting()->probability[guess.evidence];
    }
    return all;
}

bool Speculator::drafts_more(const Proposal & drafted, const ColumnCosts & costs, const Load & load,
                             double pass) const {
    if (n_fixed_) {
        return true;
    }
    const double price = costs.of(load.n_columns + 1) - costs.of(load.n_columns) + pass;
    return chance_of(drafted) * drafting()->chance > load.rate * price;
}

void Speculator::set_drafted(Proposal drafted) { drafting()->proposal = std::move(drafted); }

void Speculator::choose(size_t n_max, const ColumnCosts & costs, Load & load, std::vector<int32_t> & guesses) {
    guesses.clear();
    Choice best;
    for (size_t i = 0; i < sources_.size(); i++) {
        const Choice choice = n_fixed_ ? fixed(sources_[i], n_max) : worthwhile(sources_[i], n_max, costs, load);
        if (choice.value > best.value) {
            best    = choice;
            chosen_ = i;
        }
    }
    for (size_t i = 0; i < best.n_guesses; i++) {
        guesses.push_back(sources_[chosen_].proposal[i].token_id);
    }
    load.n_columns += static_cast<uint32_t>(best.n_guesses);
    load.n_tokens += best.n_expected;
}

Speculator::Choice Speculator::fixed(const Source & source, size_t n_max) const {
    Choice choice;
    double all = 1;
    for (; choice.n_guesses < std::min({n_fixed_, n_max, source.proposal.size()}); choice.n_guesses++) {
        all *= source.probability[source.proposal[choice.n_guesses].evidence];
        choice.n_expected += all;
    }
    choice.value = choice.n_expected;
    return choice;
}

// Return the number of guesses with which the step makes the most tokens per second, all requests together.
Speculator::Choice Speculator::worthwhile(const Source & source, size_t n_max, const ColumnCosts & costs,
                                          const Load & load) const {
    Choice best;
    double least = LEAST_GAIN * load.n_tokens / costs.of(load.n_columns);
    double all = 1, n_expected = 0;
    for (size_t n = 1; n <= std::min(n_max, source.proposal.size()); n++) {
        all *= source.probability[source.proposal[n - 1].evidence];
        n_expected += all;
        const double rate = (load.n_tokens + n_expected) / costs.of(load.n_columns + static_cast<uint32_t>(n));
        if (rate > least) {
            best  = {n, n_expected, rate};
            least = rate;
        }
    }
    return best;
}

void Speculator::restart() {
    for (Source & source : sources_) {
        source.proposer->restart();
    }
}

void Speculator::learn(const int32_t * sampled, size_t n) {
    n_generated_ += n;
    for (Source & source : sources_) {
        source.proposer->sampled(sampled, n);
        learn(source, sampled, n);
    }
}

void Speculator::learn(Source & source, const int32_t * sampled, size_t n) const {
    const size_t n_known = std::min(n, source.proposal.size());
    for (size_t i = 0; i < n_known; i++) {
        const auto [token_id, evidence] = source.proposal[i];
        const bool is_right             = token_id == sampled[i];
        double &   probability          = source.probability[evidence];
        probability += LEARNING_RATE * (is_right - probability);
        probability = std::max(probability, LEAST_CHANCE);
        source.chance += LEARNING_RATE * (is_right - source.chance);
        source.proposer->learn(evidence, is_right);
        if (i == 0 && n_fixed_ == 0 && source.proposer->is_costly()) {
            source.pause   = is_right ? 0 : std::min(2 * source.pause + 1, LONGEST_PAUSE);
            source.n_skips = source.pause;
        }
        if (!is_right) {
            break;
        }
    }
    source.proposal.clear();
}

}  // namespace pyg
