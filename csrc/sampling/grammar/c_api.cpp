// C entry points of grammars and matchers.
#include "boundary/handles.hpp"
#include "boundary/log.hpp"
#include "sampling/grammar/text_matcher.hpp"

#include <algorithm>

namespace {

using pyg::fail;
using pyg::GrammarOfModel;
using pyg::Model;
using pyg::TextMatcher;

// Those of the vocabulary and the caller's, sorted.
std::vector<int32_t> end_tokens(const Model & model, const pyg::TokenTrie & trie, const int32_t * more, size_t n) {
    std::vector<int32_t> result = trie.ends();
    for (size_t i = 0; i < n; i++) {
        model.require_token(more[i], static_cast<int32_t>(i));
        result.push_back(more[i]);
    }
    std::sort(result.begin(), result.end());
    result.erase(std::unique(result.begin(), result.end()), result.end());
    return result;
}

pyg::GrammarMatcher matcher_after(const std::shared_ptr<pyg::CompiledGrammar> & grammar, const char * prefix) {
    pyg::GrammarMatcher matcher(grammar);
    if (prefix && !matcher.accept_text(prefix)) {
        throw fail(PYG_ERR_GRAMMAR, "the grammar does not match its prefix: \"%s\"", prefix);
    }
    return matcher;
}

}  // namespace

struct pyg_grammar : pyg::PointerHandle<std::shared_ptr<const GrammarOfModel>, PYG_HANDLE_GRAMMAR> {
    using PointerHandle::PointerHandle;
};

struct pyg_matcher : pyg::PointerHandle<std::unique_ptr<TextMatcher>, PYG_HANDLE_MATCHER> {
    using PointerHandle::PointerHandle;
};

pyg_status pyg_grammar_check(const char * text, const char * root, pyg_error * err) {
    return pyg::guard(err, [&] {
        const pyg::LogMute muted;  // what it ignores is logged once, when it is compiled
        pyg::parse_grammar(nullptr, text, root);
    });
}

pyg_status pyg_grammar_compile(pyg_model * handle, const char * text, const char * root, const char * prefix,
                               const int32_t * stop_token_ids, size_t n_stop_tokens, pyg_grammar ** out,
                               pyg_error * err) {
    return pyg::guard(err, [&] {
        const auto model = pyg::shared_object(handle);
        if (llama_vocab_type(model->vocab) == LLAMA_VOCAB_TYPE_NONE) {
            throw fail(PYG_ERR_TOKENIZER, "%s has no vocabulary, so no grammar can be compiled for it",
                       model->path.c_str());
        }
        auto grammar = model->grammars.get(model->vocab, text, root);
        auto ends    = end_tokens(*model, grammar->trie(), stop_token_ids, n_stop_tokens);
        auto start   = matcher_after(grammar, prefix);
        *out         = new pyg_grammar(std::shared_ptr<const GrammarOfModel>(
            new GrammarOfModel{model, std::move(grammar), std::move(start), std::move(ends)}));
    });
}

pyg_status pyg_grammar_close(pyg_grammar * grammar, pyg_error * err) { return pyg::close(grammar, err); }
void       pyg_grammar_free(pyg_grammar * grammar) { pyg::free_handle(grammar); }

pyg_status pyg_grammar_vocab_size(pyg_grammar * grammar, int32_t * out, pyg_error * err) {
    return pyg::guard(err, [&] { *out = pyg::shared_object(grammar)->model->n_vocab(); });
}

pyg_status pyg_matcher_new(pyg_grammar * grammar, pyg_matcher ** out, pyg_error * err) {
    return pyg::guard(err, [&] { *out = new pyg_matcher(std::make_unique<TextMatcher>(pyg::shared_object(grammar))); });
}

pyg_status pyg_matcher_copy(pyg_matcher * matcher, pyg_matcher ** out, pyg_error * err) {
    return pyg::with(matcher, err,
                     [&](TextMatcher & text) { *out = new pyg_matcher(std::make_unique<TextMatcher>(text)); });
}

pyg_status pyg_matcher_close(pyg_matcher * matcher, pyg_error * err) { return pyg::close(matcher, err); }
void       pyg_matcher_free(pyg_matcher * matcher) { pyg::free_handle(matcher); }

pyg_status pyg_matcher_mask(pyg_matcher * matcher, uint32_t * words, size_t n_words, pyg_error * err) {
    return pyg::with(matcher, err, [&](TextMatcher & text) {
        if (n_words != text.grammar().n_mask_words()) {
            throw fail(PYG_ERR_INVALID_PARAMETER, "a mask of this vocabulary has %zu words, not %zu",
                       text.grammar().n_mask_words(), n_words);
        }
        text.mask(words);
    });
}

pyg_status pyg_matcher_accept(pyg_matcher * matcher, const int32_t * token_ids, size_t n, size_t * n_accepted,
                              pyg_error * err) {
    *n_accepted = 0;
    return pyg::with(matcher, err, [&](TextMatcher & text) {
        for (size_t i = 0; i < n; i++) {
            text.grammar().model->require_token(token_ids[i], static_cast<int32_t>(i));
        }
        while (*n_accepted < n && text.accept(token_ids[*n_accepted])) {
            ++*n_accepted;
        }
    });
}

pyg_status pyg_matcher_rollback(pyg_matcher * matcher, size_t n, pyg_error * err) {
    return pyg::with(matcher, err, [&](TextMatcher & text) {
        if (n > text.n_accepted()) {
            throw fail(PYG_ERR_INVALID_PARAMETER, "cannot take back %zu tokens: only %zu were accepted", n,
                       text.n_accepted());
        }
        text.rollback(n);
    });
}

pyg_status pyg_matcher_reset(pyg_matcher * matcher, pyg_error * err) {
    return pyg::with(matcher, err, [](TextMatcher & text) { text.reset(); });
}

pyg_status pyg_matcher_forced(pyg_matcher * matcher, int32_t * token_ids, size_t n_max, size_t * n_forced,
                              pyg_error * err) {
    return pyg::with(matcher, err, [&](TextMatcher & text) {
        const std::vector<int32_t> forced = text.forced(n_max);
        std::copy(forced.begin(), forced.end(), token_ids);
        *n_forced = forced.size();
    });
}

pyg_status pyg_matcher_get_state(pyg_matcher * matcher, pyg_matcher_state * out, pyg_error * err) {
    return pyg::with(matcher, err,
                     [&](TextMatcher & text) { *out = {text.n_accepted(), text.is_complete(), text.is_terminated()}; });
}
