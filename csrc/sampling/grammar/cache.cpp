#include "sampling/grammar/cache.hpp"

#include <algorithm>

namespace {

constexpr size_t MAX_GRAMMARS        = 64;
constexpr size_t MAX_AUTOMATON_BYTES = 16 << 20;

// The text of special tokens is invisible. It matters only to grammars that mention it, such as those of tool calls.
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

// --- matchers -------------------------------------------------------------------------------------------------

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

bool GrammarMatcher::move_to(GrammarAutomaton::State state) {
    if (state == GrammarAutomaton::DEAD) {
        return false;
    }
    state_ = state;
    return true;
}

// --- the cache ------------------------------------------------------------------------------------------------

std::shared_ptr<CompiledGrammar> GrammarCache::get(const llama_vocab * vocab, const std::string & text,
                                                   const std::string & root) {
    const auto                  found = entry(root + '\0' + text);
    std::lock_guard<std::mutex> lock(found->mutex);
    if (!found->grammar) {
        found->grammar = std::make_shared<CompiledGrammar>(vocab, trie(vocab), text, root);
        std::lock_guard<std::mutex> count(mutex_);
        n_compiled_++;
    }
    return found->grammar;
}

uint64_t GrammarCache::n_compiled() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return n_compiled_;
}

// The entry for a key, created if needed, moved to the front. The least recently used ones are dropped.
std::shared_ptr<GrammarCache::Entry> GrammarCache::entry(const std::string & key) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto                  found =
        std::find_if(entries_.begin(), entries_.end(), [&](const auto & entry) { return entry->key == key; });
    if (found != entries_.end()) {
        entries_.splice(entries_.begin(), entries_, found);
        return entries_.front();
    }
    entries_.push_front(std::make_shared<Entry>());
    entries_.front()->key = key;
    if (entries_.size() > MAX_GRAMMARS) {
        entries_.pop_back();
    }
    return entries_.front();
}

std::shared_ptr<const TokenTrie> GrammarCache::trie(const llama_vocab * vocab) {
    std::lock_guard<std::mutex> lock(trie_mutex_);
    if (!trie_) {
        trie_ = std::make_shared<TokenTrie>(vocab);
    }
    return trie_;
}

}  // namespace pyg
