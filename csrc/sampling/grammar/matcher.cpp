#include "sampling/grammar/matcher.hpp"

#include <algorithm>
#include <memory>
#include <utility>

namespace {

constexpr size_t MAX_AUTOMATON_BYTES = 32 << 20;

// Special tokens match as text only in grammars that mention their text, such as those of tool calls.
std::vector<bool> mentioned(const pyg::TokenTrie & trie, const std::string & grammar) {
    std::vector<bool> result(static_cast<size_t>(trie.n_vocab()));
    for (const auto & [token_id, special] : trie.entries()) {
        result[static_cast<size_t>(token_id)] = special && grammar.find(trie.text(token_id)) != std::string::npos;
    }
    return result;
}

}  // namespace

namespace pyg {

CompiledGrammar::CompiledGrammar(const llama_vocab * vocab, std::shared_ptr<const VocabTries> tries,
                                 const std::string & text, const std::string & root)
    : vocab_(vocab), tries_(std::move(tries)), text_(text), root_(root), spelled_(mentioned(tries_->tokens(), text)),
      compiled_(compile()) {}

std::shared_ptr<CompiledGrammar::Compiled> CompiledGrammar::compile() const {
    return std::make_shared<Compiled>(vocab_, text_, root_, *tries_, spelled_);
}

size_t CompiledGrammar::n_bytes() {
    std::lock_guard<std::mutex> lock(mutex_);
    return compiled_->automaton.n_bytes();
}

GrammarMatcher::GrammarMatcher(std::shared_ptr<CompiledGrammar> grammar) : grammar_(std::move(grammar)) {
    std::lock_guard<std::mutex> lock(grammar_->mutex_);
    compiled_ = grammar_->compiled_;
}

// If the automaton was replaced, read the text again.
GrammarAutomaton & GrammarMatcher::current() {
    if (grammar_->compiled_->automaton.n_bytes() > MAX_AUTOMATON_BYTES) {
        grammar_->compiled_ = grammar_->compile();
    }
    if (compiled_ != grammar_->compiled_) {
        std::vector<GrammarAutomaton::State> states = {GrammarAutomaton::START};
        for (const Read & read : reads_) {
            states.push_back(after(grammar_->compiled_->automaton, read, states.back()));
        }
        states_   = std::move(states);
        compiled_ = grammar_->compiled_;
    }
    return compiled_->automaton;
}

GrammarAutomaton::State GrammarMatcher::after(GrammarAutomaton & automaton, const Read & read,
                                              GrammarAutomaton::State state) {
    return read.token_id == TEXT ? automaton.after_text(state, read.text) : automaton.after_token(state, read.token_id);
}

std::shared_ptr<const TokenMask> GrammarMatcher::mask() {
    std::lock_guard<std::mutex> lock(grammar_->mutex_);
    GrammarAutomaton &          automaton = current();
    return automaton.mask(states_.back());
}

bool GrammarMatcher::is_complete() const {
    std::lock_guard<std::mutex> lock(grammar_->mutex_);
    return compiled_->automaton.is_complete(states_.back());
}

bool GrammarMatcher::allows(int32_t token_id) {
    std::lock_guard<std::mutex> lock(grammar_->mutex_);
    GrammarAutomaton &          automaton = current();
    return automaton.after_token(states_.back(), token_id) != GrammarAutomaton::DEAD;
}

bool GrammarMatcher::accept(int32_t token_id) { return advance({token_id, {}}); }

bool GrammarMatcher::accept_text(const std::string & text) { return advance({TEXT, text}); }

bool GrammarMatcher::advance(Read read) {
    std::lock_guard<std::mutex>   lock(grammar_->mutex_);
    GrammarAutomaton &            automaton = current();
    const GrammarAutomaton::State next      = after(automaton, read, states_.back());
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

std::string GrammarMatcher::forced(size_t most) {
    std::lock_guard<std::mutex> lock(grammar_->mutex_);
    GrammarAutomaton &          automaton = current();
    return automaton.forced(states_.back(), most);
}

}  // namespace pyg
