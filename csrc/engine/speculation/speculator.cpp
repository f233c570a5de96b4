#include "engine/speculation/speculator.hpp"

#include <algorithm>
#include <utility>

namespace {

constexpr double   LEARNING_RATE = 0.1;
constexpr double   LEAST_CHANCE  = 0.001;  // of a guess: it may become better
constexpr double   LEAST_GAIN    = 1.02;   // times as many tokens per second: less may be an error of the measurements
constexpr uint32_t LONGEST_PAUSE = 63;     // steps

}  // namespace

namespace pyg {

void Speculator::add(ProposerKind kind, std::unique_ptr<Proposer> proposer) {
    const ByEvidence prior = proposer->prior();
    sources_.push_back({kind, std::move(proposer), prior, {}});
}

void Speculator::choose(const std::vector<int32_t> & tokens, size_t n_max, const ColumnCosts & costs, Load & load,
                        std::vector<int32_t> & guesses) {
    guesses.clear();
    Choice best;
    for (size_t i = 0; i < sources_.size(); i++) {
        Source & source = sources_[i];
        propose(source, tokens, std::min(n_max, MAX_GUESSES));
        const Choice choice = n_fixed_ ? fixed(source) : worthwhile(source, costs, load);
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

void Speculator::propose(Source & source, const std::vector<int32_t> & tokens, size_t n_max) {
    source.proposal.clear();
    if (source.n_skips > 0) {
        source.n_skips--;
    } else if (n_max > 0) {
        source.proposer->propose(tokens, n_max, source.proposal);
    }
}

Speculator::Choice Speculator::fixed(const Source & source) const {
    Choice choice;
    double all = 1;
    for (; choice.n_guesses < std::min(n_fixed_, source.proposal.size()); choice.n_guesses++) {
        all *= source.probability[source.proposal[choice.n_guesses].evidence];
        choice.n_expected += all;
    }
    choice.value = choice.n_expected;
    return choice;
}

// Return the number of guesses with which the step makes the most tokens per second, all requests together.
Speculator::Choice Speculator::worthwhile(const Source & source, const ColumnCosts & costs, const Load & load) {
    Choice best;
    double least = LEAST_GAIN * load.n_tokens / costs.of(load.n_columns);
    double all = 1, n_expected = 0;
    for (size_t n = 1; n <= source.proposal.size(); n++) {
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
    for (Source & source : sources_) {
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
