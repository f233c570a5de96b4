// Token masks of grammars, compared with upstream's: random grammars, real and random tokens, thousands of states.
#include "boundary/guard.hpp"
#include "llama-grammar.h"
#include "sampling/grammar/cache.hpp"
#include "tests/support/testing.hpp"

#include <cmath>
#include <cstdlib>
#include <memory>
#include <new>
#include <random>

namespace {

using pyg::GrammarMatcher;

struct Freed {
    void operator()(llama_grammar * grammar) const { llama_grammar_free_impl(grammar); }
    void operator()(llama_model * model) const { llama_model_free(model); }
};

using Model   = std::unique_ptr<llama_model, Freed>;
using Grammar = std::unique_ptr<llama_grammar, Freed>;
using Random  = std::mt19937;

Model load(const char * path) {
    llama_model_params params = llama_model_default_params();
    params.vocab_only         = true;
    Model model(llama_model_load_from_file(path, params));
    CHECK(model);
    return model;
}

Grammar upstream(const llama_vocab * vocab, const std::string & text) {
    Grammar grammar(llama_grammar_init_impl(vocab, text.c_str(), "root", false, nullptr, 0, nullptr, 0));
    CHECK(grammar);
    return grammar;
}

uint32_t below(Random & random, uint32_t n) { return static_cast<uint32_t>(random() % n); }

// --- random grammars, over a few characters that the vocabulary has many tokens of -----------------------------

std::string random_symbol(Random & random, int depth, const std::string & later_rules);

std::string random_sequence(Random & random, int depth, const std::string & later_rules) {
    std::string result;
    for (uint32_t n = 1 + below(random, 3); n > 0; n--) {
        result += random_symbol(random, depth, later_rules) + " ";
    }
    return result;
}

std::string random_symbol(Random & random, int depth, const std::string & later_rules) {
    static const char * const TERMINALS[] = {"\"the\"",  "\" a\"",      "[a-z]",      "[ ]",
                                             "[^a-m]",   "\"{\\\"\"",   "[0-9]",      "\"\\n\"",
                                             "[^\"\\n]", "\"\\u00e9\"", ".",          "[\\u4e00-\\u9fff]",
                                             "[e-t ]",   "[A-Z] [a-z]", "\"1\" [0-9]"};
    static const char * const REPEATS[]   = {"", "", "", "?", "*", "+", "{2}", "{1,3}", "{2,}"};
    std::string               symbol;
    switch (depth > 0 ? below(random, 4) : 0) {
    case 1:
        symbol = "(" + random_sequence(random, depth - 1, later_rules) + "| " +
                 random_sequence(random, depth - 1, later_rules) + ")";
        break;
    case 2:
        // A rule may refer to itself after another symbol, which makes deep stacks.
        symbol = "(\"(\" root \")\" | \"x\")";
        break;
    case 3:
        if (!later_rules.empty()) {
            symbol = later_rules.substr(below(random, static_cast<uint32_t>(later_rules.size())), 1);
            break;
        }
        [[fallthrough]];
    default:
        symbol = TERMINALS[below(random, std::size(TERMINALS))];
    }
    return "(" + symbol + ")" + REPEATS[below(random, std::size(REPEATS))];
}

std::string random_grammar(Random & random) {
    const std::string names = "uvw";  // each uses only later ones, so that none is left-recursive
    std::string       text  = "root ::= [a-z ] " + random_sequence(random, 2, names) + "\n";
    for (size_t i = 0; i < names.size(); i++) {
        text += names.substr(i, 1) + " ::= " + random_sequence(random, 2, names.substr(i + 1)) + "\n";
    }
    return text;
}

// --- one state after the other ---------------------------------------------------------------------------------

bool is_complete(llama_grammar & grammar) {
    for (const auto & stack : llama_grammar_get_stacks(&grammar)) {
        if (stack.empty()) {
            return true;
        }
    }
    return false;
}

// Upstream reads some bytes as characters that no UTF-8 decoder accepts; such tokens are not compared.
bool is_utf8(const std::string & text, int n_open, int & n_left) {
    for (const char c : text) {
        const auto byte = static_cast<uint8_t>(c);
        if (n_open > 0) {
            if (byte >> 6 != 2) {
                return false;
            }
            n_open--;
        } else if (byte >= 0x80) {
            if (byte < 0xC4 || byte >= 0xF0 || byte == 0xE0 || byte == 0xED) {
                return false;  // those with rules for the byte after them
            }
            n_open = byte >= 0xE0 ? 2 : 1;
        }
    }
    n_left = n_open;
    return true;
}

struct Checked {
    int n_states = 0;
    int n_tokens = 0;  // that were allowed
};

void compare(llama_grammar & theirs, GrammarMatcher & ours, const pyg::TokenTrie & trie, const llama_vocab * vocab,
             int n_open, Checked & checked) {
    std::vector<llama_token_data> data;
    for (int32_t id = 0; id < trie.n_vocab(); id++) {
        data.push_back({id, 0, 0});
    }
    llama_token_data_array candidates = {data.data(), data.size(), -1, false};
    llama_grammar_apply_impl(theirs, &candidates);
    const auto mask = ours.mask();
    CHECK(ours.is_complete() == (is_complete(theirs) && n_open == 0));
    for (int32_t id = 0; id < trie.n_vocab(); id++) {
        int n_left = 0;
        if (trie.is_special(id) || llama_vocab_is_eog(vocab, id) || !is_utf8(trie.text(id), n_open, n_left)) {
            continue;
        }
        const bool allowed = data[static_cast<size_t>(id)].logit == 0;
        if (allowed != mask->has(id)) {
            std::fprintf(stderr, "token %d \"%s\": upstream says %d\n", id, trie.text(id).c_str(), allowed);
        }
        CHECK(allowed == mask->has(id));
        CHECK(allowed == ours.allows(id));
        checked.n_tokens += allowed;
    }
    checked.n_states++;
}

// Follow a random text in both.
void follow(const llama_vocab * vocab, const std::string & text, pyg::GrammarCache & cache, Random & random,
            Checked & checked) {
    const auto     compiled = cache.get(vocab, text, "root");
    const auto &   trie     = compiled->trie();
    GrammarMatcher ours(compiled);
    const Grammar  theirs = upstream(vocab, text);
    int            n_open = 0;
    for (int step = 0; step < 12; step++) {
        compare(*theirs, ours, trie, vocab, n_open, checked);
        std::vector<int32_t> allowed;
        ours.mask()->for_each([&](int32_t id) {
            int n_left = 0;
            if (!trie.is_special(id) && !llama_vocab_is_eog(vocab, id) && is_utf8(trie.text(id), n_open, n_left)) {
                allowed.push_back(id);
            }
        });
        if (allowed.empty()) {
            return;
        }
        const int32_t chosen = allowed[below(random, static_cast<uint32_t>(allowed.size()))];
        CHECK(is_utf8(trie.text(chosen), n_open, n_open));
        llama_grammar_accept_impl(*theirs, chosen);
        CHECK(ours.accept(chosen));
    }
}

void test_random_grammars(const llama_vocab * vocab, uint32_t seed, int n_grammars) {
    pyg::GrammarCache cache;
    Random            random(seed);
    Checked           checked;
    int               n_used = 0;
    for (int i = 0; i < n_grammars; i++) {
        const std::string text = random_grammar(random);
        try {
            cache.get(vocab, text, "root");
        } catch (const pyg::Failure &) {
            continue;  // it repeats something that may be empty, which neither side accepts
        }
        n_used++;
        for (int walk = 0; walk < 3; walk++) {
            follow(vocab, text, cache, random, checked);
        }
    }
    std::printf("%d grammars, %d states, %d allowed tokens\n", n_used, checked.n_states, checked.n_tokens);
    CHECK(n_used > n_grammars / 3);
    CHECK(checked.n_states > 10 * n_used);
    CHECK(cache.n_compiled() == static_cast<uint64_t>(n_used));
}

// Bytes that upstream accepts although they are not UTF-8.
void test_only_utf8(const llama_vocab * vocab) {
    pyg::GrammarCache cache;
    const auto        compiled = cache.get(vocab, "root ::= [^a]*", "root");
    const auto        taken    = [&](const std::string & bytes) { return GrammarMatcher(compiled).accept_text(bytes); };
    const auto        complete = [&](const std::string & bytes) {
        GrammarMatcher matcher(compiled);
        return matcher.accept_text(bytes) && matcher.is_complete();
    };
    for (const char * good : {"\x7F", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80",
                              "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF", "\xF0\x9F\x98\x80 b"}) {
        CHECK(complete(good));
        CHECK(!complete(std::string(good) + "\xE2\x82"));
        CHECK(taken(std::string(good) + "\xE2\x82"));
    }
    for (const char * bad : {"\x80", "\xC0", "\xC1\xBF", "\xC2\x41", "\xE0\x9F", "\xED\xA0", "\xF0\x8F", "\xF4\x90",
                             "\xF5", "\xFF", "\xE2\x82\xC0", "a"}) {
        CHECK(!taken(bad));
    }
}

// A grammar whose states never repeat outgrows its automaton and continues in a new one.
void test_endless_states(const llama_vocab * vocab) {
    pyg::GrammarCache cache;
    const auto        compiled = cache.get(vocab, "root ::= \"[\" root \"]\" | [a-z]", "root");
    GrammarMatcher    matcher(compiled);
    constexpr int     DEPTH = 30'000;
    for (int i = 0; i < DEPTH; i++) {
        CHECK(matcher.accept_text("["));
    }
    CHECK(matcher.accept_text("x"));
    for (int i = 0; i < DEPTH; i++) {
        CHECK(!matcher.is_complete());
        CHECK(matcher.accept_text("]"));
    }
    CHECK(matcher.is_complete());
    CHECK(!matcher.accept_text("]"));
}

// Tokens by name, and special tokens that a grammar spells out.
void test_tokens(const llama_vocab * vocab) {
    pyg::GrammarCache cache;
    const int32_t     special = llama_vocab_bos(vocab);
    const auto        trie    = cache.get(vocab, "root ::= \"a\"", "root");
    CHECK(trie->trie().is_special(special));
    const std::string name = trie->trie().text(special);

    GrammarMatcher free_text(cache.get(vocab, "root ::= .*", "root"));
    CHECK(!free_text.allows(special));
    CHECK(!free_text.mask()->has(special));

    GrammarMatcher spelled(cache.get(vocab, "root ::= \"" + name + "\" [a-z]+", "root"));
    CHECK(spelled.mask()->has(special));
    CHECK(spelled.accept(special));
    CHECK(!spelled.allows(special));
    CHECK(spelled.accept_text("abc"));

    GrammarMatcher named(cache.get(vocab, "root ::= <[" + std::to_string(special) + "]> !<[5]>", "root"));
    int            n = 0;
    named.mask()->for_each([&](int32_t id) { n += 1 + (id != special); });
    CHECK(n == 1);
    CHECK(named.accept(special));
    CHECK(!named.is_complete());
    CHECK(!named.allows(5) && !named.mask()->has(5));
    CHECK(named.allows(6) && named.mask()->has(6));
    CHECK(named.accept(6));
    CHECK(named.is_complete());
}

// A grammar may name tokens that do not exist; they are never allowed.
void test_tokens_outside_the_vocabulary(const llama_vocab * vocab) {
    pyg::GrammarCache cache;
    const int32_t     n_vocab = llama_vocab_n_tokens(vocab);
    const auto        allowed = [&](const std::string & text) {
        int n = 0;
        GrammarMatcher(cache.get(vocab, text, "root")).mask()->for_each([&](int32_t) { n++; });
        return n;
    };
    CHECK(allowed("root ::= <[4294967295]> | <[" + std::to_string(n_vocab) + "]>") == 0);
    CHECK(allowed("root ::= <[4294967295]> | <[7]>") == 1);
    CHECK(allowed("root ::= !<[4294967295]>") == n_vocab);
    CHECK(allowed("root ::= !<[7]>") == n_vocab - 1);
    CHECK(allowed("root ::= !<[7]> | !<[8]>") == n_vocab);
    CHECK(allowed("root ::= !<[7]> | <[7]>") == n_vocab);
}

// Thousands of stacks, with a new state for nearly every text.
std::string laborious_grammar() {
    std::string alternatives;
    for (char letter = 'a'; letter <= 'z'; letter++) {
        for (int distance = 1; distance < 60; distance += 2) {
            alternatives += std::string(alternatives.empty() ? "" : " | ") + "[a-z ]* \"" + letter + "\" [a-z ]{" +
                            std::to_string(distance) + "} \"A\" root";
        }
    }
    return "root ::= " + alternatives;
}

// A step that takes too long is abandoned, while other users of the grammar continue.
void test_laborious_grammars(const llama_vocab * vocab) {
    pyg::GrammarCache cache;
    const auto        compiled = cache.get(vocab, laborious_grammar(), "root");
    GrammarMatcher    matcher(compiled);
    pyg_error         error;
    CHECK(pyg::guard(&error, [&] { matcher.mask(); }) == PYG_ERR_GRAMMAR);
    CHECK(std::string(error.message).find("too long") != std::string::npos);
    CHECK(matcher.accept_text("abA"));
    CHECK(!matcher.accept_text("B"));
}

thread_local int64_t t_allocations_left = INT64_MAX;

// Hash of the allowed tokens in a few states.
uint64_t fingerprint(GrammarMatcher & matcher) {
    uint64_t hash = 0;
    for (const char * text : {"", "[", "1", ",2", "]", "\xC3", "\xA9"}) {
        CHECK(matcher.accept_text(text));
        matcher.mask()->for_each([&](int32_t id) { hash = hash * 31 + static_cast<uint64_t>(id) + 1; });
    }
    return hash;
}

// The grammar stays usable whichever allocation fails.
void test_short_memory(const llama_vocab * vocab) {
    const std::string text = "root ::= list [\\u00e0-\\u00ff]+\nlist ::= \"[\" ([0-9]+ (\",\" [0-9]+)*)? \"]\"";
    pyg::GrammarCache cache;
    GrammarMatcher    undisturbed(cache.get(vocab, text, "root"));
    const uint64_t    expected = fingerprint(undisturbed);
    bool              failed   = true;
    int               n_failed = 0;
    for (int64_t n = 0; failed; n++) {
        pyg::GrammarCache other;
        const auto        compiled = other.get(vocab, text, "root");
        failed                     = false;
        try {
            GrammarMatcher disturbed(compiled);
            t_allocations_left = n;
            fingerprint(disturbed);
        } catch (const std::bad_alloc &) {
            failed = true;
        }
        t_allocations_left = INT64_MAX;
        n_failed += failed;
        GrammarMatcher again(compiled);
        CHECK(fingerprint(again) == expected);
    }
    CHECK(n_failed > 100);
}

}  // namespace

void * operator new(size_t size) {
    void * memory = t_allocations_left-- > 0 ? std::malloc(size) : nullptr;
    return memory ? memory : throw std::bad_alloc();
}

void operator delete(void * memory) noexcept { std::free(memory); }
void operator delete(void * memory, size_t) noexcept { std::free(memory); }

int main(int argc, char ** argv) try {
    CHECK(argc == 3);
    llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
    llama_backend_init();
    const Model small = load(argv[1]);
    const Model large = load(argv[2]);
    test_random_grammars(llama_model_get_vocab(small.get()), 1, 150);
    test_random_grammars(llama_model_get_vocab(large.get()), 2, 8);
    test_only_utf8(llama_model_get_vocab(small.get()));
    test_endless_states(llama_model_get_vocab(small.get()));
    test_tokens(llama_model_get_vocab(small.get()));
    test_tokens_outside_the_vocabulary(llama_model_get_vocab(small.get()));
    test_laborious_grammars(llama_model_get_vocab(large.get()));
    test_short_memory(llama_model_get_vocab(small.get()));
    return 0;
} catch (const pyg::Failure & failure) {
    std::fprintf(stderr, "%s\n", failure.message.c_str());
    return 1;
}
