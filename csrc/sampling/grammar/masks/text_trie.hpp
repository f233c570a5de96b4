// Tokens as the characters that they add to a text, for masks of free text: a language follows characters, so common
// beginnings are followed once, and what comes behind the text's end is kept apart.
#pragma once

#include "regex/languages.hpp"
#include "sampling/grammar/masks/token_mask.hpp"
#include "sampling/grammar/masks/token_trie.hpp"

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace pyg {

// Tokens that a language allows: those inside its text, and those that close the text's quotes, by what they add then.
struct TextMask {
    using Closers = std::vector<std::pair<uint32_t, int32_t>>;  // (rest, token), sorted

    TokenMask                      inside;
    std::shared_ptr<const Closers> closers;

    size_t n_bytes() const { return inside.n_bytes() + closers->size() * sizeof((*closers)[0]); }
};

// Any thread.
class TextTrie {
  public:
    enum Spelling {
        JSON_STRING,  // escapes are decoded, and an unescaped quote ends the text
        TIDY_STRING,  // the same, without escapes that JSON does not need
        PLAIN,        // every character is itself, and nothing ends the text
    };

    // Special tokens are left out.
    TextTrie(const TokenTrie & tokens, Spelling spelling);

    // Counts of a language beyond this many characters change nothing for short tokens.
    static constexpr uint32_t SHORT = 24;
    uint32_t                  longest() const { return longest_; }

    // The tokens that may follow in the text of a language, between two characters: of at most SHORT characters, and
    // the others.
    TextMask short_mask(Languages & languages, Language language) const;
    TextMask long_mask(Languages & languages, Language language) const;

    // All of them, for ANYTHING.
    const TextMask & any_text() const { return any_; }

    // What comes behind the closing quote in some token, as a trie: nodes in depth-first order, parents first.
    struct RestNode {
        uint8_t  byte;
        uint16_t depth;  // of the root's children: 0
        uint32_t after;  // index of the first node that is not below this one
        uint32_t rest;   // that ends here, or NO_REST
    };
    static constexpr uint32_t NO_REST    = UINT32_MAX;
    static constexpr uint32_t EMPTY_REST = 0;  // nothing comes behind the quote; has no node

    const std::vector<RestNode> & rest_nodes() const { return rest_nodes_; }
    uint32_t                      longest_rest() const { return longest_rest_; }
    bool                          has_quote(uint32_t rest) const { return rest_has_quote_[rest]; }

  private:
    static constexpr uint32_t INSIDE = UINT32_MAX;  // instead of a rest

    struct Node {
        uint32_t code_point;
        uint32_t after;        // index of the first node that is not below this one
        uint32_t first_entry;  // entries of the node itself end at own_end, those below it at last_entry
        uint32_t own_end;
        uint32_t last_entry;
        uint16_t depth;
    };

    struct Entry {
        int32_t  token_id;
        uint32_t rest;  // or INSIDE
        uint32_t tail;  // index of ranges_: what the incomplete character at its end may become; 0: complete
        uint32_t length;
    };

    struct Part {                  // of the tokens
        std::vector<Node>  nodes;  // the first is the root
        std::vector<Entry> entries;
    };

    using Ranges = std::vector<std::pair<uint32_t, uint32_t>>;

    struct Spelled {
        std::u32string text;
        Entry          entry;
    };

    // A mask that is being built.
    struct Draft {
        TokenMaskBuilder  inside;
        TextMask::Closers closers;

        explicit Draft(int32_t n_vocab) : inside(n_vocab) {}
    };

    bool     read_json(const std::string & bytes, bool tidy, Spelled & spelled);
    bool     read_plain(const std::string & bytes, Spelled & spelled);
    uint32_t tail_of(Ranges ranges);
    uint32_t rest_of(const std::string & rest);
    void     build(std::vector<Spelled> spelled, Part & part) const;
    void     build_rests();
    void     sum_up();
    void     add(const Entry & entry, Draft & draft) const;
    TextMask finished(Draft & draft) const;
    bool     is_nearly_free(Languages & languages, Language language) const;
    template <class Visit>
    void walk(const Part & part, Languages & languages, Language language, Visit && visit) const;
    void add_allowed(const Part & part, Languages & languages, Language language, Draft & draft) const;
    std::shared_ptr<const TokenBits> tokens_of(const CharSet & characters) const;
    TokenBits                        compute_tokens_of(const CharSet & characters) const;
    bool                             may_become(const Entry & entry, const CharSet & characters) const;
    TokenBits                        walk_tokens_of(const CharSet & characters) const;
    void                             index_characters(const std::vector<Spelled> & inside);
    void add_all_but_forbidden(Languages & languages, Language language, Draft & draft) const;
    void add_by_length(const Part & part, uint32_t least, uint32_t most, Draft & draft) const;
    bool allows(const Entry & entry, Languages & languages, Language language) const;

    int32_t                                   n_vocab_;
    Part                                      inside_;   // short tokens that stay in the text
    Part                                      closing_;  // short ones that close it
    Part                                      long_;     // both
    std::unordered_map<std::string, uint32_t> rests_ = {{"", EMPTY_REST}};
    std::vector<bool>                         rest_has_quote_;  // by rest
    std::vector<RestNode>                     rest_nodes_;
    uint32_t                                  longest_rest_ = 0;
    std::map<Ranges, uint32_t>                tails_        = {{{}, 0}};
    std::vector<Ranges>                       ranges_       = {{}};
    uint32_t                                  longest_      = 0;
    std::map<uint32_t, std::vector<int32_t>>  containing_;  // by character: the tokens of inside_ with it
    std::vector<Entry>                        unfinished_;  // those with an incomplete character
    // By characters, as ranges: the tokens of inside_ that consist of them. Shared by all grammars of the vocabulary.
    mutable std::map<Ranges, std::shared_ptr<const TokenBits>> tokens_of_;
    mutable std::mutex                                         mutex_;  // guards tokens_of_
    std::vector<std::shared_ptr<const TokenBits>> up_to_;  // by n <= SHORT: tokens of inside_ that add at most so many
    std::shared_ptr<const TextMask::Closers>      short_closers_;  // all of closing_
    TextMask                                      any_;
};

}  // namespace pyg
