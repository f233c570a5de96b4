// Vocabularies: tokenize and detokenize. Upstream's functions are thread-safe, so nothing is locked.
#include "boundary/handles.hpp"
#include "boundary/large_stack.hpp"
#include "llama-vocab.h"
#include "model/tokenize.hpp"

#include <algorithm>
#include <cstring>
#include <string>

namespace {

using pyg::fail;
using pyg::Model;

void require_special(llama_token id, const char * which, const Model & model) {
    if (id == LLAMA_TOKEN_NULL) {
        throw fail(PYG_ERR_TOKENIZER,
                   "%s asks for a %s token around each text, but its vocabulary has none: tokenize with add_special "
                   "off",
                   model.path.c_str(), which);
    }
}

// Upstream asserts that the special tokens it adds exist.
void require_special_tokens(const Model & model) {
    const llama_vocab * vocab = model.vocab;
    if (llama_vocab_type(vocab) == LLAMA_VOCAB_TYPE_WPM) {
        require_special(llama_vocab_bos(vocab), "CLS", model);
        require_special(llama_vocab_sep(vocab), "SEP", model);
        return;
    }
    if (llama_vocab_get_add_bos(vocab)) {
        require_special(llama_vocab_bos(vocab), "BOS", model);
    }
    if (llama_vocab_get_add_eos(vocab)) {
        require_special(llama_vocab_eos(vocab), "EOS", model);
    }
}

int32_t checked_length(size_t length, const char * what) {
    if (length > INT32_MAX) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "%s of %s is too long: one call takes at most %s", what,
                   pyg::bytes_text(length).c_str(), pyg::bytes_text(INT32_MAX).c_str());
    }
    return static_cast<int32_t>(length);
}

constexpr size_t LONG_RUN         = 1 << 20;  // bytes
constexpr size_t MATCH_BYTES_EACH = 400;      // stack used to match one character

bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// Length of the longest run of only blanks or of no blanks.
size_t longest_run(const char * text, size_t length) {
    size_t longest = 0, start = 0;
    for (size_t i = 1; i <= length; i++) {
        if (i == length || is_blank(text[i]) != is_blank(text[start])) {
            longest = std::max(longest, i - start);
            start   = i;
        }
    }
    return longest;
}

// Matching a very long word recurses once per character: the stack can be reserved, but touching it may exceed the
// available memory.
void require_matchable(const char * text, size_t length) {
    if (length < LONG_RUN) {
        return;
    }
    const uint64_t required  = static_cast<uint64_t>(longest_run(text, length)) * MATCH_BYTES_EACH;
    const uint64_t available = pyg_memory_available();
    if (required > available) {
        throw pyg::fail_out_of_memory("tokenizing such a long run of characters without a break", required, available);
    }
}

// If the buffer is too small, upstream returns the required length, negated.
int32_t needed(int32_t result) { return result < 0 ? -result : result; }

// Write the ids with a property, ascending, if they fit. Return how many there are.
template <class Has>
int32_t ids_of(pyg_model * model, int32_t * token_ids, int32_t n_max, Has && has) {
    const auto           shared = pyg::shared_object(model);
    std::vector<int32_t> found;
    for (int32_t id = 0; id < shared->n_vocab(); id++) {
        if (has(shared->vocab, id)) {
            found.push_back(id);
        }
    }
    if (found.size() <= static_cast<size_t>(n_max)) {
        std::copy(found.begin(), found.end(), token_ids);
    }
    return static_cast<int32_t>(found.size());
}

// Tokens that llama_tokenize recognises only with parse_special, unlike user-defined ones.
bool is_special(const llama_vocab * vocab, llama_token id) {
    constexpr int SPECIAL = LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_UNKNOWN;
    return llama_vocab_type(vocab) != LLAMA_VOCAB_TYPE_NONE && (llama_vocab_get_attr(vocab, id) & SPECIAL) != 0;
}

// Tokenize into a buffer. Return the number of tokens; if it exceeds `n_max`, nothing is written.
int32_t tokenize_into(const Model & model, const char * text, size_t text_len, bool add_special, bool parse_special,
                      int32_t * token_ids, int32_t n_max) {
    const int32_t length = checked_length(text_len, "a text");
    int32_t       result = 0;
    require_matchable(text, text_len);
    pyg::with_stack_for(text_len, [&] {
        result = llama_tokenize(model.vocab, text, length, token_ids, n_max, add_special, parse_special);
    });
    if (result == INT32_MIN) {
        throw fail(PYG_ERR_TOKENIZER, "the text has too many tokens to count: tokenize it in parts");
    }
    return needed(result);
}

}  // namespace

namespace pyg {

std::shared_ptr<Model> shared_with_vocabulary(pyg_model * handle) {
    auto model = shared_object(handle);
    if (llama_vocab_type(model->vocab) == LLAMA_VOCAB_TYPE_NONE) {
        throw fail(PYG_ERR_TOKENIZER, "%s has no vocabulary, so it cannot turn text into tokens or back",
                   model->path.c_str());
    }
    return model;
}

std::vector<llama_token> tokenize(const Model & model, const char * text, size_t text_len, bool parse_special) {
    // Rarely more tokens than bytes: a space that some vocabularies prepend.
    std::vector<llama_token> ids(std::min<size_t>(text_len + 8, INT32_MAX));
    for (;;) {
        const int32_t n =
            tokenize_into(model, text, text_len, false, parse_special, ids.data(), static_cast<int32_t>(ids.size()));
        const bool fits = static_cast<size_t>(n) <= ids.size();
        ids.resize(static_cast<size_t>(n));
        if (fits) {
            return ids;
        }
    }
}

}  // namespace pyg

