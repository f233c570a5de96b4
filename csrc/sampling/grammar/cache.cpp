#include "sampling/grammar/cache.hpp"

#include "sampling/grammar/masks/vocab_tries.hpp"

namespace {

constexpr size_t MAX_BYTES = 256 << 20;

}  // namespace

std::shared_ptr<pyg::CompiledGrammar> pyg::GrammarCache::get(const llama_vocab * vocab, const std::string & text,
                                                             const std::string & root) {
    std::call_once(tries_once_, [&] { tries_ = std::make_shared<VocabTries>(vocab); });
    std::unique_lock<std::mutex> lock(mutex_);
    const std::shared_ptr<Entry> entry = entries_.get(root + '\0' + text, std::make_shared<Entry>);
    entries_.drop_while([](const auto & entries) {
        size_t n_bytes = 0;
        for (const auto & [key, each] : entries) {
            n_bytes += *each->n_bytes;
        }
        return n_bytes > MAX_BYTES;
    });
    lock.unlock();
    const std::lock_guard<std::mutex> compiling(entry->mutex);
    if (!entry->grammar) {
        entry->grammar = std::make_shared<CompiledGrammar>(vocab, tries_, text, root, entry->n_bytes);
        n_compiled_++;
    }
    return entry->grammar;
}
