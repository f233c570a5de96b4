// Prompt lookup against a search through all tokens, the measured cost of columns, and the choice of guesses.
#include "engine/proposers/drafted_tokens.hpp"
#include "engine/proposers/format_lookup.hpp"
#include "engine/proposers/prompt_lookup.hpp"
#include "engine/speculation/speculator.hpp"
#include "tests/support/testing.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

namespace {

using pyg::ColumnCosts;
using pyg::NgramIndex;
using pyg::Speculator;
using Tokens = std::vector<int32_t>;

// --- look-ups -------------------------------------------------------------------------------------------------------

// The latest earlier occurrence of the last 8, 4 or 2 tokens, by comparing everything.
NgramIndex::Match slow_find(const Tokens & tokens) {
    for (const size_t length : {8, 4, 2}) {
        for (size_t next = tokens.size() - 1; next >= length && tokens.size() >= length; next--) {
            uint32_t common = 0;
            while (common < std::min<size_t>(next, NgramIndex::MAX_LENGTH) &&
                   tokens[next - common - 1] == tokens[tokens.size() - common - 1]) {
                common++;
            }
            if (common >= length) {
                return {static_cast<uint32_t>(next), common};
            }
        }
    }
    return {};
}

void test_find() {
    std::mt19937 random(1);
    for (uint32_t n_vocab = 1; n_vocab < 40; n_vocab += 3) {
        NgramIndex index;
        Tokens     tokens;
        while (tokens.size() < 300) {
            for (uint32_t n = random() % 4; n > 0; n--) {
                tokens.push_back(static_cast<int32_t>(random() % n_vocab));
            }
            index.extend(tokens);
            if (!tokens.empty()) {
                const auto found = index.find(tokens), expected = slow_find(tokens);
                CHECK(found.next == expected.next && found.length == expected.length);
            }
        }
    }
}

void test_proposals() {
    Tokens tokens = {1, 2, 3, 4, 5, 6, 1, 2};
    for (const size_t n_max : {0, 1, 3, 15}) {
        pyg::Proposal     proposal;
        pyg::PromptLookup lookup(tokens);
        lookup.propose(tokens, n_max, proposal);
        CHECK(proposal.size() == n_max);
        for (size_t i = 0; i < n_max; i++) {
            CHECK(proposal[i].token_id == static_cast<int32_t>((2 + i) % 6 + 1));
            CHECK(proposal[i].evidence == (i < 2 ? 0 : i < 6 ? 1 : i < 14 ? 2 : 3));
        }
    }
    pyg::Proposal     proposal;
    pyg::PromptLookup lookup({});
    lookup.propose({7}, 5, proposal);
    lookup.propose({7, 8, 9}, 5, proposal);
    CHECK(proposal.empty());
    lookup.propose({7, 8, 9, 7, 8}, 2, proposal);
    CHECK(proposal.size() == 2 && proposal[0].token_id == 9 && proposal[1].token_id == 7);
    proposal.clear();
    lookup.restart();
    lookup.propose({8, 9, 8}, 2, proposal);
    CHECK(proposal.empty());
    lookup.propose({8, 9, 8, 9}, 1, proposal);
    CHECK(proposal.size() == 1 && proposal[0].token_id == 8);
}

// A hundred thousand tokens, of which the last are those before: linear time, or this would take minutes.
void test_long_prompt() {
    std::mt19937 random(2);
    Tokens       tokens;
    while (tokens.size() < 100000) {
        tokens.push_back(static_cast<int32_t>(random() % 1000));
    }
    tokens.insert(tokens.end(), tokens.begin() + 5000, tokens.begin() + 5100);
    NgramIndex index;
    index.extend(tokens);
    CHECK(index.find(tokens).next == 5100 && index.find(tokens).length == NgramIndex::MAX_LENGTH);
}

// --- costs ----------------------------------------------------------------------------------------------------------

double true_cost(uint32_t n_columns) { return n_columns <= 8 ? 1 + 0.04 * (n_columns - 1) : 2 + 0.1 * (n_columns - 8); }

void test_costs() {
    ColumnCosts  costs;
    std::mt19937 random(3);
    CHECK(costs.of(1) == 1 && costs.of(9) > costs.of(8) && std::abs(costs.of(128) / costs.of(64) - 2) < 1e-9);
    double seconds = 0.01;
    for (int i = 0; i < 3000; i++) {
        const auto   n     = std::vector<uint32_t>{1, 4, 8, 12, 16}[random() % 5];
        const double noise = 1 + 0.02 * (random() % 100) / 100.0 + (random() % 50 == 0 ? 3 : 0);
        costs.measured(n, seconds * true_cost(n) * noise);
        seconds *= 1.0002;  // contexts grow
    }
    for (const uint32_t n : {1u, 4u, 8u, 12u, 16u}) {
        CHECK(std::abs(costs.of(n) / true_cost(n) - 1) < 0.15);
    }
    costs.measured(0, 1);
    costs.measured(4, 0);
    costs.measured(1000, 1);
    CHECK(std::isfinite(costs.of(4)));
}

// --- choices --------------------------------------------------------------------------------------------------------

// Proposes the tokens that will be sampled, with some of them changed.
class Prophet : public pyg::Proposer {
  public:
    Prophet(const Tokens & future, double right, bool is_costly, int & n_calls)
        : future_(future), right_(right), is_costly_(is_costly), n_calls_(n_calls) {}

