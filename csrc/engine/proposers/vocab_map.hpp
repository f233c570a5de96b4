// Tokens of a draft model for those of the model that it drafts for, and back, by their texts.
#pragma once

#include "llama.h"

#include <cstdint>
#include <string>
#include <vector>

namespace pyg {

// Vocabularies of one family differ in padding, in special tokens, or in the order of their tokens. What is equal is
// mapped token by token; a token of the model that the draft lacks is spelled in its tokens.
class VocabMap {
  public:
    // PYG_ERR_INVALID_PARAMETER, which names the draft `name`, if less than half of the vocabularies is equal.
    VocabMap(const llama_vocab * model, const llama_vocab * draft, const std::string & name);

    // Append the draft's tokens for a token of the model. There may be none: of a special token that the draft lacks.
    void   append(int32_t token_id, std::vector<int32_t> & draft_ids) const;
    size_t n_of(int32_t token_id) const { return ends_[static_cast<size_t>(token_id)] - begin(token_id); }
    // The model's token for one of the draft; -1: it has none.
    int32_t to_model(int32_t draft_id) const { return to_model_[static_cast<size_t>(draft_id)]; }

  private:
    uint32_t begin(int32_t token_id) const { return token_id == 0 ? 0 : ends_[static_cast<size_t>(token_id) - 1]; }

    std::vector<int32_t>  to_model_;
    std::vector<int32_t>  spelled_;  // tokens of the draft, one model token after the other
    std::vector<uint32_t> ends_;     // of each model token in spelled_
};

}  // namespace pyg
