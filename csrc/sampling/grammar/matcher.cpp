#include "sampling/grammar/matcher.hpp"

#include <memory>
#include <utility>

namespace {

constexpr size_t MAX_AUTOMATON_BYTES = 16 << 20;

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

CompiledGrammar::CompiledGrammar(const llama_vocab * vocab, std::shared_ptr<const TokenTrie> trie,
                                 const std::string & text, const std::string & root)
    : trie_(std::move(trie)), rules_(parse_grammar(vocab, text, root)), spelled_(mentioned(*trie_, text)),
      automaton_(fresh()) {}

std::shared_ptr<GrammarAutomaton> CompiledGrammar::fresh() const {
    return std::make_shared<GrammarAutomaton>(rules_, *trie_, spelled_);
}

GrammarMatcher::GrammarMatcher(std::shared_ptr<CompiledGrammar> grammar) : grammar_(std::move(grammar)) {
    std::lock_guard<std::mutex> lock(grammar_->mutex_);
    automaton_ = grammar_->automaton_;
}

GrammarAutomaton & GrammarMatcher::current() {
    if (grammar_->automaton_->n_bytes() > MAX_AUTOMATON_BYTES) {
        grammar_->automaton_ = grammar_->fresh();
    }
    if (automaton_ != grammar_->automaton_) {
        state_     = automaton_->moved_to(*grammar_->automaton_, state_);
        automaton_ = grammar_->automaton_;
    }
    return *automaton_;
}

std::shared_ptr<const TokenMask> GrammarMatcher::mask() {
    std::lock_guard<std::mutex> lock(grammar_->mutex_);
    return current().mask(state_);
}

bool GrammarMatcher::is_complete() const {
    std::lock_guard<std::mutex> lock(grammar_->mutex_);
    return automaton_->is_complete(state_);
}

bool GrammarMatcher::allows(int32_t token_id) {
    std::lock_guard<std::mutex> lock(grammar_->mutex_);
    return current().after_token(state_, token_id) != GrammarAutomaton::DEAD;
}

bool GrammarMatcher::accept(int32_t token_id) {
    std::lock_guard<std::mutex> lock(grammar_->mutex_);
    return move_to(current().after_token(state_, token_id));
}

bool GrammarMatcher::accept_text(const std::string & text) {
    std::lock_guard<std::mutex> lock(grammar_->mutex_);
    return move_to(current().after_text(state_, text));
}

std::string GrammarMatcher::forced_text(size_t n_max) {
    std::lock_guard<std::mutex> lock(grammar_->mutex_);
    return current().forced_text(state_, n_max);
}

bool GrammarMatcher::allows_longer(const std::string & begun) {
    std::lock_guard<std::mutex> lock(grammar_->mutex_);
    return current().allows_longer(state_, begun);
}

bool GrammarMatcher::move_to(GrammarAutomaton::State state) {
    if (state == GrammarAutomaton::DEAD) {
        return false;
    }
    state_ = state;
    return true;
}

}  // namespace pyg
