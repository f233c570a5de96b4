// Log-probabilities of tokens: log-softmax of logits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pyg {

constexpr int32_t MAX_LOGPROBS = 1000;  // most alternatives of a token

// PYG_ERR_ENGINE: the model produced logits that are not numbers.
[[noreturn]] void fail_invalid_logits();

// Maximum of `n` values, ignoring NaNs.
float maximum(const float * values, int32_t n);

// Logprobs of one token.
struct Logprobs {
    float                logprob = 0;
    std::vector<int32_t> top_ids;  // likeliest alternatives, likeliest first; ties by lower id
    std::vector<float>   top;      // their log-probabilities
};

// Compute the logprobs of token `token_id` and the `n_top` likeliest (may be 0) from `row`: (n_vocab,), in one pass.
// PYG_ERR_ENGINE when the row has no numbers.
void logprobs_of(const float * row, int32_t n_vocab, int32_t token_id, int32_t n_top, Logprobs & out);

// Logprobs of several tokens, with k alternatives each.
struct LogprobRows {
    std::vector<float>   logprobs;  // (n,)
    std::vector<int32_t> top_ids;   // (n, k)
    std::vector<float>   top;       // (n, k)

    void resize(size_t n, size_t k) {
        logprobs.resize(n);
        top_ids.resize(n * k);
        top.resize(n * k);
    }
};

// Logprobs of a growing sequence of tokens.
class LogprobTable {
  public:
    LogprobTable() = default;
    // PYG_ERR_INVALID_PARAMETER unless n_top is 0 to MAX_LOGPROBS; limited to `n_vocab`. 0: record nothing.
    LogprobTable(const char * name, int32_t n_top, int32_t n_vocab);

    bool    wanted() const { return n_top_ > 0; }
    int32_t n_top() const { return n_top_; }
    size_t  size() const { return rows_.logprobs.size(); }
    void    append(const Logprobs & one);
    void    append(const LogprobRows & rows);  // each with n_top() alternatives

    // Copy rows [first, first + n). logprobs: (n,); top_ids, top: (n, n_top). PYG_ERR_INVALID_PARAMETER if there are no
    // such rows.
    void copy(int32_t first, int32_t n, float * logprobs, int32_t * top_ids, float * top) const;

  private:
    int32_t     n_top_ = 0;
    LogprobRows rows_;
};

}  // namespace pyg
