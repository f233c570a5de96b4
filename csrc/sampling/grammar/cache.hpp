// Cache of compiled grammars, shared by all requests of a model.
#pragma once

#include "sampling/grammar/matcher.hpp"
#include "sampling/lru_cache.hpp"

#include <atomic>
#include <mutex>

namespace pyg {

// The most recently used grammars of a model, at most 64 and 256 MB. Those in use live on. Any thread.
class GrammarCache {
  public:
    // PYG_ERR_GRAMMAR
    std::shared_ptr<CompiledGrammar> get(const llama_vocab * vocab, const std::string & text, const std::string & root);

    uint64_t n_compiled() const { return n_compiled_; }

  private:
    struct Entry {
        std::mutex                           mutex;  // held while compiling it
        std::shared_ptr<CompiledGrammar>     grammar;
        std::shared_ptr<std::atomic<size_t>> n_bytes = std::make_shared<std::atomic<size_t>>(0);  // that it takes
    };

    std::mutex                           mutex_;
    LruCache<std::shared_ptr<Entry>, 64> entries_;
    std::atomic<uint64_t>                n_compiled_{0};
    std::once_flag                       tries_once_;
    std::shared_ptr<const VocabTries>    tries_;
};

}  // namespace pyg
