#include "sampling/grammar/forced_tokens.hpp"

#include <algorithm>
#include <string>

namespace {

using pyg::CompiledGrammar;
using pyg::GrammarMatcher;
using pyg::TokenTrie;

constexpr size_t MAX_FORCED_BYTES = 1 << 16, BYTES_PER_TOKEN = 8;

std::vector<int32_t> tokenized(const llama_vocab * vocab, const std::string & text) {
    std::vector<int32_t> token_ids(text.size() + 2);
    const int32_t        n = llama_tokenize(vocab, text.data(), static_cast<int32_t>(text.size()), token_ids.data(),
                                            static_cast<int32_t>(token_ids.size()), false, true);
    token_ids.resize(static_cast<size_t>(std::max(n, 0)));
    return token_ids;
}

// The tokens after the first ones whose texts are together `skipped`, if the rest spells `text`; else none.
std::vector<int32_t> tail_that_spells(const TokenTrie & trie, const std::vector<int32_t> & token_ids,
                                      const std::string & skipped, const std::string & text) {
    std::string before, spelled;
    size_t      i = 0;
    for (; i < token_ids.size() && before.size() < skipped.size(); i++) {
        before += trie.text(token_ids[i]);
    }
    const std::vector<int32_t> rest(token_ids.begin() + static_cast<std::ptrdiff_t>(i), token_ids.end());
    for (const int32_t token_id : rest) {
        spelled += trie.text(token_id);
    }
    return before == skipped && spelled == text ? rest : std::vector<int32_t>();
}

// The vocabulary's tokens of `text`, which continues another text; empty if it has none that spell it exactly. Some
// vocabularies put a space before every text: a line end in front takes it, and both are dropped.
std::vector<int32_t> tokens_inside(const CompiledGrammar & grammar, const std::string & text) {
    const llama_vocab *  vocab = grammar.vocab();
    const TokenTrie &    trie  = grammar.trie();
    std::vector<int32_t> found = tail_that_spells(trie, tokenized(vocab, text), "", text);
    for (const char * skipped : {"\n", " \n"}) {
        if (found.empty()) {
            found = tail_that_spells(trie, tokenized(vocab, "\n" + text), skipped, text);
        }
    }
    return found;
}

// Bytes after the last special token: no token spans it.
size_t n_bytes_after_special(const TokenTrie & trie, const std::vector<int32_t> & token_ids) {
    size_t n = 0;
    for (auto token_id = token_ids.rbegin(); token_id != token_ids.rend() && !trie.is_special(*token_id); ++token_id) {
        n += trie.text(*token_id).size();
    }
    return n;
}

// Bytes at the end of `text`, at most `n_max`, that a longer token may begin with. `end` is the position after it.
size_t n_open_bytes(const TokenTrie & trie, GrammarMatcher & end, const std::string & text, size_t n_max) {
    for (size_t n = std::min<size_t>(n_max, trie.max_depth()); n > 0; n--) {
        if (end.allows_longer(text.substr(text.size() - n))) {
            return n;
        }
    }
    return 0;
}

void drop_open(const TokenTrie & trie, std::vector<int32_t> & token_ids, size_t n_bytes) {
    for (size_t dropped = 0; dropped < n_bytes && !token_ids.empty(); token_ids.pop_back()) {
        dropped += trie.text(token_ids.back()).size();
    }
}

// The tokens of the text that is forced at a position, at most so many bytes.
std::vector<int32_t> tokens_of_forced_text(const CompiledGrammar & grammar, GrammarMatcher & position, size_t n_bytes) {
    const TokenTrie & trie = grammar.trie();
    const std::string text = position.forced_text(n_bytes);
    if (text.empty()) {
        return {};
    }
    std::vector<int32_t> token_ids = tokens_inside(grammar, text);
    GrammarMatcher       end       = position;
    end.accept_text(text);
    drop_open(trie, token_ids, n_open_bytes(trie, end, text, n_bytes_after_special(trie, token_ids)));
    return token_ids;
}

}  // namespace

namespace pyg {

std::vector<int32_t> forced_tokens(const GrammarOfModel & grammar, GrammarMatcher position, size_t n_max) {
    std::vector<int32_t> result;
    while (result.size() < n_max && !position.is_complete()) {
        std::vector<int32_t> next = tokens_of_forced_text(*grammar.grammar, position, MAX_FORCED_BYTES);
        if (next.empty()) {
            next.push_back(position.mask()->only());  // one that the grammar names, or that no other spelling replaces
        }
        for (const int32_t token_id : next) {
            if (result.size() == n_max || token_id < 0 || grammar.is_end(token_id) || !position.accept(token_id)) {
                return result;
            }
            result.push_back(token_id);
        }
    }
    return result;
}

std::vector<int32_t> forced_text_tokens(const CompiledGrammar & grammar, GrammarMatcher & position, size_t n_max) {
    std::vector<int32_t> token_ids = tokens_of_forced_text(grammar, position, BYTES_PER_TOKEN * n_max);
    token_ids.resize(std::min(token_ids.size(), n_max));
    return token_ids;
}

}  // namespace pyg
