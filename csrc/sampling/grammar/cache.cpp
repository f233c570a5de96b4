#include "sampling/grammar/cache.hpp"

#include <algorithm>

namespace {

constexpr size_t MAX_GRAMMARS = 64;

}  // namespace

namespace pyg {

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

// Return the entry for a key, created if needed and moved to the front. Evicts the least recently used ones.
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
