#include "sampling/grammar/cache.hpp"

std::shared_ptr<pyg::CompiledGrammar> pyg::GrammarCache::get(const llama_vocab * vocab, const std::string & text,
                                                             const std::string & root) {
    std::call_once(tries_once_, [&] { tries_ = std::make_shared<VocabTries>(vocab); });
    std::unique_lock<std::mutex> lock(mutex_);
    const std::shared_ptr<Entry> entry = entries_.get(root + '\0' + text, std::make_shared<Entry>);
    lock.unlock();
    const std::lock_guard<std::mutex> compiling(entry->mutex);
    if (!entry->grammar) {
        entry->grammar = std::make_shared<CompiledGrammar>(vocab, tries_, text, root);
        n_compiled_++;
    }
    return entry->grammar;
}