pyg_status pyg_vocab_get_info(pyg_model * model, pyg_vocab_info * out, pyg_error * err) {
    return pyg::guard(err, [&] {
        const auto          shared = pyg::shared_object(model);
        const llama_vocab * vocab  = shared->vocab;
        pyg_vocab_info      info   = {};
        info.type                  = llama_vocab_type(vocab);
        info.n_tokens              = llama_vocab_n_tokens(vocab);
        info.bos                   = llama_vocab_bos(vocab);
        info.eos                   = llama_vocab_eos(vocab);
        info.eot                   = llama_vocab_eot(vocab);
        info.sep                   = llama_vocab_sep(vocab);
        info.nl                    = llama_vocab_nl(vocab);
        info.pad                   = llama_vocab_pad(vocab);
        info.mask                  = llama_vocab_mask(vocab);
        info.fim_pre               = llama_vocab_fim_pre(vocab);
        info.fim_suf               = llama_vocab_fim_suf(vocab);
        info.fim_mid               = llama_vocab_fim_mid(vocab);
        info.fim_pad               = llama_vocab_fim_pad(vocab);
        info.fim_rep               = llama_vocab_fim_rep(vocab);
        info.fim_sep               = llama_vocab_fim_sep(vocab);
        info.add_bos               = llama_vocab_get_add_bos(vocab);
        info.add_eos               = llama_vocab_get_add_eos(vocab);
        info.add_sep               = llama_vocab_get_add_sep(vocab);
        *out                       = info;
    });
}

pyg_status pyg_vocab_token(pyg_model * model, int32_t token_id, pyg_token_info * out, pyg_error * err) {
    return pyg::guard(err, [&] {
        const auto shared = pyg::shared_with_vocabulary(model);
        shared->require_token(token_id, 0);
        const llama_vocab * vocab = shared->vocab;
        out->score                = llama_vocab_get_score(vocab, token_id);
        out->attr                 = llama_vocab_get_attr(vocab, token_id);
        out->is_eog               = llama_vocab_is_eog(vocab, token_id);
        out->is_control           = llama_vocab_is_control(vocab, token_id);
    });
}

pyg_status pyg_vocab_text(pyg_model * model, int32_t token_id, char * buf, size_t size, size_t * len_out,
                          pyg_error * err) {
    return pyg::guard(err, [&] {
        const auto shared = pyg::shared_with_vocabulary(model);
        shared->require_token(token_id, 0);
        const char * const text = llama_vocab_get_text(shared->vocab, token_id);
        *len_out                = std::strlen(text);
        if (*len_out <= size) {
            std::memcpy(buf, text, *len_out);
        }
    });
}

pyg_status pyg_vocab_eog_ids(pyg_model * model, int32_t * token_ids, int32_t n_max, int32_t * n_out, pyg_error * err) {
    return pyg::guard(err, [&] { *n_out = ids_of(model, token_ids, n_max, llama_vocab_is_eog); });
}

pyg_status pyg_vocab_special_ids(pyg_model * model, int32_t * token_ids, int32_t n_max, int32_t * n_out,
                                 pyg_error * err) {
    return pyg::guard(err, [&] { *n_out = ids_of(model, token_ids, n_max, is_special); });
}

pyg_status pyg_vocab_find(pyg_model * model, const char * text, size_t text_len, int32_t * out, pyg_error * err) {
    return pyg::guard(err, [&] {
        const auto shared = pyg::shared_with_vocabulary(model);
        *out              = shared->vocab->text_to_token(std::string(text, text_len));
    });
}

pyg_status pyg_vocab_tokenize(pyg_model * model, const char * text, size_t text_len, bool add_special,
                              bool parse_special, int32_t * token_ids, int32_t n_max, int32_t * n_out,
                              pyg_error * err) {
    return pyg::guard(err, [&] {
        const auto shared = pyg::shared_with_vocabulary(model);
        if (add_special) {
            require_special_tokens(*shared);
        }
        *n_out = tokenize_into(*shared, text, text_len, add_special, parse_special, token_ids, n_max);
    });
}

pyg_status pyg_vocab_piece(pyg_model * model, int32_t token_id, bool special, char * buf, size_t size, size_t * len_out,
                           pyg_error * err) {
    return pyg::guard(err, [&] {
        const auto shared = pyg::shared_with_vocabulary(model);
        shared->require_token(token_id, 0);
        const int32_t length = checked_length(size, "a buffer");
        const int32_t result = llama_token_to_piece(shared->vocab, token_id, buf, length, 0, special);
        *len_out             = static_cast<size_t>(needed(result));
    });
}

pyg_status pyg_vocab_detokenize(pyg_model * model, const int32_t * token_ids, int32_t n, bool remove_special,
                                bool unparse_special, char * buf, size_t size, size_t * len_out, pyg_error * err) {
    return pyg::guard(err, [&] {
        const auto shared = pyg::shared_with_vocabulary(model);
        for (int32_t i = 0; i < n; i++) {
            shared->require_token(token_ids[i], i);
        }
        const int32_t length = checked_length(size, "a buffer");
        const int32_t result =
            llama_detokenize(shared->vocab, token_ids, n, buf, length, remove_special, unparse_special);
        *len_out = static_cast<size_t>(needed(result));
    });
}
