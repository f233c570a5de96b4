// What the model itself thought of tokens: log-softmax of its logits as they came, before anything changes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pyg {

constexpr int32_t MAX_LOGPROBS = 1000;  // alternatives of a token

// Of one token.
struct Logprobs {
    float                logprob = 0;
    std::vector<int32_t> top_ids;  // the likeliest alternatives, likeliest first, of equals the lower id
    std::vector<float>   top;      // their log-probabilities
};

// Of token `token_id` and the `n_top` likeliest (which may be 0), by `row`: (n_vocab,). Walks the row once.
// PYG_ERR_ENGINE when it holds no number.
void logprobs_of(const float * row, int32_t n_vocab, int32_t token_id, int32_t n_top, Logprobs & out);

// Of a row of tokens, which grows at its end.
class LogprobTable {
  public:
    LogprobTable() = default;
    // PYG_ERR_INVALID_PARAMETER for an n_top outside 0 to MAX_LOGPROBS; no more than `n_vocab` are kept. 0: nothing is.
    LogprobTable(const char * name, int32_t n_top, int32_t n_vocab);

    bool    wanted() const { return n_top_ > 0; }
    int32_t n_top() const { return n_top_; }
    size_t  size() const { return logprobs_.size(); }
    void    append(const Logprobs & one);

    // Rows [first, first + n). logprobs: (n,); top_ids, top: (n, n_top). PYG_ERR_INVALID_PARAMETER without such rows.
    void copy(int32_t first, int32_t n, float * logprobs, int32_t * top_ids, float * top) const;

  private:
    int32_t              n_top_ = 0;
    std::vector<float>   logprobs_;
    std::vector<int32_t> top_ids_;
    std::vector<float>   top_;
};

}  // namespace pyg
