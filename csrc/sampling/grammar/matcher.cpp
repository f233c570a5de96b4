#include "sampling/grammar/matcher.hpp"

#include "sampling/grammar/automaton.hpp"

#include <algorithm>
#include <memory>
#include <utility>

namespace {

constexpr size_t MAX_AUTOMATON_BYTES = 16 << 20;
constexpr size_t MAX_FOLLOWED_BYTES  = 32 << 20;

// Special tokens match as text only in grammars that mention their text, such as those of tool calls.
std::vector<int32_t> mentioned(const pyg::TokenTrie & trie, const std::string & grammar) {
    std::vector<int32_t> result;
    for (const auto & [token_id, special] : trie.entries()) {
        if (special && grammar.find(trie.text(token_id)) != std::string::npos) {
            result.push_back(token_id);
        }
    }
    std::sort(result.begin(), result.end());
    return result;
}

}  // namespace

namespace pyg {

struct CompiledGrammar::Followed {
    Followed(const llama_vocab * vocab, const std::string & text, const std::string & root)
        : rules(parse_grammar(vocab, text, root)), steps(rules) {}

    GrammarRules rules;
    GrammarSteps steps;
};

CompiledGrammar::CompiledGrammar(const llama_vocab * vocab, std::shared_ptr<const VocabTries> tries,
                                 const std::string & text, const std::string & root,
                                 std::shared_ptr<std::atomic<size_t>> n_bytes)
    : vocab_(vocab), tries_(std::move(tries)), text_(text), root_(root), spelled_(mentioned(tries_->tokens(), text)),
      n_bytes_(std::move(n_bytes)) {
    start_again();
    // Now rather than with the first mask, which the engine's thread computes: it takes tens of milliseconds once.
    for (const GrammarTerminal & terminal : followed_->rules.terminals) {
        tries_->texts(spelling_of(terminal));
    }
}

const TokenTrie & CompiledGrammar::trie() const { return tries_->tokens(); }

void CompiledGrammar::start_again() {
    followed_   = std::make_shared<Followed>(vocab_, text_, root_);
    automaton_  = fresh_automaton();
    most_bytes_ = MAX_FOLLOWED_BYTES;
}

std::shared_ptr<GrammarAutomaton> CompiledGrammar::fresh_automaton() const {
    return std::make_shared<GrammarAutomaton>(followed_->rules, followed_->steps, *tries_, spelled_);
}

GrammarMatcher::GrammarMatcher(std::shared_ptr<CompiledGrammar> grammar)
    : grammar_(std::move(grammar)), states_({GrammarAutomaton::START}) {
    std::lock_guard<std::mutex> lock(grammar_->mutex_);
    followed_  = grammar_->followed_;
    automaton_ = grammar_->automaton_;
}

// Replace what has grown too large, and follow the grammar to what others have replaced.
GrammarAutomaton & GrammarMatcher::current() {
    CompiledGrammar & grammar = *grammar_;
    *grammar.n_bytes_         = grammar.followed_->steps.n_bytes() + grammar.automaton_->n_bytes();
    if (grammar.followed_->steps.n_bytes() > grammar.most_bytes_) {
        grammar.start_again();
    } else if (grammar.automaton_->n_bytes() > MAX_AUTOMATON_BYTES) {
        grammar.automaton_ = grammar.fresh_automaton();
    }
    if (followed_ != grammar.followed_) {
        followed_  = grammar.followed_;
        automaton_ = grammar.automaton_;
        read_again();
        // A long text may need more than the limit: it must not be read again at every step.
        grammar.most_bytes_ = std::max(grammar.most_bytes_, 2 * followed_->steps.n_bytes());
    } else if (automaton_ != grammar.automaton_) {
        const State now = automaton_->moved_to(*grammar.automaton_, states_.back());
        states_.assign(states_.size(), NOT_KNOWN);
        states_.back() = now;
        automaton_     = grammar.automaton_;
    }
    if (states_.back() == NOT_KNOWN) {  // after a rollback
        read_again();
    }
    return *automaton_;
}

void GrammarMatcher::read_again() {
    states_.assign(reads_.size() + 1, NOT_KNOWN);  // it may fail
    std::vector<State> states = {GrammarAutomaton::START};
    for (const Read & read : reads_) {
        states.push_back(after(*automaton_, read, states.back()));
    }
    states_ = std::move(states);
}

GrammarMatcher::State GrammarMatcher::after(GrammarAutomaton & automaton, const Read & read, State state) {
    return read.token_id == TEXT ? automaton.after_text(state, read.text) : automaton.after_token(state, read.token_id);
}

std::shared_ptr<const TokenMask> GrammarMatcher::mask() {
    std::lock_guard<std::mutex> lock(grammar_->mutex_);
    GrammarAutomaton &          automaton = current();
    return automaton.mask(states_.back());
}

bool GrammarMatcher::is_complete() {
    std::lock_guard<std::mutex> lock(grammar_->mutex_);
    return current().is_complete(states_.back());
}

bool GrammarMatcher::allows(int32_t token_id) {
    std::lock_guard<std::mutex> lock(grammar_->mutex_);
    GrammarAutomaton &          automaton = current();
    return automaton.after_token(states_.back(), token_id) != GrammarAutomaton::DEAD;
}

bool GrammarMatcher::accept(int32_t token_id) { return advance({token_id, {}}); }

bool GrammarMatcher::accept_text(const std::string & text) { return advance({TEXT, text}); }

bool GrammarMatcher::advance(Read read) {
    std::lock_guard<std::mutex> lock(grammar_->mutex_);
    GrammarAutomaton &          automaton = current();
    const State                 next      = after(automaton, read, states_.back());
    if (next == GrammarAutomaton::DEAD) {
        return false;
    }
    states_.reserve(states_.size() + 1);
    reads_.push_back(std::move(read));
    states_.push_back(next);
    return true;
}

void GrammarMatcher::rollback(size_t n) {
    const size_t n_left = reads_.size() - std::min(n, reads_.size());
    reads_.resize(n_left);
    states_.resize(n_left + 1);
}

std::string GrammarMatcher::forced_text(size_t n_max) {
    std::lock_guard<std::mutex> lock(grammar_->mutex_);
    GrammarAutomaton &          automaton = current();
    return automaton.forced_text(states_.back(), n_max);
}

bool GrammarMatcher::allows_longer(const std::string & begun) {
    std::lock_guard<std::mutex> lock(grammar_->mutex_);
    GrammarAutomaton &          automaton = current();
    return automaton.allows_longer(states_.back(), begun);
}

}  // namespace pyg