    void propose(const Tokens & tokens, size_t n_max, pyg::Proposal & proposal) override {
        n_calls_++;
        for (size_t i = tokens.size(); i < std::min(tokens.size() + n_max, future_.size()); i++) {
            const bool is_right = std::uniform_real_distribution<>()(random_) < right_;
            proposal.push_back({is_right ? future_[i] : -1, 1});
        }
    }
    void            restart() override {}
    pyg::ByEvidence prior() const override { return {0.5, 0.5, 0.5, 0.5}; }
    bool            is_costly() const override { return is_costly_; }

  private:
    const Tokens & future_;
    double         right_;
    bool           is_costly_;
    int &          n_calls_;
    std::mt19937   random_{4};
};

struct Outcome {
    double n_steps   = 0;
    double n_guesses = 0;
    double cost      = 0;  // in steps of a single column
    int    n_calls   = 0;  // of the proposer
};

// Decode 2,000 tokens with `n_others` other requests in each step.
Outcome decode(double right, bool is_costly, uint32_t n_others, size_t n_fixed = 0, size_t n_max = 15) {
    Tokens future(2000);
    for (size_t i = 0; i < future.size(); i++) {
        future[i] = static_cast<int32_t>(i);
    }
    Outcome     outcome;
    Speculator  speculator(n_fixed);
    ColumnCosts costs;
    speculator.add(pyg::PROMPT_LOOKUP, std::make_unique<Prophet>(future, right, is_costly, outcome.n_calls));
    Tokens tokens = {future[0]}, guesses;
    while (tokens.size() < future.size()) {
        Speculator::Load load   = {1 + n_others, 1.0 + n_others};
        const size_t     n_most = std::min(n_max, future.size() - tokens.size() - 1);
        speculator.propose(tokens, n_most);
        speculator.choose(n_most, costs, load, guesses);
        CHECK(load.n_columns == 1 + n_others + guesses.size() && guesses.size() <= std::min<size_t>(n_max, 15));
        const size_t n_before = tokens.size();
        for (size_t i = 0; i <= guesses.size(); i++) {
            tokens.push_back(future[n_before + i]);
            if (i == guesses.size() || guesses[i] != tokens.back()) {
                break;
            }
        }
        speculator.learn(&tokens[n_before], tokens.size() - n_before);
        costs.measured(load.n_columns, true_cost(load.n_columns));
        outcome.n_steps++;
        outcome.n_guesses += static_cast<double>(guesses.size());
        outcome.cost += true_cost(load.n_columns);
    }
    return outcome;
}

void test_choices() {
    CHECK(decode(1, false, 0).cost < 2000 / 5.5);
    CHECK(decode(0.8, false, 0).cost < 2000 / 2.5);
    CHECK(decode(0, false, 0).cost < 2000 * 1.01);  // nothing is ever right
    CHECK(decode(0, false, 0).n_guesses < 40);
    CHECK(decode(0.5, false, 0).n_guesses > 500);
    CHECK(decode(0, false, 0, 3).n_guesses > 3 * 1990);  // asked for
    CHECK(decode(1, false, 0, 3).n_steps < 510);
    CHECK(decode(1, false, 0, 0, 0).n_guesses == 0);
    // With seven others, a ninth column costs more than a guess of a coin earns.
    const double alone = 2000 * true_cost(8);
    CHECK(decode(0.5, false, 7).cost < 1.01 * alone && decode(0, false, 7).cost < 1.01 * alone);
    CHECK(decode(1, false, 7).cost < alone);
}

void test_pauses() {
    CHECK(decode(0, false, 0).n_calls > 1900);
    CHECK(decode(0, true, 0).n_calls < 200);
    CHECK(decode(1, true, 0).n_calls > 100);
}

void test_several_proposers() {
    const Tokens future  = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    int          n_calls = 0;
    Speculator   speculator;
    speculator.add(pyg::FORCED_TEXT, std::make_unique<Prophet>(future, 0, false, n_calls));
    speculator.add(pyg::PROMPT_LOOKUP, std::make_unique<Prophet>(future, 1, false, n_calls));
    const ColumnCosts costs;
    Tokens            guesses;
    for (int i = 0; i < 100; i++) {
        Speculator::Load load = {1, 1};
        speculator.propose({0}, 4);
        speculator.choose(4, costs, load, guesses);
        speculator.learn(&future[1], 5);
    }
    CHECK(speculator.kind() == pyg::PROMPT_LOOKUP && guesses == Tokens({1, 2, 3, 4}));
}

// --- draft models ---------------------------------------------------------------------------------------------------

// Decode 2,000 tokens with a draft of which this share of the tokens is right, and a pass takes so long. Return the
// time, in steps of a single column.
double cost_with_draft(double right, double pass, std::shared_ptr<pyg::DraftRecord> record) {
    std::mt19937 random(5);
    ColumnCosts  costs;
    Speculator   speculator;
    speculator.add(pyg::DRAFT_MODEL, std::make_unique<pyg::DraftedTokens>(std::move(record)));
    double  cost = 0, affordable = 0, rate = 0;
    int32_t n_behind = 0;  // tokens that the draft has not read
    Tokens  guesses;
    for (int32_t at = 0; at < 2000;) {
        Speculator::Load load = {1, 1};
        load.rate             = std::max(1.0, rate);
        speculator.propose({}, 15);
        const size_t  n_most  = std::min<size_t>(15, static_cast<size_t>(1999 - at));
        double        drafted = 0;
        pyg::Proposal proposal;
        const double  catch_up = 0.2 * pass * n_behind;
        const auto    ask      = speculator.ask_of_draft(n_most, costs, load, {pass, catch_up, affordable, n_most, 1});
        if (ask.n_max > 0) {
            for (auto after = load; proposal.size() < ask.n_max; after.n_columns++) {
                const bool    is_right = std::uniform_real_distribution<>()(random) < right;
                const int32_t token_id = at + static_cast<int32_t>(proposal.size()) + 1;
                proposal.push_back({is_right ? token_id : -1, static_cast<uint8_t>(is_right ? 3 : 2)});
                if (!speculator.drafts_more(proposal, costs, after, pass)) {
                    break;
                }
            }
            drafted = catch_up + pass * static_cast<double>(proposal.size());
            affordable -= ask.is_trial ? drafted : 0;
            n_behind = 0;
        }
        speculator.set_drafted(proposal);
        speculator.choose(n_most, costs, load, guesses);
        Tokens sampled;
        for (size_t i = 0; i <= guesses.size(); i++) {
            sampled.push_back(++at);
            if (i == guesses.size() || guesses[i] != at) {
                break;
            }
        }
        n_behind += static_cast<int32_t>(sampled.size());
        speculator.learn(sampled.data(), sampled.size());
        costs.measured(load.n_columns, true_cost(load.n_columns));
        const double step = true_cost(load.n_columns) + drafted;
        rate += 0.05 * (static_cast<double>(sampled.size()) / step - rate);
        affordable = std::min(16.0, affordable + 0.01 * true_cost(load.n_columns));
        cost += step;
    }
    return cost;
}

void test_drafts() {
    const auto record  = std::make_shared<pyg::DraftRecord>();
    const auto useless = std::make_shared<pyg::DraftRecord>();
    CHECK(cost_with_draft(0.8, 0.1, record) < 2000 / 1.9);
    CHECK(cost_with_draft(1, 0.05, record) < 2000 / 4.0);
    CHECK(cost_with_draft(0.9, 1, record) < 2000 * 1.03);  // as slow as the model
    CHECK(cost_with_draft(0, 0.1, useless) < 2000 * 1.03);
    CHECK(cost_with_draft(0, 0.1, useless) < 2000 * 1.025);  // the next request assumes what was learned
    CHECK(useless->chance() < 0.4 && record->chance() > 0.6);
}

// A single guess that pays is no trial, and one that does not is.
void test_trials() {
    const auto ask = [](double pass, double affordable) {
        Speculator  speculator;
        ColumnCosts costs;
        costs.measured(1, 1);
        speculator.add(pyg::DRAFT_MODEL, std::make_unique<pyg::DraftedTokens>(std::make_shared<pyg::DraftRecord>()));
        return speculator.ask_of_draft(1, costs, {1, 1}, {pass, 0, affordable, 1000, 1});
    };
    CHECK(ask(0.05, 0).n_max == 1 && !ask(0.05, 0).is_trial);
    CHECK(ask(5, 6).n_max == 1 && ask(5, 6).is_trial);
    CHECK(ask(5, 4).n_max == 0 && !ask(5, 4).is_trial);
}

// The outputs of other requests, of which one ends where the next begins.
void test_formats() {
    pyg::FormatMemory memory;
    const auto        outputs = memory.of(1);
    CHECK(memory.of(1) == outputs && memory.of(2) != outputs);
    {
        pyg::FormatLookup lookup(outputs, {1, 2, 3});
        const Tokens      sampled = {10, 11, 12, 13};
        lookup.sampled(sampled.data(), sampled.size());
        pyg::Proposal proposal;
        lookup.propose({2, 3}, 5, proposal);
        CHECK(proposal.empty());
    }
    { const pyg::FormatLookup ended_at_once(outputs, {5, 6, 7, 2, 3}); }
    pyg::FormatLookup lookup(outputs, {7, 2, 3});
    pyg::Proposal     proposal;
    lookup.propose({7, 2, 3}, 5, proposal);
    CHECK(proposal.size() == 4 && proposal[0].token_id == 10 && proposal[3].token_id == 13);
    proposal.clear();
    lookup.propose({12, 13}, 5, proposal);
    CHECK(proposal.empty());
    for (uint64_t key = 3; key < 200; key++) {
        memory.of(key);
    }
    CHECK(memory.of(1) != outputs);
    const auto last = memory.of(1);
    memory.clear();
    CHECK(memory.of(1) != last);
}

}  // namespace

int main() {
    test_drafts();
    test_trials();
    test_formats();
    test_find();
    test_proposals();
    test_long_prompt();
    test_costs();
    test_choices();
    test_pauses();
    test_several_proposers();
}
