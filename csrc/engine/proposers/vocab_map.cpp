#include "engine/proposers/vocab_map.hpp"

#include "boundary/guard.hpp"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace {

// Tokens of a vocabulary. A special token never equals one of a text.
struct Vocab {
    std::vector<std::string>                 texts;
    std::vector<bool>                        is_special;
    std::unordered_map<std::string, int32_t> normal, special;  // the first token of each text
    size_t                                   longest = 0;      // text, in bytes

    explicit Vocab(const llama_vocab * vocab) {
        constexpr int SPECIAL = LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_UNKNOWN | LLAMA_TOKEN_ATTR_UNUSED;
        for (int32_t id = 0; id < llama_vocab_n_tokens(vocab); id++) {
            texts.push_back(text_of(vocab, id));
            is_special.push_back((llama_vocab_get_attr(vocab, id) & SPECIAL) != 0);
            if (!texts.back().empty()) {
                (is_special.back() ? special : normal).emplace(texts.back(), id);
                longest = std::max(longest, is_special.back() ? 0 : texts.back().size());
            }
        }
    }

    int32_t size() const { return static_cast<int32_t>(texts.size()); }

    // The token that equals `id` of `other`, that of the same number if there are several; -1: there is none.
    int32_t equal_of(const Vocab & other, int32_t id) const {
        const auto i = static_cast<size_t>(id);
        if (i < texts.size() && texts[i] == other.texts[i] && is_special[i] == other.is_special[i]) {
            return id;
        }
        const auto & tokens = other.is_special[i] ? special : normal;
        const auto   found  = tokens.find(other.texts[i]);
        return found == tokens.end() ? -1 : found->second;
    }

    // Append the tokens of a text, always the longest that fits. Return false if a byte has none.
    bool spell(const std::string & text, std::vector<int32_t> & ids) const {
        for (size_t at = 0; at < text.size();) {
            size_t n     = std::min(longest, text.size() - at);
            auto   found = normal.end();
            for (; n > 0 && found == normal.end(); n--) {
                found = normal.find(text.substr(at, n));
            }
            if (found == normal.end()) {
                return false;
            }
            ids.push_back(found->second);
            at += found->first.size();
        }
        return true;
    }

  private:
    static std::string text_of(const llama_vocab * vocab, int32_t id) {
        std::string text(64, '\0');
        int32_t     n = llama_token_to_piece(vocab, id, text.data(), static_cast<int32_t>(text.size()), 0, true);
        if (n < 0) {
            text.resize(static_cast<size_t>(-n));
            n = llama_token_to_piece(vocab, id, text.data(), -n, 0, true);
        }
        text.resize(static_cast<size_t>(std::max(n, 0)));
        return text;
    }
};

// Special tokens of the same purpose, whatever their texts.
std::vector<std::pair<int32_t, int32_t>> counterparts(const llama_vocab * model, const llama_vocab * draft) {
    return {{llama_vocab_bos(model), llama_vocab_bos(draft)},
            {llama_vocab_eos(model), llama_vocab_eos(draft)},
            {llama_vocab_eot(model), llama_vocab_eot(draft)}};
}

}  // namespace

namespace pyg {

VocabMap::VocabMap(const llama_vocab * model, const llama_vocab * draft, const std::string & name) {
    if (llama_vocab_type(model) == LLAMA_VOCAB_TYPE_NONE || llama_vocab_type(draft) == LLAMA_VOCAB_TYPE_NONE) {
        throw fail(PYG_ERR_INVALID_PARAMETER,
                   "%s cannot draft for this model: one of them has no vocabulary, so their tokens cannot be compared",
                   name.c_str());
    }
    const Vocab of_model(model), of_draft(draft);
    const auto  pairs   = counterparts(model, draft);
    int32_t     n_equal = 0, n_unspelled = 0;
    for (int32_t id = 0; id < of_model.size(); id++) {
        int32_t equal = of_draft.equal_of(of_model, id);
        for (const auto & [of_one, of_other] : pairs) {
            equal = equal < 0 && id == of_one ? of_other : equal;
        }
        if (equal >= 0) {
            n_equal++;
            spelled_.push_back(equal);
        } else if (!of_model.is_special[static_cast<size_t>(id)]) {
            n_unspelled += !of_draft.spell(of_model.texts[static_cast<size_t>(id)], spelled_);
        }
        ends_.push_back(static_cast<uint32_t>(spelled_.size()));
    }
    // A draft that cuts texts in other places guesses tokens that the model seldom chooses.
    if (2 * n_equal < std::max(of_model.size(), of_draft.size()) || n_unspelled > 0) {
        throw fail(PYG_ERR_INVALID_PARAMETER,
                   "%s cannot draft for this model: its vocabulary is another one, of %d tokens, of which %d are among "
                   "the model's %d; use a smaller model of the same family",
                   name.c_str(), of_draft.size(), n_equal, of_model.size());
    }
    for (int32_t id = 0; id < of_draft.size(); id++) {
        to_model_.push_back(of_model.equal_of(of_draft, id));
    }
}

void VocabMap::append(int32_t token_id, std::vector<int32_t> & draft_ids) const {
    draft_ids.insert(draft_ids.end(), spelled_.begin() + begin(token_id),
                     spelled_.begin() + ends_[static_cast<size_t>(token_id)]);
}

}  // namespace pyg
